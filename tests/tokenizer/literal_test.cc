// Control tokens that stay plain text: everywhere, or where the text is a user's.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "kvfork/error.h"
#include "kvfork/tokenizer.h"

namespace kvfork {
namespace {

using nlohmann::json;
using Ids = std::vector<int32_t>;

json added(int id, const char* content, json more = json::object()) {
  json token = {{"id", id}, {"content", content}, {"special", true}, {"normalized", false}};
  token.update(more);
  return token;
}

// One id per ASCII character, then the added tokens from 128 on.
json character_tokenizer(std::vector<json> tokens, json normalizer = nullptr) {
  json vocab;
  for (int c = 0; c < 128; ++c) vocab[std::string(1, static_cast<char>(c))] = c;
  return {{"added_tokens", std::move(tokens)},
          {"normalizer", std::move(normalizer)},
          {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", json::array()}}}};
}

Tokenizer load(const json& tokenizer, std::optional<std::string> config = std::nullopt) {
  TokenizerFiles files;
  files.subject = "test";
  files.tokenizer_json = tokenizer.dump();
  files.tokenizer_config_json = std::move(config);
  return Tokenizer::from_files(files);
}

Ids characters(std::string_view text) {
  return Ids(text.begin(), text.end());
}

Ids encode(const Tokenizer& tokenizer, std::string_view text, std::vector<ByteRange> literal) {
  EncodeOptions options;
  options.literal_ranges = std::move(literal);
  return tokenizer.encode(text, options);
}

std::vector<size_t> beginnings(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<size_t> out;
  for (const ByteRange& range : tokenizer.scan_control_tokens(text).first_characters) out.push_back(range.begin);
  return out;
}

TEST(LiteralRanges, KeepControlTokensThatOverlapThem) {
  const Tokenizer tokenizer = load(character_tokenizer({added(128, "<e>")}));
  EXPECT_EQ(encode(tokenizer, "<e>a<e>", {}), (Ids{128, 'a', 128}));
  EXPECT_EQ(encode(tokenizer, "<e>a<e>", {{0, 1}}), (Ids{'<', 'e', '>', 'a', 128}));
  EXPECT_EQ(encode(tokenizer, "<e>a<e>", {{4, 5}}), (Ids{128, 'a', '<', 'e', '>'}));
  EXPECT_EQ(encode(tokenizer, "<e>a<e>", {{2, 5}}), characters("<e>a<e>"));
  EXPECT_EQ(encode(tokenizer, "<e>a<e>", {{3, 4}}), (Ids{128, 'a', 128})) << "beside both";
}

TEST(LiteralRanges, WhatFollowsAnUnfinishedTokenIsStillFound) {
  const Tokenizer tokenizer = load(character_tokenizer({added(128, "<e>"), added(129, "<<e>>")}));
  EXPECT_EQ(encode(tokenizer, "<<e>>", {}), Ids{129});
  EXPECT_EQ(encode(tokenizer, "<<e>>", {{0, 1}}), (Ids{'<', 128, '>'})) << "the user's < and the template's token";
}

TEST(LiteralRanges, AddedTokensThatAreNotSpecialAreStillCutOut) {
  const Tokenizer tokenizer =
      load(character_tokenizer({added(128, "<e>x"), added(129, "<e>", {{"special", false}})}));
  EXPECT_EQ(encode(tokenizer, "<e>x", {}), Ids{128});
  EXPECT_EQ(encode(tokenizer, "<e>x", {{0, 1}}), (Ids{129, 'x'}));
}

TEST(LiteralRanges, ReachNormalizedText) {
  const json replace = {{"type", "Replace"}, {"pattern", {{"String", "#"}}}, {"content", "<<"}};
  const Tokenizer tokenizer = load(character_tokenizer({added(128, "<<e>", {{"normalized", true}})}, replace));
  EXPECT_EQ(encode(tokenizer, "##e>a#e>", {}), (Ids{'<', '<', 128, 'a', 128}));
  EXPECT_EQ(encode(tokenizer, "##e>a#e>", {{1, 2}}), (Ids{'<', '<', '<', '<', 'e', '>', 'a', 128}));
  EXPECT_EQ(encode(tokenizer, "##e>a#e>", {{5, 6}}), (Ids{'<', '<', 128, 'a', '<', '<', 'e', '>'}));
}

TEST(LiteralRanges, GrowWhereTheNormalizerComposesAcrossTheirEdges) {
  // "e" with U+0301 is one character that NFC makes; the token has it.
  json tokenizer_json = character_tokenizer({added(129, "<é>", {{"normalized", true}})}, {{"type", "NFC"}});
  tokenizer_json["model"]["vocab"]["é"] = 128;
  const Tokenizer tokenizer = load(tokenizer_json);
  EXPECT_EQ(encode(tokenizer, "<e\u0301>", {}), Ids{129});
  EXPECT_EQ(encode(tokenizer, "<e\u0301>", {{1, 2}}), (Ids{'<', 128, '>'}));
  EXPECT_EQ(encode(tokenizer, "<e\u0301>", {{2, 4}}), (Ids{'<', 128, '>'}));
}

TEST(LiteralText, IsRefusedWhereTheModelItselfMakesAControlToken) {
  const json tokenizer_json = {
      {"added_tokens", json::array({added(0, "<s>")})},
      {"model",
       {{"type", "Unigram"},
        {"unk_id", 4},
        {"vocab", json::parse(R"([["<s>", 0.0], ["<", -3.0], ["s", -3.0], [">", -3.0], ["?", -9.0]])")}}}};
  const Tokenizer tokenizer = load(tokenizer_json);
  EXPECT_EQ(encode(tokenizer, "<s>?", {{3, 4}}), (Ids{0, 4}));
  EXPECT_EQ(encode(tokenizer, "s>", {{0, 1}}), (Ids{2, 3}));
  try {
    encode(tokenizer, "<s>", {{0, 1}});
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::Unsupported);
    EXPECT_NE(std::string(error.what()).find("'<s>'"), std::string::npos) << error.what();
  }
}

TEST(ControlTokenScan, FindsWhatEncodeWould) {
  const Tokenizer tokenizer = load(character_tokenizer(
      {added(128, "<e>"), added(129, "<t>", {{"special", false}}), added(130, "ww", {{"single_word", true}})}));
  EXPECT_EQ(tokenizer.scan_control_tokens("a<e><t>b<e> ww www").found, (Ids{128, 128, 130}));
  EXPECT_EQ(tokenizer.scan_control_tokens("").found, Ids());
  const json lowercase = {{"type", "Lowercase"}};
  EXPECT_EQ(load(character_tokenizer({added(128, "<e>", {{"normalized", true}})}, lowercase))
                .scan_control_tokens("<E>")
                .found,
            Ids{128});
  EXPECT_EQ(load(character_tokenizer({added(128, "<e>")}, lowercase)).scan_control_tokens("<E>").found, Ids());
}

TEST(ControlTokenScan, NamesEveryBeginning) {
  const Tokenizer tokenizer =
      load(character_tokenizer({added(128, "<e>"), added(129, "<<e>x"), added(130, "[x]")}));
  EXPECT_EQ(beginnings(tokenizer, "a<e>b"), std::vector<size_t>{1});
  EXPECT_EQ(beginnings(tokenizer, "<<e>x"), (std::vector<size_t>{0, 1})) << "one inside another";
  EXPECT_EQ(beginnings(tokenizer, "a < b <e"), std::vector<size_t>{6}) << "broken off at the end alone";
  EXPECT_EQ(beginnings(tokenizer, "<e \n"), std::vector<size_t>{0}) << "a template may take the white space away";
  EXPECT_EQ(beginnings(tokenizer, "x]e>"), std::vector<size_t>());
  EXPECT_EQ(beginnings(tokenizer, "\xED\xA0\x80<e>"), std::vector<size_t>{3}) << "beside a lone surrogate";
}

TEST(ControlTokenScan, NormalizedTokensMayBeginAnywhere) {
  const json lowercase = {{"type", "Lowercase"}};
  const Tokenizer tokenizer = load(character_tokenizer({added(128, "<e>", {{"normalized", true}})}, lowercase));
  EXPECT_EQ(beginnings(tokenizer, "aéb"), (std::vector<size_t>{0, 1, 3}));
}

TEST(ControlTokenScan, SplitSpecialTokensLeavesNone) {
  const Tokenizer tokenizer = load(character_tokenizer({added(128, "<e>")}), R"({"split_special_tokens": true})");
  EXPECT_EQ(tokenizer.encode("<e>"), characters("<e>"));
  EXPECT_EQ(tokenizer.scan_control_tokens("<e>").found, Ids());
}

}  // namespace
}  // namespace kvfork
