// Whole tokenizers: ids, decoded text, streams, threads and hostile files.

#include "kvfork/tokenizer.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "kvfork/error.h"

namespace kvfork {
namespace {

using nlohmann::json;

json byte_level_json() {
  json vocab, merges = json::array({json::array({"h", "e"}), "l l"});
  int id = 0;
  for (const char* token : {"h", "e", "l", "o", "Ġ", "w", "r", "d", "he", "ll", "Ã", "©", "æ", "Ĺ", "¥"})
    vocab[token] = id++;
  return {{"version", "1.0"},
          {"added_tokens",
           json::array({{{"id", 15}, {"content", "<|end|>"}, {"special", true}, {"normalized", false}}})},
          {"normalizer", nullptr},
          {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}}},
          {"post_processor", nullptr},
          {"decoder", {{"type", "ByteLevel"}}},
          {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", merges}}}};
}

Tokenizer load(const json& tokenizer, const json& config = nullptr) {
  TokenizerFiles files;
  files.subject = "test";
  files.tokenizer_json = tokenizer.dump();
  if (!config.is_null()) files.tokenizer_config_json = config.dump();
  return Tokenizer::from_files(files);
}

template <typename Function>
void expect_error(ErrorCode code, std::string_view part, const Function& function) {
  try {
    function();
    ADD_FAILURE() << "expected an error with \"" << part << "\"";
  } catch (const Error& e) {
    EXPECT_EQ(static_cast<int>(e.code()), static_cast<int>(code)) << e.what();
    EXPECT_NE(std::string_view(e.what()).find(part), std::string_view::npos) << e.what();
  }
}

using Ids = std::vector<int32_t>;

TEST(Tokenizer, EncodesAndDecodesByteLevelText) {
  const Tokenizer tokenizer = load(byte_level_json());
  EXPECT_EQ(tokenizer.encode("hello world"), (Ids{8, 9, 3, 4, 5, 3, 6, 2, 7}));
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("hello world"), SpecialTokens::Keep), "hello world");
  EXPECT_EQ(tokenizer.encode(""), Ids());
}

TEST(Tokenizer, ReportsControlTokensAndDroppedBytes) {
  const Tokenizer tokenizer = load(byte_level_json());
  EncodeReport report;
  EXPECT_EQ(tokenizer.encode("hx<|end|>\x01", {}, report), (Ids{0, 15}));
  ASSERT_EQ(report.control_tokens.size(), 1u);
  EXPECT_EQ(report.control_tokens[0].id, 15);
  EXPECT_EQ(report.control_tokens[0].position, 2u);
  EXPECT_EQ(report.n_dropped_bytes, 2u);
  EXPECT_EQ(report.dropped, (std::vector<std::string>{"x", "\x01"}));
  EXPECT_EQ(report.pieces, (std::vector<std::string>{"h", "<|end|>"}));
}

TEST(Tokenizer, LiteralSpecialTokensStayText) {
  const Tokenizer tokenizer = load(byte_level_json());
  EncodeOptions options;
  options.literal_special_tokens = true;
  EXPECT_EQ(tokenizer.encode("h<|end|>", options),
            (Ids{0, 1, 7}));  // of "<|end|>" only e and d are in the vocabulary
}

// As AutoTokenizer gives them.
TEST(Tokenizer, ExtraSpecialTokensAreAddedAndSpecial) {
  const Tokenizer tokenizer =
      load(byte_level_json(), {{"extra_special_tokens", {{"image_token", "<A>"}, {"end", "<|end|>"}}}});
  EXPECT_EQ(tokenizer.encode("h<A>o<|end|>"), (Ids{0, 16, 3, 15}));
  EXPECT_EQ(tokenizer.decode(Ids{0, 16, 3}, SpecialTokens::Skip), "ho");
  EXPECT_EQ(load(byte_level_json(), {{"extra_special_tokens", json::array()}}).encode("h"), (Ids{0}));
  expect_error(ErrorCode::Corrupt, "extra_special_tokens", [] {
    load(byte_level_json(), {{"extra_special_tokens", {"<A>"}}});
  });
}

TEST(Tokenizer, NamesTheByteThatIsNotUtf8) {
  const Tokenizer tokenizer = load(byte_level_json());
  expect_error(ErrorCode::InvalidArgument, "position 2", [&] { tokenizer.encode("he\xFFo"); });
}

