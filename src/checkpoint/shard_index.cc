// Parses model.safetensors.index.json and refuses names of shards that leave the folder.

#include "checkpoint/shard_index.h"

#include "base/error.h"
#include "base/json.h"
#include "checkpoint/json_fields.h"

namespace kvfork::checkpoint {
namespace {

using base::fail;

bool is_plain_name(std::string_view name) {
  constexpr std::string_view kForbidden("/\\\0", 3);
  return !name.empty() && name.front() != '.' && name.find_first_of(kForbidden) == std::string_view::npos;
}

}  // namespace

std::map<std::string, std::string> parse_shard_index(std::string_view json, std::string_view subject) {
  const auto document = base::JsonDocument::parse(json, subject);
  const JsonFields fields(document.root(), subject);
  const auto value = fields.find("weight_map");
  if (!value) fail(ErrorCode::Corrupt, "{}: weight_map is missing", subject);
  simdjson::dom::object weight_map;
  if (value->get(weight_map) != simdjson::SUCCESS) fields.fail_type("weight_map", "an object", *value);

  std::map<std::string, std::string> shards;
  for (const auto field : weight_map) {
    std::string_view file;
    if (field.value.get(file) != simdjson::SUCCESS) fields.fail_type("weight_map", "file names", field.value);
    if (!is_plain_name(file))
      fail(ErrorCode::Corrupt, "{}: {}: expected a plain file name, found \"{}\"", subject, field.key, file);
    if (!file.ends_with(".safetensors"))
      fail(ErrorCode::Unsupported, "{}: {}: expected a .safetensors file, found \"{}\"", subject, field.key, file);
    if (!shards.emplace(field.key, file).second)
      fail(ErrorCode::Corrupt, "{}: the tensor {} occurs twice", subject, field.key);
  }
  if (shards.empty()) fail(ErrorCode::Corrupt, "{}: weight_map is empty", subject);
  return shards;
}

}  // namespace kvfork::checkpoint
