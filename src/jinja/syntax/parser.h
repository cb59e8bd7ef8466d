// Tokens to the tree of ast.h, by jinja2's grammar with the tags that Transformers adds.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "jinja/syntax/ast.h"
#include "jinja/syntax/lexer.h"

namespace kvfork::jinja {

/// What the parser makes beside the tree: the constants that its expressions refer to.
struct Parsed {
  Body body;
  std::vector<std::unique_ptr<Object>> constants;
};

/// Fails with Error{Template} at a syntax error, Error{Limit} where the source nests too deep, and names tags that
/// load other templates as not supported (Error{Unsupported}).
Parsed parse(const std::vector<Token>& tokens, std::string_view source, std::string_view subject);

}  // namespace kvfork::jinja