TEST(Tokenizer, LooksUpPieces) {
  const Tokenizer tokenizer = load(byte_level_json());
  EXPECT_EQ(tokenizer.piece(8), "he");
  EXPECT_EQ(tokenizer.piece(15), "<|end|>");
  EXPECT_EQ(tokenizer.find_id("ll"), 9);
  EXPECT_EQ(tokenizer.find_id("<|end|>"), 15);
  EXPECT_EQ(tokenizer.find_id("nothing"), std::nullopt);
  EXPECT_TRUE(tokenizer.is_special(15));
  EXPECT_TRUE(tokenizer.is_added(15));
  EXPECT_FALSE(tokenizer.is_special(8));
  EXPECT_EQ(tokenizer.vocab_size(), 16u);
  expect_error(ErrorCode::InvalidArgument, "16", [&] { tokenizer.piece(16); });
  expect_error(ErrorCode::InvalidArgument, "-1", [&] { tokenizer.piece(-1); });
  EXPECT_EQ(tokenizer.decode(Ids{8, 999, -5, 15}, SpecialTokens::Skip), "he");
}

TEST(DecodeStream, NeverEmitsHalfACharacter) {
  const Tokenizer tokenizer = load(byte_level_json());
  DecodeStream stream(tokenizer, SpecialTokens::Skip);
  EXPECT_EQ(stream.push(12), "");  // E6
  EXPECT_EQ(stream.push(13), "");  // 97
  EXPECT_EQ(stream.push(14), "日");
  EXPECT_EQ(stream.push(10), "");  // C3, never finished
  EXPECT_EQ(stream.push(0), "\xEF\xBF\xBDh");
  EXPECT_EQ(stream.push(10), "");
  EXPECT_EQ(stream.finish(), "\xEF\xBF\xBD");
  EXPECT_EQ(stream.finish(), "");
}

TEST(DecodeStream, CleanupJoinsLikeTheWholeDecode) {
  json tokenizer_json = byte_level_json();
  json& vocab = tokenizer_json["model"]["vocab"];
  int id = 100;
  for (const char* token : {".", "?", ",", "'", "n", "t", "s", "v", "m", "Ġ."}) vocab[token] = id++;
  const Tokenizer tokenizer = load(tokenizer_json, {{"clean_up_tokenization_spaces", true}});
  const Ids pool = {4, 4, 4, 100, 101, 102, 103, 104, 105, 106, 107, 108, 109, 0, 1, 6};
  uint32_t state = 1;
  bool changed = false;
  for (int round = 0; round < 3000; ++round) {
    Ids ids;
    for (int i = 0; i < 14; ++i) {
      state = state * 1664525u + 1013904223u;
      ids.push_back(pool[(state >> 16) % pool.size()]);
    }
    DecodeStream stream(tokenizer, SpecialTokens::Keep);
    std::string joined;
    for (const int32_t token : ids) joined += stream.push(token);
    joined += stream.finish();
    const std::string whole = tokenizer.decode(ids, SpecialTokens::Keep);
    std::string expected = tokenizer.decode(ids, SpecialTokens::Keep, Cleanup::Off);
    changed = changed || expected != whole;
    for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{{" .", "."},
                                                                                   {" ?", "?"},
                                                                                   {" !", "!"},
                                                                                   {" ,", ","},
                                                                                   {" ' ", "'"},
                                                                                   {" n't", "n't"},
                                                                                   {" 'm", "'m"},
                                                                                   {" 's", "'s"},
                                                                                   {" 've", "'ve"},
                                                                                   {" 're", "'re"}}) {
      for (size_t at = expected.find(from); at != std::string::npos; at = expected.find(from, at + to.size()))
        expected.replace(at, from.size(), to);
    }
    ASSERT_EQ(whole, expected);
    ASSERT_EQ(joined, expected);
  }
  EXPECT_TRUE(changed);
}

TEST(Tokenizer, LongWordsAgreeWithShortOnes) {
  const Tokenizer tokenizer = load(byte_level_json());
  std::string text;
  Ids expected;
  for (int i = 0; i < 50000; ++i) {
    text += "hell";
    expected.insert(expected.end(), {8, 9});
  }
  EXPECT_EQ(tokenizer.encode(text), expected);
}

