// Normal forms and categories over the tables.
#include "tokenizer/unicode.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <vector>

#include "base/utf8.h"
#include "tokenizer/unicode_tables.h"

namespace kvfork::tokenizer {
namespace {

constexpr size_t kBlock = 128;
constexpr size_t kCodePoints = 0x110000;

constexpr char32_t kHangulFirst = 0xAC00, kHangulCount = 11172;
constexpr char32_t kHangulL = 0x1100, kHangulV = 0x1161, kHangulT = 0x11A7;
constexpr char32_t kHangulNV = 21, kHangulNT = 28, kHangulNL = 19;

uint16_t bits_of_category(uint8_t category) {
  uint16_t bits = category;
  if (category >= Lu && category <= Lo) bits |= kIsLetter;
  if (category >= Nd && category <= No) bits |= kIsNumber;
  if (category >= Mn && category <= Me) bits |= kIsMark;
  return bits;
}

void mark(std::vector<uint16_t>& words, const CodePointRange* ranges, size_t count, uint16_t bit) {
  for (size_t i = 0; i < count; ++i) {
    for (char32_t c = ranges[i].first; c <= ranges[i].last; ++c) words[c] |= bit;
  }
}

std::vector<uint16_t> make_property_words() {
  std::vector<uint16_t> words(kCodePoints);
  for (size_t i = 0; i < kCategoryRuns_count; ++i) {
    const size_t end = i + 1 < kCategoryRuns_count ? kCategoryRuns[i + 1].first : kCodePoints;
    std::fill(words.begin() + kCategoryRuns[i].first, words.begin() + static_cast<ptrdiff_t>(end),
              bits_of_category(kCategoryRuns[i].category));
  }
  mark(words, kWordRanges, kWordRanges_count, kIsWord);
  mark(words, kNumericRanges, kNumericRanges_count, kIsNumeric);
  mark(words, kPunctuationRanges, kPunctuationRanges_count, kIsPunctuation);
  mark(words, kCombiningMarkRanges, kCombiningMarkRanges_count, kIsCombining);
  mark(words, kExtendingRanges, kExtendingRanges_count, kIsExtending);
  for (char32_t c = 0; c < 0x3001; ++c) {
    if (is_white_space(c)) words[c] |= kIsSpace;
  }
  for (size_t i = 0; i < kCombiningClasses_count; ++i) {
    words[kCombiningClasses[i].code_point] |= kMayCompose | kMayDecompose;
  }
  for (size_t i = 0; i < kCanonical_count; ++i) words[kCanonical[i].code_point] |= kMayDecompose;
  for (size_t i = 0; i < kCompatible_count; ++i) words[kCompatible[i].code_point] |= kMayDecompose;
  for (size_t i = 0; i < kCompositions_count; ++i) words[kCompositions[i].second] |= kMayCompose;
  // What NFC changes on its own: singletons and composition exclusions.
  for (size_t i = 0; i < kCanonical_count; ++i) {
    words[kCanonical[i].code_point] |= kMayCompose;
  }
  for (size_t i = 0; i < kCompositions_count; ++i)
    words[kCompositions[i].composed] &= static_cast<uint16_t>(~kMayCompose);
  for (size_t i = 0; i < kCompositions_count; ++i) words[kCompositions[i].second] |= kMayCompose;
  for (char32_t c = kHangulV; c < kHangulV + kHangulNV; ++c) words[c] |= kMayCompose;
  for (char32_t c = kHangulT; c < kHangulT + kHangulNT; ++c) words[c] |= kMayCompose;
  for (char32_t c = kHangulFirst; c < kHangulFirst + kHangulCount; ++c) words[c] |= kMayDecompose;
  return words;
}

struct TwoStage {
  std::vector<uint16_t> stage1;
  std::vector<uint16_t> stage2;
  PropertyTable view;

