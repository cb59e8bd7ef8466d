// Remembers the fingerprints of large files in small files of the user's cache.

#include "saved/fingerprint_memory.h"

#include <ctime>
#include <filesystem>
#include <optional>
#include <string_view>

#include "base/cache_folder.h"
#include "base/error.h"
#include "base/mapped_file.h"
#include "base/new_file.h"
#include "base/sha256.h"

namespace kvfork::saved {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxEntryBytes = 4096;
// A file system may give two changes within one tick of its clock, or a second of NFS's, the same time.
constexpr int64_t kSettledNs = 3'000'000'000;

std::optional<fs::path> directory() {
  auto path = base::cache_folder();
  if (path) *path /= "fingerprints";
  return path;
}

std::string name_of(const base::FileStamp& stamp) {
  return fmt::format("{:x}-{:x}", stamp.device, stamp.inode);
}

// The whole entry but for its own checksum.
std::string body_of(const base::FileStamp& stamp, std::string_view fingerprint) {
  return fmt::format("kvfork fingerprint 1\nsize {}\nmtime {}\nctime {}\nsha256-4MiB {}\n", stamp.size,
                     stamp.mtime_ns, stamp.ctime_ns, fingerprint);
}

std::string entry_of(const base::FileStamp& stamp, std::string_view fingerprint) {
  const std::string body = body_of(stamp, fingerprint);
  return body + "check " + base::sha256_hex(body) + "\n";
}

int64_t now_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

}  // namespace

std::string recall_fingerprint(const base::FileStamp& stamp) {
  const auto folder = directory();
  if (!folder) return "";
  std::string entry;
  try {
    entry = base::read_file(*folder / name_of(stamp), kMaxEntryBytes);
  } catch (const Error&) {
    return "";
  }
  constexpr std::string_view kKey = "\nsha256-4MiB ";
  constexpr size_t kHexDigits = 2 * base::Sha256::kDigestBytes;
  const size_t key = entry.find(kKey);
  if (key == std::string::npos || entry.size() < key + kKey.size() + kHexDigits) return "";
  const std::string fingerprint = entry.substr(key + kKey.size(), kHexDigits);
  return entry == entry_of(stamp, fingerprint) ? fingerprint : "";
}

void remember_fingerprint(const std::string& path, const base::FileStamp& stamp,
                          const std::string& fingerprint) noexcept {
  try {
    const auto folder = directory();
    if (!folder || std::max(stamp.mtime_ns, stamp.ctime_ns) > now_ns() - kSettledNs) return;
    if (base::File::open(path).stamp() != stamp) return;
    fs::create_directories(*folder);
    const std::string entry = entry_of(stamp, fingerprint);
    auto file = base::NewFile::create(*folder / name_of(stamp), 0);
    file.write(std::as_bytes(std::span(entry)));
    file.commit();
  } catch (const std::exception&) {  // a memory that cannot be written: the next process computes again
  }
}

}  // namespace kvfork::saved
