// Reading and printing floating-point numbers without the C library's locale.
#include "base/number.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>

namespace kvfork::base {
namespace {

// What std::from_chars leaves out of range: an infinity where the first digit that counts stands above the point.
double beyond_range(std::string_view number) {
  const bool negative = number.front() == '-';
  if (negative) number.remove_prefix(1);
  const size_t e = std::min(number.find_first_of("eE"), number.size());
  const std::string_view digits = number.substr(0, e);
  const size_t point = std::min(digits.find('.'), digits.size());
  const size_t first = digits.find_first_of("123456789");
  int64_t place = first < point ? static_cast<int64_t>(point - first)
                                : static_cast<int64_t>(point) - static_cast<int64_t>(first) + 1;
  if (e < number.size()) {
    std::string_view exponent = number.substr(e + 1);
    if (exponent.starts_with('+')) exponent.remove_prefix(1);
    int64_t value = 0;
    const auto [end, error] = std::from_chars(exponent.data(), exponent.data() + exponent.size(), value);
    if (error != std::errc()) value = exponent.starts_with('-') ? -INT64_MAX / 2 : INT64_MAX / 2;
    place += value;
  }
  const double magnitude = place > 0 ? HUGE_VAL : 0.0;
  return negative ? -magnitude : magnitude;
}

}  // namespace

std::optional<double> parse_double(std::string_view text) noexcept {
  const std::string_view digits = text.starts_with('-') ? text.substr(1) : text;
  // std::from_chars also reads names of infinities and NaN.
  if (digits.empty() || (digits.front() != '.' && (digits.front() < '0' || digits.front() > '9')))
    return std::nullopt;
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc::invalid_argument || end != text.data() + text.size()) return std::nullopt;
  return error == std::errc::result_out_of_range ? beyond_range(text) : value;
}

std::string print_double(double value, int max_whole_digits) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[40];
  const auto result = std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific);
  std::string_view text(buffer, static_cast<size_t>(result.ptr - buffer));
  std::string out;
  if (text.front() == '-') {
    out.push_back('-');
    text.remove_prefix(1);
  }
  const size_t e = text.find('e');
  int exponent = 0;
  std::from_chars(text.data() + e + (text[e + 1] == '+' ? 2 : 1), text.data() + text.size(), exponent);
  std::string digits(1, text[0]);
  if (e > 2) digits.append(text.substr(2, e - 2));
  const int n_digits = static_cast<int>(digits.size());
  if (exponent < -4 || exponent >= max_whole_digits) {
    out += digits.substr(0, 1);
    if (n_digits > 1) out.append(1, '.').append(digits, 1);
    out += exponent < 0 ? "e-" : "e+";
    const int magnitude = std::abs(exponent);
    if (magnitude < 10) out.push_back('0');
    return out + std::to_string(magnitude);
  }
  if (exponent < 0) return out + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  if (n_digits <= exponent + 1)
    return out + digits + std::string(static_cast<size_t>(exponent + 1 - n_digits), '0') + ".0";
  const auto whole = static_cast<size_t>(exponent) + 1;
  return out + digits.substr(0, whole) + "." + digits.substr(whole);
}

}  // namespace kvfork::base
