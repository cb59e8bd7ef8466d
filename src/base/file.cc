// Opening and reading regular files.
#include "base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/error.h"

namespace kvfork::base {
namespace {

int64_t nanoseconds(const timespec& time) {
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

struct stat stat_of(int descriptor, const std::string& path) {
  struct stat info {};
  if (::fstat(descriptor, &info) != 0) fail_errno(path, "stat", errno);
  return info;
}

}  // namespace

File File::open(const std::filesystem::path& path) {
  File file;
  file.path_ = path.string();
  file.descriptor_ =
      ::open(file.path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a pipe is refused, not waited for
  if (file.descriptor_ < 0) fail_errno(file.path_, "open", errno);
  if (!S_ISREG(stat_of(file.descriptor_, file.path_).st_mode))
    fail(ErrorCode::Io, "{}: expected a regular file", file.path_);
  return file;
}

File::File(File&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)) {}

File& File::operator=(File&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

File::~File() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

FileStamp File::stamp() const {
  const struct stat info = stat_of(descriptor_, path_);
  return {.device = info.st_dev,
          .inode = info.st_ino,
          .size = static_cast<uint64_t>(info.st_size),
          .mtime_ns = nanoseconds(info.st_mtim),
          .ctime_ns = nanoseconds(info.st_ctim)};
}

void File::read_at(uint64_t offset, std::span<std::byte> to) const {
  const size_t n_read = read_some_at(offset, to);
  if (n_read < to.size())
    fail(ErrorCode::Corrupt, "{}: expected {} bytes at byte {}, found {}; the file was cut", path_, to.size(),
         offset, n_read);
}

size_t File::read_some_at(uint64_t offset, std::span<std::byte> to) const {
  size_t n_read = 0;
  while (n_read < to.size()) {
    const ssize_t n =
        ::pread(descriptor_, to.data() + n_read, to.size() - n_read, static_cast<off_t>(offset + n_read));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_errno(path_, "read", errno);
    if (n == 0) break;
    n_read += static_cast<size_t>(n);
  }
  return n_read;
}

}  // namespace kvfork::base
