// A bound on what the rules of a tokenizer.json may make of a text.
//
// A few nested replacements can ask for any amount of memory; no tokenizer that is used lengthens a text much.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

#include "base/error.h"

namespace kvfork::tokenizer {

class TextLimit {
 public:
  /// For what is made of a text of `n_bytes`.
  explicit TextLimit(size_t n_bytes = 0) : limit_(std::max(kLeast, n_bytes * kFactor)) {}

  /// Throws Error{Limit} when the text would have more than the bound. Call before it is built.
  void check(size_t n_bytes) const {
    if (n_bytes > limit_)
      base::fail(
          ErrorCode::Limit,
          "tokenizer.json: expected its rules to make at most {} bytes of a text, found that they make {} or "
          "more; do its replacements repeat one another?",
          limit_, n_bytes);
  }

 private:
  static constexpr size_t kLeast = size_t{16} << 20;
  static constexpr size_t kFactor = 64;

  size_t limit_;
};

/// str.replace: every `from` in `text` becomes `to`; an empty one stands between all characters and at both ends,
/// as in Rust. Throws as TextLimit.
std::string replace_all(std::string_view text, std::string_view from, std::string_view to, const TextLimit& limit);

}  // namespace kvfork::tokenizer
