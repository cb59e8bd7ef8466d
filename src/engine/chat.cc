#include "kvfork/chat.h"

#include <algorithm>
#include <filesystem>
#include <mutex>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json_depth.h"
#include "base/mapped_file.h"
#include "jinja/clock.h"
#include "jinja/template.h"
#include "jinja/text.h"

namespace kvfork {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr size_t kMaxFile = size_t{64} << 20;
constexpr const char* kContinueTag = "CONTINUE_FINAL_MESSAGE_TAG ";
constexpr const char* kDefault = "default";

// One template; parsed when first used, since a checkpoint may offer some that it never needs.
class Entry {
 public:
  Entry(std::string subject, std::string source) : subject_(std::move(subject)), source_(std::move(source)) {}

  const std::string& source() const noexcept { return source_; }

  const jinja::Template& parsed() const {
    std::call_once(once_, [&] { template_.emplace(jinja::Template::parse(source_, subject_)); });
    return *template_;
  }

 private:
  std::string subject_;
  std::string source_;
  mutable std::once_flag once_;
  mutable std::optional<jinja::Template> template_;
};

using Entries = std::map<std::string, std::shared_ptr<const Entry>>;

Json parse_config(const std::string& text, const std::string& subject) {
  if (base::is_too_deep_json(text))
    base::fail(ErrorCode::Corrupt, "{}: expected JSON, found too many levels of it", subject);
  Json json = Json::parse(text, nullptr, false);
  if (json.is_discarded())
    base::fail(ErrorCode::Corrupt, "{}: expected JSON, found {}", subject,
               text.empty() ? "an empty file" : "other text");
  if (!json.is_object())
    base::fail(ErrorCode::Corrupt, "{}: expected a JSON object, found {}", subject, json.type_name());
  return json;
}

const std::string* find_text(const Json& object, const char* key) {
  auto found = object.find(key);
  return found == object.end() || !found->is_string() ? nullptr : found->get_ptr<const std::string*>();
}

void add_config_templates(Entries& entries, const Json& config, const std::string& subject) {
  auto found = config.find("chat_template");
  if (found == config.end() || found->is_null()) return;
  if (found->is_string()) {
    entries[kDefault] = std::make_shared<Entry>(subject + " (chat_template)", found->get<std::string>());
    return;
  }
  if (found->is_object()) {
    for (const auto& [name, text] : found->items()) {
      if (!text.is_string())
        base::fail(ErrorCode::Corrupt, "{}: chat_template.{}: expected a string, found {}", subject, name,
                   text.type_name());
      entries[name] = std::make_shared<Entry>(subject + " (chat_template '" + name + "')", text.get<std::string>());
    }
    return;
  }
  if (!found->is_array()) {
    base::fail(ErrorCode::Corrupt, "{}: chat_template: expected a string, a list or an object, found {}", subject,
               found->type_name());
  }
  for (const Json& item : *found) {
    const std::string* name = item.is_object() ? find_text(item, "name") : nullptr;
    const std::string* text = item.is_object() ? find_text(item, "template") : nullptr;
    if (name == nullptr || text == nullptr) {
      base::fail(ErrorCode::Corrupt, "{}: chat_template: expected objects with name and template, found {}",
                 subject, item.type_name());
    }
    entries[*name] = std::make_shared<Entry>(subject + " (chat_template '" + *name + "')", *text);
  }
}

// Special tokens that a tokenizer class sets where its config is silent (Transformers 4.57.3, the classes'
// signatures).
struct ClassDefaults {
  const char* name;
  const char* bos;
  const char* eos;
  const char* unk;
  const char* pad;
};
constexpr ClassDefaults kClassDefaults[] = {
    {"LlamaTokenizer", "<s>", "</s>", "<unk>", nullptr},
    {"CodeLlamaTokenizer", "<s>", "</s>", "<unk>", nullptr},
    {"GemmaTokenizer", "<bos>", "<eos>", "<unk>", "<pad>"},
    {"GPT2Tokenizer", "<|endoftext|>", "<|endoftext|>", "<|endoftext|>", nullptr},
    {"GPTNeoXTokenizer", "<|endoftext|>", "<|endoftext|>", "<|endoftext|>", nullptr},
    {"Qwen2Tokenizer", nullptr, "<|endoftext|>", "<|endoftext|>", "<|endoftext|>"},
    {"CohereTokenizer", "<BOS_TOKEN>", "<|END_OF_TURN_TOKEN|>", "<UNK>", nullptr},
    {"BloomTokenizer", "<s>", "</s>", "<unk>", "<pad>"},
};

void add_class_defaults(Json& tokens, const Json& config) {
  const std::string* name = find_text(config, "tokenizer_class");
  if (name == nullptr) return;
  std::string base_name = name->ends_with("Fast") ? name->substr(0, name->size() - 4) : *name;
  for (const ClassDefaults& defaults : kClassDefaults) {
    if (base_name != defaults.name) continue;
    if (defaults.bos != nullptr) tokens["bos_token"] = defaults.bos;
    if (defaults.eos != nullptr) tokens["eos_token"] = defaults.eos;
    if (defaults.unk != nullptr) tokens["unk_token"] = defaults.unk;
    if (defaults.pad != nullptr) tokens["pad_token"] = defaults.pad;
  }
}

// A token is spelled as text or as an object with its content.
Json token_text(const Json& token) {
  if (token.is_string()) return token;
  if (token.is_object()) {
    if (const std::string* content = find_text(token, "content")) return *content;
  }
  if (!token.is_array()) return nullptr;
  Json list = Json::array();
  for (const Json& item : token) {
    Json text = token_text(item);
    if (text.is_string()) list.push_back(std::move(text));
  }
  return list;
}

void add_tokens(Json& tokens, const Json& from) {
  for (const char* name : {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token",
                           "mask_token", "additional_special_tokens"}) {
    if (auto found = from.find(name); found != from.end()) tokens[name] = token_text(*found);
  }
  auto extra = from.find("extra_special_tokens");
  if (extra == from.end() || !extra->is_object()) return;
  for (const auto& [name, token] : extra->items()) tokens[name] = token_text(token);
}

std::map<std::string, std::string> make_special_variables(const TemplateSources& sources) {
  Json tokens = Json::object();
  for (const auto& [name, text] : sources.special_tokens) tokens[name] = text;
  if (sources.tokenizer_config_json) {
    Json config = parse_config(*sources.tokenizer_config_json, sources.subject + ": tokenizer_config.json");
    add_class_defaults(tokens, config);
    add_tokens(tokens, config);
    if (sources.special_tokens_map_json && !config.contains("added_tokens_decoder")) {
      add_tokens(tokens,
                 parse_config(*sources.special_tokens_map_json, sources.subject + ": special_tokens_map.json"));
    }
  }
  std::map<std::string, std::string> variables;
  for (const auto& [name, token] : tokens.items()) {
    bool present =
        (token.is_string() && !token.get_ref<const std::string&>().empty()) || (token.is_array() && !token.empty());
    if (present) variables[name] = token.dump();
  }
  return variables;
}

bool is_given(const std::string& json) {
  return jinja::strip(json) != "" && jinja::strip(json) != "null";
}

}  // namespace

