// One file of a repository, from the Hub into the cache: resumed, verified, renamed, linked.
//
// Thread rule: a call uses one Client; calls for different files run side by side.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "hub/cache.h"
#include "hub/client.h"

namespace kvfork::hub {

struct FileRequest {
  std::string commit;
  std::string file;
  FileMetadata metadata;
};

/// Bytes of the file now in place, out of its size (0 when the Hub gives none).
using FetchProgress = std::function<void(uint64_t done, uint64_t total)>;

/// Brings the file under its name in the snapshot. Returns the bytes received. Throws HubError and Error{Corrupt,
/// Io}; the blob has its name only if its content was proven by then.
uint64_t fetch_file(Client& client, const RepoCache& cache, FileRequest request, const FetchProgress& on_progress);

/// Bytes still to receive for the file, judged from the cache.
uint64_t bytes_missing(const RepoCache& cache, const FileMetadata& metadata);

}  // namespace kvfork::hub
