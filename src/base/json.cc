// Parses JSON with simdjson and says where a text that it refuses breaks the rules.

#include "base/json.h"

#include <algorithm>
#include <vector>

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

  // Where integers end that may not fit 64 bits.
  const std::vector<size_t>& long_integers() const { return long_integers_; }

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
    constexpr size_t kSafeDigits = 18;
    take('-');
    const size_t start = position_;
    if (!take('0') && !digits()) return false;
    if (!at('.') && !at('e') && !at('E') && position_ - start > kSafeDigits) long_integers_.push_back(position_);
    if (take('.') && !digits()) return false;
    if (take('e') || take('E')) {
      if (!take('+')) take('-');
      return digits();
    }
    return true;
  }

  std::string_view text_;
  size_t position_ = 0;
  std::vector<size_t> long_integers_;
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

// `text` with its long integers written as floating-point numbers; empty when there are none.
std::string with_float_integers(std::string_view text) {
  ErrorFinder finder(text);
  if (finder.find() != std::string_view::npos || finder.long_integers().empty()) return "";
  std::string result;
  size_t begin = 0;
  for (const size_t end : finder.long_integers()) {
    result.append(text.substr(begin, end - begin)).append("e0");
    begin = end;
  }
  return result.append(text.substr(begin));
}

}  // namespace

JsonDocument JsonDocument::parse(std::string_view text, std::string_view subject) {
  JsonDocument document;
  document.parser_ = std::make_unique<simdjson::dom::parser>();
  const auto parse_text = [&](std::string_view json) {
    return document.parser_->parse(json.data(), json.size()).get(document.root_);
  };
  auto error = parse_text(text);
  if (error != simdjson::SUCCESS) {
    // Python reads integers of any size, so files have them (1e30 written out is a usual "no limit").
    const std::string patched = with_float_integers(text);
    if (!patched.empty()) error = parse_text(patched);
  }
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
      // Minified, control characters are escaped.
      const std::string text = simdjson::minify(value);
      return text.size() <= 80 ? "the string " + text : "the string " + to_valid_utf8(text.substr(0, 77)) + "...\"";
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
