// Finds the folder of a user's cache from the environment.
#include "base/cache_folder.h"

#include <cstdlib>

namespace kvfork::base {

std::optional<std::filesystem::path> cache_folder() {
  namespace fs = std::filesystem;
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && fs::path(cache).is_absolute()) return fs::path(cache) / "kvfork";
  const char* home = std::getenv("HOME");
  if (home != nullptr && fs::path(home).is_absolute()) return fs::path(home) / ".cache" / "kvfork";
  return std::nullopt;
}

}  // namespace kvfork::base
