#include "tokenizer/json.h"

#include <limits>

#include "base/error.h"

namespace kvfork::tokenizer {
namespace {

std::string_view kind_of(const simdjson::dom::element& element) {
  switch (element.type()) {
    case simdjson::dom::element_type::ARRAY:
      return "an array";
    case simdjson::dom::element_type::OBJECT:
      return "an object";
    case simdjson::dom::element_type::STRING:
      return "a string";
    case simdjson::dom::element_type::BOOL:
      return "a boolean";
    case simdjson::dom::element_type::NULL_VALUE:
      return "null";
    default:
      return "a number";
  }
}

/// `text` with integers beyond 64 bits written as floating-point numbers: Python reads and writes them
/// (Transformers' model_max_length is 10^30), simdjson refuses them.
std::string shorten_integers(std::string_view text) {
  constexpr size_t kMaxDigits = 18;
  std::string out;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    out.push_back(c);
    if (in_string && c == '\\' && i + 1 < text.size()) {
      out.push_back(text[++i]);
    } else if (c == '"') {
      in_string = !in_string;
    } else if (!in_string && c >= '0' && c <= '9') {
      size_t end = i;
      while (end < text.size() && text[end] >= '0' && text[end] <= '9') ++end;
      out.append(text.substr(i + 1, end - i - 1));
      const bool is_integer = end == text.size() || (text[end] != '.' && text[end] != 'e' && text[end] != 'E');
      const bool is_fraction =
          i > 0 && (text[i - 1] == '.' || text[i - 1] == 'e' || text[i - 1] == 'E' || text[i - 1] == '+');
      if (is_integer && !is_fraction && end - i > kMaxDigits) out += "e0";
      i = end - 1;
    }
  }
  return out;
}

}  // namespace

void Json::expected(std::string_view what) const {
  base::fail(ErrorCode::Corrupt, "{}: expected {}, found {}", where_, what, kind_of(element_));
}

std::optional<Json> Json::find(std::string_view key) const {
  simdjson::dom::object object;
  if (element_.get_object().get(object) != simdjson::SUCCESS) expected("an object");
  // The last of duplicate keys wins, as in Python; but most objects here are small and have none.
  std::optional<simdjson::dom::element> found;
  for (const auto& [name, value] : object) {
    if (name == key) found = value;
  }
  if (!found || found->is_null()) return std::nullopt;
  return Json(*found, where_ + "." + std::string(key));
}

Json Json::get(std::string_view key) const {
  if (std::optional<Json> value = find(key)) return *std::move(value);
  base::fail(ErrorCode::Corrupt, "{}: expected a field \"{}\", found none", where_, key);
}

std::string_view Json::as_string() const {
  std::string_view value;
  if (element_.get_string().get(value) != simdjson::SUCCESS) expected("a string");
  return value;
}

bool Json::as_bool() const {
  bool value = false;
  if (element_.get_bool().get(value) != simdjson::SUCCESS) expected("a boolean");
  return value;
}

double Json::as_double() const {
  double value = 0;
  if (element_.get_double().get(value) != simdjson::SUCCESS) expected("a number");
  return value;
}

int64_t Json::as_int() const {
  int64_t value = 0;
  if (element_.get_int64().get(value) == simdjson::SUCCESS) return value;
  if (element_.is_uint64()) return std::numeric_limits<int64_t>::max();
  expected("an integer");
}

std::vector<Json> Json::as_array() const {
  simdjson::dom::array array;
  if (element_.get_array().get(array) != simdjson::SUCCESS) expected("an array");
  std::vector<Json> out;
  size_t index = 0;
  for (const simdjson::dom::element value : array) out.emplace_back(value, fmt::format("{}[{}]", where_, index++));
  return out;
}

std::string_view Json::string_or(std::string_view key, std::string_view fallback) const {
  const std::optional<Json> value = find(key);
  return value ? value->as_string() : fallback;
}

bool Json::bool_or(std::string_view key, bool fallback) const {
  const std::optional<Json> value = find(key);
  return value ? value->as_bool() : fallback;
}

Json parse_json(simdjson::dom::parser& parser, const std::string& text, std::string_view subject) {
  simdjson::dom::element root;
  auto error = parser.parse(text).get(root);
  if (error == simdjson::NUMBER_ERROR) error = parser.parse(shorten_integers(text)).get(root);
  if (error != simdjson::SUCCESS) {
    if (text.empty()) base::fail(ErrorCode::Corrupt, "{}: expected JSON, found an empty file", subject);
    base::fail(ErrorCode::Corrupt, "{}: expected JSON, found something else: {}", subject,
               simdjson::error_message(error));
  }
  return Json(root, std::string(subject));
}

}  // namespace kvfork::tokenizer
