// Reading JSON files with errors that name the file and the field.
#pragma once

#include <simdjson.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kvfork::tokenizer {

/// A value inside a parsed document. Views are valid as long as the parser that made them.
class Json {
 public:
  Json(simdjson::dom::element element, std::string where) : element_(element), where_(std::move(where)) {}

  /// The field, or nothing when it is absent or null. Throws Error{Corrupt} when this is not an object.
  std::optional<Json> find(std::string_view key) const;
  /// The field. Throws Error{Corrupt} when it is absent or null.
  Json get(std::string_view key) const;

  std::string_view as_string() const;
  bool as_bool() const;
  double as_double() const;
  /// An integer; one beyond int64 is clamped to INT64_MAX.
  int64_t as_int() const;
  std::vector<Json> as_array() const;

  std::string_view string_or(std::string_view key, std::string_view fallback) const;
  bool bool_or(std::string_view key, bool fallback) const;

  bool is_string() const noexcept { return element_.is_string(); }
  bool is_array() const noexcept { return element_.is_array(); }
  bool is_object() const noexcept { return element_.is_object(); }
  bool is_bool() const noexcept { return element_.is_bool(); }
  const simdjson::dom::element& element() const noexcept { return element_; }
  /// File and field, for messages.
  const std::string& where() const noexcept { return where_; }
  [[noreturn]] void expected(std::string_view what) const;

 private:
  simdjson::dom::element element_;
  std::string where_;
};

/// Parses `text`. Throws Error{Corrupt} naming `subject`.
Json parse_json(simdjson::dom::parser& parser, const std::string& text, std::string_view subject);

}  // namespace kvfork::tokenizer
