// What Python's operators and subscripts do.
#pragma once

#include <string_view>

#include "jinja/syntax/ast.h"
#include "jinja/values/value.h"

namespace kvfork::jinja {

bool truthy(Runtime& rt, const Value& value);

/// `kind` is one of Add, Sub, Mul, Div, FloorDiv, Mod, Pow.
Value binary(Runtime& rt, ExprKind kind, const Value& a, const Value& b);
Value negate(Runtime& rt, const Value& value);
Value positive(Runtime& rt, const Value& value);
Value add(Runtime& rt, const Value& a, const Value& b);

/// item in container.
bool contains(Runtime& rt, const Value& container, const Value& item);

/// environment.getattr and environment.getitem of the immutable sandbox: an undefined value where there is nothing.
Value get_attribute(Runtime& rt, const Value& object, std::string_view name, const Value& name_value);
Value get_item(Runtime& rt, const Value& object, const Value& key);

/// getattr(object, name) alone, Missing when there is no such attribute.
Value find_attribute(Runtime& rt, const Value& object, std::string_view name);

/// object[start:stop:step]; the bounds may be Missing or None.
Value slice(Runtime& rt, const Value& object, const Value& start, const Value& stop, const Value& step);

/// False where `slice` would fail with TypeError.
bool can_slice(const Value& object, const Value& start, const Value& stop, const Value& step) noexcept;

/// The value as an index (int or bool). Fails with TypeError.
int64_t as_index(Runtime& rt, const Value& value);

/// A text result of a method of `self`: Markup where self is.
Value text_like(Runtime& rt, const Value& self, std::string text);

/// Text of `value` to be put next to Markup: escaped unless it is Markup itself.
std::string escaped(Runtime& rt, const Value& value);

}  // namespace kvfork::jinja
