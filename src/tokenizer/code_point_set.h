// Sets of code points as sorted, disjoint ranges.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tokenizer/unicode.h"

namespace kvfork::tokenizer {

class CodePointSet {
 public:
  struct Range {
    char32_t first, last;
  };

  CodePointSet() = default;
  static CodePointSet of(char32_t first, char32_t last);
  /// Every code point whose Category has its bit (1 << category) in `mask`.
  static CodePointSet of_categories(uint32_t mask);

  /// Adds a range that lies after all others.
  void append(char32_t first, char32_t last) { ranges_.push_back({first, last}); }
  void add(char32_t first, char32_t last);
  void add(const CodePointSet& other);
  CodePointSet intersect(const CodePointSet& other) const;
  CodePointSet complement() const;
  /// Closed under simple case folding.
  CodePointSet fold_case() const;
  const std::vector<Range>& ranges() const noexcept { return ranges_; }

 private:
  void normalize();
  std::vector<Range> ranges_;
};

/// Equal for characters that differ in case alone.
char32_t fold_key(char32_t c);

/// What characters fold to where that is more than one ("ss"), and the characters.
const std::map<std::u32string, CodePointSet>& multiple_foldings();

}  // namespace kvfork::tokenizer
