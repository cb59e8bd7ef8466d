// Typed access to the fields of one JSON object, with errors that name file and field.
//
// As in Python, the last of two equal keys counts, and null reads as absent where a default exists.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace kvfork::checkpoint {

class JsonFields {
 public:
  /// Throws Error{Corrupt} when `object` is not an object. The element must outlive this.
  JsonFields(simdjson::dom::element object, std::string_view subject);

  const std::string& subject() const { return subject_; }
  const std::map<std::string_view, simdjson::dom::element>& all() const { return fields_; }

  /// The field, or nothing when it is missing or null.
  std::optional<simdjson::dom::element> find(std::string_view name) const;
  bool has(std::string_view name) const { return fields_.count(name) != 0; }
  /// Adds fields of `other` that are missing here.
  void take_missing(const JsonFields& other, std::initializer_list<std::string_view> names);
  /// Whether the field has been looked for.
  bool was_read(std::string_view name) const { return read_.count(name) != 0; }

  // Each throws Error{Corrupt} when the field is there with another type.
  std::optional<bool> find_bool(std::string_view name) const;
  std::optional<double> find_number(std::string_view name) const;
  std::optional<int64_t> find_integer(std::string_view name) const;
  std::optional<size_t> find_size(std::string_view name) const;
  std::optional<std::string_view> find_string(std::string_view name) const;
  std::optional<int32_t> find_token_id(std::string_view name) const;
  std::optional<std::vector<double>> find_numbers(std::string_view name) const;
  std::optional<std::vector<std::string_view>> find_strings(std::string_view name) const;
  /// An integer or a list of integers.
  std::optional<std::vector<int32_t>> find_token_ids(std::string_view name) const;

  [[noreturn]] void fail_type(std::string_view name, std::string_view expected, simdjson::dom::element found) const;
  [[noreturn]] void fail_unsupported(std::string_view name, simdjson::dom::element found,
                                     std::string_view expected) const;

 private:
  template <class T>
  std::optional<std::vector<T>> find_list(std::string_view name, std::string_view expected) const;
  int32_t to_token_id(std::string_view name, simdjson::dom::element value) const;

  std::string subject_;
  std::map<std::string_view, simdjson::dom::element> fields_;
  mutable std::set<std::string, std::less<>> read_;  // by find and what calls it
};

}  // namespace kvfork::checkpoint
