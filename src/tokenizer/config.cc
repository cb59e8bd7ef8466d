// What tokenizer_config.json and its older companions change, after Transformers 4.57.3: tokenization_utils_base.py
// (_from_pretrained), tokenization_utils_fast.py (PreTrainedTokenizerFast.__init__) and the tokenizer classes that
// rebuild their post-processor.
#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "tokenizer/model.h"

namespace kvfork::tokenizer {
namespace {

constexpr std::array<std::string_view, 7> kSpecialNames = {"bos_token", "eos_token", "unk_token", "sep_token",
                                                           "pad_token", "cls_token", "mask_token"};

struct ClassDefaults {
  std::string_view name;
  std::vector<std::pair<std::string_view, std::string_view>> tokens;
  /// The class builds BOS/EOS templates from add_bos_token and add_eos_token.
  bool builds_template = false;
  bool add_bos = false;
};

const ClassDefaults* find_class(std::string_view name) {
  static const std::vector<ClassDefaults> classes = {
      {"LlamaTokenizer", {{"unk_token", "<unk>"}, {"bos_token", "<s>"}, {"eos_token", "</s>"}}, true, true},
      {"GemmaTokenizer",
       {{"unk_token", "<unk>"}, {"bos_token", "<bos>"}, {"eos_token", "<eos>"}, {"pad_token", "<pad>"}},
       true,
       true},
      {"CohereTokenizer",
       {{"unk_token", "<UNK>"}, {"bos_token", "<BOS_TOKEN>"}, {"eos_token", "<|END_OF_TURN_TOKEN|>"}},
       true,
       true},
      {"GPTNeoXTokenizer",
       {{"unk_token", "<|endoftext|>"}, {"bos_token", "<|endoftext|>"}, {"eos_token", "<|endoftext|>"}},
       true,
       false},
      {"Qwen2Tokenizer",
       {{"unk_token", "<|endoftext|>"}, {"eos_token", "<|endoftext|>"}, {"pad_token", "<|endoftext|>"}}},
      {"GPT2Tokenizer",
       {{"unk_token", "<|endoftext|>"}, {"bos_token", "<|endoftext|>"}, {"eos_token", "<|endoftext|>"}}},
      {"BloomTokenizer",
       {{"unk_token", "<unk>"}, {"bos_token", "<s>"}, {"eos_token", "</s>"}, {"pad_token", "<pad>"}}},
  };
  const auto it =
      std::find_if(classes.begin(), classes.end(), [&](const ClassDefaults& c) { return c.name == name; });
  return it == classes.end() ? nullptr : &*it;
}

/// One special token: its text, and its flags when the file gives them.
struct SpecialToken {
  std::string content;
  std::optional<AddedToken> flags;
};

SpecialToken read_special(const Json& json) {
  if (json.is_string()) return {std::string(json.as_string()), std::nullopt};
  AddedToken token = read_added_token(json, true);
  return {token.content, token};
}

struct Config {
  std::string class_name;
  std::map<std::string, SpecialToken> special;
  std::vector<SpecialToken> additional;
  std::map<int64_t, AddedToken> added;
  bool has_added_tokens_decoder = false;
  std::optional<bool> add_bos_token, add_eos_token, add_prefix_space, legacy;
  bool keeps_prefix_space = false;  // add_prefix_space is null: tokenizer.json decides
};

std::optional<bool> optional_bool(const Json& json, std::string_view key) {
  const auto value = json.find(key);
  return value ? std::optional(value->as_bool()) : std::nullopt;
}

void read_special_tokens(const Json& json, Config& config) {
  for (const std::string_view name : kSpecialNames) {
    if (!json.has(name)) continue;
    config.special.erase(std::string(name));  // null means none, against the class's default
    if (const auto value = json.find(name)) config.special[std::string(name)] = read_special(*value);
  }
  const auto add = [&](const Json& value) {
    SpecialToken token = read_special(value);
    const bool known = std::any_of(config.additional.begin(), config.additional.end(),
                                   [&](const SpecialToken& t) { return t.content == token.content; });
    if (!known) config.additional.push_back(std::move(token));
  };
  if (const auto list = json.find("additional_special_tokens"); list && list->is_list()) {
    for (const Json value : list->items()) add(value);
  }
  // Named ones beyond the usual names, which come last. Some versions of Transformers write an empty list.
  if (const auto extra = json.find("extra_special_tokens"); extra && !(extra->is_list() && extra->size() == 0)) {
    for (const auto& [name, value] : extra->members()) add(value);
  }
}

void read_added_tokens_decoder(const Json& json, Config& config) {
  config.has_added_tokens_decoder = true;
  for (const auto& [key, value] : json.members()) {
    int64_t id = 0;
    const bool is_number = !key.empty() && key.size() <= 10 &&
                           std::all_of(key.begin(), key.end(), [](char c) { return c >= '0' && c <= '9'; });
    if (is_number) id = std::stoll(std::string(key));
    if (!is_number)
      base::fail(ErrorCode::Corrupt, "{}: expected token ids as keys, found \"{}\"", json.where(), key);
    config.added[id] = read_added_token(value, false);
  }
}

void read_added_tokens_json(const TokenizerFiles& files, Config& config) {
  const auto tree = base::JsonTree::parse(*files.added_tokens_json, files.subject + ": added_tokens.json");
  for (const auto& [key, value] : tree.root().members()) {
    const std::string_view content = key;  // a name that lambdas may capture
    AddedToken token;
    token.content = content;
    token.special = std::any_of(config.special.begin(), config.special.end(),
                                [&](const auto& entry) { return entry.second.content == content; }) ||
                    std::any_of(config.additional.begin(), config.additional.end(),
                                [&](const SpecialToken& t) { return t.content == content; });
    token.normalized = !token.special;
    config.added[value.as_int()] = token;
  }
}

// The layout before added_tokens_decoder: special_tokens_map.json, added_tokens.json for what is not special, and
// then tokenizer.json's own added tokens count as if they were listed.
void read_legacy_files(const TokenizerFiles& files, const Model& model, Config& config) {
  if (files.special_tokens_map_json) {
    const auto tree =
        base::JsonTree::parse(*files.special_tokens_map_json, files.subject + ": special_tokens_map.json");
    read_special_tokens(tree.root(), config);
  }
  if (files.added_tokens_json) read_added_tokens_json(files, config);
  for (const auto& [id, token] : model.added.tokens()) config.added[id] = token;
}

Config read_config(const TokenizerFiles& files, Model& model) {
  Config config;
  std::optional<base::JsonTree> tree;
  std::optional<Json> json;
  if (files.tokenizer_config_json) {
    tree = base::JsonTree::parse(*files.tokenizer_config_json, files.subject + ": tokenizer_config.json");
    json = tree->root();
    config.class_name = json->string_or("tokenizer_class", "");
    if (config.class_name.ends_with("Fast")) config.class_name.resize(config.class_name.size() - 4);
  }
  if (config.class_name.empty() && !files.tokenizer_json) config.class_name = "GPT2Tokenizer";
  if (const ClassDefaults* defaults = find_class(config.class_name)) {
    for (const auto& [name, token] : defaults->tokens)
      config.special[std::string(name)] = {std::string(token), std::nullopt};
  }
  if (!json) {
    read_legacy_files(files, model, config);
    return config;
  }
  read_special_tokens(*json, config);
  config.add_bos_token = optional_bool(*json, "add_bos_token");
  config.add_eos_token = optional_bool(*json, "add_eos_token");
  config.add_prefix_space = optional_bool(*json, "add_prefix_space");
  config.keeps_prefix_space = json->has("add_prefix_space") && !config.add_prefix_space;
  config.legacy = optional_bool(*json, "legacy");
  model.clean_up_tokenization_spaces = json->bool_or("clean_up_tokenization_spaces", false);
  model.split_special_tokens = json->bool_or("split_special_tokens", false);
  if (const auto decoder = json->find("added_tokens_decoder")) {
    read_added_tokens_decoder(*decoder, config);
  } else {
    read_legacy_files(files, model, config);
  }
  return config;
}

/// All special tokens: named ones in Transformers' order, then the additional ones, without repeats.
std::vector<SpecialToken> all_special(const Config& config) {
  std::vector<SpecialToken> out;
  const auto add = [&out](const SpecialToken& token) {
    const bool seen =
        std::any_of(out.begin(), out.end(), [&](const SpecialToken& t) { return t.content == token.content; });
    if (!seen) out.push_back(token);
  };
  for (const std::string_view name : kSpecialNames) {
    if (const auto it = config.special.find(std::string(name)); it != config.special.end()) add(it->second);
  }
  for (const SpecialToken& token : config.additional) add(token);
  return out;
}

void add_tokens(Model& model, const Config& config) {
  const std::vector<SpecialToken> special = all_special(config);
  const auto is_special_name = [&special](const std::string& content) {
    return std::any_of(special.begin(), special.end(), [&](const SpecialToken& t) { return t.content == content; });
  };
  std::vector<AddedToken> tokens;
  for (const auto& [id, token] : config.added) tokens.push_back(token);
  const size_t n_from_decoder = tokens.size();
  for (const SpecialToken& token : special) {
    const bool in_encoder = model.added.find_id(token.content) >= 0 ||
                            std::any_of(tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(n_from_decoder),
                                        [&](const AddedToken& t) { return t.content == token.content; });
    if (in_encoder) continue;
    AddedToken added = token.flags.value_or(AddedToken());
    added.content = token.content;
    added.special = true;
    if (!token.flags) added.normalized = false;
    tokens.push_back(added);
  }
  for (AddedToken& token : tokens) token.special = token.special || is_special_name(token.content);
  model.added.add(tokens, *model.model);
}

int32_t get_id(const Model& model, const std::string& content) {
  const int32_t id = model.added.find_id(content);
  return id >= 0 ? id : model.model->vocabulary().find(content);
}

void rebuild_template(Model& model, const Config& config, const ClassDefaults& defaults) {
  std::vector<std::pair<std::string, int32_t>> before, after;
  const auto add = [&](std::string_view name, std::string_view option, auto& list) {
    const auto token = config.special.find(std::string(name));
    if (token == config.special.end()) {
      base::fail(ErrorCode::Corrupt, "{}: tokenizer_config.json: {} is true, but there is no {}", model.subject,
                 option, name);
    }
    list.emplace_back(token->second.content, get_id(model, token->second.content));
  };
  if (config.add_bos_token.value_or(defaults.add_bos)) add("bos_token", "add_bos_token", before);
  if (defaults.builds_template && config.add_eos_token.value_or(false)) add("eos_token", "add_eos_token", after);
  model.post_processor = make_affixes(std::move(before), std::move(after));
}

/// Parts that Transformers builds in code, from their JSON.
template <typename Make>
auto from_json(const std::string& text, const Make& make) {
  return make(base::JsonTree::parse(text, "tokenizer_config.json").root());
}

// An explicit add_prefix_space makes LlamaTokenizer rebuild its parts from SentencePiece (LlamaConverter).
void rebuild_llama(Model& model, bool add_prefix_space, bool legacy) {
  const std::string prefix = R"({"type":"Prepend","prepend":"▁"},)";
  const std::string replace = R"({"type":"Replace","pattern":{"String":" "},"content":"▁"})";
  model.normalizer = nullptr;
  model.pre_tokenizer = nullptr;
  if (legacy) {
    model.normalizer =
        from_json(R"({"type":"Sequence","normalizers":[)" + (add_prefix_space ? prefix : "") + replace + "]}",
                  make_normalizer);
  } else {
    model.pre_tokenizer =
        from_json(std::string(R"({"type":"Metaspace","replacement":"▁","split":false,"prepend_scheme":")") +
                      (add_prefix_space ? "first" : "never") + "\"}",
                  make_pre_tokenizer);
  }
  const std::string strip = add_prefix_space ? R"(,{"type":"Strip","content":" ","start":1,"stop":0})" : "";
  model.decoder =
      from_json(R"({"type":"Sequence","decoders":[{"type":"Replace","pattern":{"String":"▁"},"content":" "},)"
                R"({"type":"ByteFallback"},{"type":"Fuse"})" +
                    strip + "]}",
                [](const Json& json) { return Decoder(json); });
}

}  // namespace

void apply_config(Model& model, const TokenizerFiles& files) {
  const Config config = read_config(files, model);
  if (config.class_name == "LlamaTokenizer" && config.add_prefix_space) {
    rebuild_llama(model, *config.add_prefix_space, config.legacy.value_or(true));
  }
  add_tokens(model, config);
  // Without the file there is no say: the package runs tokenizer.json as it is.
  const bool has_say =
      files.tokenizer_config_json && config.class_name != "LlamaTokenizer" && !config.keeps_prefix_space;
  if (has_say && model.pre_tokenizer != nullptr) {
    const bool adds = config.add_prefix_space.value_or(false);
    model.pre_tokenizer->set_add_prefix_space(adds);
    const bool reaches_inside = config.class_name == "CohereTokenizer" || config.class_name == "BloomTokenizer";
    if (adds && reaches_inside) model.pre_tokenizer->add_prefix_spaces();
  }
  // GPT2Converter builds a template for the old layout; with a tokenizer.json the option is not read.
  const bool converts_bos =
      !files.tokenizer_json && config.class_name == "GPT2Tokenizer" && config.add_bos_token.value_or(false);
  if (const ClassDefaults* defaults = find_class(config.class_name);
      defaults != nullptr && (defaults->builds_template || converts_bos)) {
    rebuild_template(model, config, *defaults);
  }
  for (const auto& [name, token] : config.special) {
    if (!token.content.empty()) model.special_tokens[name] = token.content;
  }
  for (const SpecialToken& token : config.additional) model.additional_special_tokens.push_back(token.content);
}

}  // namespace kvfork::tokenizer
