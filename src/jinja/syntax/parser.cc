// Statements of the grammar.
#include "jinja/syntax/parser.h"

#include "jinja/builtins/functions.h"
#include "jinja/syntax/parser_impl.h"

namespace kvfork::jinja {
namespace {

bool contains(Names names, std::string_view name) {
  for (std::string_view candidate : names) {
    if (candidate == name) return true;
  }
  return false;
}

}  // namespace

Body Parser::parse_body(Names end_names) {
  Nest nest(*this);
  Body body;
  StmtPtr output;
  auto flush = [&] {
    if (output) body.push_back(std::move(output));
  };
  auto add_output = [&](ExprPtr item) {
    if (!output) output = make_stmt(StmtKind::Output);
    output->items.push_back(std::move(item));
  };
  while (!is(Tok::Eof)) {
    const Token& token = current();
    if (token.type == Tok::Data) {
      add_output(make_text(token.offset, token.text));
      next();
    } else if (token.type == Tok::VariableBegin) {
      next();
      add_output(parse_tuple(true, {}, false));
      expect(Tok::VariableEnd);
    } else {
      flush();
      expect(Tok::BlockBegin);
      if (current().type == Tok::Name && contains(end_names, current().text)) return body;
      parse_tag(body);
      expect(Tok::BlockEnd);
    }
  }
  flush();
  if (end_names.size() > 0) {
    std::string wanted;
    for (std::string_view name : end_names) wanted += (wanted.empty() ? "'" : " or '") + std::string(name) + "'";
    fail("Unexpected end of template. Jinja was looking for the following tags: " + wanted + ".");
  }
  return body;
}

Body Parser::parse_statements(Names end_names) {
  skip_if(Tok::Colon);
  expect(Tok::BlockEnd);
  return parse_body(end_names);
}

void Parser::parse_tag(Body& body) {
  const Token& token = current();
  if (token.type != Tok::Name) fail("tag name expected");
  const std::string& tag = token.text;
  if (tag == "set") return body.push_back(parse_set());
  if (tag == "if") return body.push_back(parse_if());
  if (tag == "for") return body.push_back(parse_for());
  if (tag == "macro") return body.push_back(parse_macro());
  if (tag == "call") return body.push_back(parse_call_block());
  if (tag == "filter") return body.push_back(parse_filter_block());
  if (tag == "with") return body.push_back(parse_with());
  if (tag == "block") return body.push_back(parse_block());
  if (tag == "print") return body.push_back(parse_print());
  if (tag == "autoescape") return body.push_back(parse_autoescape());
  if (tag == "break" || tag == "continue") {
    body.push_back(make_stmt(tag == "break" ? StmtKind::Break : StmtKind::Continue));
    next();
    return;
  }
  if (tag == "generation") {
    StmtPtr node = make_stmt(StmtKind::Generation);
    next();
    node->body = parse_statements({"endgeneration"});
    next();
    return body.push_back(std::move(node));
  }
  if (tag == "include" || tag == "import" || tag == "from" || tag == "extends") {
    fail_unsupported(token.offset, tag, "a chat template stands alone and loads no other file");
  }
  fail("Encountered unknown tag '" + tag + "'.");
}

StmtPtr Parser::parse_set() {
  StmtPtr node = make_stmt(StmtKind::Set);
  next();
  node->target = parse_target(true, {});
  if (skip_if(Tok::Assign)) {
    node->value = parse_tuple(true, {}, false);
    return node;
  }
  node->kind = StmtKind::SetBlock;
  while (skip_if(Tok::Pipe)) node->value = parse_filter(std::move(node->value));
  node->body = parse_statements({"endset"});
  next();
  return node;
}

StmtPtr Parser::parse_for() {
  StmtPtr node = make_stmt(StmtKind::For);
  next();
  size_t target_at = position_;
  node->target = parse_target(false, "in");
  expect_name("in");
  node->value = parse_tuple(false, "recursive", false);
  if (skip_if_name("if")) {
    node->test = parse_expression();
    size_t after = position_;
    position_ = target_at;
    node->test_target = parse_target(false, "in");
    position_ = after;
  }
  node->recursive = skip_if_name("recursive");
  node->body = parse_statements({"endfor", "else"});
  if (next().text == "else") {
    node->else_body = parse_statements({"endfor"});
    next();
  }
  return node;
}

StmtPtr Parser::parse_if() {
  StmtPtr result = make_stmt(StmtKind::If);
  Stmt* node = result.get();
  next();
  while (true) {
    node->value = parse_tuple(false, {}, false);
    node->body = parse_statements({"elif", "else", "endif"});
    const Token& token = next();
    if (token.text == "elif") {
      result->elifs.push_back(make_stmt(StmtKind::If));
      node = result->elifs.back().get();
      continue;
    }
    if (token.text == "else") {
      result->else_body = parse_statements({"endif"});
      next();
    }
    return result;
  }
}

StmtPtr Parser::parse_with() {
  StmtPtr node = make_stmt(StmtKind::With);
  next();
  while (!is(Tok::BlockEnd)) {
    if (!node->items.empty()) expect(Tok::Comma);
    node->items.push_back(parse_target(false, {}));
    expect(Tok::Assign);
    node->values.push_back(parse_expression());
  }
  node->body = parse_statements({"endwith"});
  next();
  return node;
}

StmtPtr Parser::parse_macro() {
  StmtPtr node = make_stmt(StmtKind::Macro);
  next();
  node->name = parse_name_target()->name;
  parse_signature(*node);
  node->body = parse_statements({"endmacro"});
  next();
  return node;
}

void Parser::parse_signature(Stmt& node) {
  expect(Tok::LParen);
  while (!is(Tok::RParen)) {
    if (!node.items.empty()) expect(Tok::Comma);
    ExprPtr parameter = parse_name_target();
    for (const ExprPtr& earlier : node.items) {
      if (earlier->name == parameter->name) {
        fail_at(parameter->offset, "duplicate argument '" + parameter->name + "' in function definition");
      }
    }
    if (skip_if(Tok::Assign)) {
      node.values.push_back(parse_expression());
    } else if (!node.values.empty()) {
      fail("non-default argument follows default argument");
    }
    node.items.push_back(std::move(parameter));
  }
  expect(Tok::RParen);
}

StmtPtr Parser::parse_call_block() {
  StmtPtr node = make_stmt(StmtKind::CallBlock);
  next();
  if (is(Tok::LParen)) parse_signature(*node);
  node->value = parse_expression();
  if (node->value->kind != ExprKind::Call) fail_at(node->offset, "expected call");
  node->body = parse_statements({"endcall"});
  next();
  return node;
}

StmtPtr Parser::parse_filter_block() {
  StmtPtr node = make_stmt(StmtKind::FilterBlock);
  next();
  node->value = parse_filter(nullptr);
  while (skip_if(Tok::Pipe)) node->value = parse_filter(std::move(node->value));
  node->body = parse_statements({"endfilter"});
  next();
  return node;
}

StmtPtr Parser::parse_block() {
  StmtPtr node = make_stmt(StmtKind::Block);
  next();
  node->name = expect(Tok::Name).text;
  for (std::string_view modifier : {"scoped", "required"}) {
    if (is_name(modifier)) {
      fail_unsupported(node->offset, "block ... " + std::string(modifier), "a chat template is never extended");
    }
  }
  node->body = parse_statements({"endblock"});
  next();
  skip_if_name(node->name);
  return node;
}

StmtPtr Parser::parse_autoescape() {
  StmtPtr node = make_stmt(StmtKind::Scope);
  next();
  ExprPtr option = parse_expression();
  if (option->kind != ExprKind::Const || !option->constant.is(Kind::Bool) || option->constant.as_bool()) {
    fail_unsupported(node->offset, "autoescape", "chat templates are rendered without HTML escaping");
  }
  node->body = parse_statements({"endautoescape"});
  next();
  return node;
}

StmtPtr Parser::parse_print() {
  StmtPtr node = make_stmt(StmtKind::Output);
  next();
  while (!is(Tok::BlockEnd)) {
    if (!node->items.empty()) expect(Tok::Comma);
    node->items.push_back(parse_expression());
  }
  return node;
}

ExprPtr Parser::parse_name_target() {
  const Token& token = expect(Tok::Name);
  ExprPtr node = make(ExprKind::Name, token.offset);
  node->name = token.text;
  check_target(*node);
  return node;
}

ExprPtr Parser::parse_target(bool with_namespace, std::string_view end_name) {
  ExprPtr target = parse_items([&] { return parse_primary(with_namespace); }, end_name, false);
  check_target(*target);
  return target;
}

void Parser::check_target(const Expr& target) const {
  static constexpr std::string_view kReserved[] = {"true", "false", "none", "True", "False", "None"};
  if (target.kind == ExprKind::NamespaceRef) return;
  if (target.kind == ExprKind::Name) {
    for (std::string_view name : kReserved) {
      if (target.name == name) fail_at(target.offset, "can't assign to 'name'");
    }
    return;
  }
  if (target.kind != ExprKind::Tuple) fail_at(target.offset, "can't assign to this expression");
  for (const ExprPtr& item : target.items) check_target(*item);
}

Parsed parse(const std::vector<Token>& tokens, std::string_view source, std::string_view subject) {
  return Parser(tokens, source, subject).run();
}

}  // namespace kvfork::jinja
