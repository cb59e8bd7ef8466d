// Where kvfork remembers small things for a user.
#pragma once

#include <filesystem>
#include <optional>

namespace kvfork::base {

/// $XDG_CACHE_HOME/kvfork, or ~/.cache/kvfork; nothing where neither variable holds an absolute path. It need not
/// exist.
std::optional<std::filesystem::path> cache_folder();

}  // namespace kvfork::base
