// Splitting JSON objects into the text of their members.
#include "cli/json_object.h"

#include <fmt/format.h>

#include <charconv>

#include "kvfork/error.h"

namespace kvfork::cli {
namespace {

[[noreturn]] void fail(std::string_view expected, size_t position) {
  throw Error(ErrorCode::InvalidArgument, fmt::format("JSON: expected {} at byte {}", expected, position));
}

// Walks over one JSON text without recursion.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  size_t position() const { return position_; }
  bool at_end() { return skip_space(), position_ == text_.size(); }
  char peek() { return skip_space(), position_ < text_.size() ? text_[position_] : '\0'; }

  bool take(char wanted) {
    if (peek() != wanted) return false;
    ++position_;
    return true;
  }

  void expect(char wanted) {
    if (!take(wanted)) fail(fmt::format("'{}'", wanted), position_);
  }

  // A value with everything in it; brackets are matched by depth alone.
  std::string_view take_value() {
    skip_space();
    const size_t begin = position_;
    size_t depth = 0;
    do {
      const char c = peek();
      if (c == '"') {
        skip_string();
      } else if (c == '[' || c == '{') {
        ++depth;
        ++position_;
      } else if ((c == ']' || c == '}') && depth > 0) {
        --depth;
        ++position_;
      } else if ((c == ',' || c == ':') && depth > 0) {
        ++position_;
      } else {
        skip_word();
      }
    } while (depth > 0);
    return text_.substr(begin, position_ - begin);
  }

  std::string_view take_string() {
    if (peek() != '"') fail("a string", position_);
    const size_t begin = position_;
    skip_string();
    return text_.substr(begin, position_ - begin);
  }

 private:
  void skip_space() { position_ = std::min(text_.find_first_not_of(" \t\r\n", position_), text_.size()); }

  void skip_string() {
    const size_t begin = position_++;
    while (position_ < text_.size() && text_[position_] != '"') position_ += text_[position_] == '\\' ? 2 : 1;
    if (position_ >= text_.size()) fail("the string to end that starts", begin);
    ++position_;
  }

  void skip_word() {
    const size_t begin = position_;
    position_ = std::min(text_.find_first_of(" \t\r\n,:[]{}\"", position_), text_.size());
    if (position_ == begin) fail("a value", begin);
  }

  std::string_view text_;
  size_t position_ = 0;
};

}  // namespace

std::map<std::string, std::string_view> split_object(std::string_view text) {
  std::map<std::string, std::string_view> members;
  Scanner scanner(text);
  scanner.expect('{');
  if (!scanner.take('}')) {
    do {
      const std::string name = parse_string(scanner.take_string());
      scanner.expect(':');
      members[name] = scanner.take_value();
    } while (scanner.take(','));
    scanner.expect('}');
  }
  if (!scanner.at_end()) fail("nothing more", scanner.position());
  return members;
}

nlohmann::ordered_json parse_value(std::string_view text) {
  using Json = nlohmann::ordered_json;
  constexpr int kMaxDepth = 400;
  bool is_too_deep = false;
  Json value = Json::parse(
      text,
      [&](int depth, Json::parse_event_t, const Json&) {
        is_too_deep = is_too_deep || depth > kMaxDepth;
        return !is_too_deep;
      },
      false);
  return is_too_deep ? Json(Json::value_t::discarded) : value;
}

std::string parse_string(std::string_view literal) {
  const auto value = nlohmann::json::parse(literal.begin(), literal.end(), nullptr, false);
  if (!value.is_string())
    throw Error(ErrorCode::InvalidArgument, "JSON: expected a string of whole Unicode characters");
  return value.get<std::string>();
}

std::vector<int32_t> parse_id_list(std::string_view text) {
  std::vector<int32_t> ids;
  Scanner scanner(text);
  scanner.expect('[');
  if (!scanner.take(']')) {
    do {
      const std::string_view word = scanner.take_value();
      int32_t id = 0;
      const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), id);
      if (error != std::errc() || end != word.data() + word.size())
        throw Error(ErrorCode::InvalidArgument,
                    fmt::format("ids: expected token ids, found '{}'", word.substr(0, 40)));
      ids.push_back(id);
    } while (scanner.take(','));
    scanner.expect(']');
  }
  if (!scanner.at_end()) fail("nothing more", scanner.position());
  return ids;
}

}  // namespace kvfork::cli
