// Fingerprints of tokenizers and templates: of the files or texts that they are made from.
#include "prompt/text_fingerprint.h"

#include <fmt/format.h>

#include <filesystem>
#include <vector>

#include "base/json_text.h"
#include "base/mapped_file.h"
#include "base/sha256.h"
#include "checkpoint/gguf.h"

namespace kvfork::prompt {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxTokenizerFile = size_t{1} << 30;

// Adds name and text so that no two lists of parts give the same bytes.
void add_part(base::Sha256& sha, std::string_view name, std::string_view text) {
  const std::string head = fmt::format("{}:{}:", name, text.size());
  sha.add(head);
  sha.add(text);
}

// The chat template has a fingerprint of its own, and the order of keys says nothing.
std::string without_chat_template(std::string text) {
  const auto config = base::JsonTree::try_parse(text);
  if (!config || !config->root().is_object()) return text;
  return base::canonical_json(config->root(), "chat_template");
}

std::string fingerprint_gguf_tokenizer(const std::string& path) {
  const auto gguf = checkpoint::GgufFile::open(path);
  base::Sha256 sha;
  for (const checkpoint::GgufValue& value : gguf.values()) {
    if (!value.key.starts_with("tokenizer.ggml.")) continue;
    add_part(sha, value.key,
             fmt::format("{}/{}/{}", static_cast<int>(value.type), static_cast<int>(value.element_type),
                         value.n_elements));
    sha.add(value.bytes);
  }
  return sha.hex();
}

}  // namespace

std::string fingerprint_tokenizer(const std::string& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return fingerprint_gguf_tokenizer(path);
  const fs::path directory(path);
  std::vector<const char*> names = {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
                                    "added_tokens.json"};
  if (!fs::exists(directory / "tokenizer.json", error)) names.insert(names.end(), {"vocab.json", "merges.txt"});
  base::Sha256 sha;
  for (const char* name : names) {
    if (!fs::exists(directory / name, error)) continue;
    std::string text = base::read_file(directory / name, kMaxTokenizerFile);
    if (std::string_view(name) == "tokenizer_config.json") text = without_chat_template(std::move(text));
    add_part(sha, name, text);
  }
  return sha.hex();
}

std::string fingerprint_template(std::string_view source, const ChatTemplate& chat_template) {
  base::Sha256 sha;
  add_part(sha, "source", source);
  for (const auto& [name, json] : chat_template.special_variables()) add_part(sha, name, json);
  return sha.hex();
}

}  // namespace kvfork::prompt
