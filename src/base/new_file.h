// A file that appears under its name whole or not at all.
//
// It is written without a name, or under a temporary one beside the final name where the file system knows no
// unnamed files; `commit` syncs it and moves it over whatever has the name. Whoever held the old file keeps it. A
// process that dies before leaves the old file as it was. Move-only. Thread rule: one thread at a time; any number
// of processes and threads may write the same name at once, one of them wins whole.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

namespace kvfork::base {

class NewFile {
 public:
  /// Room for n_bytes is taken from the disk at once where it can be. Throws Error{NotFound, Io}.
  static NewFile create(const std::filesystem::path& path, uint64_t n_bytes);

  NewFile(NewFile&& other) noexcept;
  NewFile& operator=(NewFile&& other) noexcept;
  /// Without commit: nothing is left.
  ~NewFile();

  /// Appends the parts in order; their lengths are spent. Throws Error{Io}.
  void write(std::span<iovec> parts);
  void write(std::span<const std::byte> bytes);

  /// On return the file stands under its name and has reached the disk. Throws Error{Io}; the name is then as it
  /// was.
  void commit();

 private:
  NewFile() = default;
  void open_unnamed();
  void open_temporary();
  void discard() noexcept;
  void link_unnamed();

  std::filesystem::path path_;
  std::filesystem::path temporary_;
  int descriptor_ = -1;
  bool has_name_ = false;  // temporary_ exists
  uint64_t n_written_ = 0;
  uint64_t n_flushed_ = 0;
};

}  // namespace kvfork::base
