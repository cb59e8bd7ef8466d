#include <charconv>
#include <cmath>
#include <cstdlib>

#include "base/error.h"
#include "base/utf8.h"
#include "jinja/json.h"
#include "jinja/runtime.h"
#include "jinja/text.h"

namespace kvfork::jinja {
namespace {

class Reader {
 public:
  Reader(Runtime& rt, std::string_view text, std::string_view subject,
         const std::function<void(std::string&)>& on_text)
      : rt_(rt), text_(text), subject_(subject), on_text_(on_text) {}

  Value run() {
    size_t invalid = base::find_invalid_utf8(text_);
    if (invalid != text_.size()) {
      at_ = invalid;
      fail("expected UTF-8, found other bytes");
    }
    Value value = read_value(0);
    skip_space();
    if (at_ != text_.size()) fail("expected the end of the text, found more");
    return value;
  }

 private:
  [[noreturn]] void fail(std::string_view message) const {
    base::fail(ErrorCode::Corrupt, "{}: not JSON at byte {}: {}", subject_, at_, message);
  }

  void skip_space() {
    while (at_ < text_.size() &&
           (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\n' || text_[at_] == '\r')) {
      ++at_;
    }
  }

  bool skip(char c) {
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  bool skip_word(std::string_view word) {
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }

  Value read_value(uint32_t depth) {
    if (depth > rt_.limits().nesting) {
      base::fail(ErrorCode::Limit, "{}: expected at most {} values inside one another, found more at byte {}",
                 subject_, rt_.limits().nesting, at_);
    }
    rt_.step();
    skip_space();
    if (at_ >= text_.size()) fail("expected a value, found the end");
    switch (text_[at_]) {
      case '{':
        return read_object(depth);
      case '[':
        return read_array(depth);
      case '"':
        return rt_.string(read_string());
      case 't':
        if (skip_word("true")) return Value::boolean(true);
        break;
      case 'f':
        if (skip_word("false")) return Value::boolean(false);
        break;
      case 'n':
        if (skip_word("null")) return Value::none();
        break;
      case 'N':
        if (skip_word("NaN")) return Value::real(std::nan(""));
        break;
      case 'I':
        if (skip_word("Infinity")) return Value::real(HUGE_VAL);
        break;
      default:
        return read_number();
    }
    fail("expected a value");
  }

  Value read_object(uint32_t depth) {
    ++at_;
    auto dict = std::make_unique<Dict>();
    skip_space();
    if (skip('}')) return rt_.dict(std::move(dict));
    while (true) {
      skip_space();
      if (at_ >= text_.size() || text_[at_] != '"') fail("expected a key in double quotes");
      Value key = rt_.string(read_string());
      skip_space();
      if (!skip(':')) fail("expected ':'");
      Value value = read_value(depth + 1);
      dict->set(std::move(key), std::move(value));
      skip_space();
      if (skip('}')) return rt_.dict(std::move(dict));
      if (!skip(',')) fail("expected ',' or '}'");
    }
  }

  Value read_array(uint32_t depth) {
    ++at_;
    std::vector<Value> items;
    skip_space();
    if (skip(']')) return rt_.list(std::move(items));
    while (true) {
      items.push_back(read_value(depth + 1));
      rt_.reserve(items.size() * sizeof(Value));
      skip_space();
      if (skip(']')) return rt_.list(std::move(items));
      if (!skip(',')) fail("expected ',' or ']'");
    }
  }

  Value read_number() {
    size_t start = at_;
    bool negative = skip('-');
    if (skip_word("Infinity")) return Value::real(negative ? -HUGE_VAL : HUGE_VAL);
    size_t digits = at_;
    while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') ++at_;
    if (at_ == digits) {
      at_ = start;
      fail("expected a value");
    }
    if (text_[digits] == '0' && at_ > digits + 1) at_ = digits + 1;
    size_t whole_end = at_;
    bool real = read_fraction();
    std::string number(text_.substr(start, at_ - start));
    if (real) return Value::real(std::strtod(number.c_str(), nullptr));
    int64_t value = 0;
    auto result = std::from_chars(number.data(), number.data() + number.size(), value);
    if (result.ec == std::errc()) return Value::integer(value);
    if (whole_end - digits > 4300) fail("expected an integer of at most 4300 digits");
    return rt_.big_integer(std::move(number));
  }

  bool read_fraction() {
    bool real = false;
    auto is_digit = [&](size_t at) { return at < text_.size() && text_[at] >= '0' && text_[at] <= '9'; };
    if (at_ < text_.size() && text_[at_] == '.' && is_digit(at_ + 1)) {
      real = true;
      ++at_;
      while (is_digit(at_)) ++at_;
    }
    if (at_ < text_.size() && (text_[at_] == 'e' || text_[at_] == 'E')) {
      size_t exponent = at_ + 1;
      if (exponent < text_.size() && (text_[exponent] == '+' || text_[exponent] == '-')) ++exponent;
      if (is_digit(exponent)) {
        real = true;
        at_ = exponent;
        while (is_digit(at_)) ++at_;
      }
    }
    return real;
  }

  std::string read_string() {
    ++at_;
    std::string out;
    while (true) {
      size_t start = at_;
      while (at_ < text_.size() && text_[at_] != '"' && text_[at_] != '\\' &&
             static_cast<unsigned char>(text_[at_]) >= 0x20) {
        ++at_;
      }
      out.append(text_.substr(start, at_ - start));
      if (at_ >= text_.size()) fail("expected '\"' at the end of a string");
      if (skip('"')) {
        if (on_text_) on_text_(out);
        return out;
      }
      if (text_[at_] != '\\') fail("expected control characters in a string to be escaped");
      ++at_;
      read_escape(out);
    }
  }

  void read_escape(std::string& out) {
    static constexpr std::string_view kFrom = "\"\\/bfnrt";
    static constexpr std::string_view kTo = "\"\\/\b\f\n\r\t";
    if (at_ >= text_.size()) fail("expected an escape");
    size_t simple = kFrom.find(text_[at_]);
    if (simple != std::string_view::npos) {
      ++at_;
      out.push_back(kTo[simple]);
      return;
    }
    if (!skip('u')) fail("expected a known escape");
    char32_t c = read_hex();
    if (c >= 0xD800 && c < 0xDC00 && text_.substr(at_, 2) == "\\u") {
      size_t before = at_;
      at_ += 2;
      char32_t low = read_hex();
      if (low >= 0xDC00 && low < 0xE000) {
        c = 0x10000 + ((c - 0xD800) << 10) + (low - 0xDC00);
      } else {
        at_ = before;
      }
    }
    append_char(out, c);
  }

  char32_t read_hex() {
    char32_t value = 0;
    for (int i = 0; i < 4; ++i) {
      char c = at_ < text_.size() ? text_[at_] : '\0';
      int digit = c >= '0' && c <= '9'   ? c - '0'
                  : c >= 'a' && c <= 'f' ? c - 'a' + 10
                  : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                         : -1;
      if (digit < 0) fail("expected four hexadecimal digits");
      value = value * 16 + static_cast<char32_t>(digit);
      ++at_;
    }
    return value;
  }

  Runtime& rt_;
  std::string_view text_;
  std::string_view subject_;
  const std::function<void(std::string&)>& on_text_;
  size_t at_ = 0;
};

}  // namespace

Value read_json(Runtime& rt, std::string_view text, std::string_view subject,
                const std::function<void(std::string&)>& on_text) {
  return Reader(rt, text, subject, on_text).run();
}

}  // namespace kvfork::jinja
