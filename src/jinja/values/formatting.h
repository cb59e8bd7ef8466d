// Python's two ways to format text: the % operator and str.format with its mini-language.
#pragma once

#include <string>
#include <string_view>

#include "jinja/builtins/functions.h"
#include "jinja/values/value.h"

namespace kvfork::jinja {

/// format % values. `values` is a tuple, a dict, or one value.
Value percent_format(Runtime& rt, const Value& format, const Value& values);

/// format.format(*positional, **keywords), with the sandbox's attribute lookup.
Value brace_format(Runtime& rt, const Value& format, const CallArgs& args);

/// format(value, spec).
std::string format_value(Runtime& rt, const Value& value, std::string_view spec);

/// A double by C's conversion ('e', 'f', 'g' and capitals), spelling inf and nan as Python does.
std::string format_real(Runtime& rt, double value, char type, int64_t precision, bool alternate);

/// `text` with each character beyond ASCII as \x, \u or \U escapes (Python's ascii()).
std::string ascii_only(std::string_view text);

}  // namespace kvfork::jinja
