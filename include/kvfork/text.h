// The text side of a checkpoint: its tokenizer and chat template.
//
// Immutable after opening; every const method may be called from any thread.
#pragma once

#include <memory>
#include <mutex>
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

  /// `path`: where the tokenizer came from, if from files.
  Text(Tokenizer tokenizer, ChatTemplate chat_template, std::string path = {});

  const Tokenizer& tokenizer() const noexcept { return tokenizer_; }
  const ChatTemplate& chat_template() const noexcept { return chat_template_; }

  /// SHA-256 over the tokenizer's files, computed at the first call; empty for a Text that was not opened from a
  /// path. Throws Error{Io}.
  const std::string& tokenizer_fingerprint() const;

 private:
  Tokenizer tokenizer_;
  ChatTemplate chat_template_;
  std::string path_;
  mutable std::mutex fingerprint_mutex_;
  mutable std::string fingerprint_;
};

}  // namespace kvfork
