// Rules of a tokenizer.json that would never end, or would ask for any amount of memory.
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "kvfork/error.h"
#include "kvfork/tokenizer.h"

namespace kvfork {
namespace {

// A model of single letters; `parts` is the rest of a tokenizer.json.
Tokenizer load(const std::string& parts) {
  TokenizerFiles files;
  files.subject = "test";
  files.tokenizer_json =
      R"({"model":{"type":"BPE","merges":["a b"],"unk_token":"?","vocab":{"?":0,"a":1,"b":2,"c":3,)"
      R"("ab":4,"é😀":5,"":6,"\u00c3":7}}, )" +
      parts + "}";
  return Tokenizer::from_files(files);
}

std::string decoded(const std::string& decoder, const std::vector<int32_t>& ids) {
  return load(R"("decoder": )" + decoder).decode(ids, SpecialTokens::Keep);
}

std::string replace(const std::string& from, const std::string& to) {
  return R"({"type":"Replace","pattern":{"String":")" + from + R"("},"content":")" + to + R"("})";
}

// Six replacements of "a", each by 100 of it: 10^12 bytes of one letter.
std::string six_replacements(const std::string& type_of_list, const std::string& first = "") {
  std::string list = first;
  for (int i = 0; i < 6; ++i) list += (list.empty() ? "" : ",") + replace("a", std::string(100, 'a'));
  return R"({"type":"Sequence",")" + type_of_list + R"(":[)" + list + "]}";
}

template <typename Action>
void expect_limit(const Action& action) {
  try {
    action();
    ADD_FAILURE() << "expected a limit";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::Limit) << error.what();
  }
}

// What the package (tokenizers 0.22.2) gives: between all characters, and at both ends; nothing in the last token.
TEST(EmptyPatterns, AnEmptySuffixEnds) {
  const std::string decoder = R"({"type":"BPEDecoder","suffix":""})";
  EXPECT_EQ(decoded(decoder, {4, 3}), " a b c");
  EXPECT_EQ(decoded(decoder, {1}), "a");
  EXPECT_EQ(decoded(decoder, {5, 2, 6}), " é 😀  b ");
  EXPECT_EQ(
      decoded(R"({"type":"Sequence","decoders":[{"type":"Fuse"},{"type":"BPEDecoder","suffix":""}]})", {4, 3}),
      "abc");
}

TEST(EmptyPatterns, AnEmptyReplacementEnds) {
  EXPECT_EQ(decoded(replace("", "x"), {4, 3}), "xaxbxxcx");
  EXPECT_EQ(decoded(replace("", ""), {4, 3}), "abc");
  EXPECT_EQ(decoded(R"({"type":"Sequence","decoders":[{"type":"Fuse"},)" + replace("", "x") + "]}", {4, 3}),
            "xaxbxcx");
  const Tokenizer tokenizer = load(R"("normalizer": )" + replace("", "c"));
  EXPECT_EQ(tokenizer.encode("ab"), (std::vector<int32_t>{3, 1, 3, 2, 3}));
}

TEST(EmptyPatterns, AnEmptySplitEnds) {
  const std::string split = R"("pre_tokenizer":{"type":"Split","invert":false,"behavior":"Isolated","pattern":)";
  EXPECT_EQ(load(split + R"({"String":""}})").encode("abc"), (std::vector<int32_t>{1, 2, 3}));
  EXPECT_EQ(load(split + R"({"Regex":""}})").encode("abc"), (std::vector<int32_t>{1, 2, 3}));
  EXPECT_EQ(load(split + R"({"Regex":"c*"}})").encode("abc"), (std::vector<int32_t>{1, 2, 3}));
}

TEST(EmptyPatterns, AnEmptyAddedTokenIsPassedOver) {
  const Tokenizer tokenizer =
      load(R"("added_tokens":[{"id":9,"content":"","special":true},{"id":10,"content":"","normalized":true}])");
  EXPECT_EQ(tokenizer.encode("ab"), (std::vector<int32_t>{4}));
}

TEST(HostileRules, NormalizersAreBounded) {
  expect_limit([] { load(R"("normalizer": )" + six_replacements("normalizers")).encode("a"); });
  std::string byte_levels = R"({"type":"ByteLevel"})";
  for (int i = 0; i < 40; ++i) byte_levels += R"(,{"type":"ByteLevel"})";
  expect_limit(
      [&] { load(R"("normalizer":{"type":"Sequence","normalizers":[)" + byte_levels + "]}").encode("é"); });
  std::string regexes;
  for (int i = 0; i < 6; ++i)
    regexes += std::string(i == 0 ? "" : ",") + R"({"type":"Replace","pattern":{"Regex":"."},"content":")" +
               std::string(100, 'a') + "\"}";
  expect_limit([&] { load(R"("normalizer":{"type":"Sequence","normalizers":[)" + regexes + "]}").encode("a"); });
}

TEST(HostileRules, PreTokenizersAreBounded) {
  std::string steps;
  for (int i = 0; i < 40; ++i)
    steps += std::string(i == 0 ? "" : ",") + R"({"type":"ByteLevel","add_prefix_space":false,"use_regex":false})";
  expect_limit([&] { load(R"("pre_tokenizer":{"type":"Sequence","pretokenizers":[)" + steps + "]}").encode("é"); });
}

TEST(HostileRules, DecodersAreBounded) {
  expect_limit([] { decoded(six_replacements("decoders"), {1}); });
  expect_limit([] { decoded(six_replacements("decoders", R"({"type":"Fuse"})"), {1}); });
  std::string regexes = R"({"type":"Fuse"})";
  for (int i = 0; i < 8; ++i)
    regexes += R"(,{"type":"Replace","pattern":{"Regex":"a"},"content":")" + std::string(40, 'a') + "\"}";
  expect_limit([&] { decoded(R"({"type":"Sequence","decoders":[)" + regexes + "]}", {1}); });
}

TEST(HostileRules, WhatOrdinaryRulesMakeOfLongTextsIsFine) {
  const std::string text(size_t{1} << 20, ' ');
  const Tokenizer tokenizer = load(R"("normalizer": )" + replace(" ", "a"));
  EXPECT_EQ(tokenizer.encode(text).size(), text.size());
  EXPECT_EQ(load(R"("normalizer": )" + replace("a", std::string(1000, 'b'))).encode("aaa").size(), 3000u);
}

}  // namespace
}  // namespace kvfork
