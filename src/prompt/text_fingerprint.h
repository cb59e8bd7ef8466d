// Fingerprints of a checkpoint's text side: SHA-256 in lower-case hex, by content alone. Thread rule: any thread.
#pragma once

#include <string>
#include <string_view>

#include "kvfork/chat.h"

namespace kvfork::prompt {

/// Of what a tokenizer is made from: tokenizer.json or vocab.json and merges.txt, tokenizer_config.json without its
/// chat template, special_tokens_map.json, added_tokens.json; of a GGUF file, its tokenizer.ggml metadata. Throws
/// Error{Io}.
std::string fingerprint_tokenizer(const std::string& path);

/// Of the template's source and the special tokens that it sees.
std::string fingerprint_template(std::string_view source, const ChatTemplate& chat_template);

}  // namespace kvfork::prompt
