#include "base/new_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <random>
#include <utility>

#include "base/error.h"

namespace kvfork::base {
namespace {

constexpr uint64_t kFlushBytes = uint64_t{16} << 20;

std::filesystem::path directory_of(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
}

// Unique among threads, processes and, by the random part, machines that share a file system.
std::filesystem::path temporary_name(const std::filesystem::path& path) {
  static std::atomic<unsigned> counter{0};
  std::random_device random;
  return directory_of(path) /
         fmt::format(".{}.{}-{}-{:08x}.tmp", path.filename().string(), ::getpid(), ++counter, random());
}

std::string name_of_descriptor(int descriptor) {
  return fmt::format("/proc/self/fd/{}", descriptor);
}

}  // namespace

NewFile NewFile::create(const std::filesystem::path& path, uint64_t n_bytes) {
  if (!path.has_filename() || std::filesystem::is_directory(path))
    fail(ErrorCode::Io, "{}: expected the name of a file to write, found a directory", path.string());
  std::error_code error;
  if (std::filesystem::exists(path, error) && !std::filesystem::is_regular_file(path, error))
    fail(ErrorCode::Io, "{}: expected the name of a regular file to write, found something else there",
         path.string());
  NewFile file;
  file.path_ = std::filesystem::is_symlink(path, error) ? std::filesystem::weakly_canonical(path, error) : path;
  file.temporary_ = temporary_name(file.path_);
  file.open_unnamed();
  if (file.descriptor_ < 0) file.open_temporary();
  if (n_bytes > 0 && ::fallocate(file.descriptor_, 0, 0, static_cast<off_t>(n_bytes)) != 0 && errno != EOPNOTSUPP)
    fail_errno(path.string(), fmt::format("make room for {} bytes", n_bytes), errno);
  return file;
}

NewFile::NewFile(NewFile&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::move(other.temporary_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      has_name_(std::exchange(other.has_name_, false)),
      n_written_(other.n_written_),
      n_flushed_(other.n_flushed_) {}

NewFile& NewFile::operator=(NewFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(temporary_, other.temporary_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(has_name_, other.has_name_);
  std::swap(n_written_, other.n_written_);
  std::swap(n_flushed_, other.n_flushed_);
  return *this;
}

NewFile::~NewFile() {
  discard();
}

void NewFile::discard() noexcept {
  if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
  if (std::exchange(has_name_, false)) ::unlink(temporary_.c_str());
}

// A file without a name goes away with its process, however that ends.
void NewFile::open_unnamed() {
  descriptor_ = ::open(directory_of(path_).c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666);
  if (descriptor_ >= 0 && ::access(name_of_descriptor(descriptor_).c_str(), F_OK) != 0)
    ::close(std::exchange(descriptor_, -1));  // without /proc it could not get a name later
}

void NewFile::open_temporary() {
  descriptor_ = ::open(temporary_.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0666);
  if (descriptor_ < 0) fail_errno(path_.string(), "create", errno);
  has_name_ = true;
}

void NewFile::link_unnamed() {
  if (has_name_) return;
  if (::linkat(AT_FDCWD, name_of_descriptor(descriptor_).c_str(), AT_FDCWD, temporary_.c_str(),
               AT_SYMLINK_FOLLOW) != 0)
    fail_errno(path_.string(), "create", errno);
  has_name_ = true;
}

void NewFile::write(std::span<iovec> parts) {
  while (!parts.empty()) {
    const auto n_parts = static_cast<int>(std::min<size_t>(parts.size(), IOV_MAX));
    const ssize_t n = ::pwritev(descriptor_, parts.data(), n_parts, static_cast<off_t>(n_written_));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_errno(path_.string(), "write", errno);
    auto left = static_cast<size_t>(n);
    n_written_ += left;
    while (!parts.empty() && left >= parts.front().iov_len) {
      left -= parts.front().iov_len;
      parts = parts.subspan(1);
    }
    if (!parts.empty()) {
      parts.front().iov_base = static_cast<std::byte*>(parts.front().iov_base) + left;
      parts.front().iov_len -= left;
    }
    // The disk starts while the rest is copied, so that the sync at the end waits for little.
    if (n_written_ - n_flushed_ >= kFlushBytes) {
      ::sync_file_range(descriptor_, static_cast<off_t>(n_flushed_), static_cast<off_t>(n_written_ - n_flushed_),
                        SYNC_FILE_RANGE_WRITE);
      n_flushed_ = n_written_;
    }
  }
}

void NewFile::write(std::span<const std::byte> bytes) {
  iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
  write({&part, 1});
}

void NewFile::commit() {
  if (::fsync(descriptor_) != 0) fail_errno(path_.string(), "sync", errno);
  link_unnamed();
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail_errno(path_.string(), "replace", errno);
  has_name_ = false;
  // Some network file systems refuse to sync a directory: the name is then theirs to keep.
  const int directory = ::open(directory_of(path_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const bool failed = directory >= 0 && ::fsync(directory) != 0 && errno != EINVAL && errno != ENOTSUP;
  const int error_number = errno;
  if (directory >= 0) ::close(directory);
  if (failed) fail_errno(path_.string(), "sync the directory of", error_number);
}

}  // namespace kvfork::base
