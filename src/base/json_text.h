// Writing JSON: a value is its text from the start, so nothing has to be walked or freed, and what was read from a
// file can be written as it stands.
//
// JsonText{{"ids", ids}, {"text", text}} is an object; a range of values or texts is a list.
#pragma once

#include <concepts>
#include <cstddef>
#include <initializer_list>
#include <map>
#include <optional>
#include <ranges>
#include <string>
#include <string_view>

#include "base/json_tree.h"

namespace kvfork::base {

class JsonText {
 public:
  struct Member;

  JsonText(std::nullptr_t = nullptr) : text_("null") {}
  JsonText(std::same_as<bool> auto value) : text_(value ? "true" : "false") {}
  template <std::integral T>
  requires(!std::same_as<T, bool>) JsonText(T value) : text_(std::to_string(value)) {}
  JsonText(double value);  ///< null where it is not finite
  /// Bytes that are not UTF-8 are written as U+FFFD.
  JsonText(std::string_view text);
  JsonText(const std::string& text) : JsonText(std::string_view(text)) {}
  JsonText(const char* text) : JsonText(std::string_view(text)) {}
  /// A value of a tree in one spelling: no spaces, and no escapes but those that must be.
  JsonText(const Json& value);
  template <typename T>
  JsonText(const std::optional<T>& value) : JsonText(value ? JsonText(*value) : JsonText()) {}
  /// An object.
  JsonText(std::initializer_list<Member> members);
  template <typename T>
  JsonText(const std::map<std::string, T>& members);
  /// A list.
  template <std::ranges::input_range Range>
  requires(!std::convertible_to<Range, std::string_view>) JsonText(const Range& items) : JsonText(list()) {
    for (const auto& item : items) push_back(JsonText(item));
  }

  static JsonText list() { return raw("[]"); }
  static JsonText object() { return raw("{}"); }
  /// What is JSON already.
  static JsonText raw(std::string json) {
    JsonText value;
    value.text_ = std::move(json);
    return value;
  }

  /// To an object, which must not have the key.
  void add(std::string_view key, const JsonText& value);
  /// To a list.
  void push_back(const JsonText& value) { append(value.text_); }

  const std::string& text() const noexcept { return text_; }

  friend bool operator==(const JsonText&, const JsonText&) = default;

 private:
  void append(std::string_view part);

  std::string text_;
};

struct JsonText::Member {
  std::string_view key;
  JsonText value;
};

template <typename T>
JsonText::JsonText(const std::map<std::string, T>& members) : JsonText(object()) {
  for (const auto& [key, value] : members) add(key, value);
}

/// `text` as a JSON string; `ascii`: without characters beyond ASCII.
std::string quote_json(std::string_view text, bool ascii = false);

/// An object with its keys in order and without the members named, in ASCII: equal for files that differ in
/// spelling.
std::string canonical_json(const Json& value, std::string_view without_key = {});

}  // namespace kvfork::base
