// The % operator of str.
#include <algorithm>
#include <cmath>

#include "jinja/values/formatting.h"
#include "jinja/values/numbers.h"
#include "jinja/values/operators.h"
#include "jinja/values/printing.h"
#include "jinja/values/runtime.h"
#include "jinja/values/text.h"

namespace kvfork::jinja {
namespace {

struct Conversion {
  bool left = false, plus = false, space = false, alternate = false, zero = false;
  int64_t width = 0;
  int64_t precision = -1;
  char32_t type = 0;
};

class PercentFormatter {
 public:
  PercentFormatter(Runtime& rt, const Value& format, const Value& values)
      : rt_(rt), format_(format.text()), markup_(format.as<String>().markup), values_(values) {}

  std::string run() {
    while (position_ < format_.size()) {
      size_t percent = format_.find('%', position_);
      append(format_.substr(position_, std::min(percent, format_.size()) - position_));
      if (percent == std::string_view::npos) break;
      position_ = percent + 1;
      convert();
    }
    // Like Python: leftover values are an error, unless they came as something to look names up in.
    bool leftover =
        values_.is(Kind::Tuple) ? next_value_ < values_.as<List>().items.size() : !used_single_ && !is_mapping();
    if (leftover) rt_.fail("TypeError", "not all arguments converted during string formatting");
    return std::move(out_);
  }

 private:
  bool is_mapping() const {
    return values_.is(Kind::Dict) || values_.is(Kind::List) || values_.is(Kind::Undefined) ||
           values_.is(Kind::Range);
  }

  void append(std::string_view text) {
    rt_.reserve(out_.size() + text.size());
    out_.append(text);
  }

  [[noreturn]] void fail_incomplete() { rt_.fail("ValueError", "incomplete format"); }

  char32_t take() {
    if (position_ >= format_.size()) fail_incomplete();
    return next_char(format_, position_);
  }

  Value next_value() {
    if (values_.is(Kind::Tuple)) {
      const auto& items = values_.as<List>().items;
      if (next_value_ < items.size()) return items[next_value_++];
    } else if (!used_single_) {
      used_single_ = true;
      return values_;
    }
    rt_.fail("TypeError", "not enough arguments for format string");
  }

  Value named_value() {
    int open = 1;
    size_t start = position_;
    while (open > 0) {
      if (position_ >= format_.size()) rt_.fail("ValueError", "incomplete format key");
      char c = format_[position_++];
      open += c == '(' ? 1 : c == ')' ? -1 : 0;
    }
    if (!values_.is(Kind::Dict)) rt_.fail("TypeError", "format requires a mapping");
    std::string_view key = format_.substr(start, position_ - 1 - start);
    const Value* found = values_.as<Dict>().find(key);
    if (found == nullptr) rt_.fail("KeyError", repr_text(key));
    used_single_ = true;  // no value is left for a conversion without a name
    return *found;
  }

  int64_t number(bool& given) {
    given = false;
    if (position_ < format_.size() && format_[position_] == '*') {
      ++position_;
      given = true;
      Value value = next_value();
      if (!value.is_integral()) rt_.fail("TypeError", "* wants int");
      return value.as_int();
    }
    int64_t value = 0;
    while (position_ < format_.size() && format_[position_] >= '0' && format_[position_] <= '9') {
      value = value * 10 + (format_[position_++] - '0');
      if (value > INT32_MAX) rt_.fail("ValueError", "width too big");
      given = true;
    }
    return value;
  }

  void convert() {
    if (position_ < format_.size() && format_[position_] == '%') {
      ++position_;
      return append("%");
    }
    Conversion conversion;
    Value value;
    if (position_ < format_.size() && format_[position_] == '(') {
      ++position_;
      value = named_value();
    }
    parse_flags(conversion);
    conversion.type = take();
    while (conversion.type == 'h' || conversion.type == 'l' || conversion.type == 'L') conversion.type = take();
    if (value.is_missing()) value = next_value();
    std::string text = format_one(conversion, value);
    pad(conversion, text);
  }

  void parse_flags(Conversion& conversion) {
    for (bool more = true; more && position_ < format_.size();) {
      switch (format_[position_]) {
        case '-':
          conversion.left = true;
          break;
        case '+':
          conversion.plus = true;
          break;
        case ' ':
          conversion.space = true;
          break;
        case '#':
          conversion.alternate = true;
          break;
        case '0':
          conversion.zero = true;
          break;
        default:
          more = false;
          continue;
      }
      ++position_;
    }
    bool given = false;
    conversion.width = number(given);
    if (conversion.width < 0) {
      conversion.left = true;
      conversion.width = -conversion.width;
    }
    if (position_ < format_.size() && format_[position_] == '.') {
      ++position_;
      conversion.precision = std::max<int64_t>(0, number(given));
    }
  }

