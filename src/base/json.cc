#include "base/json.h"

#include <algorithm>

#include "base/error.h"
#include "base/utf8.h"

namespace kvfork::base {
namespace {

constexpr size_t kMaxDepth = 1024;

// Walks a text that simdjson refused and stops at the first byte that breaks RFC 8259. simdjson's DOM parser
// reports only a kind of error, and a person needs the place.
class ErrorFinder {
 public:
  explicit ErrorFinder(std::string_view text) : text_(text) {}

  // The position of the offending byte, or npos when the grammar holds (a number out of range, say).
  size_t find() {
    const bool ok = value(0) && (skip_space(), position_ == text_.size());
    return ok ? std::string_view::npos : position_;
  }

 private:
  bool at(char c) const { return position_ < text_.size() && text_[position_] == c; }
  bool take(char c) { return at(c) ? (++position_, true) : false; }
  bool digit() const { return position_ < text_.size() && text_[position_] >= '0' && text_[position_] <= '9'; }
  void skip_space() {
    while (at(' ') || at('\t') || at('\n') || at('\r')) ++position_;
  }

  bool value(size_t depth) {
    skip_space();
    if (depth > kMaxDepth || position_ >= text_.size()) return false;
    switch (text_[position_]) {
      case '{':
        return container('}', depth);
      case '[':
        return container(']', depth);
      case '"':
        return string();
      case 't':
        return literal("true");
      case 'f':
        return literal("false");
      case 'n':
        return literal("null");
      default:
        return number();
    }
  }

  bool container(char close, size_t depth) {
    ++position_;
    skip_space();
    if (take(close)) return true;
    while (true) {
      if (close == '}') {
        skip_space();
        if (!at('"') || !string()) return false;
        skip_space();
        if (!take(':')) return false;
      }
      if (!value(depth + 1)) return false;
      skip_space();
      if (take(close)) return true;
      if (!take(',')) return false;
    }
  }

  bool string() {
    for (++position_; position_ < text_.size();) {
      const auto c = static_cast<unsigned char>(text_[position_]);
      if (c == '"') return ++position_, true;
      if (c < 0x20) return false;
      if (c != '\\') {
        ++position_;
      } else if (!escape()) {
        return false;
      }
    }
    return false;
  }

  bool escape() {
    const std::string_view rest = text_.substr(position_);
    if (rest.size() < 2) return false;
    if (rest[1] != 'u') {
      if (std::string_view("\"\\/bfnrt").find(rest[1]) == std::string_view::npos) return false;
      position_ += 2;
      return true;
    }
    constexpr std::string_view kHex = "0123456789abcdefABCDEF";
    if (rest.size() < 6 || rest.substr(2, 4).find_first_not_of(kHex) != std::string_view::npos) return false;
    position_ += 6;
    return true;
  }

  bool literal(std::string_view word) {
    for (const char c : word) {
      if (!take(c)) return false;
    }
    return true;
  }

  bool digits() {
    if (!digit()) return false;
    while (digit()) ++position_;
    return true;
  }

  bool number() {
    take('-');
    if (!take('0') && !digits()) return false;
    if (take('.') && !digits()) return false;
    if (take('e') || take('E')) {
      if (!take('+')) take('-');
      return digits();
    }
    return true;
  }

  std::string_view text_;
  size_t position_ = 0;
};

[[noreturn]] void fail_parse(std::string_view text, std::string_view subject, simdjson::error_code error) {
  const size_t invalid = find_invalid_utf8(text);
  if (invalid < text.size())
    fail(ErrorCode::Corrupt, "{}: expected JSON in UTF-8, found an invalid byte at {}", subject,
         describe_position(text, invalid));
  const size_t position = ErrorFinder(text).find();
  if (position == std::string_view::npos)
    fail(ErrorCode::Corrupt, "{}: expected JSON, found: {}", subject, simdjson::error_message(error));
  if (position >= text.size())
    fail(ErrorCode::Corrupt, "{}: expected JSON, found the end of the text at {}", subject,
         describe_position(text, text.size()));
  fail(ErrorCode::Corrupt, "{}: expected JSON, found something else at {}", subject,
       describe_position(text, position));
}

}  // namespace

JsonDocument JsonDocument::parse(std::string_view text, std::string_view subject) {
  JsonDocument document;
  document.parser_ = std::make_unique<simdjson::dom::parser>();
  const auto error = document.parser_->parse(text.data(), text.size()).get(document.root_);
  if (error != simdjson::SUCCESS) fail_parse(text, subject, error);
  return document;
}

std::string describe_position(std::string_view text, size_t position) {
  const std::string_view before = text.substr(0, position);
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const size_t line_start = before.rfind('\n') == std::string_view::npos ? 0 : before.rfind('\n') + 1;
  return fmt::format("line {}, column {} (byte {})", line, before.size() - line_start + 1, before.size());
}

std::string describe_json(simdjson::dom::element value) {
  using simdjson::dom::element_type;
  switch (value.type()) {
    case element_type::ARRAY:
      return "a list";
    case element_type::OBJECT:
      return "an object";
    case element_type::STRING: {
      const std::string_view text = value.get_string().value_unsafe();
      return text.size() <= 60 ? fmt::format("the string \"{}\"", text)
                               : fmt::format("the string \"{}...\"", to_valid_utf8(text.substr(0, 57)));
    }
    case element_type::INT64:
    case element_type::UINT64:
    case element_type::DOUBLE:
      return "the number " + simdjson::minify(value);
    case element_type::BOOL:
      return value.get_bool().value_unsafe() ? "true" : "false";
    case element_type::NULL_VALUE:
      return "null";
  }
  return "an unknown value";
}

}  // namespace kvfork::base
