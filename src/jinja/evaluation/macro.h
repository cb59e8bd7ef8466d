// A macro or the body of a call block, bound to the variables around its definition.
#pragma once

#include "jinja/syntax/ast.h"
#include "jinja/values/value.h"

namespace kvfork::jinja {

class Evaluator;

struct Macro : Object {
  Macro() : Object(Kind::Macro) {}
  Value name;  ///< a String, or None for a call block
  const Stmt* stmt = nullptr;
  Evaluator* evaluator = nullptr;
  Ref<Frame> frame;
};

}  // namespace kvfork::jinja
