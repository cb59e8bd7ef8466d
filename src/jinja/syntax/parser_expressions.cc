// Expressions of the grammar, by precedence.
#include <charconv>
#include <cstdlib>

#include "base/number.h"
#include "jinja/builtins/functions.h"
#include "jinja/syntax/parser_impl.h"

namespace kvfork::jinja {
namespace {

// Computed by jinja2 at compile time: no name and no call below.
bool is_constant(const Expr& expr) {
  if (expr.kind == ExprKind::Name || expr.kind == ExprKind::Call) return false;
  for (const Expr* child : {expr.a.get(), expr.b.get(), expr.c.get()}) {
    if (child != nullptr && !is_constant(*child)) return false;
  }
  for (const ExprPtr& item : expr.items) {
    if (!is_constant(*item)) return false;
  }
  if (!expr.args) return true;
  for (const ExprPtr& argument : expr.args->positional) {
    if (!is_constant(*argument)) return false;
  }
  for (const auto& [name, argument] : expr.args->keywords) {
    if (!is_constant(*argument)) return false;
  }
  return !expr.args->star && !expr.args->double_star;
}

}  // namespace

ExprPtr Parser::parse_tuple(bool with_conditional, std::string_view end_name, bool in_parentheses) {
  return parse_items([&] { return with_conditional ? parse_expression() : parse_or(); }, end_name, in_parentheses);
}

ExprPtr Parser::parse_expression() {
  Nest nest(*this);
  uint32_t offset = current().offset;
  ExprPtr then = parse_or();
  while (skip_if_name("if")) {
    ExprPtr node = make(ExprKind::Conditional, offset);
    node->a = parse_or();
    node->b = std::move(then);
    if (skip_if_name("else")) node->c = parse_expression();
    raise_height(*node, node->a.get());
    raise_height(*node, node->b.get());
    raise_height(*node, node->c.get());
    then = std::move(node);
  }
  return then;
}

ExprPtr Parser::parse_or() {
  ExprPtr left = parse_and();
  while (is_name("or")) {
    uint32_t offset = next().offset;
    left = make_binary(ExprKind::Or, offset, std::move(left), parse_and());
  }
  return left;
}

ExprPtr Parser::parse_and() {
  ExprPtr left = parse_not();
  while (is_name("and")) {
    uint32_t offset = next().offset;
    left = make_binary(ExprKind::And, offset, std::move(left), parse_not());
  }
  return left;
}

ExprPtr Parser::parse_not() {
  if (!is_name("not")) return parse_compare();
  Nest nest(*this);
  uint32_t offset = next().offset;
  return make_unary(ExprKind::Not, offset, parse_not());
}

std::optional<CompareOp> Parser::parse_compare_op() {
  switch (current().type) {
    case Tok::Eq:
      next();
      return CompareOp::Eq;
    case Tok::Ne:
      next();
      return CompareOp::Ne;
    case Tok::Lt:
      next();
      return CompareOp::Lt;
    case Tok::LtEq:
      next();
      return CompareOp::Le;
    case Tok::Gt:
      next();
      return CompareOp::Gt;
    case Tok::GtEq:
      next();
      return CompareOp::Ge;
    default:
      break;
  }
  if (skip_if_name("in")) return CompareOp::In;
  if (is_name("not") && is_name(look(), "in")) {
    next();
    next();
    return CompareOp::NotIn;
  }
  return std::nullopt;
}

ExprPtr Parser::parse_compare() {
  ExprPtr first = parse_sum();
  ExprPtr node;
  while (true) {
    uint32_t offset = current().offset;
    std::optional<CompareOp> op = parse_compare_op();
    if (!op) return node ? std::move(node) : std::move(first);
    if (!node) {
      node = make(ExprKind::Compare, offset);
      raise_height(*node, first.get());
      node->a = std::move(first);
    }
    node->ops.push_back(*op);
    add_item(*node, parse_sum());
  }
}

ExprPtr Parser::parse_sum() {
  ExprPtr left = parse_concat();
  while (is(Tok::Add) || is(Tok::Sub)) {
    const Token& token = next();
    left = make_binary(token.type == Tok::Add ? ExprKind::Add : ExprKind::Sub, token.offset, std::move(left),
                       parse_concat());
  }
  return left;
}

ExprPtr Parser::parse_concat() {
  ExprPtr first = parse_product();
  if (!is(Tok::Tilde)) return first;
  ExprPtr node = make(ExprKind::Concat, current().offset);
  add_item(*node, std::move(first));
  while (skip_if(Tok::Tilde)) add_item(*node, parse_product());
  return node;
}

ExprPtr Parser::parse_product() {
  ExprPtr left = parse_pow();
  while (true) {
    ExprKind kind;
    switch (current().type) {
      case Tok::Mul:
        kind = ExprKind::Mul;
        break;
      case Tok::Div:
        kind = ExprKind::Div;
        break;
      case Tok::FloorDiv:
        kind = ExprKind::FloorDiv;
        break;
      case Tok::Mod:
        kind = ExprKind::Mod;
        break;
      default:
        return left;
    }
    uint32_t offset = next().offset;
    left = make_binary(kind, offset, std::move(left), parse_pow());
  }
}

ExprPtr Parser::parse_pow() {
  ExprPtr left = parse_unary(true);
  while (is(Tok::Pow)) {
    uint32_t offset = next().offset;
    left = make_binary(ExprKind::Pow, offset, std::move(left), parse_unary(true));
  }
  return left;
}

ExprPtr Parser::parse_unary(bool with_filter) {
  ExprPtr node;
  if (is(Tok::Sub) || is(Tok::Add)) {
    Nest nest(*this);
    const Token& token = next();
    node = make_unary(token.type == Tok::Sub ? ExprKind::Neg : ExprKind::Pos, token.offset, parse_unary(false));
  } else {
    node = parse_primary(false);
  }
  node = parse_postfix(std::move(node));
  return with_filter ? parse_filters_and_tests(std::move(node)) : std::move(node);
}

ExprPtr Parser::parse_primary(bool with_namespace) {
  const Token& token = current();
  switch (token.type) {
    case Tok::Name:
      return parse_name(with_namespace);
    case Tok::String:
      return parse_strings();
    case Tok::Integer:
    case Tok::Float:
      return parse_number();
    case Tok::LParen: {
      next();
      ExprPtr node = parse_tuple(true, {}, true);
      expect(Tok::RParen);
      return node;
    }
    case Tok::LBracket:
      return parse_list();
    case Tok::LBrace:
      return parse_dict();
    default:
      fail("unexpected '" + describe(token) + "'");
  }
}

ExprPtr Parser::parse_name(bool with_namespace) {
  const Token& token = next();
  ExprPtr node = make(ExprKind::Const, token.offset);
  const std::string& name = token.text;
  if (name == "true" || name == "false" || name == "True" || name == "False") {
    node->constant = Value::boolean(name == "true" || name == "True");
  } else if (name == "none" || name == "None") {
    node->constant = Value::none();
  } else if (with_namespace && is(Tok::Dot)) {
    next();
    node->kind = ExprKind::NamespaceRef;
    node->name = name;
    node->attribute = expect(Tok::Name).text;
    node->constant = constant_text(node->attribute);
  } else {
    node->kind = ExprKind::Name;
    node->name = name;
  }
  return node;
}

ExprPtr Parser::parse_number() {
  const Token& token = next();
  ExprPtr node = make(ExprKind::Const, token.offset);
  if (token.type == Tok::Float) {
    node->constant = Value::real(*base::parse_double(token.text));
    return node;
  }
  std::string_view digits = token.text;
  int base = 10;
  if (digits.size() > 2 && digits[0] == '0' && (digits[1] < '0' || digits[1] > '9')) {
    char prefix = static_cast<char>(digits[1] | 0x20);
    base = prefix == 'x' ? 16 : prefix == 'o' ? 8 : 2;
    digits.remove_prefix(2);
  }
  int64_t value = 0;
  auto result = std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
  if (result.ec == std::errc()) {
    node->constant = Value::integer(value);
    return node;
  }
  if (base != 10) fail_at(token.offset, "integers beyond 64 bits are not supported");
  auto object = std::make_unique<BigInt>();
  object->digits = std::string(digits);
  object->refs = Object::kImmortal;
  node->constant = Value::object(object.get());
  parsed_.constants.push_back(std::move(object));
  return node;
}

ExprPtr Parser::parse_strings() {
  uint32_t offset = current().offset;
  std::string text;
  while (is(Tok::String)) text += next().text;
  return make_text(offset, text);
}

ExprPtr Parser::parse_list() {
  ExprPtr node = make(ExprKind::List, next().offset);
  while (!is(Tok::RBracket)) {
    if (!node->items.empty()) expect(Tok::Comma);
    if (is(Tok::RBracket)) break;
    add_item(*node, parse_expression());
  }
  expect(Tok::RBracket);
  return node;
}

ExprPtr Parser::parse_dict() {
  ExprPtr node = make(ExprKind::Dict, next().offset);
  while (!is(Tok::RBrace)) {
    if (!node->items.empty()) expect(Tok::Comma);
    if (is(Tok::RBrace)) break;
    add_item(*node, parse_expression());
    expect(Tok::Colon);
    add_item(*node, parse_expression());
  }
  expect(Tok::RBrace);
  return node;
}

ExprPtr Parser::parse_postfix(ExprPtr node) {
  while (true) {
    if (is(Tok::Dot) || is(Tok::LBracket)) {
      node = parse_subscript(std::move(node));
    } else if (is(Tok::LParen)) {
      node = parse_call(std::move(node));
    } else {
      return node;
    }
  }
}

ExprPtr Parser::parse_filters_and_tests(ExprPtr node) {
  while (true) {
    if (skip_if(Tok::Pipe)) {
      node = parse_filter(std::move(node));
    } else if (is_name("is")) {
      node = parse_test(std::move(node));
    } else if (is(Tok::LParen)) {
      node = parse_call(std::move(node));
    } else {
      return node;
    }
  }
}

ExprPtr Parser::parse_subscript(ExprPtr object) {
  const Token& token = next();
  ExprPtr node = make(ExprKind::Item, token.offset);
  raise_height(*node, object.get());
  node->a = std::move(object);
  if (token.type == Tok::Dot) {
    if (is(Tok::Name)) {
      node->kind = ExprKind::Attribute;
      node->name = next().text;
      node->constant = constant_text(node->name);
      return node;
    }
    if (!is(Tok::Integer)) fail("expected name or number");
    node->b = parse_number();
    return node;
  }
  uint32_t offset = current().offset;
  std::vector<ExprPtr> indexes;
  while (!is(Tok::RBracket)) {
    if (!indexes.empty()) expect(Tok::Comma);
    indexes.push_back(parse_index());
  }
  expect(Tok::RBracket);
  if (indexes.size() == 1) {
    node->b = std::move(indexes[0]);
  } else {
    node->b = make(ExprKind::Tuple, offset);
    for (ExprPtr& index : indexes) {
      if (index->kind == ExprKind::Slice) fail_at(index->offset, "a slice must be the only index");
      add_item(*node->b, std::move(index));
    }
  }
  raise_height(*node, node->b.get());
  node->folds = node->b->kind == ExprKind::Slice && is_constant(*node);
  return node;
}

ExprPtr Parser::parse_index() {
  uint32_t offset = current().offset;
  ExprPtr start;
  if (!is(Tok::Colon)) {
    start = parse_expression();
    if (!is(Tok::Colon)) return start;
  }
  next();
  auto at_end = [&] { return is(Tok::RBracket) || is(Tok::Comma); };
  ExprPtr node = make(ExprKind::Slice, offset);
  node->a = std::move(start);
  if (!is(Tok::Colon) && !at_end()) node->b = parse_expression();
  if (skip_if(Tok::Colon) && !at_end()) node->c = parse_expression();
  raise_height(*node, node->a.get());
  raise_height(*node, node->b.get());
  raise_height(*node, node->c.get());
  return node;
}

std::unique_ptr<CallSyntax> Parser::parse_arguments(Expr& node) {
  auto args = std::make_unique<CallSyntax>();
  uint32_t offset = expect(Tok::LParen).offset;
  auto ensure = [&](bool valid) {
    if (!valid) fail_at(offset, "invalid syntax for function call expression");
  };
  auto parse_value = [&] {
    ExprPtr value = parse_expression();
    raise_height(node, value.get());
    return value;
  };
  bool need_comma = false;
  while (!is(Tok::RParen)) {
    if (need_comma) {
      expect(Tok::Comma);
      if (is(Tok::RParen)) break;
    }
    need_comma = true;
    if (skip_if(Tok::Mul)) {
      ensure(!args->star && !args->double_star);
      args->star = parse_value();
    } else if (skip_if(Tok::Pow)) {
      ensure(!args->double_star);
      args->double_star = parse_value();
    } else if (is(Tok::Name) && look().type == Tok::Assign) {
      ensure(!args->double_star);
      std::string name = next().text;
      next();
      for (const auto& [earlier, value] : args->keywords) {
        if (earlier == name) fail_at(offset, "keyword argument repeated: " + name);
      }
      args->keywords.emplace_back(std::move(name), parse_value());
    } else {
      ensure(!args->star && !args->double_star && args->keywords.empty());
      args->positional.push_back(parse_value());
    }
  }
  expect(Tok::RParen);
  return args;
}

ExprPtr Parser::parse_call(ExprPtr callee) {
  ExprPtr node = make(ExprKind::Call, current().offset);
  raise_height(*node, callee.get());
  node->args = parse_arguments(*node);
  node->a = std::move(callee);
  return node;
}

std::string Parser::parse_dotted_name() {
  std::string name = expect(Tok::Name).text;
  while (skip_if(Tok::Dot)) name += "." + expect(Tok::Name).text;
  return name;
}

ExprPtr Parser::parse_filter(ExprPtr operand) {
  ExprPtr node = make(ExprKind::Filter, current().offset);
  raise_height(*node, operand.get());
  node->name = parse_dotted_name();
  node->function = find_filter(node->name);
  node->args = is(Tok::LParen) ? parse_arguments(*node) : std::make_unique<CallSyntax>();
  node->a = std::move(operand);
  return node;
}

ExprPtr Parser::parse_test(ExprPtr operand) {
  uint32_t offset = next().offset;
  bool negated = skip_if_name("not");
  ExprPtr node = make(ExprKind::Test, offset);
  raise_height(*node, operand.get());
  node->name = parse_dotted_name();
  node->function = find_test(node->name);
  node->a = std::move(operand);
  bool starts_argument = is(Tok::Name) || is(Tok::String) || is(Tok::Integer) || is(Tok::Float) ||
                         is(Tok::LBracket) || is(Tok::LBrace);
  if (is(Tok::LParen)) {
    node->args = parse_arguments(*node);
  } else {
    node->args = std::make_unique<CallSyntax>();
    if (starts_argument && !is_name("else") && !is_name("or") && !is_name("and")) {
      if (is_name("is")) fail("You cannot chain multiple tests with is");
      ExprPtr argument = parse_postfix(parse_primary(false));
      raise_height(*node, argument.get());
      node->args->positional.push_back(std::move(argument));
    }
  }
  return negated ? make_unary(ExprKind::Not, offset, std::move(node)) : std::move(node);
}

}  // namespace kvfork::jinja
