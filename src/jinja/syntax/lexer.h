// Template source to tokens, as jinja2's lexer does it with trim_blocks and lstrip_blocks.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace kvfork::jinja {

enum class Tok : uint8_t {
  Data,
  VariableBegin,
  VariableEnd,
  BlockBegin,
  BlockEnd,
  Name,
  String,
  Integer,
  Float,
  Add,
  Sub,
  Div,
  FloorDiv,
  Mul,
  Mod,
  Pow,
  Tilde,
  LBracket,
  RBracket,
  LParen,
  RParen,
  LBrace,
  RBrace,
  Eq,
  Ne,
  Gt,
  GtEq,
  Lt,
  LtEq,
  Assign,
  Dot,
  Colon,
  Pipe,
  Comma,
  Semicolon,
  Eof,
};

struct Token {
  Tok type = Tok::Eof;
  uint32_t offset = 0;  ///< byte in the normalized source
  std::string text;     ///< data, name, string value, or the digits of a number without underscores
};

/// What jinja2 calls the token in its messages.
std::string describe(const Token& token);
std::string describe(Tok type);

/// The source with every line end as "\n" and without its last one: what offsets count.
std::string normalize_source(std::string_view source);

/// Fails with Error{Template} "SUBJECT: line L, column C: ...". `source` must come from normalize_source.
std::vector<Token> tokenize(std::string_view source, std::string_view subject);

/// Throws the Error for a fault found in the source.
[[noreturn]] void fail_syntax(std::string_view subject, std::string_view source, size_t offset,
                              std::string_view message);

}  // namespace kvfork::jinja
