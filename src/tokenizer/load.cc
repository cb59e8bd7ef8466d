// From tokenizer.json, or vocab.json and merges.txt, to the parts of a tokenizer.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "tokenizer/bpe.h"
#include "tokenizer/model.h"
#include "tokenizer/unigram.h"

namespace kvfork::tokenizer {
namespace {

Vocabulary read_vocabulary(const Json& json) {
  std::vector<std::pair<std::string_view, int64_t>> entries;
  for (const auto& [token, id] : json.members()) entries.emplace_back(token, id.as_int());
  Vocabulary vocabulary;
  vocabulary.build(entries, json.where());
  return vocabulary;
}

std::pair<std::string_view, std::string_view> split_merge(std::string_view line, const std::string& where,
                                                          size_t rank) {
  const size_t space = line.find(' ');
  if (space == std::string_view::npos || line.find(' ', space + 1) != std::string_view::npos) {
    base::fail(ErrorCode::Corrupt, "{}: expected two tokens with one space between, found \"{}\" as merge {}",
               where, line, rank);
  }
  return {line.substr(0, space), line.substr(space + 1)};
}

// The string and the value of a list of two.
std::optional<std::pair<std::string_view, Json>> read_pair(const Json& json) {
  if (!json.is_list() || json.size() != 2) return std::nullopt;
  auto item = json.items().begin();
  const Json first = *item;
  if (!first.is_string()) return std::nullopt;
  return std::pair(first.as_string(), *++item);
}

Bpe::Merges read_merges(const Json& json) {
  Bpe::Merges merges;
  const std::string where = json.where();
  for (const Json merge : json.items()) {
    if (merge.is_string()) {
      const std::string_view line = merge.as_string();
      // The package skips version lines, without giving them a rank.
      if (!line.starts_with("#version")) merges.push_back(split_merge(line, where, merges.size()));
    } else if (const auto pair = read_pair(merge); pair && pair->second.is_string()) {
      merges.emplace_back(pair->first, pair->second.as_string());
    } else {
      merge.expected(fmt::format("a string or a pair of strings as merge {}", merges.size()));
    }
  }
  return merges;
}

std::unique_ptr<TokenModel> make_bpe(const Json& json) {
  if (const auto dropout = json.find("dropout"); dropout && dropout->as_double() != 0) {
    base::fail(ErrorCode::Unsupported, "{}: BPE dropout {} makes ids random and is not supported", json.where(),
               dropout->as_double());
  }
  BpeOptions options;
  if (const auto unk = json.find("unk_token")) options.unk_token = std::string(unk->as_string());
  options.continuing_subword_prefix = json.string_or("continuing_subword_prefix", "");
  options.end_of_word_suffix = json.string_or("end_of_word_suffix", "");
  options.fuse_unk = json.bool_or("fuse_unk", false);
  options.byte_fallback = json.bool_or("byte_fallback", false);
  options.ignore_merges = json.bool_or("ignore_merges", false);
  Vocabulary vocabulary = read_vocabulary(json.get("vocab"));
  const Json merges = json.get("merges");
  return std::make_unique<Bpe>(std::move(vocabulary), read_merges(merges), std::move(options), json.where());
}

std::unique_ptr<TokenModel> make_unigram(const Json& json) {
  std::vector<std::pair<std::string_view, double>> tokens;
  const Json vocab = json.get("vocab");
  for (const Json entry : vocab.items()) {
    const auto pair = read_pair(entry);
    if (!pair || !pair->second.is_number()) entry.expected("a pair of token and score");
    tokens.emplace_back(pair->first, pair->second.as_double());
  }
  std::optional<int64_t> unk_id;
  if (const auto unk = json.find("unk_id")) unk_id = unk->as_int();
  return std::make_unique<Unigram>(tokens, unk_id, json.bool_or("byte_fallback", false), json.where());
}

std::unique_ptr<TokenModel> make_model(const Json& json) {
  std::string_view type = json.string_or("type", "");
  if (type.empty()) {  // files older than the field
    const auto vocab = json.find("vocab");
    type = json.find("merges")                     ? "BPE"
           : vocab && vocab->is_list()             ? "Unigram"
           : json.find("max_input_chars_per_word") ? "WordPiece"
                                                   : "WordLevel";
  }
  if (type == "BPE") return make_bpe(json);
  if (type == "Unigram") return make_unigram(json);
  if (type == "WordLevel") {
    return std::make_unique<WordLevel>(read_vocabulary(json.get("vocab")), json.get("unk_token").as_string(),
                                       json.where());
  }
  base::fail(ErrorCode::Unsupported, "{}: the model \"{}\" is not supported (BPE, Unigram and WordLevel are)",
             json.where(), type);
}

}  // namespace

AddedToken read_added_token(const Json& json, bool is_special) {
  AddedToken token;
  token.content = json.get("content").as_string();
  token.single_word = json.bool_or("single_word", false);
  token.lstrip = json.bool_or("lstrip", false);
  token.rstrip = json.bool_or("rstrip", false);
  token.special = is_special || json.bool_or("special", false);
  token.normalized = json.bool_or("normalized", !token.special);
  return token;
}

std::unique_ptr<Model> load_tokenizer_json(const TokenizerFiles& files) {
  const auto tree = base::JsonTree::parse(*files.tokenizer_json, files.subject + ": tokenizer.json");
  const Json json = tree.root();
  auto model = std::make_unique<Model>();
  model->subject = files.subject;
  model->model = make_model(json.get("model"));
  if (const auto part = json.find("normalizer")) model->normalizer = make_normalizer(*part);
  if (const auto part = json.find("pre_tokenizer")) model->pre_tokenizer = make_pre_tokenizer(*part);
  if (const auto part = json.find("post_processor")) model->post_processor = make_post_processor(*part);
  if (const auto part = json.find("decoder")) model->decoder = Decoder(*part);
  if (const auto part = json.find("added_tokens")) {
    std::vector<AddedToken> tokens;
    for (const Json token : part->items()) tokens.push_back(read_added_token(token, false));
    model->added.add(tokens, *model->model);
  }
  return model;
}

namespace {

struct OldLayout {
  std::string_view class_name, normalizer, pre_tokenizer;
};

constexpr std::string_view kByteLevel = R"({"type":"ByteLevel","add_prefix_space":false,"use_regex":true})";

// What Transformers' convert_slow_tokenizer.py builds for the classes that load from vocab.json and merges.txt.
const OldLayout& get_old_layout(const TokenizerFiles& files) {
  static const OldLayout layouts[] = {
      {"GPT2Tokenizer", "", kByteLevel},
      {"Qwen2Tokenizer", R"({"type":"NFC"})",
       R"({"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":"(?i:'s|'t|'re|'ve|'m|'ll|'d)|)"
       R"([^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},)"
       R"("behavior":"Isolated","invert":false},{"type":"ByteLevel","add_prefix_space":false,"use_regex":false}]})"},
  };
  std::string name = "GPT2Tokenizer";
  if (files.tokenizer_config_json) {
    const auto config =
        base::JsonTree::parse(*files.tokenizer_config_json, files.subject + ": tokenizer_config.json");
    name = config.root().string_or("tokenizer_class", name);
    if (name.ends_with("Fast")) name.resize(name.size() - 4);
  }
  for (const OldLayout& layout : layouts) {
    if (layout.class_name == name) return layout;
  }
  base::fail(
      ErrorCode::Unsupported,
      "{}: vocab.json and merges.txt of a {} are not supported (of GPT2Tokenizer and Qwen2Tokenizer they are)",
      files.subject, name);
}

}  // namespace

std::unique_ptr<Model> load_vocab_and_merges(const TokenizerFiles& files) {
  const OldLayout& layout = get_old_layout(files);
  const auto vocab = base::JsonTree::parse(*files.vocab_json, files.subject + ": vocab.json");
  const std::string where = files.subject + ": merges.txt";
  Bpe::Merges merges;
  const std::string_view lines = *files.merges_txt;
  for (size_t begin = 0; begin < lines.size();) {
    const size_t newline = std::min(lines.find('\n', begin), lines.size());
    std::string_view line = lines.substr(begin, newline - begin);
    begin = newline + 1;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!line.empty() && !line.starts_with("#version")) merges.push_back(split_merge(line, where, merges.size()));
  }
  auto model = std::make_unique<Model>();
  model->subject = files.subject;
  model->model = std::make_unique<Bpe>(read_vocabulary(vocab.root()), merges, BpeOptions(), vocab.root().where());
  if (!layout.normalizer.empty())
    model->normalizer =
        make_normalizer(base::JsonTree::parse(std::string(layout.normalizer), files.subject).root());
  model->pre_tokenizer =
      make_pre_tokenizer(base::JsonTree::parse(std::string(layout.pre_tokenizer), files.subject).root());
  model->decoder = Decoder(base::JsonTree::parse(std::string(kByteLevel), files.subject).root());
  return model;
}

void finish_model(Model& model) {
  model.added.build(*model.model, model.normalizer.get(), model.subject);
  // ByteLevel's characters only stand for bytes: where the model can take the bytes, they are never written out.
  if (auto* bpe = dynamic_cast<Bpe*>(model.model.get()); bpe != nullptr && model.pre_tokenizer != nullptr) {
    if (model.pre_tokenizer->ends_with_byte_level() && bpe->take_plain_bytes())
      model.pre_tokenizer->leave_bytes_plain();
  }
}

}  // namespace kvfork::tokenizer
