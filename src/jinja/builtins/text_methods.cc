// Methods of str that change case, trim, pad, test and format.
#include <algorithm>

#include "jinja/builtins/functions.h"
#include "jinja/values/formatting.h"
#include "jinja/values/iterate.h"
#include "jinja/values/operators.h"
#include "jinja/values/printing.h"
#include "jinja/values/runtime.h"
#include "jinja/values/text.h"
#include "jinja/values/text_operations.h"

namespace kvfork::jinja {

namespace {

template <std::string (*kMap)(std::string_view)>
Value mapped(Call& c) {
  c.rt.step(1 + c.self.text().size() / 16);
  return text_like(c.rt, c.self, kMap(c.self.text()));
}

template <bool kLeft, bool kRight>
Value stripped(Call& c) {
  std::string_view text = c.self.text();
  c.rt.step(1 + text.size() / 64);
  if (!c.given_value(0)) {
    if (kLeft) text = strip_left(text);
    if (kRight) text = strip_right(text);
  } else {
    text = strip_chars(text, c.text(0, {}), kLeft, kRight);
  }
  return text_like(c.rt, c.self, std::string(text));
}

// True when every character passes and there is one.
template <bool (*kTest)(char32_t)>
Value all_chars(Call& c) {
  std::string_view text = c.self.text();
  for (size_t at = 0; at < text.size();) {
    if (!kTest(next_char(text, at))) return Value::boolean(false);
  }
  return Value::boolean(!text.empty());
}

template <bool kUpper>
Value one_case(Call& c) {
  return Value::boolean(has_case(c.self.text(), kUpper));
}

Value is_title_text(Call& c) {
  std::string_view text = c.self.text();
  bool after_cased = false;
  bool any = false;
  for (size_t at = 0; at < text.size();) {
    char32_t ch = next_char(text, at);
    if (is_upper(ch) || is_title(ch)) {
      if (after_cased) return Value::boolean(false);
      after_cased = any = true;
    } else if (is_lower(ch)) {
      if (!after_cased) return Value::boolean(false);
      any = true;
    } else {
      after_cased = false;
    }
  }
  return Value::boolean(any);
}

Value is_printable_text(Call& c) {
  std::string_view text = c.self.text();
  for (size_t at = 0; at < text.size();) {
    if (!is_printable(next_char(text, at))) return Value::boolean(false);
  }
  return Value::boolean(true);
}

Value is_ascii_text(Call& c) {
  return Value::boolean(is_ascii(c.self.text()));
}
Value is_identifier_text(Call& c) {
  return Value::boolean(is_identifier(c.self.text()));
}

template <Padding kWhere>
Value padded_method(Call& c) {
  return text_like(c.rt, c.self, padded(c.rt, c.self.text(), c.integer(0, 0), c.text(1, " "), kWhere));
}

Value zero_filled(Call& c) {
  std::string_view text = c.self.text();
  bool has_sign = !text.empty() && (text[0] == '+' || text[0] == '-');
  std::string body = padded(c.rt, text.substr(has_sign), c.integer(0, 0) - (has_sign ? 1 : 0), "0", Padding::Left);
  return text_like(c.rt, c.self, std::string(text.substr(0, has_sign)) + body);
}

Value tabs_expanded(Call& c) {
  int64_t size = c.integer(0, 8);
  std::string out;
  int64_t column = 0;
  std::string_view text = c.self.text();
  for (size_t at = 0; at < text.size();) {
    char32_t ch = next_char(text, at);
    if (ch == '\t') {
      int64_t n = size > 0 ? size - column % size : 0;
      c.rt.reserve(out.size() + static_cast<size_t>(n));
      out.append(static_cast<size_t>(n), ' ');
      column += n;
    } else {
      append_char(out, ch);
      column = ch == '\n' || ch == '\r' ? 0 : column + 1;
    }
  }
  return text_like(c.rt, c.self, std::move(out));
}

Value formatted(Call& c) {
  return brace_format(c.rt, c.self, c.raw);
}

Value formatted_map(Call& c) {
  if (!c.args[0].is(Kind::Dict)) c.rt.fail("TypeError", "format_map() argument must be a mapping");
  CallArgs args;
  for (const auto& [key, value] : c.args[0].as<Dict>().entries) {
    if (key.is(Kind::String)) args.keywords.emplace_back(std::string(key.text()), value);
  }
  return brace_format(c.rt, c.self, args);
}

}  // namespace

std::span<const Function> text_methods() {
  static const Function kMethods[] = {
      {"upper", "", mapped<to_upper>},
      {"lower", "", mapped<to_lower>},
      {"title", "", mapped<to_title>},
      {"capitalize", "", mapped<to_capitalized>},
      {"swapcase", "", mapped<to_swapped_case>},
      {"casefold", "", mapped<to_folded>},
      {"strip", "chars? /", stripped<true, true>},
      {"lstrip", "chars? /", stripped<true, false>},
      {"rstrip", "chars? /", stripped<false, true>},
      {"isspace", "", all_chars<is_space>},
      {"isalpha", "", all_chars<is_alpha>},
      {"isalnum", "", all_chars<is_alnum>},
      {"isdigit", "", all_chars<is_digit>},
      {"isdecimal", "", all_chars<is_decimal>},
      {"isnumeric", "", all_chars<is_numeric>},
      {"isupper", "", one_case<true>},
      {"islower", "", one_case<false>},
      {"istitle", "", is_title_text},
      {"isprintable", "", is_printable_text},
      {"isascii", "", is_ascii_text},
      {"isidentifier", "", is_identifier_text},
      {"ljust", "width fillchar? /", padded_method<Padding::Right>},
      {"rjust", "width fillchar? /", padded_method<Padding::Left>},
      {"center", "width fillchar? /", padded_method<Padding::Both>},
      {"zfill", "width /", zero_filled},
      {"expandtabs", "tabsize?", tabs_expanded},
      {"format", "*", formatted},
      {"format_map", "mapping /", formatted_map},
  };
  return kMethods;
}

}  // namespace kvfork::jinja