struct ChatTemplate::State {
  std::string subject;
  Entries entries;
  // One template that is used for every request, whatever the tools; Transformers' "a string, not a dict".
  std::shared_ptr<const Entry> single;
  std::map<std::string, std::string> special_variables;

  std::string joined_names() const {
    std::string out;
    for (const auto& [name, entry] : entries) out += (out.empty() ? "" : ", ") + name;
    return out;
  }

  const Entry& choose(Tools tools) const {
    if (single) return *single;
    if (entries.empty()) {
      base::fail(
          ErrorCode::Template,
          "{}: expected a chat template, found none; a base model takes plain text, and --template FILE gives one",
          subject);
    }
    auto named = entries.end();
    if (tools == Tools::Given) named = entries.find("tool_use");
    if (named == entries.end()) named = entries.find(kDefault);
    if (named == entries.end()) {
      base::fail(ErrorCode::Template,
                 "{}: expected a default chat template, found only {}; choose one with --template", subject,
                 joined_names());
    }
    return *named->second;
  }
};

ChatTemplate::ChatTemplate() : ChatTemplate(std::make_shared<State>()) {}
ChatTemplate::ChatTemplate(std::shared_ptr<const State> state) : state_(std::move(state)) {}

ChatTemplate ChatTemplate::from_sources(const TemplateSources& sources) {
  auto state = std::make_shared<State>();
  state->subject = sources.subject;
  if (sources.chat_template_jinja) {
    state->entries[kDefault] =
        std::make_shared<Entry>(sources.subject + " (chat template)", *sources.chat_template_jinja);
  }
  for (const auto& [name, text] : sources.additional) {
    state->entries[name] = std::make_shared<Entry>(sources.subject + " (chat template '" + name + "')", text);
  }
  // Files of their own win over the configuration as a whole, not name by name.
  const auto add_from = [&](const std::optional<std::string>& json, const char* file) {
    if (!state->entries.empty() || !json) return;
    add_config_templates(state->entries, parse_config(*json, sources.subject + ": " + file), sources.subject);
  };
  add_from(sources.tokenizer_config_json, "tokenizer_config.json");
  add_from(sources.chat_template_json, "chat_template.json");
  state->special_variables = make_special_variables(sources);
  return ChatTemplate(std::move(state));
}

ChatTemplate ChatTemplate::from_directory(const std::string& directory) {
  fs::path path(directory);
  TemplateSources sources;
  sources.subject = directory;
  sources.chat_template_jinja = base::read_file_if_present(path / "chat_template.jinja", kMaxFile);
  sources.tokenizer_config_json = base::read_file_if_present(path / "tokenizer_config.json", kMaxFile);
  sources.chat_template_json = base::read_file_if_present(path / "chat_template.json", kMaxFile);
  sources.special_tokens_map_json = base::read_file_if_present(path / "special_tokens_map.json", kMaxFile);
  std::error_code error;
  for (const auto& file : fs::directory_iterator(path / "additional_chat_templates", error)) {
    if (file.path().extension() != ".jinja") continue;
    sources.additional.emplace_back(file.path().stem().string(), base::read_file(file.path(), kMaxFile));
  }
  return from_sources(sources);
}

