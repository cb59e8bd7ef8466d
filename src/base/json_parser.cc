// The grammar of JSON: one pass over the text, with a list of open brackets in place of recursion.
#include <array>
#include <cstring>

#include "base/ascii.h"
#include "base/json_tree.h"
#include "base/utf8.h"

namespace kvfork::base {
namespace {

using detail::JsonNode;
using detail::JsonNodes;

// Bytes that stand for themselves inside a string.
constexpr std::array<bool, 256> kPlain = [] {
  std::array<bool, 256> plain{};
  for (size_t c = 0x20; c < plain.size(); ++c) plain[c] = c != '"' && c != '\\';
  return plain;
}();

// Thrown inside the parser alone, where nothing else can be done with the text.
struct Failure {
  const char* expected;
  bool is_too_deep = false;
};

class Parser {
 public:
  Parser(JsonNodes& tree, const JsonRules& rules) : tree_(tree), rules_(rules), at_(tree.text.c_str()) {}

  size_t position() const { return static_cast<size_t>(at_ - tree_.text.c_str()); }

  // A std::string ends in a NUL, which no rule takes: so every look ahead by one byte is inside the text.
  void run() {
    while (true) {
      skip_space();
      if (*at_ == '{' || *at_ == '[') {
        if (open()) continue;
      } else {
        scalar();
      }
      if (!after_value()) return;
    }
  }

 private:
  void skip_space() {
    while (*at_ == ' ' || *at_ == '\n' || *at_ == '\r' || *at_ == '\t') ++at_;
  }
  bool take(char c) { return *at_ == c ? (++at_, true) : false; }
  bool take_word(std::string_view word) {
    // Compares up to the NUL at most.
    if (std::strncmp(at_, word.data(), word.size()) != 0) return false;
    at_ += word.size();
    return true;
  }

  JsonNode& add(JsonKind kind, size_t begin) {
    JsonNode& node = tree_.nodes.emplace_back();
    node.kind = kind;
    node.begin = static_cast<uint32_t>(begin);
    node.end = static_cast<uint32_t>(position());
    return node;
  }

  // Whether a value follows inside the bracket.
  bool open() {
    const bool is_object = *at_ == '{';
    if (open_.size() >= rules_.max_depth) throw Failure{"another value", true};
    open_.push_back(static_cast<uint32_t>(tree_.nodes.size()));
    add(is_object ? JsonKind::Object : JsonKind::List, position());
    ++at_;
    skip_space();
    if (*at_ == (is_object ? '}' : ']')) {
      close();
      return false;
    }
    if (is_object) key();
    return true;
  }

  void close() {
    ++at_;
    JsonNode& node = tree_.nodes[open_.back()];
    node.end = static_cast<uint32_t>(position());
    node.link = static_cast<uint32_t>(tree_.nodes.size());
    open_.pop_back();
  }

  // Whether another value follows.
  bool after_value() {
    while (!open_.empty()) {
      const bool is_object = tree_.nodes[open_.back()].kind == JsonKind::Object;
      skip_space();
      if (take(',')) {
        if (is_object) {
          skip_space();
          key();
        }
        return true;
      }
      if (*at_ != (is_object ? '}' : ']')) throw Failure{is_object ? "',' or '}'" : "',' or ']'"};
      close();
    }
    skip_space();
    if (position() != tree_.text.size()) throw Failure{"the end of the text"};
    return false;
  }

  void key() {
    if (*at_ != '"') throw Failure{"a key in double quotes"};
    string();
    skip_space();
    if (!take(':')) throw Failure{"':'"};
  }

  void scalar() {
    const size_t begin = position();
    switch (*at_) {
      case '"':
        string();
        return;
      case 't':
        if (take_word("true")) return void(add(JsonKind::True, begin));
        break;
      case 'f':
        if (take_word("false")) return void(add(JsonKind::False, begin));
        break;
      case 'n':
        if (take_word("null")) return void(add(JsonKind::Null, begin));
        break;
      case 'N':
      case 'I':
        if (rules_.non_finite && (take_word("NaN") || take_word("Infinity")))
          return void(add(JsonKind::Real, begin));
        break;
      default:
        return number();
    }
    throw Failure{"a value"};
  }

  bool digits() {
    if (*at_ < '0' || *at_ > '9') return false;
    while (*at_ >= '0' && *at_ <= '9') ++at_;
    return true;
  }

  void number() {
    const size_t begin = position();
    take('-');
    if (rules_.non_finite && take_word("Infinity")) return void(add(JsonKind::Real, begin));
    if (!take('0') && !digits()) throw Failure{"a value"};
    JsonKind kind = JsonKind::Integer;
    if (take('.')) {
      kind = JsonKind::Real;
      if (!digits()) throw Failure{"a digit"};
    }
    if (take('e') || take('E')) {
      kind = JsonKind::Real;
      if (!take('+')) take('-');
      if (!digits()) throw Failure{"a digit"};
    }
    add(kind, begin);
  }

