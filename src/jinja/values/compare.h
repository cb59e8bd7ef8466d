// Equality and order of values, as Python has them.
#pragma once

#include <compare>
#include <optional>

#include "jinja/values/value.h"

namespace kvfork::jinja {

/// a == b; never fails. Time is bounded by the lighter value's weight.
bool equals(const Value& a, const Value& b) noexcept;

/// `a is b`: the same object, or the same scalar.
bool same_object(const Value& a, const Value& b) noexcept;

/// Order of two numbers (unordered where one is NaN); null where one is no number.
std::optional<std::partial_ordering> compare_numbers(const Value& a, const Value& b) noexcept;

enum class Comparison : uint8_t { Less, LessEqual, Greater, GreaterEqual };

/// a < b and its like. Fails with TypeError for types without order, UndefinedError for undefined.
bool ordered(Runtime& rt, const Value& a, const Value& b, Comparison op);

inline bool is_less(Runtime& rt, const Value& a, const Value& b) {
  return ordered(rt, a, b, Comparison::Less);
}

}  // namespace kvfork::jinja
