#include "jinja/parser.h"

#include <charconv>
#include <initializer_list>
#include <optional>

#include "base/error.h"
#include "jinja/functions.h"
#include "jinja/runtime.h"

namespace kvfork::jinja {
namespace {

constexpr size_t kMaxNesting = 200;  // Python refuses more parentheses, too
constexpr size_t kMaxHeight = 500;

using Names = std::initializer_list<std::string_view>;

class Parser {
 public:
  Parser(const std::vector<Token>& tokens, std::string_view source, std::string_view subject)
      : tokens_(tokens), source_(source), subject_(subject) {}

  Parsed run() {
    parsed_.body = parse_body({});
    return std::move(parsed_);
  }

 private:
  // Tokens.
  const Token& current() const { return tokens_[position_]; }
  const Token& look() const { return tokens_[std::min(position_ + 1, tokens_.size() - 1)]; }
  const Token& next() {
    const Token& token = tokens_[position_];
    if (position_ + 1 < tokens_.size()) ++position_;
    return token;
  }
  bool is(Tok type) const { return current().type == type; }
  static bool is_name(const Token& token, std::string_view name) {
    return token.type == Tok::Name && token.text == name;
  }
  bool is_name(std::string_view name) const { return is_name(current(), name); }
  bool skip_if(Tok type) {
    if (!is(type)) return false;
    next();
    return true;
  }
  bool skip_if_name(std::string_view name) {
    if (!is_name(name)) return false;
    next();
    return true;
  }
  const Token& expect(Tok type) {
    if (!is(type)) {
      if (is(Tok::Eof)) fail("unexpected end of template, expected '" + describe(type) + "'.");
      fail("expected token '" + describe(type) + "', got '" + describe(current()) + "'");
    }
    return next();
  }
  void expect_name(std::string_view name) {
    if (!skip_if_name(name)) {
      fail("expected token '" + std::string(name) + "', got '" + describe(current()) + "'");
    }
  }

  [[noreturn]] void fail(std::string_view message) const { fail_at(current().offset, message); }
  [[noreturn]] void fail_at(size_t offset, std::string_view message) const {
    fail_syntax(subject_, source_, offset, message);
  }
  [[noreturn]] void fail_unsupported(size_t offset, std::string_view tag, std::string_view reason) const {
    SourcePosition at = locate(source_, offset);
    base::fail(ErrorCode::Unsupported, "{}: line {}, column {}: the tag '{}' is not supported: {}", subject_, at.line,
               at.column, tag, reason);
  }
  [[noreturn]] void fail_nesting() const {
    SourcePosition at = locate(source_, current().offset);
    base::fail(ErrorCode::Limit, "{}: line {}, column {}: expected at most {} levels of nesting, found more", subject_,
               at.line, at.column, kMaxNesting);
  }

  class Nest {
   public:
    explicit Nest(Parser& parser) : parser_(parser) {
      if (parser_.nesting_ >= kMaxNesting) parser_.fail_nesting();
      ++parser_.nesting_;
    }
    ~Nest() { --parser_.nesting_; }

   private:
    Parser& parser_;
  };

  // Nodes.
  ExprPtr make(ExprKind kind, uint32_t offset) {
    auto node = std::make_unique<Expr>();
    node->kind = kind;
    node->offset = offset;
    return node;
  }
  void raise_height(Expr& node, const Expr* child) {
    if (child == nullptr || child->height < node.height) return;
    if (child->height >= kMaxHeight) fail_nesting();
    node.height = static_cast<uint16_t>(child->height + 1);
  }
  ExprPtr make_unary(ExprKind kind, uint32_t offset, ExprPtr operand) {
    ExprPtr node = make(kind, offset);
    raise_height(*node, operand.get());
    node->a = std::move(operand);
    return node;
  }
  ExprPtr make_binary(ExprKind kind, uint32_t offset, ExprPtr left, ExprPtr right) {
    ExprPtr node = make(kind, offset);
    raise_height(*node, left.get());
    raise_height(*node, right.get());
    node->a = std::move(left);
    node->b = std::move(right);
    return node;
  }
  void add_item(Expr& node, ExprPtr item) {
    raise_height(node, item.get());
    node.items.push_back(std::move(item));
  }
  Value constant_text(std::string_view text) {
    auto object = std::make_unique<String>();
    object->text = std::string(text);
    object->weight = static_cast<uint32_t>(1 + text.size() / 8);
    object->refs = Object::kImmortal;
    object->n_chars();  // computed now, while one thread sees it
    Value value = Value::object(object.get());
    parsed_.constants.push_back(std::move(object));
    return value;
  }
  ExprPtr make_text(uint32_t offset, std::string_view text) {
    ExprPtr node = make(ExprKind::Const, offset);
    node->constant = constant_text(text);
    return node;
  }
  StmtPtr make_stmt(StmtKind kind) {
    auto node = std::make_unique<Stmt>();
    node->kind = kind;
    node->offset = current().offset;
    return node;
  }

