// Attributes, items and slices, as the sandbox gives them.
#include <algorithm>

#include "jinja/builtins/functions.h"
#include "jinja/evaluation/loop.h"
#include "jinja/evaluation/macro.h"
#include "jinja/values/iterate.h"
#include "jinja/values/operators.h"
#include "jinja/values/printing.h"
#include "jinja/values/runtime.h"
#include "jinja/values/text.h"

namespace kvfork::jinja {
namespace {

struct Bounds {
  int64_t start = 0, stop = 0, step = 1, length = 0;
};

// Python's slice.indices, with the number of items.
Bounds clip(Runtime& rt, const Value& start, const Value& stop, const Value& step, int64_t length) {
  auto bound = [&](const Value& value) {
    if (!value.is_integral()) {
      if (value.is(Kind::Undefined)) {
        rt.fail("TypeError", "slice indices must be integers or None or have an __index__ method");
      }
      if (!value.is(Kind::BigInt)) {
        rt.fail("TypeError", "slice indices must be integers or None or have an __index__ method");
      }
      return value.as<BigInt>().digits[0] == '-' ? INT64_MIN : INT64_MAX;
    }
    return value.as_int();
  };
  auto given = [](const Value& value) { return !value.is_missing() && !value.is(Kind::None); };
  Bounds out;
  if (given(step)) out.step = std::max(bound(step), -INT64_MAX);
  if (out.step == 0) rt.fail("ValueError", "slice step cannot be zero");
  bool down = out.step < 0;
  auto clipped = [&](const Value& value, int64_t otherwise) {
    if (!given(value)) return otherwise;
    int64_t at = bound(value);
    if (at < 0) at = at < -length ? (down ? -1 : 0) : at + length;
    return std::min(at, down ? length - 1 : length);
  };
  out.start = clipped(start, down ? length - 1 : 0);
  out.stop = clipped(stop, down ? -1 : length);
  if (down && out.stop < out.start) out.length = (out.start - out.stop - 1) / -out.step + 1;
  if (!down && out.start < out.stop) out.length = (out.stop - out.start - 1) / out.step + 1;
  return out;
}

Value slice_text(Runtime& rt, const Value& object, const Bounds& bounds) {
  const auto& string = object.as<String>();
  rt.step(1 + string.text.size() / 16);
  if (string.ascii() || bounds.step != 1) {
    std::string out;
    if (string.ascii()) {
      if (bounds.step == 1) {
        out = string.text.substr(static_cast<size_t>(bounds.start), static_cast<size_t>(bounds.length));
      } else {
        for (int64_t i = 0; i < bounds.length; ++i) {
          out.push_back(string.text[static_cast<size_t>(bounds.start + i * bounds.step)]);
        }
      }
    } else {
      rt.reserve(string.text.size() * 4);
      std::vector<char32_t> chars = to_chars32(string.text);
      for (int64_t i = 0; i < bounds.length; ++i) {
        append_char(out, chars[static_cast<size_t>(bounds.start + i * bounds.step)]);
      }
    }
    return text_like(rt, object, std::move(out));
  }
  if (bounds.length == 0) return text_like(rt, object, "");
  size_t from = byte_offset(string.text, static_cast<size_t>(bounds.start));
  std::string_view rest = std::string_view(string.text).substr(from);
  return text_like(rt, object, std::string(rest.substr(0, byte_offset(rest, static_cast<size_t>(bounds.length)))));
}

Value slice_items(Runtime& rt, const Value& object, const Bounds& bounds) {
  const auto& from = object.as<List>().items;
  rt.reserve(static_cast<size_t>(bounds.length) * sizeof(Value));
  rt.step(1 + static_cast<size_t>(bounds.length) / 4);
  std::vector<Value> items;
  items.reserve(static_cast<size_t>(bounds.length));
  for (int64_t i = 0; i < bounds.length; ++i)
    items.push_back(from[static_cast<size_t>(bounds.start + i * bounds.step)]);
  return object.is(Kind::List) ? rt.list(std::move(items)) : rt.tuple(std::move(items));
}

Value slice_range(Runtime& rt, const Value& object, const Bounds& bounds) {
  const auto& from = object.as<Range>();
  auto out = std::make_unique<Range>();
  out->start = from.at(bounds.start);
  out->stop = from.at(bounds.stop);
  out->step = from.step * bounds.step;
  out->length = bounds.length;
  return Value::object(rt.adopt(std::move(out)));
}

// The item at an index of a sequence; Missing when out of range.
Value item_at(Runtime& rt, const Value& object, int64_t index) {
  int64_t length = *length_of(rt, object);
  if (index < 0) index += length;
  if (index < 0 || index >= length) return Value();
  auto at = static_cast<size_t>(index);
  if (object.is(Kind::Range)) return Value::integer(object.as<Range>().at(index));
  if (!object.is(Kind::String)) return object.as<List>().items[at];
  const auto& string = object.as<String>();
  if (string.ascii()) return text_like(rt, object, string.text.substr(at, 1));
  rt.step(1 + string.text.size() / 64);
  size_t begin = byte_offset(string.text, at);
  size_t end = begin;
  next_char(string.text, end);
  return text_like(rt, object, string.text.substr(begin, end - begin));
}

// obj[key] alone; Missing where Python raises TypeError or LookupError.
Value find_item(Runtime& rt, const Value& object, const Value& key) {
  switch (object.kind()) {
    case Kind::Dict: {
      if (!is_hashable(key)) return Value();
      const Value* found = object.as<Dict>().find(key);
      return found == nullptr ? Value() : *found;
    }
    case Kind::String:
    case Kind::List:
    case Kind::Tuple:
    case Kind::Range:
      return key.is_integral() ? item_at(rt, object, key.as_int()) : Value();
    case Kind::Undefined:
      rt.fail_undefined(object);
    default:
      return Value();
  }
}

bool is_one_of(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// What the immutable sandbox forbids: methods that would change their receiver.
bool is_mutator(const Value& object, std::string_view name) {
  if (object.is(Kind::Dict)) return is_one_of(name, {"clear", "pop", "popitem", "setdefault", "update"});
  if (object.is(Kind::List)) {
    return is_one_of(name, {"append", "clear", "pop", "reverse", "insert", "sort", "extend", "remove"});
  }
  return false;
}

// Attributes with a leading underscore that every Python object, or one of this type, has: reading one gives an
// undefined value that raises SecurityError, where any other such name is looked up as an item.
bool has_private_attribute(const Value& object, std::string_view name) {
  if (is_one_of(name, {"__class__",   "__delattr__", "__dir__",           "__doc__",         "__eq__",
                       "__format__",  "__ge__",      "__getattribute__",  "__getstate__",    "__gt__",
                       "__hash__",    "__init__",    "__init_subclass__", "__le__",          "__lt__",
                       "__ne__",      "__new__",     "__reduce__",        "__reduce_ex__",   "__repr__",
                       "__setattr__", "__sizeof__",  "__str__",           "__subclasshook__"})) {
    return true;
  }
  switch (object.kind()) {
    case Kind::Dict:
      return is_one_of(name, {"__class_getitem__", "__contains__", "__delitem__", "__getitem__", "__ior__",
                              "__iter__", "__len__", "__or__", "__reversed__", "__ror__", "__setitem__"});
    case Kind::List:
    case Kind::Tuple:
      return is_one_of(name, {"__add__", "__class_getitem__", "__contains__", "__getitem__", "__iter__", "__len__",
                              "__mul__", "__rmul__", "__reversed__", "__setitem__", "__delitem__", "__iadd__",
                              "__imul__", "__getnewargs__"});
    case Kind::String:
      return is_one_of(name, {"__add__", "__contains__", "__getitem__", "__getnewargs__", "__iter__", "__len__",
                              "__mod__", "__mul__", "__rmod__", "__rmul__"});
    case Kind::Undefined:
      return is_one_of(name, {"__add__", "__bool__", "__call__", "__float__", "__floordiv__", "__getattr__",
                              "__getitem__", "__int__", "__iter__", "__len__", "__mod__", "__module__", "__mul__",
                              "__neg__", "__pos__", "__pow__", "__radd__", "__sub__", "__truediv__"});
    default:
      return false;
  }
}

Value macro_attribute(Runtime& rt, const Macro& macro, std::string_view name) {
  if (name == "name") return macro.name;
  if (name == "catch_kwargs") return Value::boolean(macro.stmt->uses_kwargs);
  if (name == "catch_varargs") return Value::boolean(macro.stmt->uses_varargs);
  if (name == "caller") return Value::boolean(macro.stmt->names_caller);
  auto is_caller = [](const ExprPtr& parameter) { return parameter->name == "caller"; };
  if (name == "explicit_caller") {
    return Value::boolean(std::any_of(macro.stmt->items.begin(), macro.stmt->items.end(), is_caller));
  }
  if (name != "arguments") return Value();
  std::vector<Value> names;
  for (const ExprPtr& parameter : macro.stmt->items) names.push_back(rt.string(parameter->name));
  return rt.tuple(std::move(names));
}

Value number_attribute(const Value& number, std::string_view name) {
  bool is_int = number.is_integral();
  if (name == "real" || (is_int && name == "numerator")) {
    return is_int ? Value::integer(number.as_int()) : number;
  }
  if (name == "imag") return is_int ? Value::integer(0) : Value::real(0.0);
  return is_int && name == "denominator" ? Value::integer(1) : Value();
}

}  // namespace

Value find_attribute(Runtime& rt, const Value& object, std::string_view name) {
  switch (object.kind()) {
    case Kind::Namespace: {
      const Value* found = object.as<Namespace>().attributes->find(name);
      return found == nullptr ? Value() : *found;
    }
    case Kind::Macro: {
      Value found = macro_attribute(rt, object.as<Macro>(), name);
      if (!found.is_missing()) return found;
      break;
    }
    case Kind::Loop: {
      Value found = object.as<Loop>().attribute(rt, name);
      if (!found.is_missing()) return found;
      break;
    }
    case Kind::Bool:
    case Kind::Int:
    case Kind::Float: {
      Value found = number_attribute(object, name);
      if (!found.is_missing()) return found;
      break;
    }
    case Kind::Range: {
      const auto& range = object.as<Range>();
      if (name == "start") return Value::integer(range.start);
      if (name == "stop") return Value::integer(range.stop);
      if (name == "step") return Value::integer(range.step);
      break;
    }
    case Kind::Cycler: {
      const auto& cycler = object.as<Cycler>();
      if (name == "current") return cycler.items[cycler.position];
      if (name == "pos") return Value::integer(static_cast<int64_t>(cycler.position));
      if (name == "items") return rt.tuple(cycler.items);
      break;
    }
    case Kind::Joiner: {
      const auto& joiner = object.as<Joiner>();
      if (name == "sep") return joiner.separator;
      if (name == "used") return Value::boolean(joiner.used);
      break;
    }
    case Kind::Tuple:
      if (object.as<List>().group && name == "grouper") return object.as<List>().items[0];
      if (object.as<List>().group && name == "list") return object.as<List>().items[1];
      break;
    case Kind::Undefined:
      if (name.size() < 4 || !name.starts_with("__") || !name.ends_with("__")) rt.fail_undefined(object);
      break;
    default:
      break;
  }
  if (is_mutator(object, name) || (name.starts_with("_") && has_private_attribute(object, name))) {
    return rt.unsafe_attribute(object, name);
  }
  const Function* method = find_method(object, name);
  return method == nullptr ? Value() : rt.bound(*method, object);
}

Value get_attribute(Runtime& rt, const Value& object, std::string_view name, const Value& name_value) {
  Value found = find_attribute(rt, object, name);
  if (found.is_missing()) found = find_item(rt, object, name_value);
  return found.is_missing() ? rt.undefined_member(object, name_value) : found;
}

Value get_item(Runtime& rt, const Value& object, const Value& key) {
  Value found = find_item(rt, object, key);
  if (found.is_missing() && key.is(Kind::String)) found = find_attribute(rt, object, key.text());
  return found.is_missing() ? rt.undefined_member(object, key) : found;
}

bool can_slice(const Value& object, const Value& start, const Value& stop, const Value& step) noexcept {
  auto is_bound = [](const Value& value) {
    return value.is_missing() || value.is(Kind::None) || value.is_integral() || value.is(Kind::BigInt);
  };
  bool sequence = object.is(Kind::String) || object.is(Kind::List) || object.is(Kind::Tuple) ||
                  object.is(Kind::Range) || object.is(Kind::Undefined);
  if (!sequence || !is_bound(step)) return false;
  if (step.is_integral() && step.as_int() == 0) return true;  // found first, and it is a ValueError
  return is_bound(start) && is_bound(stop);
}

Value slice(Runtime& rt, const Value& object, const Value& start, const Value& stop, const Value& step) {
  switch (object.kind()) {
    case Kind::String:
    case Kind::List:
    case Kind::Tuple:
    case Kind::Range: {
      Bounds bounds = clip(rt, start, stop, step, *length_of(rt, object));
      if (object.is(Kind::String)) return slice_text(rt, object, bounds);
      return object.is(Kind::Range) ? slice_range(rt, object, bounds) : slice_items(rt, object, bounds);
    }
    case Kind::Undefined:
      rt.fail_undefined(object);
    case Kind::Dict:
      rt.fail("TypeError", "unhashable type: 'slice'");
    default:
      rt.fail("TypeError", fmt::format("'{}' object is not subscriptable", type_name(object)));
  }
}

}  // namespace kvfork::jinja