  TwoStage() {
    const std::vector<uint16_t> words = make_property_words();
    std::map<std::vector<uint16_t>, uint16_t> seen;
    for (size_t begin = 0; begin < kCodePoints; begin += kBlock) {
      std::vector<uint16_t> block(words.begin() + static_cast<ptrdiff_t>(begin),
                                  words.begin() + static_cast<ptrdiff_t>(begin + kBlock));
      auto [it, is_new] = seen.try_emplace(std::move(block), static_cast<uint16_t>(seen.size()));
      if (is_new) {
        stage2.insert(stage2.end(), it->first.begin(), it->first.end());
      }
      stage1.push_back(it->second);
    }
    view = {stage1.data(), stage2.data()};
  }
};

const Mapping* find_mapping(const Mapping* table, size_t count, char32_t c) {
  const Mapping* it =
      std::lower_bound(table, table + count, c, [](const Mapping& m, char32_t x) { return m.code_point < x; });
  return it != table + count && it->code_point == c ? it : nullptr;
}

uint8_t combining_class(char32_t c) {
  const CombiningClass* end = kCombiningClasses + kCombiningClasses_count;
  const CombiningClass* it = std::lower_bound(kCombiningClasses, end, c,
                                              [](const CombiningClass& m, char32_t x) { return m.code_point < x; });
  return it != end && it->code_point == c ? it->value : 0;
}

struct Character {
  char32_t code_point;
  uint8_t combining;
};

void append_decomposed(std::vector<Character>& out, char32_t c, bool compatible, const PropertyTable& table) {
  if ((table[c] & kMayDecompose) == 0) {
    out.push_back({c, 0});
    return;
  }
  if (c >= kHangulFirst && c < kHangulFirst + kHangulCount) {
    const char32_t s = c - kHangulFirst;
    out.push_back({kHangulL + s / (kHangulNV * kHangulNT), 0});
    out.push_back({kHangulV + s % (kHangulNV * kHangulNT) / kHangulNT, 0});
    if (s % kHangulNT != 0) out.push_back({kHangulT + s % kHangulNT, 0});
    return;
  }
  const Mapping* mapping = compatible ? find_mapping(kCompatible, kCompatible_count, c) : nullptr;
  const char32_t* pool = kCompatible_pool;
  if (mapping == nullptr) {
    mapping = find_mapping(kCanonical, kCanonical_count, c);
    pool = kCanonical_pool;
  }
  if (mapping == nullptr) {
    out.push_back({c, combining_class(c)});
    return;
  }
  for (size_t i = 0; i < mapping->length; ++i) {
    const char32_t part = pool[mapping->offset + i];
    out.push_back({part, combining_class(part)});
  }
}

void sort_marks(std::vector<Character>& text) {
  for (size_t i = 0; i < text.size();) {
    if (text[i].combining == 0) {
      ++i;
      continue;
    }
    size_t end = i;
    while (end < text.size() && text[end].combining != 0) ++end;
    std::stable_sort(text.begin() + static_cast<ptrdiff_t>(i), text.begin() + static_cast<ptrdiff_t>(end),
                     [](const Character& a, const Character& b) { return a.combining < b.combining; });
    i = end;
  }
}

/// The primary composite of a pair, or 0.
char32_t compose_pair(char32_t first, char32_t second) {
  if (first >= kHangulL && first < kHangulL + kHangulNL && second >= kHangulV && second < kHangulV + kHangulNV) {
    return kHangulFirst + ((first - kHangulL) * kHangulNV + (second - kHangulV)) * kHangulNT;
  }
  if (first >= kHangulFirst && first < kHangulFirst + kHangulCount && (first - kHangulFirst) % kHangulNT == 0 &&
      second > kHangulT && second < kHangulT + kHangulNT) {
    return first + (second - kHangulT);
  }
  const Composition* end = kCompositions + kCompositions_count;
  const Composition* it =
      std::lower_bound(kCompositions, end, std::pair(first, second),
                       [](const Composition& c, const auto& pair) { return std::pair(c.first, c.second) < pair; });
  return it != end && it->first == first && it->second == second ? it->composed : 0;
}

// Unicode Standard Annex 15: a character composes with the last starter unless something between them blocks it.
void compose(std::vector<Character>& text) {
  size_t out = 0;
  size_t starter = SIZE_MAX;
  uint8_t last_class = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const Character c = text[i];
    const bool adjacent = starter != SIZE_MAX && out == starter + 1;
    if (starter != SIZE_MAX && (adjacent || (last_class < c.combining && last_class != 0))) {
      if (const char32_t composed = compose_pair(text[starter].code_point, c.code_point); composed != 0) {
        text[starter].code_point = composed;
        continue;
      }
    }
    if (c.combining == 0) starter = out;
    last_class = c.combining;
    text[out++] = c;
  }
  text.resize(out);
}

}  // namespace

const PropertyTable& property_table() {
  static const TwoStage table;
  return table.view;
}

bool is_surely_normalized(std::string_view text, NormalForm form) {
  const PropertyTable& table = property_table();
  const bool decomposing = form != NormalForm::NFC;
  const uint16_t mask = decomposing ? kMayDecompose | kMayCompose : kMayCompose;
  // Below U+0080 nothing decomposes; below U+00C0 nothing composes.
  const char* p = text.data();
  const char* end = p + text.size();
  while (p < end) {
    if (end - p >= 8) {
      uint64_t word;
      std::memcpy(&word, p, 8);
      if ((word & 0x8080808080808080u) == 0) {
        p += 8;
        continue;
      }
    }
    if ((table[next_code_point(p)] & mask) != 0) return false;
  }
  return true;
}

std::string normalize(std::string_view text, NormalForm form) {
  const PropertyTable& table = property_table();
  const bool compatible = form == NormalForm::NFKC || form == NormalForm::NFKD;
  std::vector<Character> characters;
  characters.reserve(text.size());
  for (const char *p = text.data(), *end = p + text.size(); p < end;) {
    append_decomposed(characters, next_code_point(p), compatible, table);
  }
  sort_marks(characters);
  if (form == NormalForm::NFC || form == NormalForm::NFKC) compose(characters);
  std::string out;
  out.reserve(text.size());
  for (const Character& c : characters) base::append_utf8(out, c.code_point);
  return out;
}

std::string to_lowercase(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char *p = text.data(), *end = p + text.size(); p < end;) {
    const char32_t c = next_code_point(p);
    if (c < 0x80) {
      out.push_back(static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c));
    } else if (const Mapping* mapping = find_mapping(kLowercase, kLowercase_count, c)) {
      for (size_t i = 0; i < mapping->length; ++i) base::append_utf8(out, kLowercase_pool[mapping->offset + i]);
    } else {
      base::append_utf8(out, c);
    }
  }
  return out;
}

}  // namespace kvfork::tokenizer
