// The text side of a checkpoint: its tokenizer and chat template.
//
// Immutable after opening; every const method may be called from any thread.
#pragma once

#include <memory>
#include <string>

#include "kvfork/chat.h"
#include "kvfork/tokenizer.h"

namespace kvfork {

class Text {
 public:
  /// Reads tokenizer and chat template from a directory in Hugging Face layout or from a GGUF file; no weights are
  /// touched. A missing chat template is no error until something is rendered. Throws Error{NotFound, Corrupt,
  /// Unsupported, Io, Template}.
  static std::shared_ptr<const Text> open(const std::string& path);

  Text(Tokenizer tokenizer, ChatTemplate chat_template);

  const Tokenizer& tokenizer() const noexcept { return tokenizer_; }
  const ChatTemplate& chat_template() const noexcept { return chat_template_; }

 private:
  Tokenizer tokenizer_;
  ChatTemplate chat_template_;
};

}  // namespace kvfork
