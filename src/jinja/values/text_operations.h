// Text operations that methods and filters share.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "jinja/values/value.h"

namespace kvfork::jinja {

enum class Padding : uint8_t { Left, Right, Both };

/// Without the given characters at its ends.
std::string_view strip_chars(std::string_view text, std::string_view chars, bool left, bool right);

/// `text` filled up to `width` characters. Fails unless `fill` is one character.
std::string padded(Runtime& rt, std::string_view text, int64_t width, std::string_view fill, Padding where);

/// str.isupper / str.islower.
bool has_case(std::string_view text, bool upper);

/// str.splitlines.
std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends);

/// str.replace; `count` < 0 means all.
std::string replaced(Runtime& rt, std::string_view text, std::string_view from, std::string_view to, int64_t count);

/// separator.join(items): each item must be text.
Value join_values(Runtime& rt, const Value& separator, const Value& items);

/// str.rsplit(separator, 1)[0].
std::string_view before_last(std::string_view text, std::string_view separator);

}  // namespace kvfork::jinja
