// What template expressions compute with: Python's basic types, and the few objects that Jinja adds.
//
// A Value is a small scalar or a reference to a counted Object. Objects are immutable once built (the sandbox
// forbids the methods that would change them), except Frame, Namespace, Cycler, Joiner and iterators. Thread rule:
// reference counts are not atomic. Objects belong to one rendering; constants of a template are immortal (never
// counted), so that many threads may render one template.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace kvfork::jinja {

class Runtime;
class Value;
struct Function;

enum class Kind : uint8_t {
  Missing,  ///< no value: an argument not given, a variable not set
  None,
  Bool,
  Int,
  Float,
  // From here on the Value holds an Object.
  Undefined,
  BigInt,  ///< an integer beyond 64 bits, kept as decimal text: prints and compares, computes nothing
  String,
  List,
  Tuple,
  Dict,
  View,  ///< dict.keys(), .values(), .items()
  Range,
  Iterator,
  Namespace,
  Macro,
  Function,
  Loop,
  Cycler,
  Joiner,
  Frame,
};

/// Bytes in use by one rendering; see Runtime.
struct Budget {
  size_t used = 0;
  size_t limit = 0;
};

struct Object {
  explicit Object(Kind kind_in) : kind(kind_in) {}
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  virtual ~Object() {
    if (budget != nullptr) budget->used -= bytes;
  }

  static constexpr int32_t kImmortal = -1;
  int32_t refs = 0;
  Kind kind;
  uint16_t depth = 0;   ///< containers inside one another below this one; bounds every recursion over values
  uint32_t weight = 1;  ///< items and text of all that it holds, shared parts counted again; bounds a walk's time
  Budget* budget = nullptr;
  size_t bytes = 0;
};

/// A counted reference; null allowed.
template <typename T>
class Ref {
 public:
  Ref() = default;
  explicit Ref(T* object) : object_(object) { retain(); }
  Ref(const Ref& other) : object_(other.object_) { retain(); }
  Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Ref& operator=(Ref other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Ref() { release(); }

  T* get() const noexcept { return object_; }
  T* operator->() const noexcept { return object_; }
  T& operator*() const noexcept { return *object_; }
  explicit operator bool() const noexcept { return object_ != nullptr; }

 private:
  void retain() noexcept {
    if (object_ != nullptr && object_->refs >= 0) ++object_->refs;
  }
  void release() noexcept {
    if (object_ != nullptr && object_->refs >= 0 && --object_->refs == 0) delete object_;
  }
  T* object_ = nullptr;
};

class Value {
 public:
  Value() noexcept : kind_(Kind::Missing) { payload_.integer = 0; }
  Value(const Value& other) noexcept : kind_(other.kind_), payload_(other.payload_) { retain(); }
  Value(Value&& other) noexcept : kind_(other.kind_), payload_(other.payload_) { other.kind_ = Kind::Missing; }
  Value& operator=(const Value& other) noexcept {
    Value copy(other);
    swap(copy);
    return *this;
  }
  Value& operator=(Value&& other) noexcept {
    swap(other);
    return *this;
  }
  ~Value() { release(); }

  static Value none() noexcept { return Value(Kind::None); }
  static Value boolean(bool value) noexcept {
    Value out(Kind::Bool);
    out.payload_.integer = value ? 1 : 0;
    return out;
  }
  static Value integer(int64_t value) noexcept {
    Value out(Kind::Int);
    out.payload_.integer = value;
    return out;
  }
  static Value real(double value) noexcept {
    Value out(Kind::Float);
    out.payload_.real = value;
    return out;
  }
  static Value object(Object* object) noexcept {
    Value out(object->kind);
    out.payload_.object = object;
    out.retain();
    return out;
  }

  Kind kind() const noexcept { return kind_; }
  bool is(Kind kind) const noexcept { return kind_ == kind; }
  bool is_missing() const noexcept { return kind_ == Kind::Missing; }
  bool is_object() const noexcept { return kind_ >= Kind::Undefined; }
  bool is_integral() const noexcept { return kind_ == Kind::Int || kind_ == Kind::Bool; }
  bool is_number() const noexcept { return is_integral() || kind_ == Kind::Float || kind_ == Kind::BigInt; }

