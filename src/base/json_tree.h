// Reading JSON: every file, reply and request goes through this one reader.
//
// A JsonTree is a parsed text; a Json is one value in it, cheap to copy, and lives as long as the tree. Nothing is
// converted before it is asked for, so integers of any size keep their digits, and every value knows its place in
// the text. Order of keys is that of the text. No allocation is freed one by one: a tree of any shape goes in
// constant stack and time. Thread rule: immutable after parse.
#pragma once

#include <charconv>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/json_depth.h"

namespace kvfork::base {

/// What is read beyond RFC 8259, and how deep.
struct JsonRules {
  bool non_finite = false;       ///< NaN, Infinity and -Infinity are numbers: Python writes them
  bool lone_surrogates = false;  ///< "\ud800" is a string; as_string() gives its generalized UTF-8
  size_t max_depth = kMaxJsonDepth;

  /// As Python's json module reads.
  static constexpr JsonRules python() { return {.non_finite = true, .lone_surrogates = true}; }
};

/// Why a text is not JSON: what was expected, and at which byte.
struct JsonProblem {
  std::string expected;
  size_t position = 0;
  bool is_too_deep = false;
};

enum class JsonKind : uint8_t { Null, False, True, Integer, Real, String, List, Object };

namespace detail {

// One value, or one key before its value.
struct JsonNode {
  uint32_t begin = 0;  // the value's text
  uint32_t end = 0;
  uint32_t link = 0;  // of a list or object: the node behind it; of a string with escapes: where its characters are
  JsonKind kind = JsonKind::Null;
  bool has_escapes = false;
};

struct JsonNodes {
  std::string text;
  std::string subject;
  std::vector<JsonNode> nodes;
  std::string unescaped;  // strings, each with its length before it

  /// The node behind one and everything inside it.
  uint32_t next(uint32_t index) const noexcept {
    const JsonNode& node = nodes[index];
    return node.kind == JsonKind::List || node.kind == JsonKind::Object ? node.link : index + 1;
  }
};

}  // namespace detail

class Json {
 public:
  JsonKind kind() const noexcept { return node().kind; }
  bool is_null() const noexcept { return kind() == JsonKind::Null; }
  bool is_bool() const noexcept { return kind() == JsonKind::True || kind() == JsonKind::False; }
  bool is_integer() const noexcept { return kind() == JsonKind::Integer; }
  bool is_number() const noexcept { return is_integer() || kind() == JsonKind::Real; }
  bool is_string() const noexcept { return kind() == JsonKind::String; }
  bool is_list() const noexcept { return kind() == JsonKind::List; }
  bool is_object() const noexcept { return kind() == JsonKind::Object; }

  /// The member, or nothing when it is absent or null; of repeated keys the last counts, as in Python. Throws
  /// Error{Corrupt} when this is no object, as each of the following does for another kind.
  std::optional<Json> find(std::string_view key) const;
  /// The member. Throws Error{Corrupt} when it is absent or null.
  Json get(std::string_view key) const;
  /// Whether the member is there, be it null.
  bool has(std::string_view key) const { return find_any(key).has_value(); }

  std::string_view as_string() const;
  bool as_bool() const;
  double as_double() const;
  /// An integer; one beyond int64 is clamped.
  int64_t as_int() const;
  /// The number when it is an integer that fits, else nothing.
  template <std::integral T>
  std::optional<T> to() const noexcept;

  /// The text when this is an object whose member is a string, else nothing: for what may be anything.
  std::optional<std::string_view> find_string(std::string_view key) const;
  std::string_view string_or(std::string_view key, std::string_view fallback) const;
  bool bool_or(std::string_view key, bool fallback) const;

  /// Items of a list and members of an object: for (const Json item : json.items()),
  /// for (const auto& [key, value] : json.members()).
  class Items;
  class Members;
  Items items() const;
  Members members() const;
  /// The items, to be taken by index.
  std::vector<Json> list() const;
  /// Items or members, counted one by one.
  size_t size() const noexcept;

