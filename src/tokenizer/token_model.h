// What turns one pre-tokenized piece of text into token ids.
//
// Thread rule: const methods may be called from any thread; a TokenSink belongs to one call.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kvfork/tokenizer.h"
#include "tokenizer/vocabulary.h"

namespace kvfork::tokenizer {

/// Collects the ids of one encode; with a report also the pieces and what was dropped.
struct TokenSink {
  std::vector<int32_t> ids;
  EncodeReport* report = nullptr;

  void add_dropped(std::string_view bytes);
};

class TokenModel {
 public:
  virtual ~TokenModel() = default;
  /// Appends the ids of `piece` (not empty); fills the report's pieces and dropped bytes when there is one.
  virtual void encode(std::string_view piece, TokenSink& sink) const = 0;
  /// The string of an id as the model's vocabulary has it. Requires vocabulary().has(id).
  const Vocabulary& vocabulary() const noexcept { return vocabulary_; }
  /// The crate's vocabulary size, from which ids of new added tokens count.
  virtual size_t size() const noexcept { return vocabulary_.size(); }

 protected:
  Vocabulary vocabulary_;
};

}  // namespace kvfork::tokenizer
