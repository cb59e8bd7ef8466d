// Describes a checkpoint: what it holds, and whether kvfork can run it.

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/json_text.h"
#include "base/mapped_file.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/gguf_config.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/shard_index.h"
#include "kvfork/boundary.h"
#include "kvfork/inspect.h"
#include "kvfork/text.h"
#include "model/state_layout.h"
#include "saved/identity.h"

namespace kvfork {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSystem = "Zebras answer in verse.";
constexpr const char* kUser = "Who wrote quartz?";

bool file_exists(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

void take_config(const checkpoint::ModelConfig& config, ModelFacts& facts) {
  facts.architecture = config.architecture;
  facts.model_type = config.model_type;
  facts.max_position_embeddings = config.max_position_embeddings;
  facts.n_layers = config.num_hidden_layers;
  facts.n_heads = config.num_attention_heads;
  facts.n_kv_heads = config.num_key_value_heads;
  facts.head_dim = config.head_dim;
  facts.hidden_size = config.hidden_size;
  facts.vocab_size = config.vocab_size;
  const auto layout = model::StateLayout::of(config.spec, kernels::Element::F32);
  facts.kv_bytes_per_token_float32 = layout.token_bytes();
  facts.kv_bytes_per_token_bfloat16 = layout.token_bytes() / 2;
  facts.state_bytes = layout.n_state_floats() * sizeof(float);
  for (const auto& tensor : config.spec.tensors)
    facts.n_parameters += checkpoint::count_elements(tensor.shape).value_or(0);
  facts.weight_bytes = facts.n_parameters * (config.torch_dtype == "float32" ? 4 : 2);
}

// What a config says that kvfork cannot run, as far as it can be read.
void take_unsupported_config(const std::string& text, ModelFacts& facts) {
  const auto tree = base::JsonTree::try_parse(text, {}, {.non_finite = true});
  if (!tree || !tree->root().is_object()) return;
  const base::Json config = tree->root();
  const auto number = [&](const char* key) -> size_t {
    const auto value = config.find(key);
    return value ? value->to<size_t>().value_or(0) : 0;
  };
  if (const auto type = config.find_string("model_type")) facts.model_type = *type;
  if (const auto names = config.find("architectures"); names && names->is_list() && names->size() > 0) {
    if (const base::Json first = *names->items().begin(); first.is_string()) facts.architecture = first.as_string();
  }
  facts.max_position_embeddings = number("max_position_embeddings");
  facts.n_layers = number("num_hidden_layers");
  facts.n_heads = number("num_attention_heads");
  facts.n_kv_heads = number("num_key_value_heads");
  facts.hidden_size = number("hidden_size");
  facts.vocab_size = number("vocab_size");
}

std::vector<fs::path> weight_files(const fs::path& directory) {
  const fs::path single = directory / "model.safetensors";
  const fs::path index = directory / "model.safetensors.index.json";
  if (file_exists(single)) return {single};
  std::vector<fs::path> files;
  if (!file_exists(index)) return files;
  for (const auto& [name, file] : checkpoint::parse_shard_index(base::read_file(index), index.string())) {
    if (file_exists(directory / file)) files.push_back(directory / file);
  }
  std::sort(files.begin(), files.end());
  files.erase(std::unique(files.begin(), files.end()), files.end());
  return files;
}

void take_safetensors(const fs::path& directory, ModelFacts& facts) {
  const auto files = weight_files(directory);
  if (files.empty()) return;
  facts.has_weights = true;
  facts.weight_bytes = 0;
  for (const fs::path& file : files) {
    const auto safetensors = checkpoint::Safetensors::open(file);
    facts.weight_bytes += safetensors.file_bytes();
    for (const auto& tensor : safetensors.tensors())
      facts.bytes_by_type[std::string(dtype_name(tensor.dtype))] += tensor.n_bytes;
  }
}

void inspect_directory(const fs::path& directory, ModelFacts& facts) {
  facts.format = "safetensors";
  const fs::path config = directory / "config.json";
  const std::string text = base::read_file(config);
  try {
    take_config(checkpoint::parse_config(text, config.string()), facts);
  } catch (const Error& error) {
    facts.problem = error.what();
    take_unsupported_config(text, facts);
  }
  try {
    take_safetensors(directory, facts);
    // Maps the files and checks every tensor; nothing is read.
    if (facts.has_weights && facts.problem.empty()) checkpoint::Checkpoint::open(directory);
  } catch (const Error& error) {
    if (facts.problem.empty()) facts.problem = error.what();
  }
}

void inspect_gguf(const fs::path& path, ModelFacts& facts) {
  facts.format = "gguf";
  const auto gguf = checkpoint::GgufFile::open(path);
  facts.has_weights = true;
  facts.model_type = gguf.architecture();
  try {
    take_config(checkpoint::make_gguf_config(gguf), facts);
  } catch (const Error& error) {
    facts.problem = error.what();
  }
  facts.weight_bytes = gguf.file_bytes();
  for (const auto& tensor : gguf.tensors()) {
    if (tensor.type == nullptr && facts.problem.empty())
      facts.problem =
          fmt::format("{}: {}: expected a known type, found type {}", path.string(), tensor.name, tensor.type_id);
    facts.bytes_by_type[tensor.type == nullptr ? fmt::format("type {}", tensor.type_id)
                                               : std::string(tensor.type->name)] += tensor.n_bytes;
  }
}

// Text without a system message, between what stands around one where there is one.
std::string find_default_system_text(const ChatTemplate& chat_template) {
  const auto render = [&](std::initializer_list<base::JsonText> messages) {
    ChatRequest request;
    request.messages_json = base::JsonText(messages).text();
    request.now = "2024-05-06T07:08:09";
    return chat_template.render(request);
  };
  const base::JsonText user = {{"role", "user"}, {"content", kUser}};
  const std::string with = render({{{"role", "system"}, {"content", kSystem}}, user});
  const std::string without = render({user});
  const size_t system = with.find(kSystem);
  const size_t user_with = with.find(kUser);
  const size_t user_without = without.find(kUser);
  if (system == std::string::npos || user_with == std::string::npos || user_without == std::string::npos) return "";
  const std::string before = with.substr(0, system);
  const std::string after =
      with.substr(system + std::string_view(kSystem).size(), user_with - system - std::string_view(kSystem).size());
  const std::string said = without.substr(0, user_without);
  if (said.size() <= before.size() + after.size() || !said.starts_with(before) || !said.ends_with(after)) return "";
  return said.substr(before.size(), said.size() - before.size() - after.size());
}

bool serves_all(const Prompter& prompter, BoundaryMode mode, TemplateFacts& facts) {
  try {
    const Prompt context = prompter.make_context(mode);
    for (const char* request : {kUser, "", " ", "\n", "7", "'s", "\u0301"})
      count_cached_tokens(context.ids, prompter.make_request(request).ids, mode, prompter.tokenizer());
    facts.safe_for_any_request = is_safe_for_any_request(context.ids, prompter.tokenizer());
    return true;
  } catch (const Error&) {
    return false;
  }
}

TemplateFacts inspect_template(const std::shared_ptr<const Text>& text) {
  TemplateFacts facts;
  const ChatTemplate& chat_template = text->chat_template();
  facts.names = chat_template.names();
  const Prompter with_system(text, chat_template, FixedPart::from_system_message(kSystem));
  const Prompter user_only(text, chat_template, FixedPart());
  try {
    facts.takes_system_message = with_system.make_request(kUser).text.find(kSystem) != std::string::npos;
  } catch (const Error& error) {
    facts.problem = error.what();
  }
  bool renders_user_only = true;
  try {
    user_only.make_request(kUser);
    facts.problem.clear();  // a template without a system role is no problem in itself
  } catch (const Error& error) {
    renders_user_only = false;
    if (!facts.takes_system_message) return facts;
  }
  facts.reads_clock = (facts.takes_system_message ? with_system : user_only).reads_clock();
  if (!facts.takes_system_message) return facts;
  if (renders_user_only) facts.default_system_text = find_default_system_text(chat_template);
  for (const auto mode : {BoundaryMode::Message, BoundaryMode::Probe, BoundaryMode::Longest}) {
    if (!serves_all(with_system, mode, facts)) continue;
    facts.boundary = mode;
    break;
  }
  return facts;
}

void inspect_text(const std::string& path, ModelFacts& facts) {
  try {
    const auto text = Text::open(path);
    facts.has_tokenizer = true;
    if (!text->chat_template().empty()) facts.chat_template = inspect_template(text);
  } catch (const Error& error) {
    facts.has_tokenizer = error.code() != ErrorCode::NotFound;
    facts.tokenizer_problem = error.what();
  }
}

}  // namespace

ModelFacts inspect_model(const std::string& path) {
  return base::only_errors([&]() -> ModelFacts {
    ModelFacts facts;
    facts.revision = saved::find_revision(path);
    std::error_code error;
    if (fs::is_directory(path, error)) {
      inspect_directory(path, facts);
    } else {
      inspect_gguf(path, facts);
    }
    inspect_text(path, facts);
    return facts;
  });
}

}  // namespace kvfork
