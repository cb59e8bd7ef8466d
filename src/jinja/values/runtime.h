// One rendering in progress: its bounds, its memory, where it is, and the values it makes.
//
// Owned by one thread. Every failure leaves as kvfork::Error: code Template with "SUBJECT: line L, column C: ...",
// or code Limit naming the bound that was reached.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "jinja/values/value.h"
#include "kvfork/error.h"

namespace kvfork::jinja {

/// The bounds of one rendering. A template that needs more is broken or hostile.
struct Limits {
  size_t steps = 20'000'000;          ///< expressions, statements and items looked at
  size_t depth = 1500;                ///< expressions, blocks and macro calls inside one another
  size_t memory = size_t{512} << 20;  ///< bytes of values alive at once
  size_t output = size_t{128} << 20;  ///< bytes of text written and not yet consumed
  uint32_t nesting = 400;             ///< lists and dicts inside one another
  uint32_t weight = 1u << 26;         ///< items and text that one value may hold, shared parts counted again
};

/// The wall clock that strftime_now reads: a local time, broken down.
struct LocalTime {
  int year = 1970, month = 1, day = 1, hour = 0, minute = 0, second = 0, microsecond = 0;
};

/// Where a byte of the source is, for messages; both from 1, columns in characters.
struct SourcePosition {
  size_t line = 1;
  size_t column = 1;
};
SourcePosition locate(std::string_view source, size_t offset) noexcept;

class Runtime {
 public:
  Runtime(const Limits& limits, std::string_view subject, std::string_view source, const LocalTime& now);
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  /// Counts work; fails with Limit when there was too much of it.
  void step(size_t n = 1) {
    if (n > steps_left_) fail_limit("steps", limits_.steps);
    steps_left_ -= n;
  }

  /// Says which byte of the source is being evaluated, for messages.
  void at(uint32_t offset) noexcept { offset_ = offset; }

  /// `type` is Python's exception name.
  [[noreturn]] void fail(std::string_view type, std::string_view message) const;
  [[noreturn]] void fail_undefined(const Value& undefined) const;
  [[noreturn]] void fail_raised(std::string_view message) const;  ///< raise_exception
  [[noreturn]] void fail_limit(std::string_view what, size_t bound) const;

  /// Fails unless `n_bytes` more fit the memory bound. Call before building something large.
  void reserve(size_t n_bytes) const {
    if (n_bytes > budget_.limit - budget_.used) fail_limit("bytes of memory", limits_.memory);
  }

  /// Checks the text being written to all open outputs, and counts what is added or taken back.
  void count_output(size_t n_bytes) {
    output_ += n_bytes;
    if (output_ > limits_.output) fail_limit("bytes of output", limits_.output);
  }
  void uncount_output(size_t n_bytes) noexcept { output_ -= n_bytes; }

  Value string(std::string text, bool markup = false);
  Value string(std::string_view text) { return string(std::string(text)); }
  Value string(const char* text) { return string(std::string(text)); }
  Value list(std::vector<Value> items) { return sequence(Kind::List, std::move(items)); }
  Value tuple(std::vector<Value> items) { return sequence(Kind::Tuple, std::move(items)); }
  Value pair(Value first, Value second);
  Value dict(std::unique_ptr<Dict> dict);
  Value big_integer(std::string digits);
  Value undefined(std::string message);
  Value undefined_name(std::string_view name);
  /// What looking up a missing item or attribute of `object` gives.
  Value undefined_member(const Value& object, const Value& name);
  Value unsafe_attribute(const Value& object, std::string_view name);
  Value view(const Value& dict, View::Part part);
  Value bound(const Function& function, Value self);

  /// Takes ownership of a new object and counts its memory.
  template <typename T>
  T* adopt(std::unique_ptr<T> object, size_t n_bytes = sizeof(T)) {
    count_memory(*object, n_bytes);
    return object.release();
  }

  /// Keeps `object` until the end of the rendering and empties it then: for what may be part of a reference cycle.
  void keep(Object* object);

  const LocalTime& now() const noexcept { return now_; }
  const Limits& limits() const noexcept { return limits_; }
  uint32_t offset() const noexcept { return offset_; }

  /// One level deeper while alive.
  class Deeper {
   public:
    explicit Deeper(Runtime& rt) : rt_(rt) {
      if (++rt_.depth_ > rt_.limits_.depth) {
        --rt_.depth_;
        rt_.fail_limit("levels of depth", rt_.limits_.depth);
      }
    }
    ~Deeper() { --rt_.depth_; }
    Deeper(const Deeper&) = delete;
    Deeper& operator=(const Deeper&) = delete;

   private:
    Runtime& rt_;
  };

  /// Sets depth and weight of a container from one of its parts; fails where the bounds are passed.
  void add_part(Object& container, const Value& part) const;
  /// The depth alone: for an object whose parts come and go.
  void add_depth(Object& container, const Value& part) const;

 private:
  Value sequence(Kind kind, std::vector<Value> items);
  void count_memory(Object& object, size_t n_bytes);
  std::string where() const;

  Limits limits_;
  std::string_view subject_;
  std::string_view source_;
  LocalTime now_;
  size_t steps_left_;
  size_t depth_ = 0;
  size_t output_ = 0;
  uint32_t offset_ = 0;
  Budget budget_;
  std::vector<Value> kept_;
};

/// Text under construction that counts against the output bound.
class Output {
 public:
  explicit Output(Runtime& rt) : rt_(rt) {}
  ~Output() { rt_.uncount_output(text_.size()); }
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  void append(std::string_view text) {
    rt_.count_output(text.size());
    text_.append(text);
  }
  std::string take() {
    rt_.uncount_output(text_.size());
    return std::exchange(text_, std::string());
  }

 private:
  Runtime& rt_;
  std::string text_;
};

}  // namespace kvfork::jinja
