// str.format and its mini-language of format specifiers.
#include <algorithm>
#include <cmath>

#include "base/number.h"
#include "jinja/values/formatting.h"
#include "jinja/values/numbers.h"
#include "jinja/values/operators.h"
#include "jinja/values/printing.h"
#include "jinja/values/runtime.h"
#include "jinja/values/text.h"

namespace kvfork::jinja {
namespace {

struct Spec {
  char32_t fill = ' ';
  char align = 0;  // 0: by type
  char sign = '-';
  bool alternate = false;
  bool zero = false;
  int64_t width = 0;
  char grouping = 0;
  int64_t precision = -1;
  char type = 0;
};

bool is_align(char32_t c) {
  return c == '<' || c == '>' || c == '=' || c == '^';
}

class SpecParser {
 public:
  SpecParser(Runtime& rt, std::string_view text) : rt_(rt), text_(text) {}

  Spec run() {
    Spec spec;
    size_t second = 0;
    if (!text_.empty()) {
      char32_t first = next_char(text_, second);
      if (second < text_.size() && is_align(static_cast<unsigned char>(text_[second]))) {
        spec.fill = first;
        spec.align = text_[second];
        at_ = second + 1;
      } else if (is_align(first)) {
        spec.align = static_cast<char>(first);
        at_ = 1;
      }
    }
    if (peek() == '+' || peek() == '-' || peek() == ' ') spec.sign = text_[at_++];
    if (peek() == 'z') ++at_;
    spec.alternate = skip('#');
    if (peek() == '0') {
      spec.zero = true;
      if (spec.align == 0) {
        spec.align = '=';
        spec.fill = '0';
      } else if (at_ < 2) {
        spec.fill = '0';
      }
      ++at_;
    }
    spec.width = number(0);
    if (peek() == ',' || peek() == '_') spec.grouping = text_[at_++];
    if (skip('.')) {
      spec.precision = number(-1);
      if (spec.precision < 0) rt_.fail("ValueError", "Format specifier missing precision");
    }
    if (at_ < text_.size()) spec.type = text_[at_++];
    if (at_ != text_.size()) rt_.fail("ValueError", fmt::format("Invalid format specifier '{}'", text_));
    return spec;
  }

 private:
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool skip(char c) {
    if (peek() != c) return false;
    ++at_;
    return true;
  }
  int64_t number(int64_t otherwise) {
    if (peek() < '0' || peek() > '9') return otherwise;
    int64_t value = 0;
    while (peek() >= '0' && peek() <= '9') {
      value = value * 10 + (text_[at_++] - '0');
      if (value > INT32_MAX) rt_.fail("ValueError", "Too many decimal digits in format string");
    }
    return value;
  }

