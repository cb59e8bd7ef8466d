// What an ETag says about a blob, and the check of small blobs; large ones are hashed while they stream by.
//
// Thread rule: none needed.
#pragma once

#include <filesystem>
#include <string_view>

namespace kvfork::hub {

/// What an ETag promises about the content.
enum class EtagKind {
  Sha256,   ///< 64 hex digits: the file is in LFS or Xet
  GitSha1,  ///< 40 hex digits: git's name of the blob (some mirrors: plain SHA-1)
  Opaque,   ///< anything else; only the size can be checked
};
EtagKind etag_kind(std::string_view etag);

/// Whether the file's content has this SHA-1, as a git blob or plain.
bool matches_sha1(const std::filesystem::path& path, std::string_view etag);

}  // namespace kvfork::hub
