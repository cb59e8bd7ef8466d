// Answer streams: stop strings against a slow definition of where an answer ends.

#include "kvfork/answer_stream.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "kvfork/error.h"

namespace kvfork {
namespace {

// A byte-level vocabulary: id = byte - 'a' for a..z, 26 a space, 27 "ab", 28 "bca", and a special token 29.
Tokenizer make_tokenizer() {
  TokenizerFiles files;
  files.subject = "test";
  std::string vocab;
  for (int i = 0; i < 26; ++i)
    vocab += std::string(i == 0 ? "" : ",") + "\"" + static_cast<char>('a' + i) + "\":" + std::to_string(i);
  vocab += R"(,"Ġ":26,"ab":27,"bca":28)";
  files.tokenizer_json =
      R"({"version":"1.0","truncation":null,"padding":null,"added_tokens":[{"id":29,"content":"<end>","single_word":false,)"
      R"("lstrip":false,"rstrip":false,"normalized":false,"special":true}],"normalizer":null,)"
      R"("pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":true},)"
      R"("post_processor":null,"decoder":{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true,"use_regex":true},)"
      R"("model":{"type":"BPE","dropout":null,"unk_token":null,"continuing_subword_prefix":null,"end_of_word_suffix":null,)"
      R"("fuse_unk":false,"byte_fallback":false,"ignore_merges":false,"vocab":{)" +
      vocab + R"(},"merges":[]}})";
  return Tokenizer::from_files(files);
}

std::vector<int32_t> ids_of(std::string_view letters) {
  std::vector<int32_t> ids;
  for (const char c : letters) ids.push_back(c == ' ' ? 26 : c - 'a');
  return ids;
}

class AnswerStreams : public testing::Test {
 protected:
  Tokenizer tokenizer_ = make_tokenizer();
};

TEST_F(AnswerStreams, CutBeforeTheStopString) {
  const std::vector<std::string> stop = {"cd", "xyz"};
  EXPECT_EQ(answer_text(tokenizer_, ids_of("abcde"), stop), "ab");
  EXPECT_EQ(answer_text(tokenizer_, ids_of("abxyz"), stop), "ab");
  EXPECT_EQ(answer_text(tokenizer_, ids_of("abce"), stop), "abce");
  EXPECT_EQ(answer_text(tokenizer_, ids_of("cdab"), stop), "");
  EXPECT_EQ(answer_text(tokenizer_, ids_of("abcde")), "abcde");
}

TEST_F(AnswerStreams, EndWithTheTokenThatCompletesAStopString) {
  AnswerStream stream(tokenizer_, std::vector<std::string>{"bc"});
  EXPECT_EQ(stream.push(0), "a");
  EXPECT_FALSE(stream.stopped());
  EXPECT_EQ(stream.push(1), "") << "b may begin the stop string";
  EXPECT_FALSE(stream.stopped());
  EXPECT_EQ(stream.push(3), "bd") << "it did not";
  EXPECT_EQ(stream.push(28), "") << "the stop string ends inside this token";
  EXPECT_TRUE(stream.stopped());
  EXPECT_EQ(stream.push(0), "");
  EXPECT_EQ(stream.finish(), "");
}

TEST_F(AnswerStreams, GiveOutAtTheEndWhatMightHaveBeenAStopString) {
  AnswerStream stream(tokenizer_, std::vector<std::string>{"abcd"});
  std::string text;
  for (const int32_t id : ids_of("xxabc")) text += stream.push(id);
  EXPECT_EQ(text, "xx");
  EXPECT_EQ(stream.finish(), "abc");
  EXPECT_FALSE(stream.stopped());
}

TEST_F(AnswerStreams, ASpecialTokenCanBeAStopString) {
  const std::vector<std::string> stop = {"<end>"};
  AnswerStream stream(tokenizer_, stop);
  EXPECT_EQ(stream.push(0), "a");
  EXPECT_EQ(stream.push(29), "");
  EXPECT_TRUE(stream.stopped());
  EXPECT_EQ(answer_text(tokenizer_, std::vector<int32_t>{0, 29, 1}, stop), "a");
  EXPECT_EQ(answer_text(tokenizer_, std::vector<int32_t>{0, 29, 1}), "ab") << "elsewhere it is no part of the text";
}

TEST_F(AnswerStreams, AnEmptyStopStringIsRefused) {
  EXPECT_THROW(AnswerStream(tokenizer_, std::vector<std::string>{"a", ""}), Error);
}

// The first position at which any prefix of the text holds a stop string, found the slow way.
std::pair<std::string, size_t> cut_slowly(const Tokenizer& tokenizer, std::span<const int32_t> ids,
                                          const std::vector<std::string>& stop) {
  for (size_t n = 1; n <= ids.size(); ++n) {
    const std::string text = tokenizer.decode(ids.first(n), SpecialTokens::Skip);
    size_t cut = std::string::npos;
    for (const std::string& s : stop) cut = std::min(cut, text.find(s));
    if (cut != std::string::npos) return {text.substr(0, cut), n};
  }
  return {tokenizer.decode(ids, SpecialTokens::Skip), ids.size() + 1};
}

TEST_F(AnswerStreams, EqualTheDefinitionOnRandomTexts) {
  std::mt19937 random(31);
  const auto below = [&](size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random); };
  const std::vector<int32_t> alphabet = {0, 1, 2, 26, 27, 28, 29};
  size_t n_stopped = 0;
  for (int i = 0; i < 3000; ++i) {
    std::vector<std::string> stop(1 + below(3));
    for (auto& text : stop) {
      for (size_t n = 1 + below(4); n > 0; --n) text += "abc "[below(4)];
    }
    std::vector<int32_t> ids(below(25));
    for (auto& id : ids) id = alphabet[below(alphabet.size())];
    const auto [expected, expected_n] = cut_slowly(tokenizer_, ids, stop);
    AnswerStream stream(tokenizer_, stop);
    std::string text;
    size_t n = 0;
    while (n < ids.size() && !stream.stopped()) text += stream.push(ids[n++]);
    n += !stream.stopped();
    text += stream.finish();
    ASSERT_EQ(text, expected);
    ASSERT_EQ(n, expected_n);
    n_stopped += expected_n <= ids.size();
  }
  EXPECT_GT(n_stopped, 500u);
}

}  // namespace
}  // namespace kvfork
