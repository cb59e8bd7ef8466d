// Iterating over values, as Python's iter() does.
#pragma once

#include <optional>
#include <vector>

#include "jinja/values/value.h"

namespace kvfork::jinja {

/// Walks an iterable once. Counts one step an item.
class Cursor {
 public:
  /// Fails with TypeError when `iterable` is not iterable.
  Cursor(Runtime& rt, Value iterable);

  /// The next item, or false at the end.
  bool next(Runtime& rt, Value& item);

 private:
  Value source_;
  size_t position_ = 0;
};

bool is_iterable(const Value& value) noexcept;

/// len(v), or nothing for what has none.
std::optional<int64_t> length_of(Runtime& rt, const Value& value);
/// len(v); fails with TypeError.
int64_t get_length(Runtime& rt, const Value& value);

/// list(v).
std::vector<Value> collect(Runtime& rt, const Value& iterable);

}  // namespace kvfork::jinja
