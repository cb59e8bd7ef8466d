// From template source to tokens, with the white space that jinja2 takes away.
#include "jinja/syntax/lexer.h"

#include <array>

#include "base/error.h"
#include "jinja/syntax/literals.h"
#include "jinja/values/runtime.h"
#include "jinja/values/text.h"

namespace kvfork::jinja {
namespace {

struct Operator {
  std::string_view text;
  Tok type;
};

// Longest first, as they must be tried.
constexpr std::array<Operator, 26> kOperators = {{
    {"//", Tok::FloorDiv}, {"**", Tok::Pow},   {"==", Tok::Eq},      {"!=", Tok::Ne},      {">=", Tok::GtEq},
    {"<=", Tok::LtEq},     {"+", Tok::Add},    {"-", Tok::Sub},      {"/", Tok::Div},      {"*", Tok::Mul},
    {"%", Tok::Mod},       {"~", Tok::Tilde},  {"[", Tok::LBracket}, {"]", Tok::RBracket}, {"(", Tok::LParen},
    {")", Tok::RParen},    {"{", Tok::LBrace}, {"}", Tok::RBrace},   {">", Tok::Gt},       {"<", Tok::Lt},
    {"=", Tok::Assign},    {".", Tok::Dot},    {":", Tok::Colon},    {"|", Tok::Pipe},     {",", Tok::Comma},
    {";", Tok::Semicolon},
}};

class Lexer {
 public:
  Lexer(std::string_view source, std::string_view subject) : source_(source), subject_(subject) {}

