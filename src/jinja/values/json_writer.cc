// json.dumps, with Python's spelling of numbers and its options.
#include <algorithm>
#include <cmath>

#include "base/number.h"
#include "jinja/values/compare.h"
#include "jinja/values/json.h"
#include "jinja/values/printing.h"
#include "jinja/values/runtime.h"
#include "jinja/values/text.h"

namespace kvfork::jinja {
namespace {

class Writer {
 public:
  Writer(Runtime& rt, const JsonStyle& style) : rt_(rt), style_(style) {}

  std::string run(const Value& value) {
    write(value, 0);
    return std::move(out_);
  }

 private:
  void write(const Value& value, size_t level) {
    Runtime::Deeper deeper(rt_);
    rt_.step();
    rt_.reserve(out_.size());
    switch (value.kind()) {
      case Kind::String:
        write_text(value.text());
        break;
      case Kind::List:
      case Kind::Tuple:
        write_items(value.as<List>().items, level);
        break;
      case Kind::Dict:
        write_dict(value.as<Dict>(), level);
        break;
      default:
        write_scalar(value);
    }
  }

  void write_scalar(const Value& value) {
    switch (value.kind()) {
      case Kind::None:
        out_ += "null";
        break;
      case Kind::Bool:
        out_ += value.as_bool() ? "true" : "false";
        break;
      case Kind::Int:
        out_ += std::to_string(value.as_int());
        break;
      case Kind::BigInt:
        out_ += value.as<BigInt>().digits;
        break;
      case Kind::Float:
        out_ += real_text(value.as_real());
        break;
      default:
        rt_.fail("TypeError", fmt::format("Object of type {} is not JSON serializable", type_name(value)));
    }
  }

  static std::string real_text(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
    return base::print_double(value);
  }

  // The characters of JSON are UTF-16.
  void append_utf16(char32_t unit) { out_ += fmt::format("\\u{:04x}", static_cast<uint32_t>(unit)); }

  void write_text(std::string_view text) {
    out_.push_back('"');
    for (size_t at = 0; at < text.size();) {
      size_t start = at;
      char32_t c = next_char(text, at);
      static constexpr std::string_view kFrom = "\"\\\b\f\n\r\t";
      static constexpr std::string_view kTo = "\"\\bfnrt";
      size_t simple = c < 0x80 ? kFrom.find(static_cast<char>(c)) : std::string_view::npos;
      if (simple != std::string_view::npos) {
        out_.push_back('\\');
        out_.push_back(kTo[simple]);
      } else if (c < 0x20 || (style_.ensure_ascii && c > 0x7E)) {
        if (c >= 0x10000) {
          append_utf16(0xD800 + ((c - 0x10000) >> 10));
          append_utf16(0xDC00 + ((c - 0x10000) & 0x3FF));
        } else {
          append_utf16(c);
        }
      } else {
        out_.append(text.substr(start, at - start));
      }
    }
    out_.push_back('"');
  }

  void new_line(size_t level) {
    if (!style_.pretty) return;
    rt_.reserve(out_.size() + level * style_.indent.size());
    out_.push_back('\n');
    for (size_t i = 0; i < level; ++i) out_ += style_.indent;
  }

  void write_items(const std::vector<Value>& items, size_t level) {
    if (items.empty()) {
      out_ += "[]";
      return;
    }
    out_.push_back('[');
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_ += style_.item_separator;
      new_line(level + 1);
      write(items[i], level + 1);
    }
    new_line(level);
    out_.push_back(']');
  }

  void write_key(const Value& key) {
    if (key.is(Kind::String)) return write_text(key.text());
    if (!key.is(Kind::None) && !key.is_number()) {
      rt_.fail("TypeError", fmt::format("keys must be str, int, float, bool or None, not {}", type_name(key)));
    }
    out_.push_back('"');
    write_scalar(key);
    out_.push_back('"');
  }

  void write_dict(const Dict& dict, size_t level) {
    if (dict.entries.empty()) {
      out_ += "{}";
      return;
    }
    std::vector<const std::pair<Value, Value>*> entries;
    for (const auto& entry : dict.entries) entries.push_back(&entry);
    if (style_.sort_keys) {
      std::stable_sort(entries.begin(), entries.end(),
                       [&](const auto* a, const auto* b) { return is_less(rt_, a->first, b->first); });
    }
    out_.push_back('{');
    for (size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) out_ += style_.item_separator;
      new_line(level + 1);
      write_key(entries[i]->first);
      out_ += style_.key_separator;
      write(entries[i]->second, level + 1);
    }
    new_line(level);
    out_.push_back('}');
  }

  Runtime& rt_;
  const JsonStyle& style_;
  std::string out_;
};

}  // namespace

std::string write_json(Runtime& rt, const Value& value, const JsonStyle& style) {
  return Writer(rt, style).run(value);
}

}  // namespace kvfork::jinja
