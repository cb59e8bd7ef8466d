// Fingerprints of weight files: SHA-256 in lower-case hex, by content alone.
//
// They are remembered between processes, under the cache directory of the user, by what the file system says of a
// file that was not touched since: device, inode, size, times. Thread rule: any thread.
#pragma once

#include <span>
#include <string>

#include "base/mapped_file.h"
#include "base/thread_pool.h"

namespace kvfork::saved {

/// SHA-256 over the SHA-256 digests of the bytes' 4 MiB pieces, the last one shorter.
std::string fingerprint_pieces(std::span<const std::byte> bytes, const base::ThreadPool& pool);

/// SHA-256 over the files' fingerprint_pieces, as hex text, in order.
std::string fingerprint_weights(std::span<const base::MappedFile* const> files, const base::ThreadPool& pool);

}  // namespace kvfork::saved
