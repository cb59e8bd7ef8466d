// Unicode facts as the `tokenizers` package has them, measured by tools/make_unicode_tables.py. Use unicode.h.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kvfork::tokenizer {

/// From `first` on (up to the next run) every code point has this Category.
struct CategoryRun {
  char32_t first;
  uint8_t category;
};
struct CodePointRange {
  char32_t first, last;
};
/// From `first` on every code point has this script, by number; 0 goes with any.
struct ScriptRun {
  char32_t first;
  uint16_t script;
};
/// `code_point` becomes `length` code points at `offset` of the table's pool.
struct Mapping {
  char32_t code_point;
  uint16_t offset;
  uint8_t length;
};
struct CombiningClass {
  char32_t code_point;
  uint8_t value;
};
/// `first` followed by `second` composes to `composed`.
struct Composition {
  char32_t first, second, composed;
};

extern const CategoryRun kCategoryRuns[];
extern const size_t kCategoryRuns_count;
extern const CodePointRange kWordRanges[];
extern const size_t kWordRanges_count;
extern const CodePointRange kNumericRanges[];
extern const size_t kNumericRanges_count;
extern const CodePointRange kPunctuationRanges[];
extern const size_t kPunctuationRanges_count;
extern const CodePointRange kCombiningMarkRanges[];
extern const size_t kCombiningMarkRanges_count;
extern const CodePointRange kExtendingRanges[];
extern const size_t kExtendingRanges_count;
/// [:alpha:], [:upper:] and [:lower:] of the regular expressions.
extern const CodePointRange kAlphaRanges[];
extern const size_t kAlphaRanges_count;
extern const CodePointRange kUpperRanges[];
extern const size_t kUpperRanges_count;
extern const CodePointRange kLowerRanges[];
extern const size_t kLowerRanges_count;
extern const ScriptRun kScriptRuns[];
extern const size_t kScriptRuns_count;
extern const Mapping kCanonical[];
extern const size_t kCanonical_count;
extern const char32_t kCanonical_pool[];
extern const Mapping kCompatible[];
extern const size_t kCompatible_count;
extern const char32_t kCompatible_pool[];
extern const Mapping kLowercase[];
extern const size_t kLowercase_count;
extern const char32_t kLowercase_pool[];
extern const CombiningClass kCombiningClasses[];
extern const size_t kCombiningClasses_count;
extern const Composition kCompositions[];
extern const size_t kCompositions_count;

}  // namespace kvfork::tokenizer