  /// The value as it is written.
  std::string_view raw() const noexcept;
  /// File and field, for messages: "tokenizer.json.model.vocab", "config.json.layer_types[3]".
  std::string where() const;
  /// For messages: `the string "abc"`, `the number 3`, `null`, `an object`, `a list`.
  std::string describe() const;
  /// Throws Error{Corrupt} "WHERE: expected WHAT, found ...".
  [[noreturn]] void expected(std::string_view what) const;

 private:
  friend class JsonTree;
  Json(const detail::JsonNodes* tree, uint32_t index) noexcept : tree_(tree), index_(index) {}

  const detail::JsonNode& node() const noexcept { return tree_->nodes[index_]; }
  std::string_view text() const noexcept;  // of a string
  std::optional<Json> find_any(std::string_view key) const;

  const detail::JsonNodes* tree_;
  uint32_t index_;
};

class JsonTree {
 public:
  /// Throws Error{Corrupt} "SUBJECT: expected JSON, found ... at line L, column C (byte B)". The text is RFC 8259
  /// (no comments, nothing after the value) but for what `rules` allow.
  static JsonTree parse(std::string text, std::string_view subject, const JsonRules& rules = {});
  /// The same without an error: nothing where the text is not JSON; `problem`, where given, says why.
  static std::optional<JsonTree> try_parse(std::string text, std::string_view subject = {},
                                           const JsonRules& rules = {}, JsonProblem* problem = nullptr);

  Json root() const noexcept { return {tree_.get(), 0}; }

 private:
  explicit JsonTree(std::unique_ptr<const detail::JsonNodes> tree) : tree_(std::move(tree)) {}

  std::unique_ptr<const detail::JsonNodes> tree_;
};

/// "line L, column C (byte B)" of a byte position; lines and columns count from 1, columns in bytes.
std::string describe_json_position(std::string_view text, size_t position);

class Json::Items {
 public:
  class Iterator {
   public:
    Json operator*() const noexcept { return {tree_, index_}; }
    Iterator& operator++() noexcept {
      index_ = tree_->next(index_);
      return *this;
    }
    bool operator==(const Iterator& other) const noexcept { return index_ == other.index_; }

   private:
    friend class Items;
    Iterator(const detail::JsonNodes* tree, uint32_t index) noexcept : tree_(tree), index_(index) {}
    const detail::JsonNodes* tree_;
    uint32_t index_;
  };
  Iterator begin() const noexcept { return {list_.tree_, list_.index_ + 1}; }
  Iterator end() const noexcept { return {list_.tree_, list_.tree_->next(list_.index_)}; }
  bool empty() const noexcept { return begin() == end(); }

 private:
  friend class Json;
  explicit Items(Json list) noexcept : list_(list) {}
  Json list_;
};

class Json::Members {
 public:
  struct Member {
    std::string_view key;
    Json value;
  };
  class Iterator {
   public:
    Member operator*() const noexcept { return {Json(tree_, index_).text(), Json(tree_, index_ + 1)}; }
    Iterator& operator++() noexcept {
      index_ = tree_->next(index_ + 1);
      return *this;
    }
    bool operator==(const Iterator& other) const noexcept { return index_ == other.index_; }

   private:
    friend class Members;
    Iterator(const detail::JsonNodes* tree, uint32_t index) noexcept : tree_(tree), index_(index) {}
    const detail::JsonNodes* tree_;
    uint32_t index_;
  };
  Iterator begin() const noexcept { return {object_.tree_, object_.index_ + 1}; }
  Iterator end() const noexcept { return {object_.tree_, object_.tree_->next(object_.index_)}; }
  bool empty() const noexcept { return begin() == end(); }

 private:
  friend class Json;
  explicit Members(Json object) noexcept : object_(object) {}
  Json object_;
};

template <std::integral T>
std::optional<T> Json::to() const noexcept {
  T value = 0;
  const std::string_view number = raw();
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), value);
  if (!is_integer() || error != std::errc() || end != number.data() + number.size()) return std::nullopt;
  return value;
}

}  // namespace kvfork::base
