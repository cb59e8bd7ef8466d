// A bound for JSON that is parsed by a recursive reader.
#pragma once

#include <cstddef>
#include <string_view>

namespace kvfork::base {

/// Deeper than any file or reply of a model hub is, shallow enough for a reader or writer that recurses.
inline constexpr size_t kMaxJsonDepth = 400;

/// Whether brackets outside strings nest deeper than kMaxJsonDepth. The text need not be JSON.
bool is_too_deep_json(std::string_view text) noexcept;

}  // namespace kvfork::base
