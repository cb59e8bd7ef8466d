// Methods of str that search, split, join and replace.
#include <algorithm>

#include "jinja/builtins/functions.h"
#include "jinja/values/iterate.h"
#include "jinja/values/operators.h"
#include "jinja/values/printing.h"
#include "jinja/values/runtime.h"
#include "jinja/values/text.h"
#include "jinja/values/text_operations.h"

namespace kvfork::jinja {

namespace {

// The part of the text that find, count, startswith and their like look at, by optional character bounds.
struct Window {
  std::string_view text;
  int64_t first_char = 0;
  bool valid = true;  // false where start lies behind the end
};

Window window(Call& c, size_t start_arg) {
  const auto& string = c.self.as<String>();
  auto length = static_cast<int64_t>(string.n_chars());
  auto bound = [&](size_t i, int64_t otherwise) {
    if (!c.given_value(i)) return otherwise;
    int64_t at = as_index(c.rt, c.args[i]);
    return at < 0 ? std::max<int64_t>(0, at + length) : at;
  };
  Window out;
  int64_t start = bound(start_arg, 0);
  int64_t end = std::min(bound(start_arg + 1, length), length);
  out.first_char = start;
  out.valid = start <= length && start <= end;
  if (!out.valid) return out;
  size_t from = string.ascii() ? static_cast<size_t>(start) : byte_offset(string.text, static_cast<size_t>(start));
  std::string_view rest = std::string_view(string.text).substr(from);
  auto n = static_cast<size_t>(end - start);
  out.text = rest.substr(0, string.ascii() ? n : byte_offset(rest, n));
  return out;
}

template <bool kLast, bool kMustFind>
Value found_at(Call& c) {
  std::string_view part = c.text(0, {});
  Window in = window(c, 1);
  c.rt.step(1 + in.text.size() / 64);
  size_t at = !in.valid ? std::string_view::npos : kLast ? in.text.rfind(part) : in.text.find(part);
  if (at != std::string_view::npos) {
    return Value::integer(in.first_char + static_cast<int64_t>(count_chars(in.text.substr(0, at))));
  }
  if (kMustFind) c.rt.fail("ValueError", "substring not found");
  return Value::integer(-1);
}

Value counted(Call& c) {
  std::string_view part = c.text(0, {});
  Window in = window(c, 1);
  if (!in.valid) return Value::integer(0);
  c.rt.step(1 + in.text.size() / 32);
  if (part.empty()) return Value::integer(static_cast<int64_t>(count_chars(in.text)) + 1);
  int64_t n = 0;
  for (size_t at = in.text.find(part); at != std::string_view::npos; at = in.text.find(part, at + part.size())) ++n;
  return Value::integer(n);
}

template <bool kEnd>
Value has_affix(Call& c) {
  Window in = window(c, 1);
  auto matches = [&](const Value& affix) {
    if (!affix.is(Kind::String)) {
      c.rt.fail("TypeError", fmt::format("{} first arg must be str or a tuple of str, not {}",
                                         kEnd ? "endswith" : "startswith", type_name(affix)));
    }
    return in.valid && (kEnd ? in.text.ends_with(affix.text()) : in.text.starts_with(affix.text()));
  };
  if (!c.args[0].is(Kind::Tuple)) return Value::boolean(matches(c.args[0]));
  for (const Value& affix : c.args[0].as<List>().items) {
    if (matches(affix)) return Value::boolean(true);
  }
  return Value::boolean(false);
}

template <bool kEnd>
Value without_affix(Call& c) {
  std::string_view text = c.self.text();
  std::string_view affix = c.text(0, {});
  if (kEnd && text.ends_with(affix)) text.remove_suffix(affix.size());
  if (!kEnd && text.starts_with(affix)) text.remove_prefix(affix.size());
  return text_like(c.rt, c.self, std::string(text));
}

Value replace_method(Call& c) {
  if (!c.self.as<String>().markup) {
    return c.rt.string(replaced(c.rt, c.self.text(), c.text(0, {}), c.text(1, {}), c.integer(2, -1)));
  }
  std::string from = escaped(c.rt, c.args[0]);
  std::string to = escaped(c.rt, c.args[1]);
  return c.rt.string(replaced(c.rt, c.self.text(), from, to, c.integer(2, -1)), true);
}

std::vector<std::string_view> split_spaces(std::string_view text, int64_t limit) {
  std::vector<std::string_view> parts;
  text = strip_left(text);
  while (!text.empty()) {
    if (limit >= 0 && static_cast<int64_t>(parts.size()) == limit) {
      parts.push_back(text);
      break;
    }
    size_t end = 0;
    while (end < text.size()) {
      size_t next = end;
      if (is_space(next_char(text, next))) break;
      end = next;
    }
    parts.push_back(text.substr(0, end));
    text = strip_left(text.substr(end));
  }
  return parts;
}

std::vector<std::string_view> split_spaces_right(std::string_view text, int64_t limit) {
  std::vector<std::string_view> parts;
  text = strip_right(text);
  while (!text.empty()) {
    if (limit >= 0 && static_cast<int64_t>(parts.size()) == limit) {
      parts.push_back(text);
      break;
    }
    size_t start = text.size();
    while (start > 0) {
      size_t before = start;
      if (is_space(previous_char(text, before))) break;
      start = before;
    }
    parts.push_back(text.substr(start));
    text = strip_right(text.substr(0, start));
  }
  std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<std::string_view> split_at(std::string_view text, std::string_view separator, int64_t limit,
                                       bool right) {
  std::vector<std::string_view> parts;
  while (limit < 0 || static_cast<int64_t>(parts.size()) < limit) {
    size_t found = right ? text.rfind(separator) : text.find(separator);
    if (found == std::string_view::npos) break;
    if (right) {
      parts.push_back(text.substr(found + separator.size()));
      text = text.substr(0, found);
    } else {
      parts.push_back(text.substr(0, found));
      text = text.substr(found + separator.size());
    }
  }
  parts.push_back(text);
  if (right) std::reverse(parts.begin(), parts.end());
  return parts;
}

Value to_list(Call& c, const std::vector<std::string_view>& parts) {
  std::vector<Value> items;
  c.rt.step(parts.size());
  items.reserve(parts.size());
  for (std::string_view part : parts) items.push_back(text_like(c.rt, c.self, std::string(part)));
  return c.rt.list(std::move(items));
}

template <bool kRight>
Value split_method(Call& c) {
  int64_t limit = c.integer(1, -1);
  std::string_view text = c.self.text();
  c.rt.step(1 + text.size() / 16);
  c.rt.reserve(text.size());
  if (!c.given_value(0)) return to_list(c, kRight ? split_spaces_right(text, limit) : split_spaces(text, limit));
  std::string_view separator = c.text(0, {});
  if (separator.empty()) c.rt.fail("ValueError", "empty separator");
  return to_list(c, split_at(text, separator, limit, kRight));
}

Value split_lines_method(Call& c) {
  return to_list(c, split_lines(c.self.text(), c.truth(0, false)));
}

template <bool kRight>
Value partition_method(Call& c) {
  std::string_view text = c.self.text();
  std::string_view separator = c.text(0, {});
  if (separator.empty()) c.rt.fail("ValueError", "empty separator");
  size_t at = kRight ? text.rfind(separator) : text.find(separator);
  std::string_view parts[3] = {kRight ? std::string_view() : text, {}, kRight ? text : std::string_view()};
  if (at != std::string_view::npos) {
    parts[0] = text.substr(0, at);
    parts[1] = separator;
    parts[2] = text.substr(at + separator.size());
  }
  std::vector<Value> items;
  for (std::string_view part : parts) items.push_back(text_like(c.rt, c.self, std::string(part)));
  return c.rt.tuple(std::move(items));
}

Value bytes_method(Call& c) {
  c.rt.fail("TemplateRuntimeError", "str.encode, str.translate and str.maketrans are not supported");
}

Value join_method(Call& c) {
  if (!is_iterable(c.args[0])) c.rt.fail("TypeError", "can only join an iterable");
  return join_values(c.rt, c.self, c.args[0]);
}

}  // namespace

std::span<const Function> text_search_methods() {
  static const Function kMethods[] = {
      {"find", "sub start? end? /", found_at<false, false>},
      {"rfind", "sub start? end? /", found_at<true, false>},
      {"index", "sub start? end? /", found_at<false, true>},
      {"rindex", "sub start? end? /", found_at<true, true>},
      {"count", "sub start? end? /", counted},
      {"startswith", "prefix start? end? /", has_affix<false>},
      {"endswith", "suffix start? end? /", has_affix<true>},
      {"removeprefix", "prefix /", without_affix<false>},
      {"removesuffix", "suffix /", without_affix<true>},
      {"replace", "old new count? /", replace_method},
      {"split", "sep? maxsplit?", split_method<false>},
      {"rsplit", "sep? maxsplit?", split_method<true>},
      {"splitlines", "keepends?", split_lines_method},
      {"partition", "sep /", partition_method<false>},
      {"rpartition", "sep /", partition_method<true>},
      {"join", "iterable /", join_method},
      {"encode", "*", bytes_method},
      {"translate", "*", bytes_method},
      {"maketrans", "*", bytes_method},
  };
  return kMethods;
}

}  // namespace kvfork::jinja
