// One repository's folder in the shared cache:
//
//   models--ORG--NAME/blobs/ETAG               file contents, each once
//   models--ORG--NAME/snapshots/COMMIT/FILE    relative links into blobs
//   models--ORG--NAME/refs/REVISION            the commit a branch or tag stood at
//   models--ORG--NAME/.no_exist/COMMIT/FILE    empty: the commit is known to lack FILE
//   .locks/models--ORG--NAME/ETAG.lock         held while a blob is made
//
// The layout and its order of steps are huggingface_hub's, so both sides can work in one cache at the same time.
// Thread rule: immutable; the file system is shared, and every step is atomic in it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hub/settings.h"

namespace kvfork::hub {

class RepoCache {
 public:
  RepoCache(std::filesystem::path cache, const std::string& repo_id, Links links);

  const std::filesystem::path& cache() const { return cache_; }
  const std::filesystem::path& folder() const { return folder_; }
  std::filesystem::path blob_path(std::string_view etag) const { return folder_ / "blobs" / etag; }
  std::filesystem::path lock_path(std::string_view etag) const;
  std::filesystem::path snapshot_path(std::string_view commit) const { return folder_ / "snapshots" / commit; }
  std::filesystem::path file_path(std::string_view commit, std::string_view file) const {
    return snapshot_path(commit) / file;
  }

  /// Whether the snapshot holds `file` (a dangling link does not count).
  bool has_file(std::string_view commit, std::string_view file) const;
  /// Whether the commit is known not to have `file`.
  bool is_known_absent(std::string_view commit, std::string_view file) const;

  /// The commit that `revision` stands for: itself, or what refs/ says. Empty when unknown.
  std::optional<std::string> find_commit(const std::string& revision) const;

  /// Makes blobs/ and snapshots/COMMIT. Throws Error{Io}.
  void make_folders(std::string_view commit) const;
  /// Remembers that the commit lacks `file`. A failure is ignored: it costs a request later, no more.
  void note_absent(std::string_view commit, std::string_view file) const noexcept;
  /// Points refs/REVISION at `commit`, whole or not at all. Throws Error{Io}.
  void write_ref(const std::string& revision, const std::string& commit) const;

  /// Puts the blob under the file's name in the snapshot: by a relative link; where that cannot be, by moving a
  /// blob that is new (`is_new`), or else by a copy. Throws Error{Io}.
  void place_file(std::string_view etag, std::string_view commit, std::string_view file, bool is_new) const;

  /// Makes the names of blobs and of the snapshot's files durable, where the file system can.
  void sync_names(std::string_view commit) const noexcept;

  /// Throws Error{Io} unless the cache's file system has room for `n_bytes` more.
  void check_space(uint64_t n_bytes) const;

 private:
  std::filesystem::path scratch_path() const;

  std::filesystem::path cache_;
  std::string name_;  // models--ORG--NAME
  std::filesystem::path folder_;
  Links links_;
};

/// Creates a folder and its parents; throws Error{Io} naming it.
void make_folder(const std::filesystem::path& path);

/// Makes a rename or a new name in `folder` durable, where the file system can.
void sync_folder(const std::filesystem::path& folder) noexcept;

/// 1536 -> "1.5 KB" and so on, powers of 1000 as huggingface_hub shows sizes.
std::string readable_size(uint64_t n_bytes);

/// The exclusive lock on a blob, the same that Python's filelock takes. Waits for other holders, as long as the
/// unfinished file grows; throws Error{Io} when it stands still for longer than `max_stall`.
class BlobLock {
 public:
  BlobLock(const std::filesystem::path& lock_file, const std::filesystem::path& unfinished_file,
           std::chrono::milliseconds max_stall, const std::atomic<bool>& stop);
  ~BlobLock();
  BlobLock(const BlobLock&) = delete;
  BlobLock& operator=(const BlobLock&) = delete;

 private:
  bool try_lock(const std::filesystem::path& lock_file);
  int fd_ = -1;
};

}  // namespace kvfork::hub
