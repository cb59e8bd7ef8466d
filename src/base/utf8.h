// UTF-8: decode, encode, validate. No tables; Unicode properties come from utf8proc where they are needed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace kvfork::base {

/// One decoded code point. `n_bytes` is 0 only at the end of the text; `valid` is false for a byte that starts
/// no well-formed sequence (then n_bytes is 1 and code_point is U+FFFD).
struct CodePoint {
  char32_t code_point = 0;
  uint8_t n_bytes = 0;
  bool valid = false;
};

/// Decodes the code point that starts at byte `position` (overlong forms, surrogates and values beyond
/// U+10FFFF are invalid).
CodePoint decode_utf8(std::string_view text, size_t position) noexcept;

/// Appends `code_point` to `out`; surrogates and out-of-range values become U+FFFD.
void append_utf8(std::string& out, char32_t code_point);

/// Position of the first byte that is not part of well-formed UTF-8, or text.size().
size_t find_invalid_utf8(std::string_view text) noexcept;

/// `text` with each maximal ill-formed subpart replaced by U+FFFD, as Python's errors="replace" and Rust's
/// from_utf8_lossy do.
std::string to_valid_utf8(std::string_view text);

}  // namespace kvfork::base
