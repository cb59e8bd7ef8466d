// The filters pprint and wordwrap: Python's pprint.pformat (width 80, sorted dicts) and textwrap.wrap.
#include <algorithm>

#include "jinja/builtins/functions.h"
#include "jinja/values/compare.h"
#include "jinja/values/operators.h"
#include "jinja/values/printing.h"
#include "jinja/values/runtime.h"
#include "jinja/values/text.h"
#include "jinja/values/text_operations.h"

namespace kvfork::jinja {
namespace {

constexpr int64_t kWidth = 80;

class PrettyPrinter {
 public:
  explicit PrettyPrinter(Runtime& rt) : rt_(rt) {}

  std::string run(const Value& value) {
    format(value, 0, 0, 0);
    return std::move(out_);
  }

 private:
  using Entry = std::pair<Value, Value>;

  bool key_less(const Value& a, const Value& b) {
    bool comparable =
        (a.is_number() && b.is_number()) || (a.kind() == b.kind() && (a.is(Kind::String) || a.is(Kind::Tuple)));
    return comparable ? is_less(rt_, a, b) : type_name(a) < type_name(b);
  }

  std::vector<Entry> sorted(const Dict& dict) {
    std::vector<Entry> entries = dict.entries;
    std::stable_sort(entries.begin(), entries.end(),
                     [&](const Entry& a, const Entry& b) { return key_less(a.first, b.first); });
    return entries;
  }

  // repr with the keys of dicts in order.
  void append_flat(std::string& out, const Value& value) {
    Runtime::Deeper deeper(rt_);
    rt_.step();
    rt_.reserve(out.size());
    if (value.is(Kind::Dict)) {
      out.push_back('{');
      bool first = true;
      for (const auto& [key, item] : sorted(value.as<Dict>())) {
        if (!first) out += ", ";
        first = false;
        append_flat(out, key);
        out += ": ";
        append_flat(out, item);
      }
      out.push_back('}');
    } else if (value.is(Kind::List) || value.is(Kind::Tuple)) {
      const auto& items = value.as<List>().items;
      out.push_back(value.is(Kind::List) ? '[' : '(');
      for (size_t i = 0; i < items.size(); ++i) {
        if (i > 0) out += ", ";
        append_flat(out, items[i]);
      }
      out += value.is(Kind::List) ? "]" : items.size() == 1 ? ",)" : ")";
    } else {
      append_repr(rt_, out, value);
    }
  }

  std::string flat(const Value& value) {
    std::string out;
    append_flat(out, value);
    return out;
  }

  void put(std::string_view text) {
    rt_.reserve(out_.size() + text.size());
    out_.append(text);
  }
  void new_line(int64_t indent) {
    put("\n");
    rt_.reserve(out_.size() + static_cast<size_t>(indent));
    out_.append(static_cast<size_t>(indent), ' ');
  }

  void format(const Value& value, int64_t indent, int64_t allowance, int level) {
    Runtime::Deeper deeper(rt_);
    std::string text = flat(value);
    if (static_cast<int64_t>(count_chars(text)) <= kWidth - indent - allowance) return put(text);
    switch (value.kind()) {
      case Kind::Dict:
        return format_dict(value.as<Dict>(), indent, allowance + 1, level + 1);
      case Kind::List:
        put("[");
        format_items(value.as<List>().items, indent, allowance + 1, level + 1);
        return put("]");
      case Kind::Tuple: {
        if (value.as<List>().group) return put(text);
        const auto& items = value.as<List>().items;
        std::string_view end = items.size() == 1 ? ",)" : ")";
        put("(");
        format_items(items, indent, allowance + static_cast<int64_t>(end.size()), level + 1);
        return put(end);
      }
      case Kind::String:
        if (!value.as<String>().markup) return format_text(value.text(), indent, allowance, level + 1);
        return put(text);
      default:
        return put(text);
    }
  }

  void format_dict(const Dict& dict, int64_t indent, int64_t allowance, int level) {
    put("{");
    std::vector<Entry> entries = sorted(dict);
    for (size_t i = 0; i < entries.size(); ++i) {
      std::string key = flat(entries[i].first);
      put(key);
      put(": ");
      bool last = i + 1 == entries.size();
      format(entries[i].second, indent + 1 + static_cast<int64_t>(count_chars(key)) + 2, last ? allowance : 1,
             level);
      if (last) break;
      put(",");
      new_line(indent + 1);
    }
    put("}");
  }

  void format_items(const std::vector<Value>& items, int64_t indent, int64_t allowance, int level) {
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) {
        put(",");
        new_line(indent + 1);
      }
      format(items[i], indent + 1, i + 1 == items.size() ? allowance : 1, level);
    }
  }

