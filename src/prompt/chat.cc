// Reads the chat template and special tokens of a checkpoint, and renders messages with them.

#include "kvfork/chat.h"

#include <algorithm>
#include <filesystem>
#include <mutex>

#include "base/error.h"
#include "base/json_text.h"
#include "base/mapped_file.h"
#include "jinja/builtins/clock.h"
#include "jinja/template.h"
#include "jinja/values/text.h"

namespace kvfork {
namespace {

namespace fs = std::filesystem;
using base::Json;
using base::JsonTree;

constexpr size_t kMaxFile = size_t{64} << 20;
constexpr const char* kContinueTag = "CONTINUE_FINAL_MESSAGE_TAG ";
constexpr const char* kDefault = "default";

// One template; parsed when first used, since a checkpoint may offer some that it never needs.
class Entry {
 public:
  Entry(std::string subject, std::string source) : subject_(std::move(subject)), source_(std::move(source)) {}

  const std::string& source() const noexcept { return source_; }

  const jinja::Template& parsed() const {
    const std::lock_guard lock(mutex_);
    if (!template_) template_.emplace(jinja::Template::parse(source_, subject_));
    return *template_;
  }

 private:
  std::string subject_;
  std::string source_;
  mutable std::mutex mutex_;
  mutable std::optional<jinja::Template> template_;
};

using Entries = std::map<std::string, std::shared_ptr<const Entry>>;

JsonTree parse_config(const std::string& text, const std::string& subject) {
  JsonTree tree = JsonTree::parse(text, subject);
  if (!tree.root().is_object()) tree.root().expected("a JSON object");
  return tree;
}

void add_named(Entries& entries, const std::string& subject, std::string_view name, std::string_view source) {
  entries[std::string(name)] =
      std::make_shared<Entry>(fmt::format("{} (chat_template '{}')", subject, name), std::string(source));
}

void add_config_templates(Entries& entries, const Json& config, const std::string& subject) {
  const auto found = config.find("chat_template");
  if (!found) return;
  if (found->is_string()) {
    entries[kDefault] = std::make_shared<Entry>(subject + " (chat_template)", std::string(found->as_string()));
  } else if (found->is_object()) {
    for (const auto& [name, text] : found->members()) add_named(entries, subject, name, text.as_string());
  } else if (found->is_list()) {
    for (const Json item : found->items()) {
      const auto name = item.find_string("name");
      const auto source = item.find_string("template");
      if (!name || !source) item.expected("an object with name and template");
      add_named(entries, subject, *name, *source);
    }
  } else {
    found->expected("a string, a list or an object");
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

// Special tokens as JSON texts by name; empty where a file takes one back.
using Tokens = std::map<std::string, std::string>;

void add_class_defaults(Tokens& tokens, const Json& config) {
  std::string_view base_name = config.find_string("tokenizer_class").value_or("");
  if (base_name.ends_with("Fast")) base_name.remove_suffix(4);
  for (const ClassDefaults& defaults : kClassDefaults) {
    if (base_name != defaults.name) continue;
    for (const auto& [name, text] : {std::pair("bos_token", defaults.bos),
                                     {"eos_token", defaults.eos},
                                     {"unk_token", defaults.unk},
                                     {"pad_token", defaults.pad}}) {
      if (text != nullptr) tokens[name] = base::quote_json(text);
    }
  }
}

// A token is spelled as text or as an object with its content.
std::optional<std::string_view> token_text(const Json& token) {
  return token.is_string() ? token.as_string() : token.find_string("content");
}

std::string token_json(const Json& token) {
  std::vector<std::string_view> list;
  if (token.is_list()) {
    for (const Json item : token.items()) {
      if (const auto text = token_text(item)) list.push_back(*text);
    }
    return list.empty() ? "" : base::JsonText(list).text();
  }
  const std::string_view text = token_text(token).value_or("");
  return text.empty() ? "" : base::quote_json(text);
}

void add_tokens(Tokens& tokens, const Json& from) {
  for (const char* name : {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token",
                           "mask_token", "additional_special_tokens"}) {
    if (!from.has(name)) continue;
    const auto token = from.find(name);
    tokens[name] = token ? token_json(*token) : "";
  }
  const auto extra = from.find("extra_special_tokens");
  if (!extra || !extra->is_object()) return;
  for (const auto& [name, token] : extra->members()) tokens[std::string(name)] = token_json(token);
}

std::map<std::string, std::string> make_special_variables(const TemplateSources& sources) {
  Tokens tokens;
  for (const auto& [name, text] : sources.special_tokens) tokens[name] = text.empty() ? "" : base::quote_json(text);
  if (sources.tokenizer_config_json) {
    const auto config = parse_config(*sources.tokenizer_config_json, sources.subject + ": tokenizer_config.json");
    add_class_defaults(tokens, config.root());
    add_tokens(tokens, config.root());
    if (sources.special_tokens_map_json && !config.root().has("added_tokens_decoder")) {
      add_tokens(
          tokens,
          parse_config(*sources.special_tokens_map_json, sources.subject + ": special_tokens_map.json").root());
    }
  }
  std::erase_if(tokens, [](const auto& token) { return token.second.empty(); });
  return tokens;
}

bool is_given(const std::string& json) {
  const auto text = jinja::strip(json);
  return !text.empty() && text != "null";
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
    add_config_templates(state->entries, parse_config(*json, sources.subject + ": " + file).root(),
                         sources.subject);
  };
  add_from(sources.tokenizer_config_json, "tokenizer_config.json");
  add_from(sources.chat_template_json, "chat_template.json");
  state->special_variables = make_special_variables(sources);
  return ChatTemplate(std::move(state));
}

ChatTemplate ChatTemplate::from_directory(const std::string& directory) {
  return base::only_errors([&]() -> ChatTemplate {
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
  });
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
  return base::only_errors([&]() -> ChatTemplate {
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
  });
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
  return base::only_errors([&]() -> std::string { return render_with(request, {}); });
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
