// Regular files opened for reading, and which file a path meant at that moment.
//
// Move-only; owns its descriptor. Thread rule: const methods may be called from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

namespace kvfork::base {

/// Tells one state of one file from every other on this machine, as far as its file system keeps time.
struct FileStamp {
  uint64_t device = 0;
  uint64_t inode = 0;
  uint64_t size = 0;
  int64_t mtime_ns = 0;
  int64_t ctime_ns = 0;

  friend bool operator==(const FileStamp&, const FileStamp&) = default;
};

class File {
 public:
  /// Throws Error{NotFound, Io} naming the path; Io for anything but a regular file.
  static File open(const std::filesystem::path& path);

  File() = default;
  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;
  ~File();

  const std::string& path() const noexcept { return path_; }
  int descriptor() const noexcept { return descriptor_; }

  /// As the file is now. Throws Error{Io}.
  FileStamp stamp() const;

  /// Fills `to` from byte `offset` on. Throws Error{Corrupt} when the file ends before that, Error{Io}.
  void read_at(uint64_t offset, std::span<std::byte> to) const;

  /// Reads at most to.size() bytes from `offset` on; returns how many there were. Throws Error{Io}.
  size_t read_some_at(uint64_t offset, std::span<std::byte> to) const;

 private:
  std::string path_;
  int descriptor_ = -1;
};

}  // namespace kvfork::base
