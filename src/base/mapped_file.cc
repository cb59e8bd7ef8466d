#include "base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/error.h"

namespace kvfork::base {
namespace {

// An open regular file and its size; closes itself.
class InputFile {
 public:
  explicit InputFile(const std::filesystem::path& path) : path_(path.string()) {
    fd_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd_ < 0) fail_errno(path_, "open", errno);
    struct stat info {};
    if (::fstat(fd_, &info) != 0) {
      const int error_number = errno;
      ::close(fd_);
      fail_errno(path_, "stat", error_number);
    }
    if (!S_ISREG(info.st_mode)) {
      ::close(fd_);
      fail(ErrorCode::Io, "{}: expected a regular file", path_);
    }
    size_ = static_cast<size_t>(info.st_size);
  }
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;
  ~InputFile() { ::close(fd_); }

  const std::string& path() const { return path_; }
  int fd() const { return fd_; }
  size_t size() const { return size_; }

 private:
  std::string path_;
  int fd_ = -1;
  size_t size_ = 0;
};

}  // namespace

MappedFile MappedFile::open(const std::filesystem::path& path) {
  const InputFile file(path);
  MappedFile mapped;
  if (file.size() == 0) return mapped;
  void* address = ::mmap(nullptr, file.size(), PROT_READ, MAP_PRIVATE, file.fd(), 0);
  if (address == MAP_FAILED) fail_errno(file.path(), "map", errno);
  mapped.data_ = static_cast<const std::byte*>(address);
  mapped.size_ = file.size();
  return mapped;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

std::string read_file(const std::filesystem::path& path, size_t max_bytes) {
  const InputFile file(path);
  if (file.size() > max_bytes)
    fail(ErrorCode::Limit, "{}: expected at most {} bytes, found {}", file.path(), max_bytes, file.size());
  std::string content(file.size(), '\0');
  size_t n_read = 0;
  while (n_read < content.size()) {
    const ssize_t n = ::read(file.fd(), content.data() + n_read, content.size() - n_read);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_errno(file.path(), "read", errno);
    if (n == 0) break;  // shrunk while being read: what is there is what the caller gets
    n_read += static_cast<size_t>(n);
  }
  content.resize(n_read);
  return content;
}

}  // namespace kvfork::base