TEST(Tokenizer, MayBeUsedFromManyThreads) {
  const Tokenizer tokenizer = load(byte_level_json());
  const Ids expected = tokenizer.encode("hello world hello");
  std::vector<std::thread> threads;
  std::array<bool, 4> same{};
  for (size_t t = 0; t < same.size(); ++t) {
    threads.emplace_back([&, t] {
      same[t] = true;
      for (int i = 0; i < 500; ++i) same[t] = same[t] && tokenizer.encode("hello world hello") == expected;
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const bool ok : same) EXPECT_TRUE(ok);
}

TEST(TokenizerFiles, RefusesHostileTokenizerJson) {
  const json good = byte_level_json();
  const auto with = [&good](const char* pointer, const json& value) {
    json changed = good;
    changed[json::json_pointer(pointer)] = value;
    return changed;
  };
  const std::vector<std::tuple<json, ErrorCode, std::string>> cases = {
      {with("/model/vocab/h", -1), ErrorCode::Corrupt, "-1"},
      {with("/model/vocab/h", 1), ErrorCode::Corrupt, "id 1"},
      {with("/model/vocab/h", 1000000000000000000), ErrorCode::Corrupt, "1000000000000000000"},
      {with("/model/vocab/h", 18446744073709551615u), ErrorCode::Corrupt, "model.vocab"},
      {with("/model/vocab/h", 1.5), ErrorCode::Corrupt, "integer"},
      {with("/model/vocab/h", "x"), ErrorCode::Corrupt, "integer"},
      {with("/model/vocab", json::array()), ErrorCode::Corrupt, "expected an object"},
      {with("/model/merges", json::array({"h zz"})), ErrorCode::Corrupt, "\"zz\""},
      {with("/model/merges", json::array({"h o"})), ErrorCode::Corrupt, "\"ho\""},
      {with("/model/merges", json::array({"ho"})), ErrorCode::Corrupt, "merge 0"},
      {with("/model/merges", json::array({"h e o"})), ErrorCode::Corrupt, "merge 0"},
      {with("/model/merges", json::array({json::array({"h"})})), ErrorCode::Corrupt, "merge 0"},
      {with("/model/merges", 3), ErrorCode::Corrupt, "array"},
      {with("/model/type", "WordPiece"), ErrorCode::Unsupported, "WordPiece"},
      {with("/model/type", 7), ErrorCode::Corrupt, "string"},
      {with("/model/dropout", 0.1), ErrorCode::Unsupported, "dropout"},
      {with("/model", nullptr), ErrorCode::Corrupt, "\"model\""},
      {with("/normalizer", {{"type", "BertNormalizer"}}), ErrorCode::Unsupported, "BertNormalizer"},
      {with("/normalizer", {{"type", "Precompiled"}, {"precompiled_charsmap", "////fwAA"}}), ErrorCode::Corrupt,
       "trie"},
      {with("/pre_tokenizer", {{"type", "BertPreTokenizer"}}), ErrorCode::Unsupported, "BertPreTokenizer"},
      {with("/pre_tokenizer",
            {{"type", "Split"}, {"pattern", {{"Regex", "(a"}}}, {"behavior", "Isolated"}, {"invert", false}}),
       ErrorCode::Corrupt, "unclosed"},
      {with("/pre_tokenizer",
            {{"type", "Split"}, {"pattern", {{"Regex", "(a)\\1"}}}, {"behavior", "Isolated"}, {"invert", false}}),
       ErrorCode::Unsupported, "back reference"},
      {with("/pre_tokenizer", {{"type", "FixedLength"}, {"length", 0}}), ErrorCode::Corrupt, "length"},
      {with("/decoder", {{"type", "WordPiece"}}), ErrorCode::Unsupported, "WordPiece"},
      {with("/post_processor", {{"type", "Other"}}), ErrorCode::Unsupported, "Other"},
      {with("/post_processor", {{"type", "TemplateProcessing"},
                                {"single", json::array({{{"SpecialToken", {{"id", "<x>"}}}}})},
                                {"special_tokens", json::object()}}),
       ErrorCode::Corrupt, "<x>"},
      {with("/added_tokens", json::array({3})), ErrorCode::Corrupt, "added_tokens[0]"},
      {json::array(), ErrorCode::Corrupt, "object"},
  };
  for (const auto& [file, code, part] : cases) {
    SCOPED_TRACE(file.dump().substr(0, 3000));
    expect_error(code, part, [&] { load(file); });
  }
}

TEST(TokenizerFiles, RefusesBrokenJson) {
  TokenizerFiles files;
  files.subject = "test";
  const std::string good = byte_level_json().dump();
  for (const size_t n : {size_t{1}, good.size() / 2, good.size() - 1}) {
    files.tokenizer_json = good.substr(0, n);
    expect_error(ErrorCode::Corrupt, "test: tokenizer.json", [&] { Tokenizer::from_files(files); });
  }
  files.tokenizer_json = std::string(100000, '[');
  expect_error(ErrorCode::Corrupt, "test: tokenizer.json", [&] { Tokenizer::from_files(files); });
  files.tokenizer_json = "{\"model\": \"\xFF\"}";
  expect_error(ErrorCode::Corrupt, "test: tokenizer.json", [&] { Tokenizer::from_files(files); });
  std::string deep = "{\"type\":\"NFC\"}";
  for (int i = 0; i < 100; ++i) deep = "{\"type\":\"Sequence\",\"normalizers\":[" + deep + "]}";
  json nested = byte_level_json();
  nested["normalizer"] = json::parse(deep);
  expect_error(ErrorCode::Corrupt, "nested", [&] { load(nested); });
}

TEST(TokenizerFiles, SaysWhatIsMissing) {
  TokenizerFiles files;
  files.subject = "somewhere";
  expect_error(ErrorCode::NotFound, "somewhere", [&] { Tokenizer::from_files(files); });
}

TEST(TokenizerFiles, ReadsLargeIntegersInTheConfig) {
  TokenizerFiles files;
  files.subject = "test";
  files.tokenizer_json = byte_level_json().dump();
  files.tokenizer_config_json = R"({"model_max_length": 1000000000000000019884624838656, "eos_token": "<|end|>"})";
  EXPECT_EQ(Tokenizer::from_files(files).eos_token(), "<|end|>");
}

GgufVocabulary small_gguf() {
  GgufVocabulary source;
  source.subject = "test.gguf";
  source.model = "gpt2";
  source.pre = "smollm";
  source.tokens = {"<|e|>", "a", "b", "1", "2", "ab", "12", "Ġ"};
  source.types = {3, 1, 1, 1, 1, 1, 1, 1};
  source.merges = {"a b", "1 2"};
  source.eos_id = 0;
  return source;
}

TEST(GgufTokenizer, SmollmSplitsDigits) {
  const Tokenizer tokenizer = Tokenizer::from_gguf(small_gguf());
  EXPECT_EQ(tokenizer.encode("ab12<|e|> a"), (Ids{5, 3, 4, 0, 7, 1}));
  EXPECT_EQ(tokenizer.eos_token(), "<|e|>");
  EXPECT_TRUE(tokenizer.is_special(0));
}

TEST(GgufTokenizer, RefusesWhatItHasNoRuleFor) {
  GgufVocabulary source = small_gguf();
  source.pre = "brand-new";
  expect_error(ErrorCode::Unsupported, "brand-new", [&] { Tokenizer::from_gguf(source); });
  source = small_gguf();
  source.model = "t5";
  expect_error(ErrorCode::Unsupported, "t5", [&] { Tokenizer::from_gguf(source); });
  source = small_gguf();
  source.types.pop_back();
  expect_error(ErrorCode::Corrupt, "token types", [&] { Tokenizer::from_gguf(source); });
  source = small_gguf();
  source.eos_id = 99;
  expect_error(ErrorCode::Corrupt, "99", [&] { Tokenizer::from_gguf(source); });
  source = small_gguf();
  source.merges.push_back("a zz");
  expect_error(ErrorCode::Corrupt, "zz", [&] { Tokenizer::from_gguf(source); });
  source = small_gguf();
  source.tokens[1] = "\xFF";
  expect_error(ErrorCode::Corrupt, "UTF-8", [&] { Tokenizer::from_gguf(source); });
  source = small_gguf();
  source.model = "llama";
  expect_error(ErrorCode::Corrupt, "score", [&] { Tokenizer::from_gguf(source); });
}

TEST(GgufTokenizer, ScoresOrderTheMerges) {
  GgufVocabulary source;
  source.subject = "test.gguf";
  source.model = "llama";
  source.tokens = {"<unk>", "<s>", "▁", "a", "b", "c", "ab", "bc", "▁a", "<0x0A>"};
  source.scores = {0, 0, -1, -2, -3, -4, -6, -5, -7, 0};
  source.types = {2, 3, 1, 1, 1, 1, 1, 1, 1, 6};
  source.bos_id = 1;
  const Tokenizer tokenizer = Tokenizer::from_gguf(source);
  EncodeOptions options;
  options.add_special_tokens = true;
  // "▁abc": bc (-5) wins over ab (-6), then ▁a.
  EXPECT_EQ(tokenizer.encode("abc\n?", options), (Ids{1, 8, 7, 9, 0}));
  EXPECT_EQ(tokenizer.decode(Ids{1, 8, 7}, SpecialTokens::Skip), "abc");
}

}  // namespace
}  // namespace kvfork
