// The recursive-descent parser behind parser.h; its statements are in parser.cc, its expressions in expressions.cc.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "jinja/syntax/parser.h"
#include "jinja/values/runtime.h"

namespace kvfork::jinja {

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
    base::fail(ErrorCode::Unsupported, "{}: line {}, column {}: the tag '{}' is not supported: {}", subject_,
               at.line, at.column, tag, reason);
  }
  [[noreturn]] void fail_nesting() const {
    SourcePosition at = locate(source_, current().offset);
    base::fail(ErrorCode::Limit, "{}: line {}, column {}: expected at most {} levels of nesting, found more",
               subject_, at.line, at.column, kMaxNesting);
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

  // One item, or a tuple of those that commas part. Only parentheses may hold none.
  template <class ParseOne>
  ExprPtr parse_items(const ParseOne& parse_one, std::string_view end_name, bool in_parentheses) {
    const uint32_t offset = current().offset;
    std::vector<ExprPtr> items;
    bool is_tuple = false;
    while (true) {
      if (!items.empty()) expect(Tok::Comma);
      if (at_tuple_end(end_name)) break;
      items.push_back(parse_one());
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

}  // namespace kvfork::jinja
