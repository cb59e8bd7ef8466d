// Numbers and strings as template source spells them.
#include "jinja/syntax/literals.h"

#include <cstdint>

#include "jinja/values/text.h"

namespace kvfork::jinja {
namespace {

int digit_of(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return 99;
}

bool is_digit_of(std::string_view source, size_t at, int base) {
  return at < source.size() && digit_of(source[at]) < base;
}

// Digits with single underscores between them; 0 when there is none. `lead_underscore`: one may come first.
size_t match_digits(std::string_view source, size_t at, int base, bool lead_underscore) {
  size_t start = at;
  if (lead_underscore && at < source.size() && source[at] == '_' && is_digit_of(source, at + 1, base)) ++at;
  if (!is_digit_of(source, at, base)) return 0;
  while (true) {
    if (is_digit_of(source, at, base)) {
      ++at;
    } else if (at > start && at < source.size() && source[at] == '_' && is_digit_of(source, at + 1, base)) {
      ++at;
    } else {
      return at;
    }
  }
}

size_t match_float(std::string_view source, size_t position) {
  if (position > 0 && source[position - 1] == '.') return 0;
  size_t at = match_digits(source, position, 10, false);
  if (at == 0) return 0;
  size_t fraction = at < source.size() && source[at] == '.' ? match_digits(source, at + 1, 10, false) : 0;
  size_t mantissa = fraction != 0 ? fraction : at;
  if (mantissa < source.size() && (source[mantissa] == 'e' || source[mantissa] == 'E')) {
    size_t exponent = mantissa + 1;
    if (exponent < source.size() && (source[exponent] == '+' || source[exponent] == '-')) ++exponent;
    if (size_t end = match_digits(source, exponent, 10, false); end != 0) return end;
  }
  return fraction;
}

size_t match_integer(std::string_view source, size_t position) {
  if (!is_digit_of(source, position, 10)) return 0;
  if (source[position] != '0') return match_digits(source, position, 10, false);
  char prefix = position + 1 < source.size() ? static_cast<char>(source[position + 1] | 0x20) : '\0';
  int base = prefix == 'x' ? 16 : prefix == 'o' ? 8 : prefix == 'b' ? 2 : 0;
  if (base != 0) {
    if (size_t end = match_digits(source, position + 2, base, true); end != 0) return end;
  }
  return match_digits(source, position, 1, false);
}

}  // namespace

Number match_number(std::string_view source, size_t position) {
  Number number;
  number.end = match_float(source, position);
  number.is_float = number.end != 0;
  if (!number.is_float) number.end = match_integer(source, position);
  for (size_t i = position; i < number.end; ++i) {
    if (source[i] != '_') number.digits.push_back(source[i]);
  }
  return number;
}

std::string unescape_string(std::string_view body, std::string& error) {
  std::string out;
  out.reserve(body.size());
  for (size_t at = 0; at < body.size();) {
    char c = body[at++];
    if (c != '\\') {
      out.push_back(c);
      continue;
    }
    if (at >= body.size()) {
      error = "\\ at end of string";
      return out;
    }
    char escape = body[at++];
    if (static_cast<unsigned char>(escape) >= 0x80) {
      // jinja2 turns a character outside ASCII into an escape first, so the backslash escapes that one's backslash.
      --at;
      append_escape(out, next_char(body, at));
      continue;
    }
    static constexpr std::string_view kFrom = "\\'\"abfnrtv";
    static constexpr std::string_view kTo = "\\'\"\a\b\f\n\r\t\v";
    size_t simple = kFrom.find(escape);
    if (simple != std::string_view::npos) {
      out.push_back(kTo[simple]);
    } else if (escape == '\n') {
      continue;
    } else if (escape >= '0' && escape <= '7') {
      char32_t value = static_cast<char32_t>(escape - '0');
      for (int i = 0; i < 2 && is_digit_of(body, at, 8); ++i)
        value = value * 8 + static_cast<char32_t>(digit_of(body[at++]));
      append_char(out, value);
    } else if (escape == 'x' || escape == 'u' || escape == 'U') {
      int n_digits = escape == 'x' ? 2 : escape == 'u' ? 4 : 8;
      char32_t value = 0;
      for (int i = 0; i < n_digits; ++i) {
        if (!is_digit_of(body, at, 16)) {
          error = escape == 'x'   ? "truncated \\xXX escape"
                  : escape == 'u' ? "truncated \\uXXXX escape"
                                  : "truncated \\UXXXXXXXX escape";
          return out;
        }
        value = value * 16 + static_cast<char32_t>(digit_of(body[at++]));
      }
      if (value > 0x10FFFF) {
        error = "illegal Unicode character";
        return out;
      }
      append_char(out, value);
    } else if (escape == 'N') {
      error = "character names (\\N{...}) are not supported";
      return out;
    } else {
      out.push_back('\\');
      out.push_back(escape);
    }
  }
  return out;
}

}  // namespace kvfork::jinja
