// The public text side of a checkpoint: tokenizer and chat template.

#include "kvfork/text.h"

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "checkpoint/gguf.h"
#include "prompt/text_fingerprint.h"

namespace kvfork {
namespace {

template <typename Value>
std::vector<Value> to_vector(const std::optional<std::vector<Value>>& values) {
  return values ? *values : std::vector<Value>();
}

std::vector<std::string> to_strings(const std::optional<std::vector<std::string_view>>& views) {
  return views ? std::vector<std::string>(views->begin(), views->end()) : std::vector<std::string>();
}

std::string to_string(const std::optional<std::string_view>& view) {
  return view ? std::string(*view) : std::string();
}

GgufVocabulary read_vocabulary(const checkpoint::GgufFile& gguf) {
  const auto find_id = [&gguf](const char* key) -> std::optional<int32_t> {
    const auto id = gguf.find_integer(key);
    return id ? std::optional(static_cast<int32_t>(*id)) : std::nullopt;
  };
  return {.subject = gguf.subject(),
          .model = to_string(gguf.find_string("tokenizer.ggml.model")),
          .pre = to_string(gguf.find_string("tokenizer.ggml.pre")),
          .tokens = to_strings(gguf.find_strings("tokenizer.ggml.tokens")),
          .scores = to_vector(gguf.find_numbers("tokenizer.ggml.scores")),
          .types = to_vector(gguf.find_integers("tokenizer.ggml.token_type")),
          .merges = to_strings(gguf.find_strings("tokenizer.ggml.merges")),
          .add_bos_token = gguf.find_bool("tokenizer.ggml.add_bos_token"),
          .add_eos_token = gguf.find_bool("tokenizer.ggml.add_eos_token"),
          .add_space_prefix = gguf.find_bool("tokenizer.ggml.add_space_prefix"),
          .bos_id = find_id("tokenizer.ggml.bos_token_id"),
          .eos_id = find_id("tokenizer.ggml.eos_token_id"),
          .unk_id = find_id("tokenizer.ggml.unknown_token_id"),
          .pad_id = find_id("tokenizer.ggml.padding_token_id")};
}

std::shared_ptr<const Text> open_gguf(const std::string& path) {
  const auto gguf = checkpoint::GgufFile::open(path);
  Tokenizer tokenizer = Tokenizer::from_gguf(read_vocabulary(gguf));
  TemplateSources sources;
  sources.subject = path;
  if (const auto source = gguf.find_string("tokenizer.chat_template"))
    sources.chat_template_jinja = std::string(*source);
  sources.special_tokens = tokenizer.special_tokens();
  return std::make_shared<const Text>(std::move(tokenizer), ChatTemplate::from_sources(sources), path);
}

}  // namespace

Text::Text(Tokenizer tokenizer, ChatTemplate chat_template, std::string path)
    : tokenizer_(std::move(tokenizer)), chat_template_(std::move(chat_template)), path_(std::move(path)) {}

const std::string& Text::tokenizer_fingerprint() const {
  return base::only_errors([&]() -> const std::string& {
    const std::lock_guard lock(fingerprint_mutex_);
    if (fingerprint_.empty() && !path_.empty()) fingerprint_ = prompt::fingerprint_tokenizer(path_);
    return fingerprint_;
  });
}

std::shared_ptr<const Text> Text::open(const std::string& path) {
  return base::only_errors([&]() -> std::shared_ptr<const Text> {
    std::error_code error;
    if (std::filesystem::is_directory(path, error))
      return std::make_shared<const Text>(Tokenizer::from_directory(path), ChatTemplate::from_directory(path),
                                          path);
    return open_gguf(path);
  });
}

}  // namespace kvfork
