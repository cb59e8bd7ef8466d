// Character properties and normalization forms, equal to the `tokenizers` package on every code point.
//
// Thread rule: tables are built once on first use; every function may be called from any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace kvfork::tokenizer {

/// General categories, in the order of unicode_tables.cc.
enum Category : uint8_t {
  Cn,
  Lu,
  Ll,
  Lt,
  Lm,
  Lo,
  Mn,
  Mc,
  Me,
  Nd,
  Nl,
  No,
  Pc,
  Pd,
  Ps,
  Pe,
  Pi,
  Pf,
  Po,
  Sm,
  Sc,
  Sk,
  So,
  Zs,
  Zl,
  Zp,
  Cc,
  Cf,
  Co,
};

/// Bits of `properties`. The low five bits of a property word hold the Category.
enum Property : uint16_t {
  kCategoryMask = 0x1F,
  kIsLetter = 0x20,        ///< \p{L}
  kIsNumber = 0x40,        ///< \p{N}
  kIsSpace = 0x80,         ///< White_Space, which is \s everywhere in the package
  kIsWord = 0x100,         ///< \w of the Whitespace pre-tokenizer and of single_word
  kIsNumeric = 0x200,      ///< what Digits separates
  kIsPunctuation = 0x400,  ///< what Punctuation separates
  kIsCombining = 0x800,    ///< what StripAccents removes
  kMayCompose = 0x1000,    ///< not certain to be stable under NFC: a mark, or a second half of a composition
  kMayDecompose = 0x2000,  ///< has a canonical or compatible decomposition, or a combining class
  kIsMark = 0x4000,        ///< \p{M}
  kIsExtending = 0x8000,   ///< joins the grapheme cluster of what is before it
};

struct PropertyTable {
  const uint16_t* stage1;  // [0x110000 >> 7]
  const uint16_t* stage2;  // [n_blocks * 128]
  uint16_t operator[](char32_t c) const noexcept {
    return c < 0x110000 ? stage2[(size_t{stage1[c >> 7]} << 7) | (c & 127)] : 0;
  }
};
const PropertyTable& property_table();

inline bool is_white_space(char32_t c) noexcept {
  return c == 0x20 || (c >= 0x9 && c <= 0xD) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

/// Decodes the code point at `p`, which must start a well-formed sequence, and advances `p`.
inline char32_t next_code_point(const char*& p) noexcept {
  const auto b0 = static_cast<unsigned char>(p[0]);
  if (b0 < 0x80) {
    p += 1;
    return b0;
  }
  const auto b1 = static_cast<unsigned char>(p[1]);
  if (b0 < 0xE0) {
    p += 2;
    return (char32_t{b0} & 0x1F) << 6 | (b1 & 0x3Fu);
  }
  const auto b2 = static_cast<unsigned char>(p[2]);
  if (b0 < 0xF0) {
    p += 3;
    return (char32_t{b0} & 0xF) << 12 | (b1 & 0x3Fu) << 6 | (b2 & 0x3Fu);
  }
  const auto b3 = static_cast<unsigned char>(p[3]);
  p += 4;
  return (char32_t{b0} & 7) << 18 | (b1 & 0x3Fu) << 12 | (b2 & 0x3Fu) << 6 | (b3 & 0x3Fu);
}

/// Length in bytes of the well-formed sequence that `lead` starts.
inline size_t utf8_length(char lead) noexcept {
  const auto b = static_cast<unsigned char>(lead);
  return b < 0x80 ? 1 : b < 0xE0 ? 2 : b < 0xF0 ? 3 : 4;
}

enum class NormalForm { NFC, NFD, NFKC, NFKD };
/// `text` (well-formed UTF-8) in the given form.
std::string normalize(std::string_view text, NormalForm form);
/// True when `text` is certain to be unchanged by normalize(text, form).
bool is_surely_normalized(std::string_view text, NormalForm form);

/// Each character by its full lowercase mapping, without context.
std::string to_lowercase(std::string_view text);

}  // namespace kvfork::tokenizer
