// The bounds of a rendering, its errors, and the values it makes.
#include "jinja/values/runtime.h"

#include <algorithm>

#include "base/error.h"
#include "jinja/evaluation/macro.h"
#include "jinja/values/printing.h"
#include "jinja/values/text.h"

namespace kvfork::jinja {

SourcePosition locate(std::string_view source, size_t offset) noexcept {
  std::string_view before = source.substr(0, std::min(offset, source.size()));
  SourcePosition position;
  position.line = 1 + static_cast<size_t>(std::count(before.begin(), before.end(), '\n'));
  size_t line_start = before.rfind('\n') + 1;  // npos + 1 == 0
  position.column = 1 + count_chars(before.substr(line_start));
  return position;
}

Runtime::Runtime(const Limits& limits, std::string_view subject, std::string_view source, const LocalTime& now)
    : limits_(limits), subject_(subject), source_(source), now_(now), steps_left_(limits.steps) {
  budget_.limit = limits.memory;
}

Runtime::~Runtime() {
  for (const Value& value : kept_) {
    if (value.is(Kind::Frame)) {
      value.as<Frame>().slots.clear();
    } else if (value.is(Kind::Namespace)) {
      value.as<Namespace>().attributes = Ref<Dict>();
    } else if (value.is(Kind::Macro)) {
      value.as<Macro>().frame = Ref<Frame>();
    }
  }
}

void Runtime::keep(Object* object) {
  kept_.push_back(Value::object(object));
}

std::string Runtime::where() const {
  SourcePosition position = locate(source_, offset_);
  return fmt::format("{}: line {}, column {}: ", subject_, position.line, position.column);
}

void Runtime::fail(std::string_view type, std::string_view message) const {
  throw Error(ErrorCode::Template, fmt::format("{}{}: {}", where(), type, message));
}

void Runtime::fail_undefined(const Value& undefined) const {
  const auto& object = undefined.as<Undefined>();
  fail(object.unsafe ? "SecurityError" : "UndefinedError", object.message);
}

void Runtime::fail_raised(std::string_view message) const {
  throw Error(ErrorCode::Template, where() + std::string(message));
}

void Runtime::fail_limit(std::string_view what, size_t bound) const {
  throw Error(ErrorCode::Limit,
              fmt::format("{}expected at most {} {}, and the template needs more; it loops or grows without end",
                          where(), bound, what));
}

void Runtime::count_memory(Object& object, size_t n_bytes) {
  reserve(n_bytes);
  object.budget = &budget_;
  object.bytes = n_bytes;
  budget_.used += n_bytes;
}

void Runtime::add_part(Object& container, const Value& part) const {
  add_depth(container, part);
  container.weight += 1 + (part.is_object() ? part.as_object()->weight : 0);
  if (container.weight > limits_.weight) fail_limit("items in one value", limits_.weight);
}

void Runtime::add_depth(Object& container, const Value& part) const {
  if (!part.is_object() || part.as_object()->depth < container.depth) return;
  container.depth = static_cast<uint16_t>(part.as_object()->depth + 1);
  if (container.depth > limits_.nesting) fail_limit("values inside one another", limits_.nesting);
}

Value Runtime::string(std::string text, bool markup) {
  auto object = std::make_unique<String>();
  object->text = std::move(text);
  object->markup = markup;
  object->weight = static_cast<uint32_t>(1 + object->text.size() / 8);
  size_t n_bytes = sizeof(String) + object->text.capacity();
  return Value::object(adopt(std::move(object), n_bytes));
}

Value Runtime::sequence(Kind kind, std::vector<Value> items) {
  auto object = std::make_unique<List>(kind);
  for (const Value& item : items) add_part(*object, item);
  object->items = std::move(items);
  size_t n_bytes = sizeof(List) + object->items.capacity() * sizeof(Value);
  return Value::object(adopt(std::move(object), n_bytes));
}

Value Runtime::pair(Value first, Value second) {
  std::vector<Value> items;
  items.reserve(2);
  items.push_back(std::move(first));
  items.push_back(std::move(second));
  return tuple(std::move(items));
}

Value Runtime::dict(std::unique_ptr<Dict> dict) {
  for (const auto& [key, value] : dict->entries) {
    add_part(*dict, key);
    add_part(*dict, value);
  }
  size_t n_bytes = sizeof(Dict) + dict->entries.capacity() * (2 * sizeof(Value) + 32);
  return Value::object(adopt(std::move(dict), n_bytes));
}

Value Runtime::big_integer(std::string digits) {
  auto object = std::make_unique<BigInt>();
  object->digits = std::move(digits);
  size_t n_bytes = sizeof(BigInt) + object->digits.capacity();
  return Value::object(adopt(std::move(object), n_bytes));
}

Value Runtime::undefined(std::string message) {
  auto object = std::make_unique<Undefined>();
  object->message = std::move(message);
  return Value::object(adopt(std::move(object)));
}

Value Runtime::undefined_name(std::string_view name) {
  return undefined(repr_text(name) + " is undefined");
}

Value Runtime::undefined_member(const Value& object, const Value& name) {
  std::string type = object.is(Kind::None) ? "None" : std::string(full_type_name(object)) + " object";
  if (name.is(Kind::String)) {
    return undefined(fmt::format("'{}' has no attribute {}", type, repr_text(name.text())));
  }
  return undefined(fmt::format("{} has no element {}", type, to_repr(*this, name)));
}

Value Runtime::unsafe_attribute(const Value& object, std::string_view name) {
  Value out = undefined(
      fmt::format("access to attribute {} of '{}' object is unsafe.", repr_text(name), type_name(object)));
  out.as<Undefined>().unsafe = true;
  return out;
}

Value Runtime::view(const Value& dict, View::Part part) {
  auto object = std::make_unique<View>();
  object->part = part;
  object->dict = Ref<Dict>(&dict.as<Dict>());
  add_part(*object, dict);
  return Value::object(adopt(std::move(object)));
}

Value Runtime::bound(const Function& function, Value self) {
  auto object = std::make_unique<BoundFunction>();
  object->function = &function;
  add_part(*object, self);
  object->self = std::move(self);
  return Value::object(adopt(std::move(object)));
}

}  // namespace kvfork::jinja
