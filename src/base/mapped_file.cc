// Files mapped for reading.
#include "base/mapped_file.h"

#include <sys/mman.h>

#include <cerrno>
#include <utility>

#include "base/error.h"

namespace kvfork::base {

MappedFile MappedFile::map(File file) {
  MappedFile mapped;
  mapped.stamp_ = file.stamp();
  mapped.file_ = std::move(file);
  if (mapped.stamp_.size == 0) return mapped;
  void* address = ::mmap(nullptr, mapped.stamp_.size, PROT_READ, MAP_PRIVATE, mapped.file_.descriptor(), 0);
  if (address == MAP_FAILED) {
    mapped.stamp_.size = 0;
    fail_errno(mapped.path(), "map", errno);
  }
  mapped.data_ = static_cast<const std::byte*>(address);
  return mapped;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : file_(std::move(other.file_)),
      stamp_(std::exchange(other.stamp_, {})),
      data_(std::exchange(other.data_, nullptr)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(file_, other.file_);
  std::swap(stamp_, other.stamp_);
  std::swap(data_, other.data_);
  return *this;
}

void MappedFile::expect_unchanged() const {
  const FileStamp now = file_.stamp();
  if (now.size != stamp_.size || now.mtime_ns != stamp_.mtime_ns)
    fail(
        ErrorCode::Corrupt,
        "{}: expected the file that was opened, found that it was changed since; open the model again, and replace "
        "files by renaming new ones",
        path());
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), static_cast<size_t>(stamp_.size));
}

std::string read_file(const std::filesystem::path& path, size_t max_bytes) {
  const File file = File::open(path);
  const uint64_t size = file.stamp().size;
  if (size > max_bytes)
    fail(ErrorCode::Limit, "{}: expected at most {} bytes, found {}", file.path(), max_bytes, size);
  std::string content(static_cast<size_t>(size), '\0');
  // Shrunk while being read: what is there is what the caller gets.
  content.resize(file.read_some_at(0, std::as_writable_bytes(std::span(content))));
  return content;
}

std::optional<std::string> read_file_if_present(const std::filesystem::path& path, size_t max_bytes) {
  std::error_code error;
  if (std::filesystem::symlink_status(path, error).type() == std::filesystem::file_type::not_found)
    return std::nullopt;
  return read_file(path, max_bytes);
}

}  // namespace kvfork::base
