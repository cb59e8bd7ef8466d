// What the filter files share.
#pragma once

#include <string_view>
#include <vector>

#include "jinja/builtins/functions.h"
#include "jinja/values/value.h"

namespace kvfork::jinja {

/// markupsafe.soft_str: text as it is, anything else as str().
Value soft_text(Runtime& rt, const Value& value);

/// The path that `attribute` arguments of filters spell: "a.b.0" or a number; looked up part by part as items.
class AttributePath {
 public:
  AttributePath(Runtime& rt, const Value& attribute);

  /// The value at the path; `fallback`, where given, replaces each undefined part.
  Value get(Runtime& rt, const Value& item, const Value& fallback = Value()) const;

 private:
  std::vector<Value> parts_;
};

/// Text in lower case, anything else unchanged: the sort key of case-insensitive filters.
Value ignore_case(Runtime& rt, const Value& value);

/// Sorts stably by key; both vectors hold the same number of values.
void sort_by_keys(Runtime& rt, std::vector<Value>& items, std::vector<Value>& keys, bool reverse);

}  // namespace kvfork::jinja
