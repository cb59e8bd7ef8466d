// Unicode facts behind Python's str methods that utf8proc does not carry. Written by tools/make_jinja_unicode.py.
#pragma once

#include <cstddef>

namespace kvfork::jinja {

struct CharRange {
  char32_t first;
  char32_t last;
};

/// A character whose case mapping is more than one character; unused places are 0.
struct SpecialCase {
  char32_t from;
  char32_t to[3];
};

extern const CharRange kOtherLower[];
extern const size_t kOtherLower_size;
extern const CharRange kOtherUpper[];
extern const size_t kOtherUpper_size;
extern const CharRange kOtherDigit[];
extern const size_t kOtherDigit_size;
extern const CharRange kOtherNumeric[];
extern const size_t kOtherNumeric_size;
extern const CharRange kNumberWithoutValue[];
extern const size_t kNumberWithoutValue_size;
extern const SpecialCase kSpecialUpper[];
extern const size_t kSpecialUpper_size;
extern const SpecialCase kSpecialTitle[];
extern const size_t kSpecialTitle_size;
extern const SpecialCase kSpecialLower[];
extern const size_t kSpecialLower_size;
extern const SpecialCase kSpecialFold[];
extern const size_t kSpecialFold_size;

}  // namespace kvfork::jinja
