// The saved contexts that this user's kvfork has written, so that `kvfork list` finds them again.
//
// A plain list of paths in the user's cache folder. It is a convenience: what cannot be read or written is ignored.
#pragma once

#include <string>
#include <vector>

namespace kvfork::cli {

void remember_context(const std::string& path) noexcept;

/// The remembered paths that are still files, oldest first.
std::vector<std::string> known_contexts();

}  // namespace kvfork::cli
