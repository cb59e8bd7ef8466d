// What the `tokenizers` package made of the texts in tests/golden/tokenizer (tools/make_tokenizer_goldens.py).
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "kvfork/error.h"
#include "kvfork/tokenizer.h"

namespace kvfork {
namespace {

using nlohmann::json;

std::vector<std::filesystem::path> golden_files() {
  std::vector<std::filesystem::path> files;
  const auto folder = std::filesystem::path(KVFORK_SOURCE_DIR) / "tests/golden/tokenizer";
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".json") files.push_back(entry.path());
  }
  return files;
}

std::optional<std::string> field(const json& files, const char* name) {
  if (!files.contains(name)) return std::nullopt;
  return files[name].is_string() ? files[name].get<std::string>() : files[name].dump();
}

Tokenizer load(const json& entry) {
  TokenizerFiles files;
  files.subject = entry["name"].get<std::string>();
  files.tokenizer_json = field(entry, "tokenizer");
  files.tokenizer_config_json = field(entry, "tokenizer_config");
  files.special_tokens_map_json = field(entry, "special_tokens_map");
  files.added_tokens_json = field(entry, "added_tokens");
  files.vocab_json = field(entry, "vocab");
  files.merges_txt = field(entry, "merges");
  return Tokenizer::from_files(files);
}

std::string stream(const Tokenizer& tokenizer, const std::vector<int32_t>& ids, SpecialTokens special) {
  DecodeStream decoder(tokenizer, special);
  std::string out;
  for (const int32_t id : ids) out += decoder.push(id);
  return out + decoder.finish();
}

void check_decode(const Tokenizer& tokenizer, const json& want) {
  const auto ids = want["ids"].get<std::vector<int32_t>>();
  EXPECT_EQ(tokenizer.decode(ids, SpecialTokens::Keep), want["decoded"].get<std::string>());
  EXPECT_EQ(tokenizer.decode(ids, SpecialTokens::Skip), want["skipped"].get<std::string>());
  EXPECT_EQ(stream(tokenizer, ids, SpecialTokens::Keep), want["decoded"].get<std::string>());
  EXPECT_EQ(stream(tokenizer, ids, SpecialTokens::Skip), want["skipped"].get<std::string>());
}

void check_encode(const Tokenizer& tokenizer, const json& want, const EncodeOptions& options) {
  const auto text = want["text"].get<std::string>();
  EncodeReport report;
  const std::vector<int32_t> ids = tokenizer.encode(text, options, report);
  EXPECT_EQ(ids, want["ids"].get<std::vector<int32_t>>());
  EXPECT_EQ(tokenizer.encode(text, options), ids);
  EXPECT_EQ(report.pieces, want["pieces"].get<std::vector<std::string>>());
  check_decode(tokenizer, want);
}

TEST(TokenizerGolden, AgreesWithThePackageOnEveryComponent) {
  size_t n_tokenizers = 0, n_texts = 0;
  for (const std::filesystem::path& path : golden_files()) {
    std::ifstream file(path);
    const json golden = json::parse(file);
    for (const json& entry : golden["cases"]) {
      SCOPED_TRACE(entry["name"].get<std::string>());
      ++n_tokenizers;
      const Tokenizer tokenizer = load(entry);
      EncodeOptions options;
      options.add_special_tokens = entry["add_special_tokens"].get<bool>();
      for (const json& want : entry.value("encode", json::array())) {
        SCOPED_TRACE(want["text"].dump());
        check_encode(tokenizer, want, options);
        ++n_texts;
      }
      for (const json& want : entry.value("decode", json::array())) {
        SCOPED_TRACE(want["ids"].dump());
        check_decode(tokenizer, want);
        ++n_texts;
      }
      if (entry.contains("special_tokens")) {
        EXPECT_EQ(json(tokenizer.special_tokens()), entry["special_tokens"]);
        EXPECT_EQ(tokenizer.vocab_size(), entry["vocab_size"].get<size_t>());
      }
    }
  }
  EXPECT_GE(n_tokenizers, 100u);
  EXPECT_GE(n_texts, 2000u);
}

}  // namespace
}  // namespace kvfork
