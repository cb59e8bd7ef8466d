// Files as bytes: read whole, or mapped read-only.
//
// Thread rule: a MappedFile is immutable after construction and may be read from any thread.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>

namespace kvfork::base {

/// A private read-only mapping of a whole regular file. Move-only; the mapping lives as long as the object.
/// If the file is truncated by someone else while mapped, reading past its new end raises SIGBUS.
class MappedFile {
 public:
  /// Throws Error{NotFound, Io} naming the path. An empty file maps to an empty span.
  static MappedFile open(const std::filesystem::path& path);

  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const noexcept { return {data_, size_}; }

 private:
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

/// The whole file as a string. Throws Error{NotFound, Io}, or Error{Limit} beyond `max_bytes`.
std::string read_file(const std::filesystem::path& path, size_t max_bytes = size_t{1} << 30);

}  // namespace kvfork::base