  static int64_t repr_width(std::string_view text) { return static_cast<int64_t>(count_chars(repr_text(text))); }

  // "word " parts: what is no space, then the spaces behind it.
  static std::vector<std::string_view> words_of(std::string_view line) {
    std::vector<std::string_view> parts;
    for (size_t at = 0; at < line.size();) {
      size_t start = at;
      for (bool spaces = false; at < line.size();) {
        size_t next = at;
        bool space = is_space(next_char(line, next));
        if (spaces && !space) break;
        spaces = space;
        at = next;
      }
      parts.push_back(line.substr(start, at - start));
    }
    return parts;
  }

  void format_text(std::string_view text, int64_t indent, int64_t allowance, int level) {
    std::vector<std::string> chunks;
    std::vector<std::string_view> lines = split_lines(text, true);
    if (level == 1) {
      ++indent;
      ++allowance;
    }
    int64_t width = kWidth - indent;
    std::string repr;
    for (size_t i = 0; i < lines.size(); ++i) {
      rt_.step();
      bool last_line = i + 1 == lines.size();
      repr = repr_text(lines[i]);
      if (static_cast<int64_t>(count_chars(repr)) <= width - (last_line ? allowance : 0)) {
        chunks.push_back(repr);
        continue;
      }
      std::string current;
      std::vector<std::string_view> parts = words_of(lines[i]);
      for (size_t j = 0; j < parts.size(); ++j) {
        rt_.step(1 + current.size() / 8);
        std::string candidate = current + std::string(parts[j]);
        bool last = last_line && j + 1 == parts.size();
        if (repr_width(candidate) > width - (last ? allowance : 0)) {
          if (!current.empty()) chunks.push_back(repr_text(current));
          current = std::string(parts[j]);
        } else {
          current = std::move(candidate);
        }
      }
      if (!current.empty()) chunks.push_back(repr_text(current));
    }
    if (chunks.size() == 1) return put(repr);
    if (level == 1) put("(");
    for (size_t i = 0; i < chunks.size(); ++i) {
      if (i > 0) new_line(indent);
      put(chunks[i]);
    }
    if (level == 1) put(")");
  }

  Runtime& rt_;
  std::string out_;
};

Value pretty(Call& c) {
  return c.rt.string(PrettyPrinter(c.rt).run(c.self));
}

using Chars = std::vector<char32_t>;

bool is_wrap_space(char32_t c) {
  return c == ' ' || (c >= 9 && c <= 13);
}
bool is_letter(char32_t c) {
  return is_word(c) && !is_decimal(c);
}
bool is_word_punctuation(char32_t c) {
  return is_word(c) || c == '!' || c == '"' || c == '\'' || c == '&' || c == '.' || c == ',' || c == '?';
}

// Cuts a line where textwrap may break it: spaces, words, hyphens inside words, dashes between words.
class ChunkSplitter {
 public:
  ChunkSplitter(Runtime& rt, const Chars& chars, bool at_hyphens)
      : rt_(rt), chars_(chars), at_hyphens_(at_hyphens) {}

  std::vector<Chars> run() {
    std::vector<Chars> chunks;
    for (size_t at = 0; at < chars_.size();) {
      size_t end = chunk_end(at);
      rt_.step(1 + (end - at) / 16);
      chunks.emplace_back(chars_.begin() + static_cast<ptrdiff_t>(at),
                          chars_.begin() + static_cast<ptrdiff_t>(end));
      at = end;
    }
    return chunks;
  }

 private:
  char32_t at(size_t i) const { return i < chars_.size() ? chars_[i] : 0; }

  // The end of two or more dashes at `i` with a word behind them, or 0.
  size_t dashes_before_word(size_t i) const {
    size_t end = i;
    while (at(end) == '-') ++end;
    return end - i >= 2 && end < chars_.size() && is_word(chars_[end]) ? end : 0;
  }

  bool hyphen_splits(size_t hyphen) const {
    bool two_letters = hyphen >= 2 && is_letter(chars_[hyphen - 1]) && is_letter(chars_[hyphen - 2]);
    bool letter_twice =
        hyphen >= 3 && is_letter(chars_[hyphen - 1]) && chars_[hyphen - 2] == '-' && is_letter(chars_[hyphen - 3]);
    if (!two_letters && !letter_twice) return false;
    size_t next = hyphen + 1;
    if (next >= chars_.size() || !is_letter(chars_[next])) return false;
    if (at(next + 1) == '-') ++next;
    return next + 1 < chars_.size() && is_letter(chars_[next + 1]);
  }

