// Filters on numbers.
#include <cmath>

#include "jinja/builtins/functions.h"
#include "jinja/values/numbers.h"
#include "jinja/values/operators.h"
#include "jinja/values/printing.h"
#include "jinja/values/runtime.h"

namespace kvfork::jinja {
namespace {

Value absolute(Call& c) {
  if (c.self.is(Kind::Float)) return Value::real(std::fabs(c.self.as_real()));
  if (c.self.is(Kind::BigInt)) {
    return c.self.as<BigInt>().digits[0] == '-' ? negate(c.rt, c.self) : c.self;
  }
  if (!c.self.is_integral()) {
    c.rt.fail("TypeError", fmt::format("bad operand type for abs(): '{}'", type_name(c.self)));
  }
  return c.self.as_int() < 0 ? negate(c.rt, c.self) : Value::integer(c.self.as_int());
}

Value to_int(Call& c) {
  Value otherwise = c.given(0) ? c.args[0] : Value::integer(0);
  const Value& value = c.self;
  if (value.is(Kind::Undefined)) c.rt.fail_undefined(value);
  if (value.is(Kind::String)) {
    int64_t base = c.integer(1, 10);
    if (base == 0 || (base >= 2 && base <= 36)) {
      if (auto parsed = parse_integer(c.rt, value.text(), static_cast<int>(base))) return *parsed;
    }
    auto real = parse_real(value.text());
    if (!real || !std::isfinite(*real)) return otherwise;
    return to_any_integer(c.rt, *real);
  }
  if (value.is(Kind::Float)) {
    if (std::isnan(value.as_real())) return otherwise;
    return to_any_integer(c.rt, value.as_real());
  }
  if (value.is(Kind::BigInt)) return value;
  return value.is_integral() ? Value::integer(value.as_int()) : otherwise;
}

Value to_float(Call& c) {
  if (c.self.is(Kind::Undefined)) c.rt.fail_undefined(c.self);
  if (c.self.is_number()) return Value::real(to_real(c.rt, c.self));
  if (c.self.is(Kind::String)) {
    if (auto parsed = parse_real(c.self.text())) return Value::real(*parsed);
  }
  return c.given(0) ? c.args[0] : Value::real(0.0);
}

Value round(Call& c) {
  std::string_view method = c.text(1, "common");
  if (method != "common" && method != "ceil" && method != "floor") {
    c.rt.fail("FilterArgumentError", "method must be common, ceil or floor");
  }
  if (method == "common") {
    if (!c.self.is_number()) {
      c.rt.fail("TypeError", fmt::format("type {} doesn't define __round__ method", type_name(c.self)));
    }
    if (c.given_value(0) || !c.given(0)) return round_number(c.rt, c.self, c.integer(0, 0));
    // round(x, None) gives an integer.
    Value whole = round_number(c.rt, c.self, 0);
    return whole.is(Kind::Float) ? Value::integer(to_integer(c.rt, whole.as_real())) : whole;
  }
  Value unit = binary(c.rt, ExprKind::Pow, Value::integer(10), c.given(0) ? c.args[0] : Value::integer(0));
  Value scaled = binary(c.rt, ExprKind::Mul, c.self, unit);
  if (!scaled.is_number()) c.rt.fail("TypeError", fmt::format("must be real number, not {}", type_name(scaled)));
  Value whole = scaled;
  if (scaled.is(Kind::Float)) {
    double value = scaled.as_real();
    whole = Value::integer(to_integer(c.rt, method == "ceil" ? std::ceil(value) : std::floor(value)));
  }
  return binary(c.rt, ExprKind::Div, whole, unit);
}

}  // namespace

std::span<const Function> number_filters() {
  static const Function kFilters[] = {
      {"abs", "", absolute},
      {"int", "default? base?", to_int},
      {"float", "default?", to_float},
      {"round", "precision? method?", round},
  };
  return kFilters;
}

}  // namespace kvfork::jinja
