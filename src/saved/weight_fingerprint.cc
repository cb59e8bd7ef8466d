// Fingerprints of weight files: hashed in pieces by all threads, or recalled.
#include "saved/weight_fingerprint.h"

#include <algorithm>
#include <array>
#include <vector>

#include "base/sha256.h"
#include "saved/fingerprint_memory.h"

namespace kvfork::saved {
namespace {

constexpr size_t kPieceBytes = size_t{4} << 20;

using Digest = std::array<std::byte, base::Sha256::kDigestBytes>;

}  // namespace

std::string fingerprint_pieces(std::span<const std::byte> bytes, const base::ThreadPool& pool) {
  std::vector<Digest> digests((bytes.size() + kPieceBytes - 1) / kPieceBytes);
  pool.run_throwing(digests.size(), [&](size_t item, size_t) {
    base::Sha256 sha;
    sha.add(bytes.subspan(item * kPieceBytes, std::min(kPieceBytes, bytes.size() - item * kPieceBytes)));
    sha.finish(digests[item]);
  });
  return base::sha256_hex(std::as_bytes(std::span(digests)));
}

std::string fingerprint_weights(std::span<const base::MappedFile* const> files, const base::ThreadPool& pool) {
  base::Sha256 sha;
  for (const base::MappedFile* file : files) {
    std::string fingerprint = recall_fingerprint(file->stamp());
    if (fingerprint.empty()) {
      fingerprint = fingerprint_pieces(file->bytes(), pool);
      file->expect_unchanged();
      remember_fingerprint(file->path(), file->stamp(), fingerprint);
    }
    sha.add(fingerprint);
  }
  return sha.hex();
}

}  // namespace kvfork::saved