  std::string format_one(const Conversion& conversion, const Value& value) {
    switch (conversion.type) {
      case 's':
        return cut(conversion, markup_ ? escaped(rt_, value) : to_str(rt_, value));
      case 'r':
        return cut(conversion, markup_ ? escape_html(to_repr(rt_, value)) : to_repr(rt_, value));
      case 'a':
        return cut(conversion, ascii_only(to_repr(rt_, value)));
      case 'c':
        return character(value);
      case 'd':
      case 'i':
      case 'u':
      case 'o':
      case 'x':
      case 'X':
        return integer(conversion, value);
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G': {
        if (value.is(Kind::Undefined)) rt_.fail_undefined(value);
        if (!value.is_number()) {
          rt_.fail("TypeError", fmt::format("must be real number, not {}", type_name(value)));
        }
        double real = to_real(rt_, value);
        int64_t precision = conversion.precision < 0 ? 6 : conversion.precision;
        return signed_text(conversion, format_real(rt_, real, static_cast<char>(conversion.type), precision,
                                                   conversion.alternate));
      }
      default: {
        std::string type;
        append_char(type, conversion.type);
        rt_.fail("ValueError", fmt::format("unsupported format character '{}'", type));
      }
    }
  }

  static std::string cut(const Conversion& conversion, std::string text) {
    if (conversion.precision < 0) return text;
    return text.substr(0, byte_offset(text, static_cast<size_t>(conversion.precision)));
  }

  std::string character(const Value& value) {
    if (value.is(Kind::String) && value.as<String>().n_chars() == 1) return std::string(value.text());
    if (!value.is_integral()) rt_.fail("TypeError", "%c requires int or char");
    if (value.as_int() < 0 || value.as_int() > 0x10FFFF) rt_.fail("OverflowError", "%c arg not in range(0x110000)");
    std::string out;
    append_char(out, static_cast<char32_t>(value.as_int()));
    return out;
  }

  static std::string signed_text(const Conversion& conversion, std::string text) {
    if (text[0] == '-') return text;
    return conversion.plus ? "+" + text : conversion.space ? " " + text : text;
  }

  std::string integer(const Conversion& conversion, const Value& value) {
    if (value.is(Kind::Undefined)) rt_.fail_undefined(value);
    bool decimal = conversion.type == 'd' || conversion.type == 'i' || conversion.type == 'u';
    if (!value.is_number() || (!decimal && value.is(Kind::Float))) {
      std::string type;
      append_char(type, conversion.type);
      rt_.fail("TypeError", fmt::format("%{} format: a{} is required, not {}", type,
                                        decimal ? " real number" : "n integer", type_name(value)));
    }
    std::string digits;
    bool negative = false;
    if (value.is(Kind::BigInt)) {
      if (!decimal) fail_big_integer(rt_);
      digits = value.as<BigInt>().digits;
      negative = digits[0] == '-';
      if (negative) digits.erase(0, 1);
    } else {
      int64_t number = value.is(Kind::Float) ? to_integer(rt_, value.as_real()) : value.as_int();
      negative = number < 0;
      uint64_t magnitude = negative ? 0 - static_cast<uint64_t>(number) : static_cast<uint64_t>(number);
      digits = conversion.type == 'o'   ? fmt::format("{:o}", magnitude)
               : conversion.type == 'x' ? fmt::format("{:x}", magnitude)
               : conversion.type == 'X' ? fmt::format("{:X}", magnitude)
                                        : std::to_string(magnitude);
    }
    if (conversion.precision > static_cast<int64_t>(digits.size())) {
      rt_.reserve(static_cast<size_t>(conversion.precision));
      digits.insert(0, static_cast<size_t>(conversion.precision) - digits.size(), '0');
    }
    if (conversion.alternate && !decimal) {
      digits.insert(0, conversion.type == 'o' ? "0o" : conversion.type == 'x' ? "0x" : "0X");
    }
    return signed_text(conversion, negative ? "-" + digits : digits);
  }

  void pad(const Conversion& conversion, const std::string& text) {
    int64_t missing = conversion.width - static_cast<int64_t>(count_chars(text));
    if (missing <= 0) return append(text);
    auto n = static_cast<size_t>(missing);
    rt_.reserve(out_.size() + n);
    bool numeric =
        conversion.type != 's' && conversion.type != 'r' && conversion.type != 'a' && conversion.type != 'c';
    if (conversion.left) {
      append(text);
      out_.append(n, ' ');
    } else if (conversion.zero && numeric) {
      size_t prefix = text[0] == '-' || text[0] == '+' || text[0] == ' ' ? 1 : 0;
      if (text.size() > prefix + 1 && text[prefix] == '0' &&
          std::string_view("xXo").find(text[prefix + 1]) != std::string_view::npos) {
        prefix += 2;
      }
      append(std::string_view(text).substr(0, prefix));
      out_.append(n, '0');
      append(std::string_view(text).substr(prefix));
    } else {
      out_.append(n, ' ');
      append(text);
    }
  }

  Runtime& rt_;
  std::string_view format_;
  bool markup_;
  const Value& values_;
  std::string out_;
  size_t position_ = 0;
  size_t next_value_ = 0;
  bool used_single_ = false;
};

}  // namespace

Value percent_format(Runtime& rt, const Value& format, const Value& values) {
  return text_like(rt, format, PercentFormatter(rt, format, values).run());
}

}  // namespace kvfork::jinja