bool ChatTemplate::empty() const noexcept {
  return state_->entries.empty() && !state_->single;
}

std::vector<std::string> ChatTemplate::names() const {
  std::vector<std::string> out;
  for (const auto& [name, entry] : state_->entries) out.push_back(name);
  return out;
}

ChatTemplate ChatTemplate::with_override(const std::string& name_or_file) const {
  if (name_or_file.empty()) return *this;
  auto state = std::make_shared<State>(*state_);
  if (auto found = state->entries.find(name_or_file); found != state->entries.end()) {
    state->single = found->second;
    return ChatTemplate(std::move(state));
  }
  std::error_code error;
  if (!fs::exists(name_or_file, error)) {
    base::fail(ErrorCode::NotFound,
               "{}: expected the name of a chat template or a file, found neither; the names here are: {}",
               name_or_file, empty() ? "none" : state->joined_names());
  }
  state->single = std::make_shared<Entry>(name_or_file, base::read_file(name_or_file, kMaxFile));
  return ChatTemplate(std::move(state));
}

ChatTemplate ChatTemplate::with_source(std::string source) const {
  auto state = std::make_shared<State>(*state_);
  state->single = std::make_shared<Entry>(state->subject + " (chat template of a context)", std::move(source));
  return ChatTemplate(std::move(state));
}

const std::string& ChatTemplate::source(Tools tools) const {
  return state_->choose(tools).source();
}

const std::map<std::string, std::string>& ChatTemplate::special_variables() const noexcept {
  return state_->special_variables;
}

namespace {

// Cuts the text where the tag stands, as Transformers does: behind the final message as the template left it.
std::string cut_at_tag(std::string text, const std::string& final_message) {
  std::string_view tag = kContinueTag;
  std::string_view bare_tag = jinja::strip(tag);
  size_t at = text.rfind(bare_tag);
  if (at == std::string::npos || text.find(jinja::strip(final_message)) == std::string::npos) {
    base::fail(
        ErrorCode::Template,
        "continue_final_message is set but the final message does not appear in the chat after applying the chat "
        "template! This can happen if the chat template deletes portions of the final message. Please verify the "
        "chat template and final message in your chat to ensure they are compatible.");
  }
  bool spacing_kept = std::string_view(text).substr(at, tag.size()) == tag;
  text.resize(at);
  return spacing_kept ? text : std::string(jinja::strip_right(text));
}

void check_variables(const ChatRequest& request) {
  for (const auto& [name, json] : request.vars) {
    for (const char* reserved : {"messages", "conversation", "tools", "documents", "add_generation_prompt",
                                 "continue_final_message", "chat_template", "tokenize"}) {
      if (name == reserved) {
        base::fail(ErrorCode::InvalidArgument,
                   "the variable '{}': expected a name of your own; this one has an option", name);
      }
    }
  }
}

}  // namespace

std::string ChatTemplate::render(const ChatRequest& request) const {
  return render_with(request, {});
}

std::string ChatTemplate::render_with(const ChatRequest& request,
                                      const std::function<void(std::string&)>& on_text) const {
  if (request.add_generation_prompt && request.continue_final_message) {
    base::fail(
        ErrorCode::InvalidArgument,
        "continue_final_message and add_generation_prompt are not compatible. Use continue_final_message when you "
        "want the model to continue the final message, and add_generation_prompt when you want to add a header "
        "that will prompt it to start a new assistant message instead.");
  }
  check_variables(request);
  bool has_tools = is_given(request.tools_json);
  const Entry& entry = state_->choose(has_tools ? Tools::Given : Tools::Absent);

  jinja::RenderInput input;
  for (const auto& [name, json] : state_->special_variables) input.variables.emplace_back(name, json);
  for (const auto& [name, json] : request.vars) input.variables.emplace_back(name, json);
  input.variables.emplace_back("messages", request.messages_json);
  input.variables.emplace_back("tools", has_tools ? request.tools_json : "null");
  input.variables.emplace_back("documents", is_given(request.documents_json) ? request.documents_json : "null");
  input.variables.emplace_back("add_generation_prompt", request.add_generation_prompt ? "true" : "false");
  input.now = request.now ? jinja::parse_local_time(*request.now) : jinja::system_local_time();
  input.check_conversation = true;
  input.on_text = on_text;
  if (request.continue_final_message) input.continue_tag = kContinueTag;

  jinja::Rendering rendering = entry.parsed().render(input);
  if (!request.continue_final_message) return std::move(rendering.text);
  return cut_at_tag(std::move(rendering.text), rendering.final_message);
}

}  // namespace kvfork
