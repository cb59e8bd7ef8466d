// Files as bytes: read whole, or mapped read-only.
//
// Thread rule: a MappedFile is immutable after construction and may be read from any thread.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <span>
#include <string>

#include "base/file.h"

namespace kvfork::base {

/// A private read-only mapping of a whole regular file. Move-only; the mapping lives as long as the object.
/// If the file is truncated by someone else while mapped, reading past its new end raises SIGBUS.
class MappedFile {
 public:
  /// Throws Error{NotFound, Io} naming the path. An empty file maps to an empty span.
  static MappedFile open(const std::filesystem::path& path) { return map(File::open(path)); }
  static MappedFile map(File file);

  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  const std::string& path() const noexcept { return file_.path(); }
  const File& file() const noexcept { return file_; }
  /// What the file was when it was mapped.
  const FileStamp& stamp() const noexcept { return stamp_; }
  /// That the file has the size and the time that it had when it was mapped: what is changed in place shows in the
  /// mapping. A file that another one has replaced under its name is still what it was. Throws Error{Corrupt, Io}.
  void expect_unchanged() const;
  std::span<const std::byte> bytes() const noexcept { return {data_, static_cast<size_t>(stamp_.size)}; }

 private:
  File file_;
  FileStamp stamp_;
  const std::byte* data_ = nullptr;
};

/// The whole file as a string. Throws Error{NotFound, Io}, or Error{Limit} beyond `max_bytes`.
std::string read_file(const std::filesystem::path& path, size_t max_bytes = size_t{1} << 30);

/// The same, or nothing where there is no such file. What is there but no regular file (a folder, a link to
/// nothing) throws.
std::optional<std::string> read_file_if_present(const std::filesystem::path& path,
                                                size_t max_bytes = size_t{1} << 30);

}  // namespace kvfork::base
