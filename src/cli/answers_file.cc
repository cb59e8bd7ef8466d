// Appending whole lines to the output of a batch.
#include "cli/answers_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "kvfork/error.h"

namespace kvfork::cli {
AnswersFile::AnswersFile(const std::string& path) : path_(path) {
  file_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (file_ < 0) {
    write_error_ = errno;
    if (errno != ENOENT && errno != EISDIR) file_ = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);  // a pipe
    if (file_ >= 0) write_error_ = 0;
  }
  if (file_ < 0 && write_error_ != EISDIR) file_ = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  errno = write_error_;
  if (file_ < 0) fail("open");
  try {
    struct stat status {};
    if (::fstat(file_, &status) != 0) fail("look at");
    is_regular_ = S_ISREG(status.st_mode);
    if (!is_regular_ && write_error_ != 0) {
      errno = write_error_;
      fail("open");
    }
    if (!is_regular_) return;
    lock();
    read_finished();
  } catch (...) {
    ::close(file_);
    throw;
  }
}

AnswersFile::~AnswersFile() {
  ::close(file_);
}

void AnswersFile::fail(const char* action) const {
  throw Error(ErrorCode::Io, fmt::format("{}: cannot {}: {}", path_, action, std::strerror(errno)));
}

void AnswersFile::lock() {
  if (::flock(file_, LOCK_EX | LOCK_NB) == 0) return;
  if (errno == EWOULDBLOCK)
    throw Error(ErrorCode::InvalidArgument, fmt::format("{}: another process is writing to it", path_));
  // A file system without locks: the caller's care.
}

void AnswersFile::read_finished() {
  std::string content;
  char buffer[1 << 16];
  while (true) {
    const ssize_t n = ::pread(file_, buffer, sizeof(buffer), static_cast<off_t>(content.size()));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail("read");
    if (n == 0) break;
    content.append(buffer, static_cast<size_t>(n));
  }
  size_ = 0;
  for (size_t end = content.find('\n'); end != std::string::npos; end = content.find('\n', size_)) {
    finished_.push_back(content.substr(size_, end - size_));
    size_ = end + 1;
  }
  torn_ = content.substr(size_);
}

void AnswersFile::begin() {
  errno = write_error_;
  if (write_error_ != 0) fail("open");
  if (!torn_.empty() && ::ftruncate(file_, static_cast<off_t>(size_)) != 0) fail("cut its torn line");
}

void AnswersFile::append(std::string_view line) {
  size_t done = 0;
  while (done < line.size()) {
    const ssize_t n = ::write(file_, line.data() + done, line.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      const int error = errno;
      if (is_regular_ && ::ftruncate(file_, static_cast<off_t>(size_)) != 0) fail("cut its torn line");
      errno = error;
      fail("write");
    }
    done += static_cast<size_t>(n);
  }
  size_ += line.size();
}

void AnswersFile::sync() {
  if (is_regular_ && write_error_ == 0 && ::fdatasync(file_) != 0 && errno != EINVAL) fail("write to the disk");
}

}  // namespace kvfork::cli
