// Reads the fields of one JSON object with their types, and words the errors.

#include "checkpoint/json_fields.h"

#include <limits>

#include "base/error.h"

namespace kvfork::checkpoint {

using base::describe_json;
using base::fail;
using simdjson::dom::element;

JsonFields::JsonFields(element object, std::string_view subject) : subject_(subject) {
  simdjson::dom::object fields;
  if (object.get(fields) != simdjson::SUCCESS)
    fail(ErrorCode::Corrupt, "{}: expected a JSON object, found {}", subject_, describe_json(object));
  for (const auto field : fields) fields_.insert_or_assign(field.key, field.value);
}

void JsonFields::take_missing(const JsonFields& other, std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names) {
    const auto found = other.fields_.find(name);
    if (found != other.fields_.end()) fields_.emplace(found->first, found->second);
  }
}

std::optional<element> JsonFields::find(std::string_view name) const {
  read_.emplace(name);
  const auto found = fields_.find(name);
  if (found == fields_.end() || found->second.is_null()) return std::nullopt;
  return found->second;
}

std::optional<bool> JsonFields::find_bool(std::string_view name) const {
  const auto value = find(name);
  if (!value) return std::nullopt;
  bool result = false;
  if (value->get(result) != simdjson::SUCCESS) fail_type(name, "true or false", *value);
  return result;
}

std::optional<double> JsonFields::find_number(std::string_view name) const {
  const auto value = find(name);
  if (!value) return std::nullopt;
  double result = 0;
  if (value->get(result) != simdjson::SUCCESS) fail_type(name, "a number", *value);
  return result;
}

std::optional<int64_t> JsonFields::find_integer(std::string_view name) const {
  const auto value = find(name);
  if (!value) return std::nullopt;
  int64_t result = 0;
  if (value->get(result) != simdjson::SUCCESS) fail_type(name, "an integer", *value);
  return result;
}

std::optional<size_t> JsonFields::find_size(std::string_view name) const {
  const auto value = find(name);
  if (!value) return std::nullopt;
  uint64_t result = 0;
  if (value->get(result) != simdjson::SUCCESS) fail_type(name, "a non-negative integer", *value);
  return static_cast<size_t>(result);
}

std::optional<std::string_view> JsonFields::find_string(std::string_view name) const {
  const auto value = find(name);
  if (!value) return std::nullopt;
  std::string_view result;
  if (value->get(result) != simdjson::SUCCESS) fail_type(name, "a string", *value);
  return result;
}

std::optional<int32_t> JsonFields::find_token_id(std::string_view name) const {
  const auto value = find(name);
  if (!value) return std::nullopt;
  return to_token_id(name, *value);
}

std::optional<std::vector<int32_t>> JsonFields::find_token_ids(std::string_view name) const {
  const auto value = find(name);
  if (!value) return std::nullopt;
  simdjson::dom::array list;
  if (value->get(list) != simdjson::SUCCESS) return std::vector<int32_t>{to_token_id(name, *value)};
  std::vector<int32_t> ids;
  for (const element item : list) ids.push_back(to_token_id(name, item));
  return ids;
}

std::optional<std::vector<double>> JsonFields::find_numbers(std::string_view name) const {
  return find_list<double>(name, "a list of numbers");
}

std::optional<std::vector<std::string_view>> JsonFields::find_strings(std::string_view name) const {
  return find_list<std::string_view>(name, "a list of names");
}

template <class T>
std::optional<std::vector<T>> JsonFields::find_list(std::string_view name, std::string_view expected) const {
  const auto value = find(name);
  if (!value) return std::nullopt;
  simdjson::dom::array list;
  if (value->get(list) != simdjson::SUCCESS) fail_type(name, expected, *value);
  std::vector<T> items;
  for (const element item : list) {
    T parsed{};
    if (item.get(parsed) != simdjson::SUCCESS) fail_type(name, expected, item);
    items.push_back(parsed);
  }
  return items;
}

int32_t JsonFields::to_token_id(std::string_view name, element value) const {
  int64_t id = 0;
  if (value.get(id) != simdjson::SUCCESS || id < std::numeric_limits<int32_t>::min() ||
      id > std::numeric_limits<int32_t>::max())
    fail_type(name, "a token id", value);
  return static_cast<int32_t>(id);
}

void JsonFields::fail_type(std::string_view name, std::string_view expected, element found) const {
  fail(ErrorCode::Corrupt, "{}: {}: expected {}, found {}", subject_, name, expected, describe_json(found));
}

void JsonFields::fail_unsupported(std::string_view name, element found, std::string_view expected) const {
  fail(ErrorCode::Unsupported, "{}: {}: expected {}, found {}; kvfork does not implement it", subject_, name,
       expected, describe_json(found));
}

}  // namespace kvfork::checkpoint
