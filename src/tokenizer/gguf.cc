// Tokenizers from the vocabulary of a GGUF file. The file names its pre-tokenizer; the rule behind the name is that
// of the model family's own tokenizer.json.
#include <algorithm>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/utf8.h"
#include "tokenizer/bpe.h"
#include "tokenizer/model.h"
#include "tokenizer/unicode.h"

namespace kvfork::tokenizer {
namespace {

enum TokenType : int32_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };

struct PreRule {
  std::string_view name;
  std::string_view normalizer;  // JSON, or empty
  std::string_view pre_tokenizer;
  bool ignore_merges;
};

constexpr PreRule kPreRules[] = {
    {"gpt-2", "", R"({"type":"ByteLevel","add_prefix_space":false,"use_regex":true})", false},
    {"smollm", "",
     R"({"type":"Sequence","pretokenizers":[{"type":"Digits","individual_digits":true},)"
     R"({"type":"ByteLevel","add_prefix_space":false,"use_regex":true}]})",
     false},
    {"qwen2", R"({"type":"NFC"})",
     R"({"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":"(?i:'s|'t|'re|'ve|'m|'ll|'d)|)"
     R"([^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},)"
     R"("behavior":"Isolated","invert":false},{"type":"ByteLevel","add_prefix_space":false,"use_regex":false}]})",
     false},
    {"llama-bpe", "",
     R"({"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":"(?i:'s|'t|'re|'ve|'m|'ll|'d)|)"
     R"([^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},)"
     R"("behavior":"Isolated","invert":false},{"type":"ByteLevel","add_prefix_space":false,"use_regex":false}]})",
     true},
    {"tekken", "",
     R"({"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":")"
     R"([^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+|)"
     R"([^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*|)"
     R"(\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},"behavior":"Isolated","invert":false},)"
     R"({"type":"ByteLevel","add_prefix_space":false,"use_regex":false}]})",
     true},
};

const PreRule& get_pre_rule(const GgufVocabulary& source) {
  const auto* it = std::find_if(std::begin(kPreRules), std::end(kPreRules),
                                [&](const PreRule& r) { return r.name == source.pre; });
  if (it != std::end(kPreRules)) return *it;
  std::string known;
  for (const PreRule& rule : kPreRules) known += (known.empty() ? "" : ", ") + std::string(rule.name);
  base::fail(ErrorCode::Unsupported, "{}: no rule for the pre-tokenizer \"{}\" (tokenizer.ggml.pre); known: {}",
             source.subject, source.pre, known);
}

int32_t type_of(const GgufVocabulary& source, size_t id) {
  return source.types.empty() ? kNormal : source.types[id];
}

void check_sizes(const GgufVocabulary& source) {
  const size_t n = source.tokens.size();
  if (n == 0) base::fail(ErrorCode::Corrupt, "{}: expected tokenizer.ggml.tokens, found none", source.subject);
  if (!source.types.empty() && source.types.size() != n) {
    base::fail(ErrorCode::Corrupt, "{}: expected {} token types, found {}", source.subject, n, source.types.size());
  }
  for (const std::string& token : source.tokens) {
    if (base::find_invalid_utf8(token) != token.size()) {
      base::fail(ErrorCode::Corrupt, "{}: expected UTF-8 tokens, found other bytes", source.subject);
    }
  }
}

Vocabulary make_vocabulary(const GgufVocabulary& source) {
  std::vector<std::pair<std::string_view, int64_t>> entries;
  for (const std::string& token : source.tokens) entries.emplace_back(token, static_cast<int64_t>(entries.size()));
  Vocabulary vocabulary;
  vocabulary.build(entries, source.subject);
  return vocabulary;
}

template <typename Make>
auto from_json(std::string_view text, const std::string& subject, const Make& make) {
  return make(base::JsonTree::parse(std::string(text), subject).root());
}

void load_gpt2(const GgufVocabulary& source, Model& model) {
  const PreRule& rule = get_pre_rule(source);
  Bpe::Merges merges;
  merges.reserve(source.merges.size());
  for (const std::string& line : source.merges) {
    const size_t space = line.find(' ', 1);
    if (space == std::string::npos) {
      base::fail(ErrorCode::Corrupt, "{}: expected two tokens in the merge {}, found \"{}\"", source.subject,
                 merges.size(), line);
    }
    merges.emplace_back(std::string_view(line).substr(0, space), std::string_view(line).substr(space + 1));
  }
  BpeOptions options;
  options.ignore_merges = rule.ignore_merges;
  model.model = std::make_unique<Bpe>(make_vocabulary(source), merges, std::move(options), source.subject);
  if (!rule.normalizer.empty()) model.normalizer = from_json(rule.normalizer, source.subject, make_normalizer);
  model.pre_tokenizer = from_json(rule.pre_tokenizer, source.subject, make_pre_tokenizer);
  model.decoder =
      from_json(R"({"type":"ByteLevel"})", source.subject, [](const Json& json) { return Decoder(json); });
}

struct ScoredMerge {
  std::string_view left, right;
  float score;
  uint32_t n_left, n_right;  // in characters
  int32_t left_id, right_id;
};

// SentencePiece merges the neighbours whose joined piece has the best score. As a list of merges: every way to cut
// a token into two tokens, best score first (Transformers' convert_slow_tokenizer.py, generate_merges).
std::vector<ScoredMerge> derive_merges(const GgufVocabulary& source, const Vocabulary& vocabulary) {
  std::vector<ScoredMerge> merges;
  for (size_t id = 0; id < source.tokens.size(); ++id) {
    const std::string_view token = source.tokens[id];
    // SentencePiece gives user-defined pieces the score 0, before all others; converters write something else.
    const float score = type_of(source, id) == kUserDefined ? 0.0f : source.scores[id];
    uint32_t n_characters = 0;
    for (size_t i = 0; i < token.size(); i += utf8_length(token[i])) ++n_characters;
    const auto first = static_cast<ptrdiff_t>(merges.size());
    uint32_t n_left = 0;
    for (size_t at = 0; at < token.size();) {
      at += utf8_length(token[at]);
      ++n_left;
      if (at >= token.size()) break;
      const int32_t left = vocabulary.find(token.substr(0, at)), right = vocabulary.find(token.substr(at));
      if (left < 0 || right < 0) continue;
      merges.push_back({token.substr(0, at), token.substr(at), score, n_left, n_characters - n_left, left, right});
    }
    std::sort(merges.begin() + first, merges.end(), [](const ScoredMerge& a, const ScoredMerge& b) {
      return std::pair(a.left_id, a.right_id) < std::pair(b.left_id, b.right_id);
    });
  }
  std::stable_sort(merges.begin(), merges.end(), [](const ScoredMerge& a, const ScoredMerge& b) {
    return std::tuple(a.score, a.n_left, a.n_right) > std::tuple(b.score, b.n_left, b.n_right);
  });
  return merges;
}

// No SentencePiece piece holds a space: converters write user-defined runs of U+2581 as spaces.
void restore_metaspace(GgufVocabulary& source) {
  for (std::string& token : source.tokens) {
    if (token.find(' ') == std::string::npos) continue;
    std::string restored;
    for (const char c : token) {
      if (c == ' ')
        restored += "\xE2\x96\x81";
      else
        restored.push_back(c);
    }
    token = std::move(restored);
  }
}

void load_llama(const GgufVocabulary& source, Model& model) {
  if (source.scores.size() != source.tokens.size()) {
    base::fail(ErrorCode::Corrupt, "{}: expected a score for each of {} tokens, found {}", source.subject,
               source.tokens.size(), source.scores.size());
  }
  if (std::any_of(source.scores.begin(), source.scores.end(), [](float s) { return !(s == s); })) {
    base::fail(ErrorCode::Corrupt, "{}: expected numbers as scores, found NaN", source.subject);
  }
  BpeOptions options;
  options.byte_fallback = true;
  options.fuse_unk = true;
  for (size_t id = 0; id < source.tokens.size(); ++id) {
    if (type_of(source, id) == kUnknown) options.unk_token = source.tokens[id];
  }
  if (source.unk_id && *source.unk_id >= 0 && static_cast<size_t>(*source.unk_id) < source.tokens.size()) {
    options.unk_token = source.tokens[static_cast<size_t>(*source.unk_id)];
  }
  Vocabulary vocabulary = make_vocabulary(source);
  Bpe::Merges merges;
  for (const ScoredMerge& merge : derive_merges(source, vocabulary)) merges.emplace_back(merge.left, merge.right);
  model.model = std::make_unique<Bpe>(std::move(vocabulary), merges, std::move(options), source.subject);
  const bool prefix = source.add_space_prefix.value_or(true);
  model.normalizer = from_json(prefix ? R"({"type":"Sequence","normalizers":[{"type":"Prepend","prepend":"▁"},)"
                                        R"({"type":"Replace","pattern":{"String":" "},"content":"▁"}]})"
                                      : R"({"type":"Replace","pattern":{"String":" "},"content":"▁"})",
                               source.subject, make_normalizer);
  const std::string strip = prefix ? R"(,{"type":"Strip","content":" ","start":1,"stop":0})" : "";
  model.decoder =
      from_json(R"({"type":"Sequence","decoders":[{"type":"Replace","pattern":{"String":"▁"},"content":" "},)"
                R"({"type":"ByteFallback"},{"type":"Fuse"})" +
                    strip + "]}",
                source.subject, [](const Json& json) { return Decoder(json); });
}

void add_tokens(const GgufVocabulary& source, Model& model) {
  std::vector<AddedToken> tokens;
  for (size_t id = 0; id < source.tokens.size(); ++id) {
    const int32_t type = type_of(source, id);
    const bool special = type == kControl || (type == kUnknown && source.model == "llama");
    if (!special && type != kUserDefined) continue;
    AddedToken token;
    token.content = source.tokens[id];
    token.normalized = false;
    token.special = special;
    tokens.push_back(std::move(token));
  }
  model.added.add(tokens, *model.model);
}

void set_special_tokens(const GgufVocabulary& source, Model& model) {
  const std::pair<std::string_view, std::optional<int32_t>> named[] = {{"bos_token", source.bos_id},
                                                                       {"eos_token", source.eos_id},
                                                                       {"unk_token", source.unk_id},
                                                                       {"pad_token", source.pad_id}};
  std::vector<std::pair<std::string, int32_t>> before, after;
  for (const auto& [name, id] : named) {
    if (!id) continue;
    if (*id < 0 || static_cast<size_t>(*id) >= source.tokens.size()) {
      base::fail(ErrorCode::Corrupt, "{}: expected the id of {} below {}, found {}", source.subject, name,
                 source.tokens.size(), *id);
    }
    const std::string& token = source.tokens[static_cast<size_t>(*id)];
    model.special_tokens[std::string(name)] = token;
    if (name == "bos_token" && source.add_bos_token.value_or(source.model == "llama"))
      before.emplace_back(token, *id);
    if (name == "eos_token" && source.add_eos_token.value_or(false)) after.emplace_back(token, *id);
  }
  model.post_processor = make_affixes(std::move(before), std::move(after));
}

}  // namespace

std::unique_ptr<Model> load_gguf(const GgufVocabulary& original) {
  GgufVocabulary source = original;
  check_sizes(source);
  if (source.model == "llama") restore_metaspace(source);
  auto model = std::make_unique<Model>();
  model->subject = source.subject;
  if (source.model == "gpt2") {
    load_gpt2(source, *model);
  } else if (source.model == "llama") {
    load_llama(source, *model);
  } else {
    base::fail(ErrorCode::Unsupported, "{}: the tokenizer model \"{}\" is not supported (gpt2 and llama are)",
               source.subject, source.model);
  }
  add_tokens(source, *model);
  set_special_tokens(source, *model);
  return model;
}

}  // namespace kvfork::tokenizer
