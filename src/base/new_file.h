// A file that appears under its name whole or not at all: the one way in which kvfork replaces a file.
//
// It is written without a name, or under a random one beside the final name where the file system knows no unnamed
// files; `commit` syncs it and moves it over whatever has the name. The new file has the mode of the file that it
// replaces, and its owner where the process may set it. Of a symbolic link the target is replaced. Whoever held the
// old file keeps it. A process that dies before `commit` leaves the old file as it was. Move-only. Thread rule: one
// thread at a time; any number of processes and threads may write the same name at once, one of them wins whole.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace kvfork::base {

class NewFile {
 public:
  /// What happens where the path names a device or a pipe: an error, or the bytes go straight into it.
  enum class Devices { Refuse, WriteInto };

  /// Takes room for n_bytes from the disk at once where it can. Throws Error{NotFound, Io}.
  static NewFile create(const std::filesystem::path& path, uint64_t n_bytes, Devices devices = Devices::Refuse);

  NewFile(NewFile&& other) noexcept;
  NewFile& operator=(NewFile&& other) noexcept;
  /// Without commit: nothing is left.
  ~NewFile();

  /// Appends the parts in order; their lengths are spent. Throws Error{Io}.
  void write(std::span<iovec> parts);
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }

  /// On return the file stands under its name and has reached the disk. Throws Error{Io}; the name is then as it
  /// was, unless the message says that only the sync of the folder failed.
  void commit();

 private:
  NewFile() = default;
  void open_unnamed();
  void open_temporary();
  void keep_attributes();
  void link_unnamed();
  void sync_folder() const;
  void discard() noexcept;

  std::filesystem::path path_;
  std::filesystem::path temporary_;
  int descriptor_ = -1;
  bool is_device_ = false;
  bool has_name_ = false;  // temporary_ exists
  uint64_t n_written_ = 0;
  uint64_t n_flushed_ = 0;
};

}  // namespace kvfork::base
