// A bound for JSON that a reader, a writer or a destructor recurses over.
#pragma once

#include <cstddef>
#include <string_view>

namespace kvfork::base {

/// Deeper than any file or reply of a model hub is, shallow enough for a reader or writer that recurses.
inline constexpr size_t kMaxJsonDepth = 400;

/// Whether brackets outside strings nest deeper than kMaxJsonDepth. The text need not be JSON.
bool is_too_deep_json(std::string_view text) noexcept;

/// The text as one of nlohmann's values, a discarded one where it is not JSON or is too deep.
template <typename Json>
Json parse_bounded_json(std::string_view text) {
  return is_too_deep_json(text) ? Json(Json::value_t::discarded) : Json::parse(text, nullptr, false);
}

}  // namespace kvfork::base
