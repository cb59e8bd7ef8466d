// Python's arithmetic, and numbers from text.
#include "jinja/values/numbers.h"

#include <charconv>
#include <cmath>

#include "base/error.h"
#include "base/number.h"
#include "jinja/values/printing.h"
#include "jinja/values/runtime.h"
#include "jinja/values/text.h"

namespace kvfork::jinja {
namespace {

int64_t floor_div(Runtime& rt, int64_t a, int64_t b) {
  if (b == 0) rt.fail("ZeroDivisionError", "integer division or modulo by zero");
  if (a == INT64_MIN && b == -1) fail_big_integer(rt);
  int64_t quotient = a / b;
  return (a % b != 0 && (a < 0) != (b < 0)) ? quotient - 1 : quotient;
}

int64_t floor_mod(Runtime& rt, int64_t a, int64_t b) {
  if (b == 0) rt.fail("ZeroDivisionError", "integer modulo by zero");
  if (b == -1) return 0;
  int64_t remainder = a % b;
  return (remainder != 0 && (remainder < 0) != (b < 0)) ? remainder + b : remainder;
}

// Python's float_divmod: the remainder takes the divisor's sign, the quotient is floored.
double real_mod(double a, double b) {
  double mod = std::fmod(a, b);
  if (mod != 0) {
    if ((b < 0) != (mod < 0)) mod += b;
  } else {
    mod = std::copysign(0.0, b);
  }
  return mod;
}

double real_floor_div(double a, double b) {
  double mod = std::fmod(a, b);
  double quotient = (a - mod) / b;
  if (mod != 0 && (b < 0) != (mod < 0)) quotient -= 1.0;
  if (quotient == 0) return std::copysign(0.0, a / b);
  double whole = std::floor(quotient);
  return quotient - whole > 0.5 ? whole + 1.0 : whole;
}

// Python rounds the exact quotient once. Integers that doubles hold exactly do so here, too; beyond 2^53 the
// extended quotient is rounded twice, which differs only where it lies next to the middle of two doubles.
double true_div(int64_t a, int64_t b) {
  constexpr int64_t kExact = int64_t{1} << 53;
  if (a >= -kExact && a <= kExact && b >= -kExact && b <= kExact) {
    return static_cast<double>(a) / static_cast<double>(b);
  }
  return static_cast<double>(static_cast<long double>(a) / static_cast<long double>(b));
}

Value int_pow(Runtime& rt, int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) rt.fail("ZeroDivisionError", "0.0 cannot be raised to a negative power");
    return Value::real(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  int64_t result = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) fail_big_integer(rt);
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) fail_big_integer(rt);
  }
  return Value::integer(result);
}

Value int_arithmetic(Runtime& rt, ExprKind kind, int64_t a, int64_t b) {
  int64_t result = 0;
  bool overflow = false;
  switch (kind) {
    case ExprKind::Add:
      overflow = __builtin_add_overflow(a, b, &result);
      break;
    case ExprKind::Sub:
      overflow = __builtin_sub_overflow(a, b, &result);
      break;
    case ExprKind::Mul:
      overflow = __builtin_mul_overflow(a, b, &result);
      break;
    case ExprKind::FloorDiv:
      result = floor_div(rt, a, b);
      break;
    case ExprKind::Mod:
      result = floor_mod(rt, a, b);
      break;
    case ExprKind::Pow:
      return int_pow(rt, a, b);
    default:
      if (b == 0) rt.fail("ZeroDivisionError", "division by zero");
      return Value::real(true_div(a, b));
  }
  if (overflow) fail_big_integer(rt);
  return Value::integer(result);
}

Value real_pow(Runtime& rt, double a, double b) {
  if (a == 0 && b < 0) rt.fail("ZeroDivisionError", "0.0 cannot be raised to a negative power");
  if (a < 0 && std::isfinite(b) && b != std::floor(b)) rt.fail("ValueError", "complex numbers are not supported");
  double result = std::pow(a, b);
  if (std::isinf(result) && std::isfinite(a) && std::isfinite(b)) {
    rt.fail("OverflowError", "(34, 'Numerical result out of range')");
  }
  return Value::real(result);
}

Value real_arithmetic(Runtime& rt, ExprKind kind, double a, double b) {
  switch (kind) {
    case ExprKind::Add:
      return Value::real(a + b);
    case ExprKind::Sub:
      return Value::real(a - b);
    case ExprKind::Mul:
      return Value::real(a * b);
    case ExprKind::Pow:
      return real_pow(rt, a, b);
    default:
      break;
  }
  if (b == 0) {
    rt.fail("ZeroDivisionError", kind == ExprKind::Div        ? "float division by zero"
                                 : kind == ExprKind::FloorDiv ? "float floor division by zero"
                                                              : "float modulo");
  }
  if (kind == ExprKind::Div) return Value::real(a / b);
  return Value::real(kind == ExprKind::Mod ? real_mod(a, b) : real_floor_div(a, b));
}

// Text of a number without the white space around it and the underscores between digits; empty when malformed.
std::string clean_number(std::string_view text) {
  std::string out;
  text = strip(text);
  bool after_digit = false;
  for (size_t at = 0; at < text.size();) {
    char32_t c = next_char(text, at);
    int digit = decimal_value(c);
    if (digit >= 0) {
      out.push_back(static_cast<char>('0' + digit));
    } else if (c == '_') {
      size_t peek = at;
      if (!after_digit || at >= text.size() || !is_alnum(next_char(text, peek))) return {};
      after_digit = false;
      continue;
    } else if (c < 0x80) {
      out.push_back(static_cast<char>(c));
    } else {
      return {};
    }
    after_digit = c < 0x80 ? is_alnum(c) : digit >= 0;
  }
  return out;
}

}  // namespace

