// Values of a parsed JSON text, and the errors that say where one stands.
#include "base/json_tree.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/number.h"
#include "base/utf8.h"

namespace kvfork::base {

std::string_view Json::raw() const noexcept {
  return std::string_view(tree_->text).substr(node().begin, node().end - node().begin);
}

std::string_view Json::text() const noexcept {
  const detail::JsonNode& string = node();
  if (!string.has_escapes)
    return std::string_view(tree_->text).substr(string.begin + 1, string.end - string.begin - 2);
  uint32_t size = 0;
  std::memcpy(&size, tree_->unescaped.data() + string.link, sizeof(size));
  return std::string_view(tree_->unescaped).substr(string.link + sizeof(size), size);
}

Json::Items Json::items() const {
  if (!is_list()) expected("a list (a JSON array)");
  return Items(*this);
}

std::vector<Json> Json::list() const {
  std::vector<Json> list;
  for (const Json item : items()) list.push_back(item);
  return list;
}

Json::Members Json::members() const {
  if (!is_object()) expected("an object");
  return Members(*this);
}

size_t Json::size() const noexcept {
  size_t n = 0;
  if (is_list()) {
    for ([[maybe_unused]] const Json item : Items(*this)) ++n;
  } else if (is_object()) {
    for ([[maybe_unused]] const auto& member : Members(*this)) ++n;
  }
  return n;
}

std::optional<Json> Json::find_any(std::string_view key) const {
  std::optional<Json> found;
  for (const auto& [name, value] : members()) {
    if (name == key) found = value;
  }
  return found;
}

std::optional<Json> Json::find(std::string_view key) const {
  const std::optional<Json> found = find_any(key);
  return found && !found->is_null() ? found : std::nullopt;
}

Json Json::get(std::string_view key) const {
  if (const std::optional<Json> value = find(key)) return *value;
  fail(ErrorCode::Corrupt, "{}: expected a field \"{}\", found none", where(), key);
}

std::string_view Json::as_string() const {
  if (!is_string()) expected("a string");
  return text();
}

bool Json::as_bool() const {
  if (!is_bool()) expected("true or false");
  return kind() == JsonKind::True;
}

double Json::as_double() const {
  if (!is_number()) expected("a number");
  const std::string_view number = raw();
  if (const auto value = parse_double(number)) return *value;
  if (number == "NaN") return std::nan("");
  return number.starts_with('-') ? -HUGE_VAL : HUGE_VAL;
}

int64_t Json::as_int() const {
  if (!is_integer()) expected("an integer");
  if (const auto value = to<int64_t>()) return *value;
  return raw().starts_with('-') ? INT64_MIN : INT64_MAX;
}

std::optional<std::string_view> Json::find_string(std::string_view key) const {
  const std::optional<Json> value = is_object() ? find_any(key) : std::nullopt;
  return value && value->is_string() ? std::optional(value->text()) : std::nullopt;
}

std::string_view Json::string_or(std::string_view key, std::string_view fallback) const {
  const std::optional<Json> value = find(key);
  return value ? value->as_string() : fallback;
}

bool Json::bool_or(std::string_view key, bool fallback) const {
  const std::optional<Json> value = find(key);
  return value ? value->as_bool() : fallback;
}

std::string Json::where() const {
  std::string path = tree_->subject;
  for (Json at(tree_, 0); at.index_ != index_;) {
    Json child(tree_, at.index_ + 1);
    size_t n_before = 0;
    if (at.is_list()) {
      for (; tree_->next(child.index_) <= index_; ++n_before) child.index_ = tree_->next(child.index_);
      path += fmt::format("[{}]", n_before);
    } else {
      ++child.index_;
      while (tree_->next(child.index_) <= index_) child.index_ = tree_->next(child.index_) + 1;
      path.append(1, '.').append(Json(tree_, child.index_ - 1).text());
    }
    at = child;
  }
  return path;
}

std::string Json::describe() const {
  constexpr size_t kLongest = 80;
  switch (kind()) {
    case JsonKind::List:
      return "a list";
    case JsonKind::Object:
      return "an object";
    case JsonKind::String:
      return raw().size() <= kLongest ? fmt::format("the string {}", raw())
                                      : "the string " + to_valid_utf8(raw().substr(0, kLongest - 3)) + "...\"";
    case JsonKind::Integer:
    case JsonKind::Real:
      return fmt::format("the number {:.80}", raw());
    default:
      return std::string(raw());  // true, false, null
  }
}

void Json::expected(std::string_view what) const {
  fail(ErrorCode::Corrupt, "{}: expected {}, found {}", where(), what, describe());
}

std::string describe_json_position(std::string_view text, size_t position) {
  const std::string_view before = text.substr(0, position);
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const size_t line_start = before.rfind('\n') == std::string_view::npos ? 0 : before.rfind('\n') + 1;
  return fmt::format("line {}, column {} (byte {})", line, before.size() - line_start + 1, before.size());
}

}  // namespace kvfork::base
