// Text operations that methods and filters share.
#include "jinja/values/text_operations.h"

#include <algorithm>

#include "jinja/values/iterate.h"
#include "jinja/values/operators.h"
#include "jinja/values/printing.h"
#include "jinja/values/runtime.h"
#include "jinja/values/text.h"

namespace kvfork::jinja {

std::string_view strip_chars(std::string_view text, std::string_view chars, bool left, bool right) {
  std::vector<char32_t> set = to_chars32(chars);
  auto in_set = [&](char32_t c) { return std::find(set.begin(), set.end(), c) != set.end(); };
  while (left && !text.empty()) {
    size_t next = 0;
    if (!in_set(next_char(text, next))) break;
    text.remove_prefix(next);
  }
  while (right && !text.empty()) {
    size_t start = text.size();
    if (!in_set(previous_char(text, start))) break;
    text.remove_suffix(text.size() - start);
  }
  return text;
}

std::string padded(Runtime& rt, std::string_view text, int64_t width, std::string_view fill, Padding where) {
  if (count_chars(fill) != 1) rt.fail("TypeError", "The fill character must be exactly one character long");
  int64_t missing = width - static_cast<int64_t>(count_chars(text));
  if (missing <= 0) return std::string(text);
  auto n = static_cast<size_t>(missing);
  rt.reserve(n * 4 + text.size());
  rt.step(n / 16);
  size_t before = where == Padding::Right ? 0 : where == Padding::Left ? n : n / 2;
  // str.center puts the odd character to the left when the width is odd.
  if (where == Padding::Both && (n & 1) != 0 && (width & 1) != 0) ++before;
  std::string out;
  for (size_t i = 0; i < before; ++i) out.append(fill);
  out.append(text);
  for (size_t i = before; i < n; ++i) out.append(fill);
  return out;
}

std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> lines;
  size_t start = 0;
  for (size_t at = 0; at < text.size();) {
    size_t end = at;
    char32_t c = next_char(text, at);
    if (!is_line_break(c)) continue;
    if (c == '\r' && at < text.size() && text[at] == '\n') ++at;
    lines.push_back(text.substr(start, (keep_ends ? at : end) - start));
    start = at;
  }
  if (start < text.size()) lines.push_back(text.substr(start));
  return lines;
}

std::string_view before_last(std::string_view text, std::string_view separator) {
  return text.substr(0, std::min(text.rfind(separator), text.size()));
}

std::string replaced(Runtime& rt, std::string_view text, std::string_view from, std::string_view to,
                     int64_t count) {
  rt.step(1 + text.size() / 32);
  std::string out;
  auto put = [&](std::string_view part) {
    rt.reserve(out.size() + part.size());
    out.append(part);
  };
  if (from.empty()) {  // between all characters, and at both ends
    size_t at = 0;
    while (count != 0) {
      put(to);
      --count;
      if (at >= text.size()) return out;
      size_t start = at;
      next_char(text, at);
      put(text.substr(start, at - start));
    }
    put(text.substr(at));
    return out;
  }
  size_t at = 0;
  for (; count != 0; --count) {
    size_t found = text.find(from, at);
    if (found == std::string_view::npos) break;
    put(text.substr(at, found - at));
    put(to);
    at = found + from.size();
  }
  put(text.substr(at));
  return out;
}

Value join_values(Runtime& rt, const Value& separator, const Value& items) {
  bool markup = separator.as<String>().markup;
  std::string out;
  Cursor cursor(rt, items);
  bool first = true;
  size_t index = 0;
  for (Value item; cursor.next(rt, item); ++index) {
    if (!item.is(Kind::String) && !markup) {
      rt.fail("TypeError",
              fmt::format("sequence item {}: expected str instance, {} found", index, type_name(item)));
    }
    rt.reserve(out.size() + separator.text().size());
    if (!first) out.append(separator.text());
    first = false;
    if (markup) {
      out += escaped(rt, item);
    } else {
      rt.reserve(out.size() + item.text().size());
      out.append(item.text());
    }
  }
  return rt.string(std::move(out), markup);
}

bool has_case(std::string_view text, bool upper) {
  bool any = false;
  for (size_t at = 0; at < text.size();) {
    char32_t c = next_char(text, at);
    if (is_title(c) || (upper ? is_lower(c) : is_upper(c))) return false;
    any = any || (upper ? is_upper(c) : is_lower(c));
  }
  return any;
}

}  // namespace kvfork::jinja
