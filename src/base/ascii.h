// Kinds of ASCII characters, whatever the locale of the process.
#pragma once

namespace kvfork::base {

constexpr bool is_ascii_space(char c) noexcept {
  return c == ' ' || (c >= '\t' && c <= '\r');
}
constexpr bool is_ascii_digit(char c) noexcept {
  return c >= '0' && c <= '9';
}
constexpr char to_ascii_lower(char c) noexcept {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
}
constexpr bool is_ascii_letter(char c) noexcept {
  return to_ascii_lower(c) >= 'a' && to_ascii_lower(c) <= 'z';
}
/// The value of a hexadecimal digit, or -1.
constexpr int hex_value(char c) noexcept {
  const char lower = to_ascii_lower(c);
  return is_ascii_digit(c) ? c - '0' : lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

}  // namespace kvfork::base
