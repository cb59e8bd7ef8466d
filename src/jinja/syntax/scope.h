// Where every name of a template lives: jinja2's static scoping, decided once before evaluation.
//
// jinja2 turns names into variables of generated Python functions. Which of them a name means, and what it holds
// when a block begins, follows from rules that templates depend on (a loop does not change what is outside it, an
// `if` does; a name that a block sets is empty before, even where the caller passed one). This file applies the
// same rules.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "jinja/syntax/ast.h"

namespace kvfork::jinja {

struct Scopes {
  FunctionInfo root;
  std::vector<std::string> names;  ///< looked up outside the template, by the index in Load::name
};

/// Fills the slots and scopes of the tree. Fails with Error{Template} for break or continue outside a loop,
/// assigning to `loop`, an unknown filter or test that is not under an `if`, and the like.
Scopes analyze_scopes(Body& body, std::string_view source, std::string_view subject);

}  // namespace kvfork::jinja
