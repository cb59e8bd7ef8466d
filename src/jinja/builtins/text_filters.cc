// Filters on text: case, trimming, replacing, escaping, formatting, JSON.
#include <algorithm>

#include "jinja/builtins/filters.h"
#include "jinja/builtins/functions.h"
#include "jinja/values/formatting.h"
#include "jinja/values/iterate.h"
#include "jinja/values/json.h"
#include "jinja/values/operators.h"
#include "jinja/values/printing.h"
#include "jinja/values/runtime.h"
#include "jinja/values/text.h"
#include "jinja/values/text_operations.h"

namespace kvfork::jinja {

namespace {

template <std::string (*kMap)(std::string_view)>
Value mapped(Call& c) {
  Value text = soft_text(c.rt, c.self);
  c.rt.step(1 + text.text().size() / 16);
  return text_like(c.rt, text, kMap(text.text()));
}

// jinja2 begins words after white space, '-' and opening brackets only, unlike str.title.
Value title(Call& c) {
  Value text = soft_text(c.rt, c.self);
  std::string out;
  std::string_view in = text.text();
  auto splits = [](char32_t ch) {
    return ch == '-' || is_space(ch) || ch == '(' || ch == '{' || ch == '[' || ch == '<';
  };
  for (size_t at = 0; at < in.size();) {
    size_t start = at;
    bool separator = splits(next_char(in, at));
    size_t first_end = at;
    while (at < in.size()) {
      size_t next = at;
      if (splits(next_char(in, next)) != separator) break;
      at = next;
    }
    out += to_upper(in.substr(start, first_end - start));
    out += to_lower(in.substr(first_end, at - first_end));
  }
  return c.rt.string(std::move(out));
}

Value trim(Call& c) {
  Value text = soft_text(c.rt, c.self);
  std::string_view in = text.text();
  c.rt.step(1 + in.size() / 64);
  in = c.given_value(0) ? strip_chars(in, c.text(0, {}), true, true) : strip(in);
  return text_like(c.rt, text, std::string(in));
}

Value replace(Call& c) {
  int64_t count = c.given_value(2) ? c.integer(2, -1) : -1;
  std::string in = to_str(c.rt, c.self);
  return c.rt.string(replaced(c.rt, in, to_str(c.rt, c.args[0]), to_str(c.rt, c.args[1]), count));
}

Value string(Call& c) {
  return soft_text(c.rt, c.self);
}

Value format(Call& c) {
  if (!c.raw.positional.empty() && !c.raw.keywords.empty()) {
    c.rt.fail("FilterArgumentError", "can't handle positional and keyword arguments at the same time");
  }
  Value text = soft_text(c.rt, c.self);
  if (c.raw.keywords.empty()) return percent_format(c.rt, text, c.rt.tuple(c.raw.positional));
  auto dict = std::make_unique<Dict>();
  for (const auto& [key, value] : c.raw.keywords) dict->set(c.rt.string(key), value);
  return percent_format(c.rt, text, c.rt.dict(std::move(dict)));
}

Value escape(Call& c) {
  return c.rt.string(escaped(c.rt, c.self), true);
}
Value force_escape(Call& c) {
  return c.rt.string(escape_html(to_str(c.rt, c.self)), true);
}
Value safe(Call& c) {
  return c.rt.string(to_str(c.rt, c.self), true);
}

std::string url_quoted(Runtime& rt, const Value& value, bool for_query) {
  static const char kHex[] = "0123456789ABCDEF";
  std::string out;
  for (char ch : to_str(rt, value)) {
    auto byte = static_cast<unsigned char>(ch);
    bool plain = (byte < 0x80 && is_alnum(byte)) || std::string_view("_.-~").find(ch) != std::string_view::npos ||
                 (ch == '/' && !for_query);
    if (plain) {
      out.push_back(ch);
    } else if (ch == ' ' && for_query) {
      out.push_back('+');
    } else {
      out.push_back('%');
      out.push_back(kHex[byte >> 4]);
      out.push_back(kHex[byte & 15]);
    }
  }
  rt.reserve(out.size());
  return out;
}

Value url_encode(Call& c) {
  if (c.self.is(Kind::String) || !is_iterable(c.self)) return c.rt.string(url_quoted(c.rt, c.self, false));
  std::string out;
  auto put = [&](const Value& key, const Value& value) {
    if (!out.empty()) out.push_back('&');
    out += url_quoted(c.rt, key, true) + "=" + url_quoted(c.rt, value, true);
    c.rt.reserve(out.size());
  };
  if (c.self.is(Kind::Dict)) {
    for (const auto& [key, value] : c.self.as<Dict>().entries) put(key, value);
    return c.rt.string(std::move(out));
  }
  Cursor cursor(c.rt, c.self);
  for (Value item; cursor.next(c.rt, item);) {
    std::vector<Value> pair = collect(c.rt, item);
    if (pair.size() != 2) c.rt.fail("ValueError", "expected pairs of a key and a value");
    put(pair[0], pair[1]);
  }
  return c.rt.string(std::move(out));
}

Value word_count(Call& c) {
  Value text = soft_text(c.rt, c.self);
  std::string_view in = text.text();
  int64_t n = 0;
  bool inside = false;
  for (size_t at = 0; at < in.size();) {
    bool word = is_word(next_char(in, at));
    n += word && !inside;
    inside = word;
  }
  return Value::integer(n);
}

JsonStyle json_style(Call& c) {
  JsonStyle style;
  style.ensure_ascii = c.truth(0, false);
  if (c.given_value(1)) {
    style.pretty = true;
    style.item_separator.assign(1, ',');
    if (c.args[1].is(Kind::String)) {
      style.indent = c.args[1].text();
    } else {
      int64_t width = std::max<int64_t>(0, c.integer(1, 0));
      c.rt.reserve(static_cast<size_t>(width));
      style.indent.assign(static_cast<size_t>(width), ' ');
    }
  }
  if (c.given_value(2)) {
    std::vector<Value> pair = collect(c.rt, c.args[2]);
    if (pair.size() != 2 || !pair[0].is(Kind::String) || !pair[1].is(Kind::String)) {
      c.rt.fail("ValueError", "separators: expected two texts");
    }
    style.item_separator = pair[0].text();
    style.key_separator = pair[1].text();
  }
  style.sort_keys = c.truth(3, false);
  return style;
}

Value to_json(Call& c) {
  return c.rt.string(write_json(c.rt, c.self, json_style(c)));
}

// HTML entities that striptags turns back: the five that escaping makes, and numbers.
std::string unescape_html(std::string_view text) {
  static const std::pair<std::string_view, std::string_view> kNamed[] = {
      {"&amp;", "&"}, {"&lt;", "<"},   {"&gt;", ">"},         {"&quot;", "\""},
      {"&#39;", "'"}, {"&#34;", "\""}, {"&nbsp;", "\xC2\xA0"}};
  std::string out;
  for (size_t at = 0; at < text.size();) {
    bool found = false;
    for (const auto& [name, value] : kNamed) {
      if (!text.substr(at).starts_with(name)) continue;
      out += value;
      at += name.size();
      found = true;
      break;
    }
    if (!found) out.push_back(text[at++]);
  }
  return out;
}

Value strip_tags(Call& c) {
  std::string text = to_str(c.rt, c.self);
  auto remove = [&](std::string_view open, std::string_view close) {
    std::string out;
    size_t at = 0;
    while (true) {
      size_t start = text.find(open, at);
      size_t end = start == std::string::npos ? start : text.find(close, start);
      if (end == std::string::npos) break;
      out.append(text, at, start - at);
      at = end + close.size();
    }
    text = out + text.substr(at);
  };
  remove("<!--", "-->");
  remove("<", ">");
  std::string out;
  for (size_t at = 0; at < text.size();) {
    size_t start = at;
    if (!is_space(next_char(text, at))) {
      out.append(text, start, at - start);
    } else if (!out.empty() && out.back() != ' ') {
      out.push_back(' ');
    }
  }
  if (!out.empty() && out.back() == ' ') out.pop_back();
  return c.rt.string(unescape_html(out));
}

}  // namespace

std::span<const Function> text_filters() {
  static const Function kFilters[] = {
      {"upper", "", mapped<to_upper>},
      {"lower", "", mapped<to_lower>},
      {"capitalize", "", mapped<to_capitalized>},
      {"title", "", title},
      {"trim", "chars?", trim},
      {"replace", "old new count?", replace},
      {"string", "", string},
      {"format", "*", format},
      {"e", "", escape},
      {"escape", "", escape},
      {"forceescape", "", force_escape},
      {"safe", "", safe},
      {"urlencode", "", url_encode},
      {"wordcount", "", word_count},
      {"striptags", "", strip_tags},
      {"tojson", "ensure_ascii? indent? separators? sort_keys?", to_json},
  };
  return kFilters;
}

}  // namespace kvfork::jinja