  // Statements.
  Body parse_body(Names end_names);
  Body parse_statements(Names end_names);
  void parse_tag(Body& body);
  StmtPtr parse_set();
  StmtPtr parse_for();
  StmtPtr parse_if();
  StmtPtr parse_with();
  StmtPtr parse_macro();
  StmtPtr parse_call_block();
  StmtPtr parse_filter_block();
  StmtPtr parse_block();
  StmtPtr parse_autoescape();
  StmtPtr parse_print();
  void parse_signature(Stmt& node);

  // Assignment targets.
  ExprPtr parse_target(bool with_namespace, std::string_view end_name);
  ExprPtr parse_name_target();
  void check_target(const Expr& target) const;

  // Expressions, in order of precedence.
  ExprPtr parse_tuple(bool with_conditional, std::string_view end_name, bool in_parentheses);
  ExprPtr parse_expression();
  ExprPtr parse_or();
  ExprPtr parse_and();
  ExprPtr parse_not();
  ExprPtr parse_compare();
  std::optional<CompareOp> parse_compare_op();
  ExprPtr parse_sum();
  ExprPtr parse_concat();
  ExprPtr parse_product();
  ExprPtr parse_pow();
  ExprPtr parse_unary(bool with_filter);
  ExprPtr parse_primary(bool with_namespace);
  ExprPtr parse_name(bool with_namespace);
  ExprPtr parse_number();
  ExprPtr parse_strings();
  ExprPtr parse_list();
  ExprPtr parse_dict();
  ExprPtr parse_postfix(ExprPtr node);
  ExprPtr parse_filters_and_tests(ExprPtr node);
  ExprPtr parse_subscript(ExprPtr node);
  ExprPtr parse_index();
  ExprPtr parse_call(ExprPtr node);
  ExprPtr parse_filter(ExprPtr node);
  ExprPtr parse_test(ExprPtr node);
  std::string parse_dotted_name();
  std::unique_ptr<CallSyntax> parse_arguments(Expr& node);

  bool at_tuple_end(std::string_view end_name) const {
    return is(Tok::VariableEnd) || is(Tok::BlockEnd) || is(Tok::RParen) || (!end_name.empty() && is_name(end_name));
  }

  const std::vector<Token>& tokens_;
  std::string_view source_;
  std::string_view subject_;
  size_t position_ = 0;
  size_t nesting_ = 0;
  Parsed parsed_;
};

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

bool contains(Names names, std::string_view name) {
  for (std::string_view candidate : names) {
    if (candidate == name) return true;
  }
  return false;
}

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
  uint32_t offset = current().offset;
  std::vector<ExprPtr> items;
  bool is_tuple = false;
  while (true) {
    if (!items.empty()) expect(Tok::Comma);
    if (at_tuple_end(end_name)) break;
    items.push_back(parse_primary(with_namespace));
    if (!is(Tok::Comma)) break;
    is_tuple = true;
  }
  ExprPtr target;
  if (is_tuple) {
    target = make(ExprKind::Tuple, offset);
    for (ExprPtr& item : items) add_item(*target, std::move(item));
  } else if (items.empty()) {
    fail("Expected an expression, got '" + describe(current()) + "'");
  } else {
    target = std::move(items[0]);
  }
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

ExprPtr Parser::parse_tuple(bool with_conditional, std::string_view end_name, bool in_parentheses) {
  uint32_t offset = current().offset;
  std::vector<ExprPtr> items;
  bool is_tuple = false;
  while (true) {
    if (!items.empty()) expect(Tok::Comma);
    if (at_tuple_end(end_name)) break;
    items.push_back(with_conditional ? parse_expression() : parse_or());
    if (!is(Tok::Comma)) break;
    is_tuple = true;
  }
  if (!is_tuple) {
    if (!items.empty()) return std::move(items[0]);
    if (!in_parentheses) fail("Expected an expression, got '" + describe(current()) + "'");
  }
  ExprPtr node = make(ExprKind::Tuple, offset);
  for (ExprPtr& item : items) add_item(*node, std::move(item));
  return node;
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
    node->constant = Value::real(std::strtod(token.text.c_str(), nullptr));
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

}  // namespace

Parsed parse(const std::vector<Token>& tokens, std::string_view source, std::string_view subject) {
  return Parser(tokens, source, subject).run();
}

}  // namespace kvfork::jinja
