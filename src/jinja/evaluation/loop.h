// The `loop` variable of a for block.
#pragma once

#include <optional>

#include "jinja/syntax/ast.h"
#include "jinja/values/iterate.h"
#include "jinja/values/runtime.h"
#include "jinja/values/value.h"

namespace kvfork::jinja {

class Evaluator;

struct Loop : Object {
  Loop(Runtime& rt, Value iterable_in)
      : Object(Kind::Loop), iterable(iterable_in), cursor(rt, std::move(iterable_in)) {
    rt.add_depth(*this, iterable);
  }

  /// Moves to the next item; false at the end.
  bool advance(Runtime& rt);

  /// The number of items; a generator is read to its end for it.
  int64_t length(Runtime& rt);

  /// Lets go of items that hold others. A loop that a template keeps beyond its end must not become a link of a
  /// chain, since items that come late are not in the depth that bounds its destruction.
  void finish(Runtime& rt);

  /// An attribute, or Missing when there is none of this name.
  Value attribute(Runtime& rt, std::string_view name);

  Value iterable;
  Cursor cursor;
  int64_t index0 = -1;
  int64_t depth0 = 0;
  Value current, before, after;  ///< Missing: none
  Value last_changed;
  std::optional<int64_t> known_length;

  // Of a recursive loop.
  Evaluator* evaluator = nullptr;
  const Stmt* stmt = nullptr;
  Ref<Frame> frame;  ///< where the loop stands

 private:
  bool peek(Runtime& rt);
};

}  // namespace kvfork::jinja
