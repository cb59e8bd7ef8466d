// Paths, links and locks of one repository in the shared cache.
#include "hub/cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <thread>

#include "base/error.h"
#include "base/mapped_file.h"
#include "base/new_file.h"
#include "hub/names.h"

namespace kvfork::hub {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxRefBytes = 4096;

std::string folder_name(const std::string& repo_id) {
  std::string name = "models--" + repo_id;
  if (const size_t slash = name.find('/'); slash != std::string::npos) name.replace(slash, 1, "--");
  return name;
}

bool is_present(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

// snapshots/COMMIT/a/b.json -> ../../../blobs/ETAG
fs::path link_target(std::string_view etag, std::string_view file) {
  fs::path target = "../..";
  for (const char c : file) {
    if (c == '/') target /= "..";
  }
  return target / "blobs" / etag;
}

void sync_path(const fs::path& path, int flags) noexcept {
  const int fd = ::open(path.c_str(), flags | O_CLOEXEC);
  if (fd < 0) return;
  ::fsync(fd);
  ::close(fd);
}

void rename_file(const fs::path& from, const fs::path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) base::fail_errno(to.string(), "rename into place", errno);
}

}  // namespace

void make_folder(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) {
    base::fail(ErrorCode::Io,
               "{}: cannot make this folder: {}; HF_HOME or HF_HUB_CACHE name another place for the cache",
               path.string(), error.message());
  }
}

void sync_folder(const fs::path& folder) noexcept {
  sync_path(folder, O_RDONLY | O_DIRECTORY);
}

std::string readable_size(uint64_t n_bytes) {
  if (n_bytes < 1000) return fmt::format("{} bytes", n_bytes);
  auto value = static_cast<double>(n_bytes);
  const char* unit = "";
  for (const char* next : {"KB", "MB", "GB", "TB", "PB", "EB"}) {
    if (value < 999.95) break;
    value /= 1000;
    unit = next;
  }
  return fmt::format("{:.1f} {}", value, unit);
}

RepoCache::RepoCache(fs::path cache, const std::string& repo_id, Links links)
    : cache_(std::move(cache)), name_(folder_name(repo_id)), folder_(cache_ / name_), links_(links) {}

fs::path RepoCache::lock_path(std::string_view etag) const {
  return cache_ / ".locks" / name_ / (std::string(etag) + ".lock");
}

// Beside blobs/ and snapshots/, where no reader of the cache looks.
fs::path RepoCache::scratch_path() const {
  static std::atomic<unsigned> counter = 0;
  return folder_ / fmt::format("tmp_{}_{}", ::getpid(), counter++);
}

bool RepoCache::has_file(std::string_view commit, std::string_view file) const {
  return is_present(file_path(commit, file));
}

bool RepoCache::is_known_absent(std::string_view commit, std::string_view file) const {
  return is_present(folder_ / ".no_exist" / commit / file);
}

std::optional<std::string> RepoCache::find_commit(const std::string& revision) const {
  if (is_commit(revision)) return revision;
  const fs::path ref = folder_ / "refs" / revision;
  std::error_code ignored;
  if (!fs::is_regular_file(ref, ignored) || fs::file_size(ref, ignored) > kMaxRefBytes) return std::nullopt;
  const std::string commit = base::read_file(ref, kMaxRefBytes);
  if (!stays_inside(commit) || commit.find('/') != std::string::npos) return std::nullopt;
  return commit;
}

void RepoCache::make_folders(std::string_view commit) const {
  make_folder(snapshot_path(commit));
  make_folder(folder_ / "blobs");
}

void RepoCache::note_absent(std::string_view commit, std::string_view file) const noexcept {
  try {
    const fs::path path = folder_ / ".no_exist" / commit / file;
    if (is_present(path)) return;
    make_folder(path.parent_path());
    const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (fd >= 0) ::close(fd);
  } catch (const std::exception&) {
    return;
  }
}

void RepoCache::write_ref(const std::string& revision, const std::string& commit) const {
  if (revision == commit || find_commit(revision) == commit) return;
  const fs::path ref = folder_ / "refs" / revision;
  make_folder(ref.parent_path());
  auto file = base::NewFile::create(ref, 0);
  file.write(commit);
  file.commit();
}

