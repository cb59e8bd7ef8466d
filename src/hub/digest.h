// SHA-256 while bytes stream by, and the check of a finished blob against its ETag.
//
// Thread rule: one thread at a time.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

namespace kvfork::hub {

class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;

  void reset();
  void add(std::string_view bytes);
  std::string hex();  ///< of everything since reset; further use needs a reset

 private:
  struct State;
  std::unique_ptr<State> state_;
};

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