  Runtime& rt_;
  std::string_view text_;
  size_t at_ = 0;
};

[[noreturn]] void fail_code(Runtime& rt, const Spec& spec, const Value& value) {
  rt.fail("ValueError",
          fmt::format("Unknown format code '{}' for object of type '{}'", spec.type, type_name(value)));
}

std::string pad(Runtime& rt, const Spec& spec, const std::string& prefix, const std::string& body, char by_type) {
  int64_t missing = spec.width - static_cast<int64_t>(count_chars(prefix) + count_chars(body));
  if (missing <= 0) return prefix + body;
  auto n = static_cast<size_t>(missing);
  rt.reserve(n * 4);
  char align = spec.align != 0 ? spec.align : by_type;
  size_t before = align == '<' ? 0 : align == '^' ? n / 2 : n;
  auto fill = [&](size_t count) {
    std::string out;
    for (size_t i = 0; i < count; ++i) append_char(out, spec.fill);
    return out;
  };
  if (align == '=') return prefix + fill(n) + body;
  return fill(before) + prefix + body + fill(n - before);
}

// Digits with a separator every `every` places, counted from the right; zero-filled to `min_width` where asked.
std::string group(const std::string& digits, char separator, size_t every, int64_t min_width) {
  std::string reversed;
  size_t n = 0;
  auto put = [&](char c) {
    if (n > 0 && n % every == 0) reversed.push_back(separator);
    reversed.push_back(c);
    ++n;
  };
  for (size_t i = digits.size(); i > 0; --i) put(digits[i - 1]);
  while (static_cast<int64_t>(reversed.size()) < min_width) put('0');
  std::reverse(reversed.begin(), reversed.end());
  return reversed;
}

std::string sign_text(const Spec& spec, bool negative) {
  return negative ? "-" : spec.sign == '+' ? "+" : spec.sign == ' ' ? " " : "";
}

std::string format_number_text(Runtime& rt, const Spec& spec, const std::string& prefix, std::string whole,
                               const std::string& rest, size_t every) {
  if (spec.grouping != 0) {
    int64_t min_width = 0;
    if (spec.fill == '0' && spec.align == '=') {
      min_width = spec.width - static_cast<int64_t>(prefix.size() + rest.size());
      rt.reserve(static_cast<size_t>(std::max<int64_t>(0, min_width)) * 2);
    }
    whole = group(whole, spec.grouping, every, min_width);
  }
  return pad(rt, spec, prefix, whole + rest, '>');
}

std::string format_text(Runtime& rt, const Spec& spec, std::string_view text, const Value& value) {
  if (spec.type != 0 && spec.type != 's') fail_code(rt, spec, value);
  if (spec.sign != '-') rt.fail("ValueError", "Sign not allowed in string format specifier");
  if (spec.alternate) rt.fail("ValueError", "Alternate form (#) not allowed in string format specifier");
  if (spec.align == '=' && !spec.zero) {
    rt.fail("ValueError", "'=' alignment not allowed in string format specifier");
  }
  if (spec.grouping != 0) rt.fail("ValueError", fmt::format("Cannot specify '{}' with 's'.", spec.grouping));
  Spec own = spec;
  if (own.align == '=') own.align = '<';
  std::string body(text);
  if (own.precision >= 0) body = body.substr(0, byte_offset(body, static_cast<size_t>(own.precision)));
  return pad(rt, own, "", body, '<');
}

std::string format_float(Runtime& rt, const Spec& spec, double value, const Value& original) {
  std::string text;
  double magnitude = std::fabs(value);
  bool negative = std::signbit(value) && !std::isnan(value);
  switch (spec.type) {
    case 0:
      if (spec.precision < 0) {
        text = base::print_double(magnitude);
      } else {
        text = format_real(rt, magnitude, 'g', spec.precision == 0 ? 1 : spec.precision, spec.alternate);
        size_t e = text.find('e');
        bool finite = std::isfinite(magnitude);
        if (finite && text.find('.') == std::string::npos && e == std::string::npos) {
          // Like repr, a number without an exponent shows at least one digit behind the point.
          int exponent = magnitude == 0 ? 0 : static_cast<int>(text.size()) - 1;
          text = exponent + 1 >= spec.precision && spec.precision > 0 && magnitude != 0
                     ? format_real(rt, magnitude, 'e', spec.precision - 1, false)
                     : text + ".0";
          size_t exp = text.find('e');
          if (exp != std::string::npos) {
            std::string mantissa = text.substr(0, exp);
            if (mantissa.find('.') != std::string::npos) {
              mantissa.erase(mantissa.find_last_not_of('0') + 1);
              if (mantissa.back() == '.') mantissa.pop_back();
            }
            text = mantissa + text.substr(exp);
          }
        }
      }
      break;
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G':
      text = format_real(rt, magnitude, spec.type, spec.precision < 0 ? 6 : spec.precision, spec.alternate);
      break;
    case 'n':
      text = format_real(rt, magnitude, 'g', spec.precision < 0 ? 6 : spec.precision, spec.alternate);
      break;
    case '%':
      text = format_real(rt, magnitude * 100, 'f', spec.precision < 0 ? 6 : spec.precision, spec.alternate) + "%";
      break;
    default:
      fail_code(rt, spec, original);
  }
  size_t digits = 0;
  while (digits < text.size() && text[digits] >= '0' && text[digits] <= '9') ++digits;
  return format_number_text(rt, spec, sign_text(spec, negative), text.substr(0, digits), text.substr(digits), 3);
}

std::string format_integer(Runtime& rt, const Spec& spec, const Value& value) {
  static constexpr std::string_view kRealTypes = "eEfFgG%";
  if (spec.type != 0 && kRealTypes.find(spec.type) != std::string_view::npos) {
    return format_float(rt, spec, to_real(rt, value), value);
  }
  if (spec.precision >= 0) rt.fail("ValueError", "Precision not allowed in integer format specifier");
  if (value.is(Kind::BigInt)) {
    std::string digits = value.as<BigInt>().digits;
    bool negative = digits[0] == '-';
    if (spec.type != 0 && spec.type != 'd' && spec.type != 'n') fail_big_integer(rt);
    return format_number_text(rt, spec, sign_text(spec, negative), digits.substr(negative), "", 3);
  }
  int64_t number = value.as_int();
  if (spec.type == 'c') {
    if (number < 0 || number > 0x10FFFF) rt.fail("OverflowError", "%c arg not in range(0x110000)");
    std::string text;
    append_char(text, static_cast<char32_t>(number));
    return pad(rt, spec, "", text, '<');
  }
  uint64_t magnitude = number < 0 ? 0 - static_cast<uint64_t>(number) : static_cast<uint64_t>(number);
  std::string digits;
  std::string prefix = sign_text(spec, number < 0);
  switch (spec.type) {
    case 0:
    case 'd':
    case 'n':
      digits = std::to_string(magnitude);
      break;
    case 'b':
      digits = fmt::format("{:b}", magnitude);
      break;
    case 'o':
      digits = fmt::format("{:o}", magnitude);
      break;
    case 'x':
      digits = fmt::format("{:x}", magnitude);
      break;
    case 'X':
      digits = fmt::format("{:X}", magnitude);
      break;
    default:
      fail_code(rt, spec, value);
  }
  bool decimal = spec.type == 0 || spec.type == 'd' || spec.type == 'n';
  if (!decimal && spec.grouping == ',')
    rt.fail("ValueError", fmt::format("Cannot specify ',' with '{}'.", spec.type));
  if (spec.alternate && !decimal) prefix += std::string("0") + spec.type;
  return format_number_text(rt, spec, prefix, digits, "", decimal ? 3 : 4);
}

// string.Formatter.vformat over a template string.
class BraceFormatter {
 public:
  BraceFormatter(Runtime& rt, const CallArgs& args, bool markup) : rt_(rt), args_(args), markup_(markup) {}