void RepoCache::place_file(std::string_view etag, std::string_view commit, std::string_view file,
                           bool is_new) const {
  const fs::path name = file_path(commit, file);
  const fs::path blob = blob_path(etag);
  if (is_present(name)) return;
  make_folder(name.parent_path());
  ::unlink(name.c_str());  // a dangling link
  if (links_ == Links::Try) {
    if (::symlink(link_target(etag, file).c_str(), name.c_str()) == 0) return;
    if (errno == EEXIST && is_present(name)) return;
    if (errno != EPERM && errno != EACCES && errno != EOPNOTSUPP && errno != ENOSYS && errno != EEXIST) {
      base::fail_errno(name.string(), "link", errno);
    }
  }
  if (is_new) {
    rename_file(blob, name);
  } else {
    const fs::path scratch = scratch_path();
    std::error_code error;
    fs::copy_file(blob, scratch, error);
    if (error) {
      ::unlink(scratch.c_str());
      base::fail(ErrorCode::Io, "{}: cannot copy to {}: {}", blob.string(), name.string(), error.message());
    }
    sync_path(scratch, O_RDONLY);
    rename_file(scratch, name);
  }
}

void RepoCache::sync_names(std::string_view commit) const noexcept {
  sync_folder(folder_ / "blobs");
  sync_folder(snapshot_path(commit));
}

void RepoCache::check_space(uint64_t n_bytes) const {
  fs::path place = folder_;
  struct statvfs space {};
  while (::statvfs(place.c_str(), &space) != 0) {
    if (place == place.root_path()) return;
    place = place.parent_path();
  }
  const uint64_t free_bytes = static_cast<uint64_t>(space.f_bavail) * space.f_frsize;
  if (n_bytes <= free_bytes) return;
  base::fail(
      ErrorCode::Io,
      "{}: expected room for {} ({} bytes), found {} free; free some space or let HF_HUB_CACHE name another disk",
      cache_.string(), readable_size(n_bytes), n_bytes, readable_size(free_bytes));
}

BlobLock::BlobLock(const fs::path& lock_file, const fs::path& unfinished_file, std::chrono::milliseconds max_stall,
                   const std::atomic<bool>& stop) {
  constexpr std::chrono::milliseconds kPoll{50};
  make_folder(lock_file.parent_path());
  const auto size_of = [&] {
    std::error_code ignored;
    return fs::file_size(unfinished_file, ignored);
  };
  auto waiting_since = std::chrono::steady_clock::now();
  auto last_size = size_of();
  while (!try_lock(lock_file)) {
    std::this_thread::sleep_for(kPoll);
    if (const auto size = size_of(); size != last_size) {
      last_size = size;
      waiting_since = std::chrono::steady_clock::now();
    }
    if (stop || std::chrono::steady_clock::now() - waiting_since > max_stall) {
      base::fail(ErrorCode::Io,
                 "{}: expected to get this lock, found another process holding it without progress; "
                 "end that process or try again",
                 lock_file.string());
    }
  }
}

BlobLock::~BlobLock() {
  if (fd_ >= 0) ::close(fd_);
}

// Some versions of filelock remove the file when they let go, so the lock counts only if the name still leads to
// the file that was locked.
bool BlobLock::try_lock(const fs::path& lock_file) {
  fd_ = ::open(lock_file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (fd_ < 0) base::fail_errno(lock_file.string(), "open", errno);
  if (::flock(fd_, LOCK_EX | LOCK_NB) == 0) {
    struct stat held {};
    struct stat named {};
    if (::fstat(fd_, &held) == 0 && ::stat(lock_file.c_str(), &named) == 0 && held.st_ino == named.st_ino &&
        held.st_dev == named.st_dev) {
      return true;
    }
  } else if (errno == ENOSYS || errno == EOPNOTSUPP || errno == ENOLCK) {
    return true;  // this file system has no locks: work without, as it always had to
  } else if (errno != EWOULDBLOCK && errno != EACCES && errno != EINTR) {
    const int error_number = errno;
    ::close(fd_);
    fd_ = -1;
    base::fail_errno(lock_file.string(), "lock", error_number);
  }
  ::close(fd_);
  fd_ = -1;
  return false;
}

}  // namespace kvfork::hub