  std::vector<Token> run() {
    while (position_ < source_.size()) lex_data();
    push(Tok::Eof, source_.size(), {});
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(size_t offset, std::string_view message) const {
    fail_syntax(subject_, source_, offset, message);
  }

  bool starts(size_t at, std::string_view text) const { return source_.substr(at, text.size()) == text; }

  size_t skip_spaces(size_t at) const {
    while (at < source_.size()) {
      size_t next = at;
      if (!is_space(next_char(source_, next))) break;
      at = next;
    }
    return at;
  }

  void push(Tok type, size_t offset, std::string_view text) {
    tokens_.push_back({type, static_cast<uint32_t>(offset), std::string(text)});
  }

  void push_data(size_t offset, std::string_view text) {
    if (!text.empty()) push(Tok::Data, offset, text);
  }

  // Where "{%-", "{%+" or "{%" at `at` opens a raw block, the end of its opening tag; else 0.
  size_t match_raw_begin(size_t at) const {
    at += 2;
    if (at < source_.size() && (source_[at] == '-' || source_[at] == '+')) ++at;
    at = skip_spaces(at);
    if (!starts(at, "raw")) return 0;
    at = skip_spaces(at + 3);
    if (starts(at, "-%}")) return skip_spaces(at + 3);
    return starts(at, "%}") ? at + 2 : 0;
  }

  // The end of a block's closing tag at `at` ("+%}", "-%}" with what follows, "%}" with one line end), or 0.
  size_t match_block_end(size_t at, std::string_view mark) const {
    if (at < source_.size() && source_[at] == '+' && starts(at + 1, mark)) return at + 1 + mark.size();
    if (at < source_.size() && source_[at] == '-' && starts(at + 1, mark)) return skip_spaces(at + 1 + mark.size());
    if (!starts(at, mark)) return 0;
    size_t end = at + mark.size();
    return starts(end, "\n") ? end + 1 : end;
  }

  // Data before a tag, cut as its sign and lstrip_blocks ask.
  std::string_view strip_before(std::string_view text, char sign, bool is_variable) const {
    if (sign == '-') return strip_right(text);
    if (sign == '+' || is_variable) return text;
    size_t line = text.rfind('\n') + 1;
    if ((line == 0 && !line_starting_) || line == text.size()) return text;
    for (size_t at = line; at < text.size();) {
      if (!is_space(next_char(text, at))) return text;
    }
    return text.substr(0, line);
  }

  void move_to(size_t end) {
    if (end > 0 && end > position_) line_starting_ = source_[end - 1] == '\n';
    position_ = end;
  }

  void lex_data() {
    size_t at = position_;
    while (true) {
      at = source_.find('{', at);
      if (at == std::string_view::npos) {
        push_data(position_, source_.substr(position_));
        move_to(source_.size());
        return;
      }
      if (starts(at, "{{") || starts(at, "{%") || starts(at, "{#")) break;
      ++at;
    }
    char kind = source_[at + 1];
    size_t raw_end = kind == '%' ? match_raw_begin(at) : 0;
    char sign = at + 2 < source_.size() && (source_[at + 2] == '-' || source_[at + 2] == '+') ? source_[at + 2] : 0;
    std::string_view text = source_.substr(position_, at - position_);
    push_data(position_, strip_before(text, sign, kind == '{'));
    if (raw_end != 0) {
      move_to(raw_end);
      lex_raw(at);
      return;
    }
    move_to(at + 2 + (sign != 0));
    if (kind == '#') {
      lex_comment(at);
    } else {
      push(kind == '{' ? Tok::VariableBegin : Tok::BlockBegin, at, {});
      lex_tag(kind == '{');
    }
  }

  void lex_comment(size_t begin) {
    if (position_ == source_.size()) return;  // jinja2 sees nothing to complain about here
    size_t at = source_.find("#}", position_);
    if (at == std::string_view::npos) fail(begin, "Missing end of comment tag");
    bool has_sign = at > position_ && (source_[at - 1] == '-' || source_[at - 1] == '+');
    move_to(match_block_end(has_sign ? at - 1 : at, "#}"));
  }

  void lex_raw(size_t begin) {
    if (position_ == source_.size()) return;
    for (size_t at = source_.find("{%", position_); at != std::string_view::npos; at = source_.find("{%", at + 1)) {
      size_t inner = at + 2;
      char sign = inner < source_.size() && (source_[inner] == '-' || source_[inner] == '+') ? source_[inner] : 0;
      inner = skip_spaces(inner + (sign != 0));
      if (!starts(inner, "endraw")) continue;
      size_t end = match_block_end(skip_spaces(inner + 6), "%}");
      if (end == 0) continue;
      push_data(position_, strip_before(source_.substr(position_, at - position_), sign, false));
      move_to(end);
      return;
    }
    fail(begin, "Missing end of raw directive");
  }

  void lex_tag(bool is_variable) {
    std::vector<char> open;
    while (position_ < source_.size()) {
      if (open.empty()) {
        size_t end = 0;
        if (!is_variable) {
          end = match_block_end(position_, "%}");
        } else if (starts(position_, "-}}")) {
          end = skip_spaces(position_ + 3);
        } else if (starts(position_, "}}")) {
          end = position_ + 2;
        }
        if (end != 0) {
          push(is_variable ? Tok::VariableEnd : Tok::BlockEnd, position_, {});
          move_to(end);
          return;
        }
      }
      lex_token(open);
    }
  }

  void lex_token(std::vector<char>& open) {
    size_t spaces = skip_spaces(position_);
    if (spaces > position_) return move_to(spaces);
    if (Number number = match_number(source_, position_); number.end != 0) {
      push(number.is_float ? Tok::Float : Tok::Integer, position_, number.digits);
      return move_to(number.end);
    }
    if (size_t end = match_name(); end != 0) {
      std::string_view name = source_.substr(position_, end - position_);
      if (!is_identifier(name)) fail(position_, "Invalid character in identifier");
      push(Tok::Name, position_, name);
      return move_to(end);
    }
    char c = source_[position_];
    if ((c == '"' || c == '\'') && lex_string(c)) return;
    lex_operator(open);
  }

  static bool continues_identifier(std::string_view character) {
    std::string name(1, 'a');
    name.append(character);
    return is_identifier(name);
  }

  size_t match_name() const {
    size_t at = position_;
    while (at < source_.size()) {
      size_t next = at;
      char32_t c = next_char(source_, next);
      if (!is_word(c) && (c < 0x80 || !continues_identifier(source_.substr(at, next - at)))) break;
      at = next;
    }
    return at == position_ ? 0 : at;
  }

  bool lex_string(char quote) {
    size_t at = position_ + 1;
    while (at < source_.size() && source_[at] != quote) at += source_[at] == '\\' ? 2 : 1;
    if (at >= source_.size()) return false;
    std::string error;
    std::string value = unescape_string(source_.substr(position_ + 1, at - position_ - 1), error);
    if (!error.empty()) fail(position_, error);
    push(Tok::String, position_, value);
    move_to(at + 1);
    return true;
  }

  void lex_operator(std::vector<char>& open) {
    for (const Operator& op : kOperators) {
      if (!starts(position_, op.text)) continue;
      balance(op.text[0], open);
      push(op.type, position_, op.text);
      return move_to(position_ + op.text.size());
    }
    size_t end = position_;
    next_char(source_, end);
    fail(position_, fmt::format("unexpected char '{}'", source_.substr(position_, end - position_)));
  }

  void balance(char c, std::vector<char>& open) {
    if (c == '(') open.push_back(')');
    if (c == '[') open.push_back(']');
    if (c == '{') open.push_back('}');
    if (c != ')' && c != ']' && c != '}') return;
    if (open.empty()) fail(position_, fmt::format("unexpected '{}'", c));
    if (open.back() != c) fail(position_, fmt::format("unexpected '{}', expected '{}'", c, open.back()));
    open.pop_back();
  }

  std::string_view source_;
  std::string_view subject_;
  std::vector<Token> tokens_;
  size_t position_ = 0;
  bool line_starting_ = true;
};

}  // namespace

void fail_syntax(std::string_view subject, std::string_view source, size_t offset, std::string_view message) {
  SourcePosition position = locate(source, offset);
  base::fail(ErrorCode::Template, "{}: line {}, column {}: {}", subject, position.line, position.column, message);
}

std::string describe(Tok type) {
  switch (type) {
    case Tok::Data:
      return "template data / text";
    case Tok::VariableBegin:
      return "begin of print statement";
    case Tok::VariableEnd:
      return "end of print statement";
    case Tok::BlockBegin:
      return "begin of statement block";
    case Tok::BlockEnd:
      return "end of statement block";
    case Tok::Name:
      return "name";
    case Tok::String:
      return "string";
    case Tok::Integer:
      return "integer";
    case Tok::Float:
      return "float";
    case Tok::Eof:
      return "end of template";
    default:
      for (const Operator& op : kOperators) {
        if (op.type == type) return std::string(op.text);
      }
      return "token";
  }
}

std::string describe(const Token& token) {
  return token.type == Tok::Name ? token.text : describe(token.type);
}

std::string normalize_source(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out.push_back('\n');
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out.push_back(source[i]);
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

std::vector<Token> tokenize(std::string_view source, std::string_view subject) {
  return Lexer(source, subject).run();
}

}  // namespace kvfork::jinja
