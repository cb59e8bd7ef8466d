// How much memory this process may still take.
#include "base/available_memory.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <optional>
#include <string>

namespace kvfork::base {
namespace {

// The number in a file that holds one; none for "max" or a file that is not there.
std::optional<size_t> read_number(const std::string& path) {
  std::ifstream file(path);
  size_t value = 0;
  return file >> value ? std::optional(value) : std::nullopt;
}

// The number after `key` in a file of "key value" lines.
std::optional<size_t> read_field(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  for (std::string name; file >> name;) {
    size_t value = 0;
    if (name == key) return file >> value ? std::optional(value) : std::nullopt;
    std::getline(file, name);
  }
  return std::nullopt;
}

size_t left_of(size_t limit, size_t used) {
  return limit - std::min(limit, used);
}

// What a memory controller leaves; files that the kernel can drop do not count as used.
size_t left_in_cgroup(const std::string& limit_file, const std::string& used_file, const std::string& stat_file,
                      const std::string& reclaimable) {
  const auto limit = read_number(limit_file);
  const auto used = read_number(used_file);
  if (!limit || !used) return SIZE_MAX;
  return left_of(*limit, left_of(*used, read_field(stat_file, reclaimable).value_or(0)));
}

size_t left_of_address_space() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return SIZE_MAX;
  const auto n_pages = read_number("/proc/self/statm");
  if (!n_pages) return SIZE_MAX;
  return left_of(limit.rlim_cur, *n_pages * static_cast<size_t>(::sysconf(_SC_PAGESIZE)));
}

}  // namespace

size_t available_memory() {
  const std::string v2 = "/sys/fs/cgroup/memory.";
  const std::string v1 = "/sys/fs/cgroup/memory/memory.";
  const auto system_kib = read_field("/proc/meminfo", "MemAvailable:");
  return std::min({system_kib ? *system_kib * 1024 : SIZE_MAX,
                   left_in_cgroup(v2 + "max", v2 + "current", v2 + "stat", "inactive_file"),
                   left_in_cgroup(v1 + "limit_in_bytes", v1 + "usage_in_bytes", v1 + "stat", "total_inactive_file"),
                   left_of_address_space()});
}

}  // namespace kvfork::base
