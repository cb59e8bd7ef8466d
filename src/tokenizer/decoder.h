// Decoders of tokenizer.json, as streams: token strings in, text out, as soon as it is certain.
//
// A decoder is a chain of steps. The package applies each step to the whole list of tokens; here a step is fed one
// token at a time and passes on what no later token can change, so that a full decode and a streamed one run the
// same code and agree by construction.
// Thread rule: a Decoder is immutable; the steps it makes belong to one decode.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_tree.h"
#include "tokenizer/text_limit.h"

namespace kvfork::tokenizer {

using base::Json;

/// Tokens on their way through a decoder, and how long one may get.
struct TokenList : std::vector<std::string> {
  explicit TokenList(const TextLimit& limit_in) : limit(limit_in) {}
  TextLimit limit;
};

/// One stage at work. Throws Error{Limit} where a token would pass its bound.
class DecodeStep {
 public:
  virtual ~DecodeStep() = default;
  /// Takes the next token; appends to `out` the tokens that are now certain.
  virtual void push(std::string token, TokenList& out) = 0;
  /// No more tokens: appends what was held back and returns to the initial state.
  virtual void finish(TokenList& out) = 0;
};

/// Makes fresh steps of one kind. `fused` says that the tokens that arrive are parts of a single one.
class DecoderPart {
 public:
  virtual ~DecoderPart() = default;
  virtual std::unique_ptr<DecodeStep> make_step(bool fused) const = 0;
  /// Whether what leaves the step is a single token in parts.
  virtual bool fuses() const { return false; }
};

/// The stages of one decoding: token strings in, text out.
class DecodeChain {
 public:
  /// Appends to `out` the text that is now certain.
  void push(std::string token, std::string& out);
  /// No more tokens: appends the rest and starts anew.
  void finish(std::string& out);

 private:
  friend class Decoder;
  void run_from(size_t first, TokenList tokens, std::string& out);

  std::vector<std::unique_ptr<DecodeStep>> steps_;
  size_t n_bytes_ = 0;  // of the tokens pushed
};

class Decoder {
 public:
  /// No decoder: tokens are joined by spaces.
  Decoder();
  /// Throws Error{Unsupported} for a type that kvfork does not run, Error{Corrupt} for a malformed one.
  explicit Decoder(const Json& json);

  DecodeChain make_chain() const;
  /// Whether this is ByteLevel and nothing else.
  bool is_byte_level() const noexcept { return is_byte_level_; }

 private:
  std::vector<std::shared_ptr<const DecoderPart>> parts_;
  bool is_byte_level_ = false;
};

/// Length of the longest prefix of `bytes` that does not end inside a character that more bytes may complete.
size_t complete_prefix(std::string_view bytes) noexcept;

/// Transformers' clean_up_tokenization as a stream of text.
class CleanupStream {
 public:
  void push(std::string_view text, std::string& out);
  void finish(std::string& out);

 private:
  std::string held_;
};

}  // namespace kvfork::tokenizer
