// Parses a regular expression in Oniguruma's Ruby syntax into PCRE2 syntax with holes for character sets.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/code_point_set.h"

namespace kvfork::tokenizer {

/// PCRE2 syntax text, or the set that stands at this place.
struct RegexPart {
  std::string syntax;
  int set = -1;  ///< index into RegexParts::sets; then `syntax` is empty
};

struct RegexParts {
  std::vector<RegexPart> parts;
  std::vector<CodePointSet> sets;
};

/// Throws Error{Corrupt} or Error{Unsupported} naming `subject`, the pattern and the position.
RegexParts parse_regex(std::string_view pattern, std::string_view subject);

}  // namespace kvfork::tokenizer
