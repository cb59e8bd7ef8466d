// What a Tokenizer holds: the parts of a tokenizer.json, built and connected.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kvfork/tokenizer.h"
#include "tokenizer/added_vocabulary.h"
#include "tokenizer/decoder.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/post_processor.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/token_model.h"

namespace kvfork::tokenizer {

struct Model {
  std::string subject;
  std::unique_ptr<const Normalizer> normalizer;  // may be null, like the next and the post-processor
  std::unique_ptr<PreTokenizer> pre_tokenizer;
  std::unique_ptr<TokenModel> model;
  AddedVocabulary added;
  std::unique_ptr<const PostProcessor> post_processor;
  Decoder decoder;

  // What tokenizer_config.json says.
  bool clean_up_tokenization_spaces = false;
  bool split_special_tokens = false;
  std::map<std::string, std::string> special_tokens;
  std::vector<std::string> additional_special_tokens;
};

/// An added token as files describe it; `is_special` whatever they say.
AddedToken read_added_token(const base::Json& json, bool is_special);

/// Builds the parts of a tokenizer.json. Throws as Tokenizer::from_files.
std::unique_ptr<Model> load_tokenizer_json(const TokenizerFiles& files);
/// Builds a byte-level BPE from vocab.json and merges.txt.
std::unique_ptr<Model> load_vocab_and_merges(const TokenizerFiles& files);
/// Applies tokenizer_config.json, special_tokens_map.json and added_tokens.json as Transformers does.
void apply_config(Model& model, const TokenizerFiles& files);
/// Connects the parts; call once, last.
void finish_model(Model& model);

std::unique_ptr<Model> load_gguf(const GgufVocabulary& vocabulary);

}  // namespace kvfork::tokenizer
