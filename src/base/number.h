// Numbers as text, the same under every locale.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace kvfork::base {

/// A decimal number: an optional minus sign, digits with an optional point, an optional exponent. Correctly
/// rounded; beyond the range of double it becomes an infinity or zero, as in Python. Nothing for any other text.
std::optional<double> parse_double(std::string_view text) noexcept;

/// The shortest text that reads back as `value`, as Python's repr writes it: always with a point or an exponent.
/// Numbers of 10^max_whole_digits and more get an exponent. NaN and infinities are "nan", "inf" and "-inf".
std::string print_double(double value, int max_whole_digits = 16);

}  // namespace kvfork::base
