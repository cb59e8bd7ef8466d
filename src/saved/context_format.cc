// Writes and reads the metadata of a saved context's file.

#include "saved/context_format.h"

#include <array>
#include <charconv>

#include "base/error.h"
#include "base/json_text.h"
#include "saved/identity.h"

namespace kvfork::saved {
namespace {

constexpr const char* kFlagNames[] = {"false", "true"};

class Decoder {
 public:
  Decoder(const Metadata& metadata, std::string_view subject) : metadata_(metadata), subject_(subject) {}

  const std::string* find(const char* key) const {
    const auto found = metadata_.find(key);
    return found == metadata_.end() ? nullptr : &found->second;
  }
  std::string text(const char* key) const {
    const std::string* value = find(key);
    return value == nullptr ? std::string() : *value;
  }
  const std::string& get(const char* key) const {
    const std::string* value = find(key);
    if (value == nullptr) base::fail(ErrorCode::Corrupt, "{}: metadata: expected {}, found none", subject_, key);
    return *value;
  }
  size_t number(const char* key) const {
    const std::string& value = get(key);
    size_t number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (error != std::errc() || end != value.data() + value.size()) refuse(key, "a number", value);
    return number;
  }
  bool flag(const char* key) const {
    const std::string& value = get(key);
    if (value != kFlagNames[0] && value != kFlagNames[1]) refuse(key, "true or false", value);
    return value == kFlagNames[1];
  }
  BoundaryMode boundary() const {
    const std::string& value = get("boundary");
    for (const auto mode : {BoundaryMode::Message, BoundaryMode::Probe, BoundaryMode::Longest}) {
      if (value == boundary_mode_name(mode)) return mode;
    }
    refuse("boundary", "message, probe or longest", value);
  }
  std::vector<std::pair<std::string, std::string>> vars() const {
    const auto tree = base::JsonTree::try_parse(get("vars"));
    std::vector<std::pair<std::string, std::string>> vars;
    if (!tree || !tree->root().is_list()) refuse("vars", "a JSON list", get("vars"));
    for (const base::Json item : tree->root().items()) {
      const std::vector<base::Json> pair = item.is_list() ? item.list() : std::vector<base::Json>();
      if (pair.size() != 2 || !pair[0].is_string() || !pair[1].is_string())
        refuse("vars", "a JSON list of [name, JSON text]", get("vars"));
      vars.emplace_back(pair[0].as_string(), pair[1].as_string());
    }
    return vars;
  }

 private:
  [[noreturn]] void refuse(const char* key, const char* expected, const std::string& found) const {
    base::fail(ErrorCode::Corrupt, "{}: metadata: {}: expected {}, found '{:.80}'", subject_, key, expected, found);
  }

  const Metadata& metadata_;
  std::string_view subject_;
};

void encode_origin(const ContextOrigin& origin, Metadata& metadata) {
  const FixedPart& fixed = origin.fixed;
  metadata["boundary"] = boundary_mode_name(origin.boundary);
  metadata["messages"] = fixed.messages_json;
  if (!fixed.tools_json.empty()) metadata["tools"] = fixed.tools_json;
  if (!fixed.documents_json.empty()) metadata["documents"] = fixed.documents_json;
  auto vars = base::JsonText::list();
  for (const auto& [name, value] : fixed.vars) vars.push_back(std::array<std::string_view, 2>{name, value});
  metadata["vars"] = vars.text();
  if (fixed.now) metadata["now"] = *fixed.now;
  if (fixed.raw_text) metadata["raw_text"] = *fixed.raw_text;
  metadata["add_special_tokens"] = kFlagNames[fixed.raw_encoding.add_special_tokens];
  metadata["literal_special_tokens"] = kFlagNames[fixed.user_text == UserText::Literal];
  if (origin.template_source) metadata["template_source"] = *origin.template_source;
}

std::shared_ptr<const ContextOrigin> decode_origin(const Decoder& decoder, const Identity& identity) {
  if (decoder.find("boundary") == nullptr) return nullptr;
  auto origin = std::make_shared<ContextOrigin>();
  origin->boundary = decoder.boundary();
  origin->fixed.messages_json = decoder.get("messages");
  origin->fixed.tools_json = decoder.text("tools");
  origin->fixed.documents_json = decoder.text("documents");
  origin->fixed.vars = decoder.vars();
  if (const std::string* now = decoder.find("now")) origin->fixed.now = *now;
  if (const std::string* raw = decoder.find("raw_text")) origin->fixed.raw_text = *raw;
  origin->fixed.raw_encoding.add_special_tokens = decoder.flag("add_special_tokens");
  origin->fixed.user_text = decoder.flag("literal_special_tokens") ? UserText::Literal : UserText::AsTransformers;
  if (const std::string* source = decoder.find("template_source")) origin->template_source = *source;
  origin->tokenizer = identity.tokenizer;
  origin->chat_template = identity.chat_template;
  return origin;
}

}  // namespace

Metadata encode_header(const ContextHeader& header) {
  Metadata metadata;
  metadata["format"] = kContextFormat;
  metadata["format_version"] = kContextFormatVersion;
  metadata["kvfork_version"] = header.kvfork_version;
  metadata["id"] = header.id;
  metadata["n_tokens"] = std::to_string(header.n_tokens);
  metadata["first_block"] = std::to_string(header.first_block);
  if (!header.parent_id.empty()) metadata["parent_id"] = header.parent_id;
  if (!header.parent_file.empty()) metadata["parent_file"] = header.parent_file;
  for (const IdentityField& field : deciding_fields()) metadata[field.name] = header.identity.*field.value;
  if (!header.identity.revision.empty()) metadata["revision"] = header.identity.revision;
  if (header.origin != nullptr) encode_origin(*header.origin, metadata);
  return metadata;
}

ContextHeader decode_header(const Metadata& metadata, std::string_view subject) {
  const Decoder decoder(metadata, subject);
  if (!is_context(metadata))
    base::fail(ErrorCode::Corrupt, "{}: expected a saved context, found another safetensors file", subject);
  if (const std::string& version = decoder.get("format_version"); version != kContextFormatVersion)
    base::fail(ErrorCode::InvalidArgument,
               "{}: format_version: expected {}, found '{:.80}'; save the context again with this kvfork", subject,
               kContextFormatVersion, version);
  ContextHeader header;
  header.kvfork_version = decoder.get("kvfork_version");
  header.id = decoder.get("id");
  header.n_tokens = decoder.number("n_tokens");
  header.first_block = decoder.number("first_block");
  header.parent_id = decoder.text("parent_id");
  header.parent_file = decoder.text("parent_file");
  for (const IdentityField& field : deciding_fields()) header.identity.*field.value = decoder.get(field.name);
  header.identity.revision = decoder.text("revision");
  header.origin = decode_origin(decoder, header.identity);
  return header;
}

bool is_context(const Metadata& metadata) {
  const auto format = metadata.find("format");
  return format != metadata.end() && format->second == kContextFormat;
}

std::string key_tensor_name(size_t layer) {
  return fmt::format("layers.{}.k", layer);
}
std::string value_tensor_name(size_t layer) {
  return fmt::format("layers.{}.v", layer);
}

}  // namespace kvfork::saved
