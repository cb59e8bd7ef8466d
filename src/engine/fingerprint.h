// Fingerprints of files: SHA-256 in lower-case hex, by content alone.
//
// Those of weight files are remembered between processes, under the cache directory of the user, by what the file
// system says of a file that was not touched since: device, inode, size, times. Thread rule: any thread.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/mapped_file.h"
#include "base/thread_pool.h"
#include "kvfork/chat.h"

namespace kvfork::engine {

/// SHA-256 over the SHA-256 digests of the bytes' 4 MiB pieces, the last one shorter.
std::string fingerprint_pieces(std::span<const std::byte> bytes, const base::ThreadPool& pool);

/// SHA-256 over the files' fingerprint_pieces, as hex text, in order.
std::string fingerprint_weights(std::span<const base::MappedFile* const> files, const base::ThreadPool& pool);

/// Of what a tokenizer is made from: tokenizer.json or vocab.json and merges.txt, tokenizer_config.json without its
/// chat template, special_tokens_map.json, added_tokens.json; of a GGUF file, its tokenizer.ggml metadata. Throws
/// Error{Io}.
std::string fingerprint_tokenizer(const std::string& path);

/// Of the template's source and the special tokens that it sees.
std::string fingerprint_template(std::string_view source, const ChatTemplate& chat_template);

}  // namespace kvfork::engine
