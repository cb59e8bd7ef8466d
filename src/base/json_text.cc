// Writing JSON: strings, numbers, and values of a tree in one spelling.
#include "base/json_text.h"

#include <cmath>

#include "base/number.h"
#include "base/utf8.h"

namespace kvfork::base {
namespace {

std::string print_number(double value) {
  constexpr int kWholeDigits = 15;  // what a double always keeps
  return std::isfinite(value) ? print_double(value, kWholeDigits) : "null";
}

void append_escape(std::string& out, char32_t unit) {
  out += fmt::format("\\u{:04x}", static_cast<uint32_t>(unit));
}

// Writes a tree's values; `ascii` also sorts keys.
class Writer {
 public:
  Writer(bool is_canonical, std::string_view without_key)
      : is_canonical_(is_canonical), without_key_(without_key) {}

  std::string run(const Json& value) {
    write(value);
    return std::move(out_);
  }

 private:
  // Recursion ends where the reader's bound on depth does.
  void write(const Json& value) {
    switch (value.kind()) {
      case JsonKind::List:
        write_list(value);
        break;
      case JsonKind::Object:
        write_object(value);
        break;
      case JsonKind::String:
        out_ += quote_json(value.as_string(), is_canonical_);
        break;
      case JsonKind::Integer:
        write_integer(value);
        break;
      case JsonKind::Real:
        out_ += print_number(value.as_double());
        break;
      default:
        out_ += value.raw();
    }
  }

  void write_integer(const Json& value) {
    if (!is_canonical_) {
      out_ += value.raw() == "-0" ? "0" : value.raw();
    } else if (const auto number = value.to<int64_t>()) {
      out_ += std::to_string(*number);
    } else if (value.to<uint64_t>()) {
      out_ += value.raw();
    } else {
      out_ += print_number(value.as_double());
    }
  }

  void write_list(const Json& list) {
    out_ += '[';
    bool is_first = true;
    for (const Json item : list.items()) {
      if (!std::exchange(is_first, false)) out_ += ',';
      write(item);
    }
    out_ += ']';
  }

  void write_object(const Json& object) {
    std::map<std::string_view, Json> sorted;
    if (is_canonical_) {
      for (const auto& [key, value] : object.members()) sorted.insert_or_assign(key, value);
      sorted.erase(std::exchange(without_key_, {}));
    }
    out_ += '{';
    bool is_first = true;
    const auto write_member = [&](std::string_view key, const Json& value) {
      if (!std::exchange(is_first, false)) out_ += ',';
      out_ += quote_json(key, is_canonical_) + ":";
      write(value);
    };
    if (is_canonical_) {
      for (const auto& [key, value] : sorted) write_member(key, value);
    } else {
      for (const auto& [key, value] : object.members()) write_member(key, value);
    }
    out_ += '}';
  }

  std::string out_;
  bool is_canonical_;
  std::string_view without_key_;
};

}  // namespace

JsonText::JsonText(double value) : text_(print_number(value)) {}
JsonText::JsonText(std::string_view text) : text_(quote_json(text)) {}
JsonText::JsonText(const Json& value) : text_(Writer(false, {}).run(value)) {}

JsonText::JsonText(std::initializer_list<Member> members) : JsonText(object()) {
  for (const Member& member : members) add(member.key, member.value);
}

void JsonText::add(std::string_view key, const JsonText& value) {
  append(quote_json(key) + ":" + value.text_);
}

void JsonText::append(std::string_view part) {
  const char close = text_.back();
  text_.pop_back();
  if (text_.size() > 1) text_ += ',';
  text_.append(part).push_back(close);
}

std::string quote_json(std::string_view text, bool ascii) {
  constexpr std::string_view kFrom = "\"\\\b\f\n\r\t";
  constexpr std::string_view kTo = "\"\\bfnrt";
  std::string out = "\"";
  for (size_t at = 0; at < text.size();) {
    const CodePoint next = decode_utf8(text, at);
    const char32_t c = next.code_point;
    const size_t simple = c < 0x80 ? kFrom.find(static_cast<char>(c)) : std::string_view::npos;
    if (simple != std::string_view::npos) {
      out.append(1, '\\').push_back(kTo[simple]);
    } else if (c < 0x20 || (ascii && c > 0x7E)) {
      if (c >= 0x10000) {
        append_escape(out, 0xD800 + ((c - 0x10000) >> 10));
        append_escape(out, 0xDC00 + ((c - 0x10000) & 0x3FF));
      } else {
        append_escape(out, c);
      }
    } else if (next.valid) {
      out.append(text.substr(at, next.n_bytes));
    } else {
      append_utf8(out, c);
    }
    at += next.n_bytes;
  }
  out += '"';
  return out;
}

std::string canonical_json(const Json& value, std::string_view without_key) {
  return Writer(true, without_key).run(value);
}

}  // namespace kvfork::base
