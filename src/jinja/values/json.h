// JSON as Python's json module reads and writes it.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "jinja/values/value.h"

namespace kvfork::jinja {

/// json.loads: NaN and infinities are numbers, a repeated key keeps its first place and last value, integers of any
/// size are kept, lone surrogate escapes too. Fails with Error{Corrupt} "SUBJECT: ..." naming the byte, or
/// Error{Limit} beyond the runtime's nesting. The values belong to `rt`.
/// `on_text`, where there is one, may change each string, keys included.
Value read_json(Runtime& rt, std::string_view text, std::string_view subject,
                const std::function<void(std::string&)>& on_text = {});

struct JsonStyle {
  bool ensure_ascii = false;
  bool pretty = false;  ///< an indent was given, maybe an empty one
  std::string indent;   ///< one level
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool sort_keys = false;
};

/// json.dumps. Fails with TypeError for what JSON has no form for.
std::string write_json(Runtime& rt, const Value& value, const JsonStyle& style);

}  // namespace kvfork::jinja