void fail_big_integer(Runtime& rt) {
  rt.fail("OverflowError", "an integer beyond 64 bits is not supported");
}

Value arithmetic(Runtime& rt, ExprKind kind, const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral()) return int_arithmetic(rt, kind, a.as_int(), b.as_int());
  if (a.is(Kind::BigInt) || b.is(Kind::BigInt)) fail_big_integer(rt);
  return real_arithmetic(rt, kind, to_real(rt, a), to_real(rt, b));
}

double to_real(Runtime& rt, const Value& number) {
  if (number.is(Kind::Float)) return number.as_real();
  if (!number.is(Kind::BigInt)) return static_cast<double>(number.as_int());
  double value = *base::parse_double(number.as<BigInt>().digits);
  if (std::isinf(value)) rt.fail("OverflowError", "int too large to convert to float");
  return value;
}

int64_t to_integer(Runtime& rt, double value) {
  if (std::isnan(value)) rt.fail("ValueError", "cannot convert float NaN to integer");
  if (std::isinf(value)) rt.fail("OverflowError", "cannot convert float infinity to integer");
  if (value >= 9223372036854775808.0 || value < -9223372036854775808.0) fail_big_integer(rt);
  return static_cast<int64_t>(value);
}

Value to_any_integer(Runtime& rt, double value) {
  if (!std::isfinite(value) || std::fabs(value) < 9e18) return Value::integer(to_integer(rt, value));
  return rt.big_integer(fmt::format("{:.0f}", std::trunc(value)));
}

std::optional<Value> parse_integer(Runtime& rt, std::string_view text, int base) {
  std::string clean = clean_number(text);
  std::string_view digits = clean;
  bool negative = false;
  if (!digits.empty() && (digits[0] == '-' || digits[0] == '+')) {
    negative = digits[0] == '-';
    digits.remove_prefix(1);
  }
  if (digits.size() >= 2 && digits[0] == '0') {
    char prefix = static_cast<char>(digits[1] | 0x20);
    int named = prefix == 'x' ? 16 : prefix == 'o' ? 8 : prefix == 'b' ? 2 : 0;
    if (named != 0 && (base == 0 || base == named)) {
      base = named;
      digits.remove_prefix(2);
    } else if (base == 0 && digits.find_first_not_of("0") != std::string_view::npos) {
      return std::nullopt;
    }
  }
  if (base == 0) base = 10;
  if (digits.empty() || digits[0] == '-' || digits[0] == '+') return std::nullopt;
  std::string signed_digits;
  if (negative) signed_digits.push_back('-');
  signed_digits.append(digits);
  int64_t value = 0;
  auto result = std::from_chars(signed_digits.data(), signed_digits.data() + signed_digits.size(), value, base);
  if (result.ptr != signed_digits.data() + signed_digits.size()) return std::nullopt;
  if (result.ec == std::errc()) return Value::integer(value);
  if (result.ec == std::errc::result_out_of_range && base == 10 && signed_digits.size() <= 4300) {
    size_t sign = negative ? 1 : 0;
    size_t zeros = signed_digits.find_first_not_of('0', sign);
    signed_digits.erase(sign, zeros - sign);
    return rt.big_integer(std::move(signed_digits));
  }
  if (result.ec == std::errc::result_out_of_range) fail_big_integer(rt);
  return std::nullopt;
}

std::optional<double> parse_real(std::string_view text) {
  std::string clean = clean_number(text);
  std::string_view body = clean;
  if (!body.empty() && (body[0] == '-' || body[0] == '+')) body.remove_prefix(1);
  std::string word = to_lower(body);
  bool negative = !clean.empty() && clean[0] == '-';
  if (word == "inf" || word == "infinity") return negative ? -HUGE_VAL : HUGE_VAL;
  if (word == "nan") return std::copysign(std::nan(""), negative ? -1.0 : 1.0);
  if (body.empty() || !((body[0] >= '0' && body[0] <= '9') || body[0] == '.')) return std::nullopt;
  if (word.find_first_not_of("0123456789.e+-") != std::string::npos) return std::nullopt;
  if (clean.starts_with('+')) clean.erase(0, 1);
  return base::parse_double(clean);
}

Value round_number(Runtime& rt, const Value& number, int64_t digits) {
  if (number.is(Kind::BigInt)) {
    if (digits >= 0) return number;
    fail_big_integer(rt);
  }
  if (number.is_integral()) {
    if (digits >= 0) return Value::integer(number.as_int());
    if (digits < -18) return Value::integer(0);
    int64_t unit = 1;
    for (int64_t i = digits; i < 0; ++i) unit *= 10;
    int64_t rest = floor_mod(rt, number.as_int(), unit);
    int64_t down = number.as_int() - rest;
    bool up = rest > unit - rest || (rest == unit - rest && (floor_div(rt, down, unit) & 1) != 0);
    int64_t result = down;
    if (up && __builtin_add_overflow(down, unit, &result)) fail_big_integer(rt);
    return Value::integer(result);
  }
  double value = number.as_real();
  if (!std::isfinite(value) || digits > 323) return number;
  if (digits < -308) return Value::real(std::copysign(0.0, value));
  // The exact decimal expansion decides, as in Python: print correctly rounded, read back.
  if (digits >= 0) return Value::real(*base::parse_double(fmt::format("{:.{}f}", value, static_cast<int>(digits))));
  double unit = std::pow(10.0, static_cast<double>(-digits));
  double scaled = value / unit;
  double rounded = std::nearbyint(scaled);
  double result = rounded * unit;
  if (std::isinf(result)) rt.fail("OverflowError", "rounded value too large to represent");
  return Value::real(result);
}

}  // namespace kvfork::jinja
