// str() and repr() of values, and the names of their types.
#pragma once

#include <string>
#include <string_view>

#include "jinja/values/value.h"

namespace kvfork::jinja {

/// type(v).__name__, and with its module where that is not builtins.
std::string_view type_name(const Value& value) noexcept;
std::string_view full_type_name(const Value& value) noexcept;

/// repr(str).
std::string repr_text(std::string_view text);

/// str(v) and repr(v). Fail with Limit where the text passes the memory bound.
std::string to_str(Runtime& rt, const Value& value);
std::string to_repr(Runtime& rt, const Value& value);
void append_str(Runtime& rt, std::string& out, const Value& value);
void append_repr(Runtime& rt, std::string& out, const Value& value);

/// markupsafe.escape of plain text.
std::string escape_html(std::string_view text);

}  // namespace kvfork::jinja