  void string() {
    const size_t begin = position();
    ++at_;
    skip_plain();
    if (*at_ == '"') {
      ++at_;
      add(JsonKind::String, begin);
      return;
    }
    const size_t unescaped = tree_.unescaped.size();
    tree_.unescaped.append(sizeof(uint32_t), '\0');
    tree_.unescaped.append(tree_.text, begin + 1, position() - begin - 1);
    while (!take('"')) {
      escape();
      const char* start = at_;
      skip_plain();
      tree_.unescaped.append(start, at_);
    }
    const auto size = static_cast<uint32_t>(tree_.unescaped.size() - unescaped - sizeof(uint32_t));
    std::memcpy(tree_.unescaped.data() + unescaped, &size, sizeof(size));
    JsonNode& node = add(JsonKind::String, begin);
    node.link = static_cast<uint32_t>(unescaped);
    node.has_escapes = true;
  }

  void skip_plain() {
    while (kPlain[static_cast<unsigned char>(*at_)]) ++at_;
  }

  void escape() {
    constexpr std::string_view kFrom = "\"\\/bfnrt";
    constexpr std::string_view kTo = "\"\\/\b\f\n\r\t";
    if (*at_ != '\\')
      throw Failure{position() == tree_.text.size() ? "'\"' at the end of a string"
                                                    : "control characters as escapes"};
    ++at_;
    if (const size_t simple = *at_ == '\0' ? std::string_view::npos : kFrom.find(*at_); simple != kFrom.npos) {
      ++at_;
      tree_.unescaped.push_back(kTo[simple]);
      return;
    }
    if (!take('u')) throw Failure{"an escape of JSON"};
    char32_t c = hex();
    if (c >= 0xD800 && c < 0xDC00 && at_[0] == '\\' && at_[1] == 'u') {
      const char* before = at_;
      at_ += 2;
      const char32_t low = hex();
      if (low >= 0xDC00 && low < 0xE000) {
        c = 0x10000 + ((c - 0xD800) << 10) + (low - 0xDC00);
      } else {
        at_ = before;
      }
    }
    if (c < 0xD800 || c > 0xDFFF) return append_utf8(tree_.unescaped, c);
    if (!rules_.lone_surrogates) throw Failure{"surrogates in pairs"};
    for (const char32_t byte : {0xE0 | (c >> 12), 0x80 | ((c >> 6) & 0x3F), 0x80 | (c & 0x3F)})
      tree_.unescaped.push_back(static_cast<char>(byte));
  }

  char32_t hex() {
    char32_t value = 0;
    for (int i = 0; i < 4; ++i, ++at_) {
      const int digit = hex_value(*at_);
      if (digit < 0) throw Failure{"four hexadecimal digits"};
      value = value * 16 + static_cast<char32_t>(digit);
    }
    return value;
  }

  JsonNodes& tree_;
  const JsonRules& rules_;
  const char* at_;
  std::vector<uint32_t> open_;
};

// What stands in the place of JSON, where a file was fetched badly.
const char* foreign_text(std::string_view text) {
  if (text.empty()) return "an empty file";
  if (text.starts_with("version https://git-lfs"))
    return "a Git LFS pointer; fetch the file itself with git lfs pull";
  if (text.starts_with("<")) return "an HTML page or XML; was a login or error page saved in its place?";
  return nullptr;
}

bool parse_nodes(JsonNodes& tree, const JsonRules& rules, JsonProblem& problem) {
  if (tree.text.size() >= UINT32_MAX) {
    problem = {.expected = "less than 4 GiB", .position = tree.text.size()};
    return false;
  }
  if (const size_t invalid = find_invalid_utf8(tree.text); invalid < tree.text.size()) {
    problem = {.expected = "UTF-8", .position = invalid};
    return false;
  }
  tree.nodes.reserve(tree.text.size() / 16 + 16);
  Parser parser(tree, rules);
  try {
    parser.run();
  } catch (const Failure& failure) {
    problem = {.expected = failure.expected, .position = parser.position(), .is_too_deep = failure.is_too_deep};
    return false;
  }
  return true;
}

}  // namespace

JsonTree JsonTree::parse(std::string text, std::string_view subject, const JsonRules& rules) {
  auto nodes = std::make_unique<JsonNodes>(JsonNodes{.text = std::move(text), .subject = std::string(subject)});
  JsonProblem problem;
  if (parse_nodes(*nodes, rules, problem)) return JsonTree(std::move(nodes));
  if (const char* foreign = foreign_text(nodes->text))
    fail(ErrorCode::Corrupt, "{}: expected JSON, found {}", subject, foreign);
  const std::string place = describe_json_position(nodes->text, problem.position);
  if (problem.is_too_deep)
    fail(ErrorCode::Corrupt, "{}: expected JSON of at most {} values inside one another, found more at {}", subject,
         rules.max_depth, place);
  fail(ErrorCode::Corrupt, "{}: expected JSON with {} at {}, found {}", subject, problem.expected, place,
       problem.position < nodes->text.size() ? "something else" : "the end of the text");
}

std::optional<JsonTree> JsonTree::try_parse(std::string text, std::string_view subject, const JsonRules& rules,
                                            JsonProblem* problem) {
  auto nodes = std::make_unique<JsonNodes>(JsonNodes{.text = std::move(text), .subject = std::string(subject)});
  JsonProblem found;
  if (parse_nodes(*nodes, rules, found)) return JsonTree(std::move(nodes));
  if (problem != nullptr) *problem = std::move(found);
  return std::nullopt;
}

}  // namespace kvfork::base
