// Operators and conversions of values.
#include "jinja/values/operators.h"

#include <algorithm>
#include <cmath>

#include "jinja/builtins/functions.h"
#include "jinja/evaluation/loop.h"
#include "jinja/evaluation/macro.h"
#include "jinja/values/compare.h"
#include "jinja/values/formatting.h"
#include "jinja/values/iterate.h"
#include "jinja/values/numbers.h"
#include "jinja/values/printing.h"
#include "jinja/values/runtime.h"
#include "jinja/values/text.h"

namespace kvfork::jinja {
namespace {

const char* sign_of(ExprKind kind) {
  switch (kind) {
    case ExprKind::Add:
      return "+";
    case ExprKind::Sub:
      return "-";
    case ExprKind::Mul:
      return "*";
    case ExprKind::Div:
      return "/";
    case ExprKind::FloorDiv:
      return "//";
    case ExprKind::Mod:
      return "%";
    default:
      return "** or pow()";
  }
}

bool is_sequence(const Value& value) {
  return value.is(Kind::String) || value.is(Kind::List) || value.is(Kind::Tuple);
}

[[noreturn]] void fail_operands(Runtime& rt, ExprKind kind, const Value& a, const Value& b) {
  if (kind == ExprKind::Add && is_sequence(a)) {
    const char* own = a.is(Kind::String) ? "str" : a.is(Kind::List) ? "list" : "tuple";
    rt.fail("TypeError", fmt::format("can only concatenate {} (not \"{}\") to {}", own, type_name(b), own));
  }
  rt.fail("TypeError", fmt::format("unsupported operand type(s) for {}: '{}' and '{}'", sign_of(kind), type_name(a),
                                   type_name(b)));
}

Value join_texts(Runtime& rt, const Value& a, const Value& b) {
  bool markup = a.as<String>().markup || b.as<String>().markup;
  rt.reserve(a.text().size() + b.text().size());
  if (!markup) {
    std::string text;
    text.reserve(a.text().size() + b.text().size());
    text.append(a.text()).append(b.text());
    return rt.string(std::move(text));
  }
  return rt.string(escaped(rt, a) + escaped(rt, b), true);
}

Value join_lists(Runtime& rt, const Value& a, const Value& b) {
  const auto& left = a.as<List>().items;
  const auto& right = b.as<List>().items;
  rt.reserve((left.size() + right.size()) * sizeof(Value));
  rt.step((left.size() + right.size()) / 4);
  std::vector<Value> items;
  items.reserve(left.size() + right.size());
  items.insert(items.end(), left.begin(), left.end());
  items.insert(items.end(), right.begin(), right.end());
  return a.is(Kind::List) ? rt.list(std::move(items)) : rt.tuple(std::move(items));
}

Value repeat(Runtime& rt, const Value& sequence, int64_t n) {
  size_t times = n < 0 ? 0 : static_cast<size_t>(n);
  size_t size = sequence.is(Kind::String) ? sequence.text().size() : sequence.as<List>().items.size();
  if (size == 0 || times == 0) times = 0;
  if (times != 0 && size > SIZE_MAX / 32 / times) rt.fail_limit("bytes of memory", rt.limits().memory);
  rt.reserve(size * times * (sequence.is(Kind::String) ? 1 : sizeof(Value)));
  rt.step(times / 8);
  if (sequence.is(Kind::String)) {
    std::string text;
    text.reserve(size * times);
    for (size_t i = 0; i < times; ++i) text.append(sequence.text());
    return text_like(rt, sequence, std::move(text));
  }
  const auto& part = sequence.as<List>().items;
  std::vector<Value> items;
  items.reserve(size * times);
  for (size_t i = 0; i < times; ++i) items.insert(items.end(), part.begin(), part.end());
  return sequence.is(Kind::List) ? rt.list(std::move(items)) : rt.tuple(std::move(items));
}

}  // namespace

bool truthy(Runtime& rt, const Value& value) {
  switch (value.kind()) {
    case Kind::Missing:
    case Kind::None:
    case Kind::Undefined:
      return false;
    case Kind::Bool:
    case Kind::Int:
      return value.as_int() != 0;
    case Kind::Float:
      return value.as_real() != 0;
    case Kind::String:
      return !value.text().empty();
    default: {
      auto length = length_of(rt, value);
      return !length || *length != 0;
    }
  }
}

Value text_like(Runtime& rt, const Value& self, std::string text) {
  return rt.string(std::move(text), self.as<String>().markup);
}

std::string escaped(Runtime& rt, const Value& value) {
  if (value.is(Kind::String) && value.as<String>().markup) return std::string(value.text());
  return escape_html(to_str(rt, value));
}

Value binary(Runtime& rt, ExprKind kind, const Value& a, const Value& b) {
  if (kind == ExprKind::Mod && a.is(Kind::String)) return percent_format(rt, a, b);
  for (const Value* side : {&a, &b}) {
    if (side->is(Kind::Undefined)) rt.fail_undefined(*side);
  }
  if (a.is_number() && b.is_number()) return arithmetic(rt, kind, a, b);
  if (kind == ExprKind::Add && a.kind() == b.kind()) {
    if (a.is(Kind::String)) return join_texts(rt, a, b);
    if (a.is(Kind::List) || a.is(Kind::Tuple)) return join_lists(rt, a, b);
  }
  if (kind == ExprKind::Mul && is_sequence(a) && b.is_integral()) return repeat(rt, a, b.as_int());
  if (kind == ExprKind::Mul && is_sequence(b) && a.is_integral()) return repeat(rt, b, a.as_int());
  fail_operands(rt, kind, a, b);
}

Value negate(Runtime& rt, const Value& value) {
  if (value.is(Kind::Undefined)) rt.fail_undefined(value);
  if (value.is(Kind::Float)) return Value::real(-value.as_real());
  if (value.is(Kind::BigInt)) {
    const std::string& digits = value.as<BigInt>().digits;
    if (digits == "9223372036854775808") return Value::integer(INT64_MIN);
    return rt.big_integer(digits[0] == '-' ? digits.substr(1) : "-" + digits);
  }
  if (!value.is_integral())
    rt.fail("TypeError", fmt::format("bad operand type for unary -: '{}'", type_name(value)));
  if (value.as_int() == INT64_MIN) return rt.big_integer("9223372036854775808");
  return Value::integer(-value.as_int());
}

Value positive(Runtime& rt, const Value& value) {
  if (value.is(Kind::Undefined)) rt.fail_undefined(value);
  if (value.is(Kind::Float) || value.is(Kind::BigInt)) return value;
  if (!value.is_integral())
    rt.fail("TypeError", fmt::format("bad operand type for unary +: '{}'", type_name(value)));
  return Value::integer(value.as_int());
}

Value add(Runtime& rt, const Value& a, const Value& b) {
  return binary(rt, ExprKind::Add, a, b);
}

bool contains(Runtime& rt, const Value& container, const Value& item) {
  switch (container.kind()) {
    case Kind::String:
      if (!item.is(Kind::String)) {
        rt.fail("TypeError", fmt::format("'in <string>' requires string as left operand, not {}", type_name(item)));
      }
      rt.step(1 + container.text().size() / 64);
      return container.text().find(item.text()) != std::string_view::npos;
    case Kind::Dict:
      if (!is_hashable(item)) rt.fail("TypeError", fmt::format("unhashable type: '{}'", type_name(item)));
      return container.as<Dict>().find(item) != nullptr;
    case Kind::Range:
      if (!item.is_number()) return false;
      break;
    default:
      break;
  }
  if (!is_iterable(container)) {
    rt.fail("TypeError", fmt::format("argument of type '{}' is not iterable", type_name(container)));
  }
  Cursor cursor(rt, container);
  for (Value candidate; cursor.next(rt, candidate);) {
    if (candidate.is_object() && item.is_object()) {
      rt.step(std::min(candidate.as_object()->weight, item.as_object()->weight) / 4);
    }
    if (same_object(candidate, item) || equals(candidate, item)) return true;
  }
  return false;
}

int64_t as_index(Runtime& rt, const Value& value) {
  if (value.is_integral()) return value.as_int();
  if (value.is(Kind::Undefined)) rt.fail_undefined(value);
  if (value.is(Kind::BigInt)) rt.fail("OverflowError", "Python int too large to convert to C ssize_t");
  rt.fail("TypeError", fmt::format("'{}' object cannot be interpreted as an integer", type_name(value)));
}

}  // namespace kvfork::jinja
