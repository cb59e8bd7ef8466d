#include "cli/replaced_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

#include "kvfork/error.h"

namespace kvfork::cli {
namespace {

namespace fs = std::filesystem;

std::string directory_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path().string() : ".";
}

std::string name_of_descriptor(int descriptor) {
  return fmt::format("/proc/self/fd/{}", descriptor);
}

}  // namespace

ReplacedFile::ReplacedFile(const std::string& path) : path_(path), target_(path) {
  std::error_code error;
  in_place_ = fs::exists(path, error) && !fs::is_regular_file(path, error);
  if (!in_place_ && fs::is_symlink(path, error)) target_ = fs::weakly_canonical(path, error).string();
  const fs::path target(target_);
  temporary_ =
      (fs::path(directory_of(target)) / fmt::format(".{}.{}.tmp", target.filename().string(), ::getpid())).string();
  if (!in_place_ && !target.has_filename()) {
    errno = path.empty() ? ENOENT : EISDIR;
    fail("create");
  }
  open();
}

ReplacedFile::~ReplacedFile() {
  discard();
}

void ReplacedFile::open() {
  if (in_place_) {
    file_ = ::open(target_.c_str(), O_WRONLY | O_CLOEXEC);
    if (file_ < 0) fail("open");
    return;
  }
  file_ = ::open(directory_of(target_).c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666);
  // Without /proc it could not get a name later.
  if (file_ >= 0 && ::access(name_of_descriptor(file_).c_str(), F_OK) != 0) ::close(std::exchange(file_, -1));
  if (file_ >= 0) return;
  file_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file_ < 0) fail("create");
  has_name_ = true;
}

void ReplacedFile::write(const void* data, size_t n_bytes) {
  const char* at = static_cast<const char*>(data);
  while (n_bytes > 0) {
    const ssize_t n = ::write(file_, at, n_bytes);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail("write");
    at += n;
    n_bytes -= static_cast<size_t>(n);
  }
}

void ReplacedFile::finish() {
  if (!in_place_) {
    if (::fsync(file_) != 0) fail("write");
    if (!has_name_) {
      ::unlink(temporary_.c_str());  // of an earlier process with this id
      if (::linkat(AT_FDCWD, name_of_descriptor(file_).c_str(), AT_FDCWD, temporary_.c_str(), AT_SYMLINK_FOLLOW) !=
          0)
        fail("create");
      has_name_ = true;
    }
  }
  if (::close(std::exchange(file_, -1)) != 0) fail("write");
  if (in_place_) return;
  if (std::rename(temporary_.c_str(), target_.c_str()) != 0) fail("replace");
  has_name_ = false;
}

void ReplacedFile::finish(std::string_view content) {
  write(content.data(), content.size());
  finish();
}

void ReplacedFile::discard() noexcept {
  if (file_ >= 0) ::close(std::exchange(file_, -1));
  if (std::exchange(has_name_, false)) ::unlink(temporary_.c_str());
}

void ReplacedFile::fail(const char* action) {
  const int error_number = errno;
  discard();
  throw Error(error_number == ENOENT ? ErrorCode::NotFound : ErrorCode::Io,
              fmt::format("{}: cannot {}: {}", path_, action, std::strerror(error_number)));
}

}  // namespace kvfork::cli
