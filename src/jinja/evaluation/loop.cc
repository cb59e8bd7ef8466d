// The `loop` object: what it knows of its items.
#include "jinja/evaluation/loop.h"

#include "jinja/builtins/functions.h"
#include "jinja/values/runtime.h"

namespace kvfork::jinja {

bool Loop::advance(Runtime& rt) {
  Value item;
  if (!after.is_missing()) {
    item = std::exchange(after, Value());
  } else if (!cursor.next(rt, item)) {
    return false;
  }
  ++index0;
  before = std::exchange(current, std::move(item));
  rt.add_depth(*this, current);
  return true;
}

bool Loop::peek(Runtime& rt) {
  if (!after.is_missing()) return true;
  Value item;
  if (!cursor.next(rt, item)) return false;
  after = std::move(item);
  return true;
}

int64_t Loop::length(Runtime& rt) {
  if (known_length) return *known_length;
  known_length = iterable.is(Kind::Undefined) ? std::optional<int64_t>(0) : length_of(rt, iterable);
  if (!known_length) {
    std::vector<Value> rest;
    for (Value item; cursor.next(rt, item);) rest.push_back(item);
    known_length = static_cast<int64_t>(rest.size()) + index0 + 1 + (after.is_missing() ? 0 : 1);
    cursor = Cursor(rt, rt.list(std::move(rest)));
  }
  return *known_length;
}

void Loop::finish(Runtime& rt) {
  auto drop = [](Value& value) {
    if (value.is_object() && !value.is(Kind::String)) value = Value();
  };
  if (!known_length) known_length = length_of(rt, iterable);
  if (!known_length) known_length = index0 + 1;
  iterable = Value();
  cursor = Cursor(rt, rt.list({}));
  for (Value* item : {&current, &before, &after, &last_changed}) drop(*item);
}

Value Loop::attribute(Runtime& rt, std::string_view name) {
  if (name == "index") return Value::integer(index0 + 1);
  if (name == "index0") return Value::integer(index0);
  if (name == "first") return Value::boolean(index0 == 0);
  if (name == "last") return Value::boolean(!peek(rt));
  if (name == "length") return Value::integer(length(rt));
  if (name == "revindex") return Value::integer(length(rt) - index0);
  if (name == "revindex0") return Value::integer(length(rt) - index0 - 1);
  if (name == "depth") return Value::integer(depth0 + 1);
  if (name == "depth0") return Value::integer(depth0);
  if (name == "previtem")
    return index0 == 0 || before.is_missing() ? rt.undefined("there is no previous item") : before;
  if (name == "nextitem") return peek(rt) ? after : rt.undefined("there is no next item");
  return Value();
}

}  // namespace kvfork::jinja