  size_t chunk_end(size_t start) const {
    size_t end = start;
    if (is_wrap_space(chars_[start])) {
      while (end < chars_.size() && is_wrap_space(chars_[end])) ++end;
      return end;
    }
    if (!at_hyphens_) {
      while (end < chars_.size() && !is_wrap_space(chars_[end])) ++end;
      return end;
    }
    if (start > 0 && is_word_punctuation(chars_[start - 1])) {
      if (size_t dash_end = dashes_before_word(start); dash_end != 0) return dash_end;
    }
    for (end = start + 1; end < chars_.size() && !is_wrap_space(chars_[end]); ++end) {
      if (chars_[end] != '-') continue;
      if (hyphen_splits(end)) return end + 1;
      if (is_word_punctuation(chars_[end - 1]) && dashes_before_word(end) != 0) return end;
    }
    return end;
  }

  Runtime& rt_;
  const Chars& chars_;
  bool at_hyphens_;
};

struct WrapStyle {
  size_t width = 79;
  bool break_words = true;
  bool break_hyphens = true;
};

bool is_blank(const Chars& chunk) {
  return std::all_of(chunk.begin(), chunk.end(), is_space);
}

// How much of a word that is longer than a line goes on the current one.
size_t long_word_part(const Chars& chunk, size_t space_left, bool break_hyphens) {
  if (break_hyphens && chunk.size() > space_left) {
    for (size_t i = space_left; i > 0; --i) {
      if (chunk[i - 1] != '-') continue;
      size_t hyphen = i - 1;
      bool more_than_hyphens = std::any_of(chunk.begin(), chunk.begin() + static_cast<ptrdiff_t>(hyphen),
                                           [](char32_t c) { return c != '-'; });
      return hyphen > 0 && more_than_hyphens ? hyphen + 1 : space_left;
    }
  }
  return space_left;
}

std::vector<std::string> wrap_line(Runtime& rt, std::string_view line, const WrapStyle& style) {
  Chars chars = to_chars32(line);
  std::vector<Chars> chunks = ChunkSplitter(rt, chars, style.break_hyphens).run();
  std::reverse(chunks.begin(), chunks.end());
  std::vector<std::string> lines;
  while (!chunks.empty()) {
    rt.step();
    std::vector<Chars> row;
    size_t length = 0;
    if (!lines.empty() && is_blank(chunks.back())) chunks.pop_back();
    while (!chunks.empty() && length + chunks.back().size() <= style.width) {
      length += chunks.back().size();
      row.push_back(std::move(chunks.back()));
      chunks.pop_back();
    }
    if (!chunks.empty() && chunks.back().size() > style.width) {
      Chars& chunk = chunks.back();
      if (style.break_words) {
        size_t end = long_word_part(chunk, style.width - length, style.break_hyphens);
        row.emplace_back(chunk.begin(), chunk.begin() + static_cast<ptrdiff_t>(end));
        chunk.erase(chunk.begin(), chunk.begin() + static_cast<ptrdiff_t>(end));
        rt.step(chunk.size() / 16);
      } else if (row.empty()) {
        row.push_back(std::move(chunk));
        chunks.pop_back();
      }
    }
    if (!row.empty() && is_blank(row.back())) row.pop_back();
    if (row.empty()) continue;
    std::string text;
    for (const Chars& chunk : row) {
      for (char32_t c : chunk) append_char(text, c);
    }
    lines.push_back(std::move(text));
  }
  return lines;
}

Value word_wrap(Call& c) {
  if (c.self.is(Kind::Undefined)) c.rt.fail_undefined(c.self);
  if (!c.self.is(Kind::String)) {
    c.rt.fail("AttributeError", fmt::format("'{}' object has no attribute 'splitlines'", type_name(c.self)));
  }
  WrapStyle style;
  int64_t width = c.integer(0, 79);
  style.break_words = c.truth(1, true);
  std::string_view separator = c.given_value(2) ? c.text(2, "\n") : "\n";
  style.break_hyphens = c.truth(3, true);
  c.rt.reserve(c.self.text().size() * 8);
  std::string out;
  bool first = true;
  for (std::string_view line : split_lines(c.self.text(), false)) {
    if (width <= 0) {
      if (line.empty()) continue;
      c.rt.fail("ValueError", fmt::format("invalid width {} (must be > 0)", width));
    }
    style.width = static_cast<size_t>(width);
    if (!first) out += separator;
    first = false;
    bool first_row = true;
    for (const std::string& row : wrap_line(c.rt, line, style)) {
      if (!first_row) out += separator;
      first_row = false;
      out += row;
      c.rt.reserve(out.size());
    }
  }
  return c.rt.string(std::move(out));
}

}  // namespace

std::span<const Function> pretty_filters() {
  static const Function kFilters[] = {
      {"pprint", "", pretty},
      {"wordwrap", "width? break_long_words? wrapstring? break_on_hyphens?", word_wrap},
  };
  return kFilters;
}

}  // namespace kvfork::jinja
