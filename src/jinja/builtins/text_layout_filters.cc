// Filters that lay text out.
#include <algorithm>
#include <cmath>

#include "jinja/builtins/filters.h"
#include "jinja/builtins/functions.h"
#include "jinja/values/iterate.h"
#include "jinja/values/numbers.h"
#include "jinja/values/operators.h"
#include "jinja/values/printing.h"
#include "jinja/values/runtime.h"
#include "jinja/values/text.h"
#include "jinja/values/text_operations.h"

namespace kvfork::jinja {
namespace {

[[noreturn]] void fail_text(Runtime& rt, const Value& value, std::string_view what) {
  if (value.is(Kind::Undefined)) rt.fail_undefined(value);
  rt.fail("TypeError", fmt::format("{}: expected str, found {}", what, type_name(value)));
}

Value indent(Call& c) {
  if (!c.self.is(Kind::String)) fail_text(c.rt, c.self, "indent");
  std::string unit;
  if (c.given(0) && c.args[0].is(Kind::String)) {
    unit = std::string(c.args[0].text());
  } else {
    int64_t width = std::max<int64_t>(0, c.integer(0, 4));
    c.rt.reserve(static_cast<size_t>(width));
    unit = std::string(static_cast<size_t>(width), ' ');
  }
  bool first = c.truth(1, false);
  bool blank = c.truth(2, false);
  std::string text = std::string(c.self.text()) + "\n";
  std::string out;
  bool at_first = true;
  for (std::string_view line : split_lines(text, false)) {
    c.rt.step();
    c.rt.reserve(out.size() + unit.size() + line.size());
    if (at_first) {
      if (first) out += unit;
    } else {
      out.push_back('\n');
      if (blank || !line.empty()) out += unit;
    }
    out += line;
    at_first = false;
  }
  return text_like(c.rt, c.self, std::move(out));
}

Value center(Call& c) {
  Value text = soft_text(c.rt, c.self);
  return text_like(c.rt, text, padded(c.rt, text.text(), c.integer(0, 80), " ", Padding::Both));
}

Value truncate(Call& c) {
  int64_t length = c.integer(0, 255);
  bool kill_words = c.truth(1, false);
  std::string_view end = c.text(2, "...");
  int64_t leeway = c.given_value(3) ? c.integer(3, 5) : 5;
  auto end_length = static_cast<int64_t>(count_chars(end));
  if (length < end_length) {
    c.rt.fail("AssertionError", fmt::format("expected length >= {}, got {}", end_length, length));
  }
  if (leeway < 0) c.rt.fail("AssertionError", fmt::format("expected leeway >= 0, got {}", leeway));
  if (get_length(c.rt, c.self) <= length + leeway) return c.self;
  if (!c.self.is(Kind::String)) fail_text(c.rt, c.self, "truncate");
  std::string_view text = c.self.text();
  text = text.substr(0, byte_offset(text, static_cast<size_t>(length - end_length)));
  if (!kill_words) text = before_last(text, " ");
  return c.rt.string(std::string(text) + std::string(end));
}

Value file_size(Call& c) {
  double bytes = 0;
  if (c.self.is(Kind::String)) {
    auto parsed = parse_real(c.self.text());
    if (!parsed) c.rt.fail("ValueError", "could not convert string to float: " + repr_text(c.self.text()));
    bytes = *parsed;
  } else if (c.self.is(Kind::Float)) {
    bytes = c.self.as_real();
  } else if (c.self.is_integral()) {
    bytes = static_cast<double>(c.self.as_int());
  } else {
    fail_text(c.rt, c.self, "filesizeformat");
  }
  bool binary = c.truth(0, false);
  double base = binary ? 1024 : 1000;
  static const char* const kDecimal[] = {"kB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB"};
  static const char* const kBinary[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB"};
  if (bytes == 1) return c.rt.string("1 Byte");
  if (bytes < base) return c.rt.string(fmt::format("{} Bytes", static_cast<int64_t>(bytes)));
  double unit = base;
  for (int i = 0; i < 8; ++i) {
    unit *= base;
    if (bytes < unit || i == 7) {
      return c.rt.string(fmt::format("{:.1f} {}", base * bytes / unit, (binary ? kBinary : kDecimal)[i]));
    }
  }
  return Value::none();
}

Value xml_attributes(Call& c) {
  if (c.self.is(Kind::Undefined)) c.rt.fail_undefined(c.self);
  if (!c.self.is(Kind::Dict)) fail_text(c.rt, c.self, "xmlattr");
  std::string out;
  for (const auto& [key, value] : c.self.as<Dict>().entries) {
    if (value.is(Kind::None) || value.is(Kind::Undefined)) continue;
    if (!key.is(Kind::String)) c.rt.fail("TypeError", "expected string or bytes-like object");
    if (key.text().find_first_of(" \t\n\r\f\v/>=") != std::string_view::npos) {
      c.rt.fail("ValueError", "Invalid character in attribute name: " + repr_text(key.text()));
    }
    if (!out.empty()) out.push_back(' ');
    out += escaped(c.rt, key) + "=\"" + escaped(c.rt, value) + "\"";
  }
  if (c.truth(0, true) && !out.empty()) out.insert(out.begin(), ' ');
  return c.rt.string(std::move(out));
}

Value url_links(Call& c) {
  c.rt.fail("TemplateRuntimeError", "the filter 'urlize' is not supported");
}

}  // namespace

std::span<const Function> text_layout_filters() {
  static const Function kFilters[] = {
      {"indent", "width? first? blank?", indent},
      {"center", "width?", center},
      {"truncate", "length? killwords? end? leeway?", truncate},
      {"filesizeformat", "binary?", file_size},
      {"xmlattr", "autospace?", xml_attributes},
      {"urlize", "*", url_links},
  };
  return kFilters;
}

}  // namespace kvfork::jinja