  /// The payload; the kind must match (Bool counts as Int).
  bool as_bool() const noexcept { return payload_.integer != 0; }
  int64_t as_int() const noexcept { return payload_.integer; }
  double as_real() const noexcept { return payload_.real; }
  Object* as_object() const noexcept { return payload_.object; }
  template <typename T>
  T& as() const noexcept {
    return *static_cast<T*>(payload_.object);
  }
  std::string_view text() const noexcept;  ///< of a String

  void swap(Value& other) noexcept {
    std::swap(kind_, other.kind_);
    std::swap(payload_, other.payload_);
  }

 private:
  explicit Value(Kind kind) noexcept : kind_(kind) { payload_.integer = 0; }
  void retain() const noexcept {
    if (is_object() && payload_.object->refs >= 0) ++payload_.object->refs;
  }
  void release() noexcept {
    if (is_object() && payload_.object->refs >= 0 && --payload_.object->refs == 0) delete payload_.object;
  }

  Kind kind_;
  union {
    int64_t integer;
    double real;
    Object* object;
  } payload_;
};

struct Undefined : Object {
  Undefined() : Object(Kind::Undefined) {}
  std::string message;
  bool unsafe = false;  ///< raises SecurityError instead of UndefinedError
};

struct BigInt : Object {
  BigInt() : Object(Kind::BigInt) {}
  std::string digits;  ///< decimal, no leading zeros, with a '-' where negative
};

struct String : Object {
  String() : Object(Kind::String) {}
  std::string text;
  bool markup = false;  ///< markupsafe.Markup: already escaped for HTML

  size_t n_chars() const noexcept;
  bool ascii() const noexcept { return n_chars() == text.size(); }

 private:
  mutable size_t n_chars_ = SIZE_MAX;
};

struct List : Object {  // also Tuple
  explicit List(Kind kind_in) : Object(kind_in) {}
  std::vector<Value> items;
  bool group = false;  ///< a groupby tuple, with the attributes `grouper` and `list`
};

/// Insertion-ordered mapping with Python's equality of keys (1 == 1.0 == True).
struct Dict : Object {
  Dict() : Object(Kind::Dict) {}
  std::vector<std::pair<Value, Value>> entries;

  const Value* find(const Value& key) const;  ///< null when absent; the key must be hashable
  const Value* find(std::string_view key) const;
  void set(Value key, Value value);  ///< while building; a later value replaces an earlier one
 private:
  size_t position(size_t hash, const Value& key) const;
  std::unordered_multimap<size_t, size_t> index_;  // filled beyond a few entries
};

struct View : Object {
  View() : Object(Kind::View) {}
  enum class Part : uint8_t { Keys, Values, Items } part = Part::Keys;
  Ref<Dict> dict;
};

struct Range : Object {
  Range() : Object(Kind::Range) {}
  int64_t start = 0, stop = 0, step = 1, length = 0;
  int64_t at(int64_t index) const noexcept { return start + index * step; }
};

/// A generator: yields each item once.
struct Iterator : Object {
  explicit Iterator(const char* name_in) : Object(Kind::Iterator), name(name_in) {}
  virtual bool next(Runtime& rt, Value& item) = 0;
  const char* name;  ///< for printing
};

struct Namespace : Object {
  Namespace() : Object(Kind::Namespace) {}
  Ref<Dict> attributes;
};

/// A callable implemented here, bound to a receiver where it is a method.
struct BoundFunction : Object {
  BoundFunction() : Object(Kind::Function) {}
  const Function* function = nullptr;
  Value self;
};

struct Cycler : Object {
  Cycler() : Object(Kind::Cycler) {}
  std::vector<Value> items;
  size_t position = 0;
};

struct Joiner : Object {
  Joiner() : Object(Kind::Joiner) {}
  Value separator;
  bool used = false;
};

/// Local variables of one activation of the template, a macro or a recursive loop.
struct Frame : Object {
  Frame() : Object(Kind::Frame) {}
  Ref<Frame> parent;
  std::vector<Value> slots;
};

/// Python's hash in spirit: equal keys have equal hashes. The key must be hashable.
size_t hash_value(const Value& key) noexcept;
bool is_hashable(const Value& key) noexcept;

}  // namespace kvfork::jinja