  std::string run(std::string_view format, int depth) {
    if (depth < 0) rt_.fail("ValueError", "Max string recursion exceeded");
    std::string out;
    for (size_t at = 0; at < format.size();) {
      size_t brace = std::min(format.find_first_of("{}", at), format.size());
      append(out, format.substr(at, brace - at));
      if (brace == format.size()) break;
      bool doubled = brace + 1 < format.size() && format[brace + 1] == format[brace];
      if (doubled) {
        out.push_back(format[brace]);
        at = brace + 2;
        continue;
      }
      if (format[brace] == '}') rt_.fail("ValueError", "Single '}' encountered in format string");
      size_t end = closing(format, brace + 1);
      append(out, field(format.substr(brace + 1, end - brace - 1), depth));
      at = end + 1;
    }
    return out;
  }

 private:
  void append(std::string& out, std::string_view text) {
    rt_.reserve(out.size() + text.size());
    out.append(text);
  }

  size_t closing(std::string_view format, size_t at) {
    int open = 1;
    bool in_bracket = false;
    bool in_spec = false;
    for (; at < format.size(); ++at) {
      char c = format[at];
      if (c == '[' && !in_spec) in_bracket = true;
      if (c == ']') in_bracket = false;
      if (in_bracket) continue;
      if (c == ':' || c == '!') in_spec = true;
      if (c == '{') ++open;
      if (c == '}' && --open == 0) return at;
    }
    rt_.fail("ValueError",
             open > 1 || at > 1 ? "expected '}' before end of string" : "Single '{' encountered in format string");
  }

  std::string field(std::string_view text, int depth) {
    size_t name_end = 0;
    for (bool in_bracket = false; name_end < text.size(); ++name_end) {
      char c = text[name_end];
      if (c == '[') in_bracket = true;
      if (c == ']') in_bracket = false;
      if (!in_bracket && (c == ':' || c == '!')) break;
      if (c == '{') rt_.fail("ValueError", "unexpected '{' in field name");
    }
    std::string_view rest = text.substr(name_end);
    char conversion = 0;
    if (!rest.empty() && rest[0] == '!') {
      if (rest.size() < 2) rt_.fail("ValueError", "end of string while looking for conversion specifier");
      conversion = rest[1];
      rest.remove_prefix(2);
      if (!rest.empty() && rest[0] != ':') rt_.fail("ValueError", "expected ':' after conversion specifier");
    }
    std::string_view spec = rest.empty() ? rest : rest.substr(1);
    Value value = lookup(text.substr(0, name_end));
    std::string expanded = run(spec, depth - 1);
    return convert(value, conversion, expanded);
  }

