// The text of an answer as its tokens arrive, up to the first stop string.
//
// One definition for all: generate() ends where an AnswerStream ends, and answer_text() is what one returns in all.
// An AnswerStream belongs to one thread; the Tokenizer must outlive it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kvfork/tokenizer.h"

namespace kvfork {

/// Decodes without special tokens. A stop string may begin and end inside tokens; of several, the one that begins
/// first ends the text, which is cut before it. A stop string that is a special token's whole text ends the answer
/// at that token, though the token is no part of the text.
class AnswerStream {
 public:
  /// Throws Error{InvalidArgument} for an empty stop string.
  AnswerStream(const Tokenizer& tokenizer, std::span<const std::string> stop);

  /// Text that is certain with this id, neither a part of a stop string nor the possible start of one; often empty.
  /// After stopped(), nothing.
  std::string push(int32_t id);
  /// What was held back. No push may follow.
  std::string finish();
  /// Whether the text holds a stop string.
  bool stopped() const noexcept { return stopped_; }

 private:
  std::string take(std::string_view text);
  size_t longest_possible_start() const;

  DecodeStream stream_;
  std::vector<std::string> stop_;
  std::vector<int32_t> stop_ids_;  // special tokens among them
  std::string held_;               // text not yet returned
  size_t longest_stop_ = 0;
  bool stopped_ = false;
};

/// The text of an answer's ids: decoded without special tokens, cut before the first stop string.
std::string answer_text(const Tokenizer& tokenizer, std::span<const int32_t> ids,
                        std::span<const std::string> stop = {});

}  // namespace kvfork
