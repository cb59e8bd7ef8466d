// Numbers and strings as template source spells them.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace kvfork::jinja {

struct Number {
  size_t end = 0;  ///< 0: no number at this position
  bool is_float = false;
  std::string digits;  ///< without underscores, with the base prefix
};

/// The number that starts at byte `position`, integer or float, by jinja2's rules.
Number match_number(std::string_view source, size_t position);

/// The body of a string literal with its escapes resolved, by Python's unicode-escape codec. `error` says what is
/// wrong with it, or stays empty.
std::string unescape_string(std::string_view body, std::string& error);

}  // namespace kvfork::jinja