  std::string convert(const Value& value, char conversion, const std::string& spec) {
    switch (conversion) {
      case 0:
        if (markup_ && spec.empty()) return escaped(rt_, value);
        return markup_ ? escape_html(format_value(rt_, value, spec)) : format_value(rt_, value, spec);
      case 's':
        return finish(to_str(rt_, value), spec);
      case 'r':
        return finish(to_repr(rt_, value), spec);
      case 'a':
        return finish(ascii_only(to_repr(rt_, value)), spec);
      default:
        rt_.fail("ValueError", fmt::format("Unknown conversion specifier {}", conversion));
    }
  }

  std::string finish(std::string text, const std::string& spec) {
    std::string out = format_value(rt_, rt_.string(std::move(text)), spec);
    return markup_ ? escape_html(out) : out;
  }

  Value lookup(std::string_view name) {
    size_t first_end = std::min(name.find_first_of(".["), name.size());
    Value value = first(name.substr(0, first_end));
    for (std::string_view rest = name.substr(first_end); !rest.empty();) {
      if (rest[0] == '.') {
        size_t end = std::min(rest.find_first_of(".[", 1), rest.size());
        std::string_view attribute = rest.substr(1, end - 1);
        if (attribute.empty()) rt_.fail("ValueError", "Empty attribute in format string");
        value = get_attribute(rt_, value, attribute, rt_.string(attribute));
        rest.remove_prefix(end);
        continue;
      }
      if (rest[0] != '[') rt_.fail("ValueError", "Only '.' or '[' may follow ']' in format field specifier");
      size_t end = rest.find(']');
      if (end == std::string_view::npos) rt_.fail("ValueError", "Missing ']' in format string");
      std::string_view key = rest.substr(1, end - 1);
      if (key.empty()) rt_.fail("ValueError", "Empty attribute in format string");
      value = get_item(rt_, value, is_number(key) ? Value::integer(number(key)) : rt_.string(key));
      rest.remove_prefix(end + 1);
    }
    return value;
  }

  static bool is_number(std::string_view text) {
    return !text.empty() && text.size() < 10 && text.find_first_not_of("0123456789") == std::string_view::npos;
  }
  static int64_t number(std::string_view text) {
    int64_t value = 0;
    for (char c : text) value = value * 10 + (c - '0');
    return value;
  }

  Value first(std::string_view name) {
    if (name.empty() || is_number(name)) {
      bool automatic = name.empty();
      if ((automatic && numbered_) || (!automatic && next_ > 0)) {
        rt_.fail("ValueError", automatic
                                   ? "cannot switch from manual field specification to automatic field numbering"
                                   : "cannot switch from automatic field numbering to manual field specification");
      }
      if (!automatic) numbered_ = true;
      size_t index = automatic ? next_++ : static_cast<size_t>(number(name));
      if (index >= args_.positional.size()) {
        rt_.fail("IndexError", "Replacement index out of range for positional args tuple");
      }
      return args_.positional[index];
    }
    const Value* found = args_.find(name);
    if (found == nullptr) rt_.fail("KeyError", repr_text(name));
    return *found;
  }

  Runtime& rt_;
  const CallArgs& args_;
  bool markup_;
  size_t next_ = 0;
  bool numbered_ = false;
};

}  // namespace

std::string format_value(Runtime& rt, const Value& value, std::string_view spec_text) {
  if (spec_text.empty()) return to_str(rt, value);
  switch (value.kind()) {
    case Kind::String:
      return format_text(rt, SpecParser(rt, spec_text).run(), value.text(), value);
    case Kind::Bool:
    case Kind::Int:
    case Kind::BigInt:
      return format_integer(rt, SpecParser(rt, spec_text).run(), value);
    case Kind::Float:
      return format_float(rt, SpecParser(rt, spec_text).run(), value.as_real(), value);
    default:
      rt.fail("TypeError", fmt::format("unsupported format string passed to {}.__format__", type_name(value)));
  }
}

Value brace_format(Runtime& rt, const Value& format, const CallArgs& args) {
  BraceFormatter formatter(rt, args, format.as<String>().markup);
  return text_like(rt, format, formatter.run(format.text(), 2));
}

}  // namespace kvfork::jinja
