// Python's arithmetic on 64-bit integers and doubles. A result beyond 64 bits is refused, never wrapped.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "jinja/syntax/ast.h"
#include "jinja/values/value.h"

namespace kvfork::jinja {

/// `kind` is one of Add, Sub, Mul, Div, FloorDiv, Mod, Pow; both operands are numbers.
Value arithmetic(Runtime& rt, ExprKind kind, const Value& a, const Value& b);

/// A number as a double. Fails with OverflowError for an integer beyond its range.
double to_real(Runtime& rt, const Value& number);

/// int(float). Fails for NaN, infinities and, as to_integer, for what does not fit 64 bits.
int64_t to_integer(Runtime& rt, double value);
Value to_any_integer(Runtime& rt, double value);

/// int(text, base) and float(text); nothing where Python raises ValueError.
std::optional<Value> parse_integer(Runtime& rt, std::string_view text, int base);
std::optional<double> parse_real(std::string_view text);

/// round(number, digits) as Python rounds: to even, on the decimal expansion.
Value round_number(Runtime& rt, const Value& number, int64_t digits);

/// Fails: the integer needs more than 64 bits.
[[noreturn]] void fail_big_integer(Runtime& rt);

}  // namespace kvfork::jinja
