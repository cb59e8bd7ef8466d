// Appending to an unfinished blob: blocks, write-back, and the thread that hashes.
#include "hub/blob_writer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/sha256.h"

namespace kvfork::hub {
namespace {

// Large enough to make system calls cheap. Blocks of a megabyte were up to five times slower to write on virtual
// machines whose host takes back free memory: the page cache takes whole huge pages for them, which the host must
// first provide again.
constexpr size_t kBlockBytes = 256 << 10;
constexpr size_t kMaxBlocksWaiting = 16;
// Written pages are handed to the disk in steps of this size, so that the final fsync has little left to do.
constexpr uint64_t kWriteBackBytes = 32 << 20;

}  // namespace

// Hashes blocks in order on its own thread. The thread starts with the first block, so small files have none.
class BlobWriter::Hasher {
 public:
  ~Hasher() { stop(); }

  void add(std::string block) {
    std::unique_lock lock(mutex_);
    if (!thread_.joinable()) thread_ = std::thread([this] { work(); });
    changed_.wait(lock, [&] { return waiting_.size() < kMaxBlocksWaiting; });
    waiting_.push_back(std::move(block));
    changed_.notify_all();
  }

  // An empty buffer with room for a block, from those already hashed if there is one.
  std::string take_buffer() {
    const std::lock_guard lock(mutex_);
    std::string buffer;
    if (!free_.empty()) {
      buffer = std::move(free_.back());
      free_.pop_back();
    }
    buffer.clear();
    return buffer;
  }

  void reset() {
    drain();
    sha_.emplace();
  }

  std::string hex() {
    drain();
    return sha_->hex();
  }

  void add_now(std::string_view bytes) {
    drain();
    sha_->add(bytes);
  }

 private:
  void drain() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return waiting_.empty() && !busy_; });
  }

  void stop() {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
      changed_.notify_all();
    }
    if (thread_.joinable()) thread_.join();
  }

  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return ending_ || !waiting_.empty(); });
      if (ending_) return;
      std::string block = std::move(waiting_.front());
      waiting_.pop_front();
      busy_ = true;
      lock.unlock();
      sha_->add(block);
      lock.lock();
      free_.push_back(std::move(block));
      busy_ = false;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::string> waiting_;
  std::vector<std::string> free_;
  bool busy_ = false;
  bool ending_ = false;
  std::optional<base::Sha256> sha_{std::in_place};
  std::thread thread_;
};

BlobWriter::BlobWriter(std::filesystem::path path, uint64_t max_bytes, Hash hash) : path_(std::move(path)) {
  fd_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (fd_ < 0) base::fail_errno(path_.string(), "open", errno);
  struct stat info {};
  ::fstat(fd_, &info);
  size_ = write_back_from_ = static_cast<uint64_t>(info.st_size);
  try {
    if (hash == Hash::Sha256) hasher_ = std::make_unique<Hasher>();
    if (size_ > max_bytes) {
      clear();
    } else if (hasher_ && size_ > 0) {
      hash_existing();
    }
    if (::lseek(fd_, 0, SEEK_END) < 0) base::fail_errno(path_.string(), "seek in", errno);
  } catch (...) {
    ::close(fd_);
    throw;
  }
}

BlobWriter::~BlobWriter() {
  ::close(fd_);
}

void BlobWriter::hash_existing() {
  std::vector<char> buffer(kBlockBytes);
  uint64_t position = 0;
  while (position < size_) {
    const ssize_t n = ::pread(fd_, buffer.data(), buffer.size(), static_cast<off_t>(position));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) base::fail_errno(path_.string(), "read", n < 0 ? errno : EIO);
    hasher_->add_now({buffer.data(), static_cast<size_t>(n)});
    position += static_cast<uint64_t>(n);
  }
}

void BlobWriter::append(std::string_view bytes) {
  while (!bytes.empty()) {
    if (block_.capacity() < kBlockBytes)
      block_.reserve(std::min(kBlockBytes, std::max(bytes.size(), 2 * block_.size())));
    const size_t n = std::min(bytes.size(), kBlockBytes - block_.size());
    block_.append(bytes.substr(0, n));
    bytes.remove_prefix(n);
    size_ += n;
    if (block_.size() == kBlockBytes) flush();
  }
}

void BlobWriter::flush() {
  std::string_view rest = block_;
  while (!rest.empty()) {
    const ssize_t n = ::write(fd_, rest.data(), rest.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      const int error_number = errno;
      size_ -= rest.size();
      block_.clear();
      if (error_number == ENOSPC || error_number == EDQUOT) {
        base::fail(ErrorCode::Io,
                   "{}: expected room to write, found the disk full; free some space or let HF_HUB_CACHE "
                   "name another disk, the next pull goes on from here",
                   path_.string());
      }
      base::fail_errno(path_.string(), "write", error_number);
    }
    rest.remove_prefix(static_cast<size_t>(n));
  }
  if (size_ - write_back_from_ >= kWriteBackBytes) {
    ::sync_file_range(fd_, static_cast<off_t>(write_back_from_), static_cast<off_t>(size_ - write_back_from_),
                      SYNC_FILE_RANGE_WRITE);
    write_back_from_ = size_;
  }
  if (!hasher_) {
    block_.clear();
  } else if (block_.size() == kBlockBytes) {
    hasher_->add(std::move(block_));
    block_ = hasher_->take_buffer();
  } else {
    hasher_->add_now(block_);
    block_.clear();
  }
}

void BlobWriter::clear() {
  block_.clear();
  size_ = write_back_from_ = 0;
  if (hasher_) hasher_->reset();
  if (::ftruncate(fd_, 0) != 0 || ::lseek(fd_, 0, SEEK_SET) < 0)
    base::fail_errno(path_.string(), "truncate", errno);
}

std::string BlobWriter::sha256() {
  flush();
  return hasher_->hex();
}

void BlobWriter::publish(const std::filesystem::path& name) {
  flush();
  if (::fsync(fd_) != 0 && errno != EINVAL) base::fail_errno(path_.string(), "sync", errno);
  if (::rename(path_.c_str(), name.c_str()) != 0) base::fail_errno(name.string(), "rename into place", errno);
}

void BlobWriter::remove() noexcept {
  ::unlink(path_.c_str());
}

}  // namespace kvfork::hub
