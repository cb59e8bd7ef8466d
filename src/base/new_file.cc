// Writing a file beside its name and moving it into place.
#include "base/new_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>
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

NewFile NewFile::create(const std::filesystem::path& path, uint64_t n_bytes, Devices devices) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!path.has_filename() || fs::is_directory(status)) {
    if (path.empty()) fail_errno("", "create a file without a name", ENOENT);
    fail(ErrorCode::Io, "{}: cannot write: expected the name of a file, found a directory", path.string());
  }
  NewFile file;
  file.path_ = path;
  if (fs::exists(status) && !fs::is_regular_file(status)) {
    if (devices == Devices::Refuse)
      fail(ErrorCode::Io, "{}: expected the name of a regular file to write, found something else there",
           path.string());
    file.is_device_ = true;
    file.descriptor_ = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
    if (file.descriptor_ < 0) fail_errno(path.string(), "open", errno);
    return file;
  }
  if (fs::is_symlink(path, error)) {
    file.path_ = fs::weakly_canonical(path, error);
    if (error) fail_errno(path.string(), "follow the link", error.value());
  }
  file.temporary_ = temporary_name(file.path_);
  file.open_unnamed();
  if (file.descriptor_ < 0) file.open_temporary();
  file.keep_attributes();
  if (n_bytes > 0 && ::fallocate(file.descriptor_, 0, 0, static_cast<off_t>(n_bytes)) != 0 && errno != EOPNOTSUPP)
    fail_errno(path.string(), fmt::format("make room for {} bytes", n_bytes), errno);
  return file;
}

NewFile::NewFile(NewFile&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::move(other.temporary_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      is_device_(other.is_device_),
      has_name_(std::exchange(other.has_name_, false)),
      n_written_(other.n_written_),
      n_flushed_(other.n_flushed_) {}

NewFile& NewFile::operator=(NewFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(temporary_, other.temporary_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(is_device_, other.is_device_);
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

// A file that only its owner could read stays one. Where the group cannot be kept, the new group gets no more than
// everyone has.
void NewFile::keep_attributes() {
  struct stat old {};
  struct stat now {};
  if (::stat(path_.c_str(), &old) != 0 || ::fstat(descriptor_, &now) != 0) return;
  mode_t mode = old.st_mode & 0777;
  const bool is_kept = (old.st_uid == now.st_uid && old.st_gid == now.st_gid) ||
                       ::fchown(descriptor_, old.st_uid, old.st_gid) == 0 ||
                       ::fchown(descriptor_, static_cast<uid_t>(-1), old.st_gid) == 0;
  if (!is_kept) mode &= ~static_cast<mode_t>(0070) | static_cast<mode_t>((mode & 0007) << 3);
  if (::fchmod(descriptor_, mode) != 0) fail_errno(path_.string(), "keep the mode of", errno);
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
    const ssize_t n = is_device_ ? ::writev(descriptor_, parts.data(), n_parts)
                                 : ::pwritev(descriptor_, parts.data(), n_parts, static_cast<off_t>(n_written_));
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
    if (!is_device_ && n_written_ - n_flushed_ >= kFlushBytes) {
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
  if (is_device_) {
    if (::close(std::exchange(descriptor_, -1)) != 0) fail_errno(path_.string(), "write", errno);
    return;
  }
  if (::fsync(descriptor_) != 0) fail_errno(path_.string(), "sync", errno);
  link_unnamed();
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail_errno(path_.string(), "replace", errno);
  has_name_ = false;
  sync_folder();
}

// Some network file systems refuse to sync a directory: the name is then theirs to keep.
void NewFile::sync_folder() const {
  const int directory = ::open(directory_of(path_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const bool failed = directory >= 0 && ::fsync(directory) != 0 && errno != EINVAL && errno != ENOTSUP;
  const int error_number = errno;
  if (directory >= 0) ::close(directory);
  if (failed)
    fail(ErrorCode::Io,
         "{}: the new file is complete and has its name, but the folder could not be synced: {}; after a crash of "
         "the machine the name may be lost or lead to the old file",
         path_.string(), std::strerror(error_number));
}

}  // namespace kvfork::base
