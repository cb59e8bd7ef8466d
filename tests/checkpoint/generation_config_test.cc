// generation_config.json: what is read, what is neutral, and what is refused.

#include "checkpoint/generation_config.h"

#include <gtest/gtest.h>

#include "tests/checkpoint/support.h"

namespace kvfork::checkpoint {
namespace {

using test::expect_error;

// A JSON object of one field.
std::string object(std::string_view field) {
  std::string json = "{";
  json.append(field).append("}");
  return json;
}

GenerationConfig parse(std::string_view json) {
  return parse_generation_config(json, "generation_config.json");
}

TEST(GenerationConfig, ReadsWhatQwen2Ships) {
  const GenerationConfig config = parse(R"({"bos_token_id": 151643, "pad_token_id": 151643, "do_sample": true,
      "eos_token_id": [151645, 151643], "repetition_penalty": 1.1, "temperature": 0.7, "top_p": 0.8, "top_k": 20,
      "transformers_version": "4.37.0"})");
  EXPECT_EQ(config.eos_token_id, (std::vector<int32_t>{151645, 151643}));
  EXPECT_EQ(config.bos_token_id, 151643);
  EXPECT_EQ(config.repetition_penalty, 1.1);
  EXPECT_EQ(config.do_sample, true);
  EXPECT_EQ(config.temperature, 0.7);
  EXPECT_EQ(config.top_p, 0.8);
  EXPECT_EQ(config.top_k, 20);
  EXPECT_EQ(config.min_p, std::nullopt);
  EXPECT_TRUE(config.unsupported_for_sampling.empty());
}

TEST(GenerationConfig, EosMayBeANumberNullOrMissing) {
  EXPECT_EQ(parse(R"({"eos_token_id": 2})").eos_token_id, std::vector<int32_t>{2});
  EXPECT_EQ(parse(R"({"eos_token_id": null})").eos_token_id, std::nullopt);
  EXPECT_EQ(parse("{}").eos_token_id, std::nullopt);
  EXPECT_EQ(parse(R"({"eos_token_id": []})").eos_token_id, std::vector<int32_t>{});
}

TEST(GenerationConfig, RefusesByNameWhatWouldChangeGreedyOutput) {
  for (const std::string_view field : {R"("no_repeat_ngram_size": 3)",
                                       R"("encoder_no_repeat_ngram_size": 2)",
                                       R"("encoder_repetition_penalty": 1.5)",
                                       R"("bad_words_ids": [[1]])",
                                       R"("force_words_ids": [[1]])",
                                       R"("sequence_bias": {"1": 2.0})",
                                       R"("suppress_tokens": [5])",
                                       R"("begin_suppress_tokens": [5])",
                                       R"("forced_bos_token_id": 0)",
                                       R"("forced_eos_token_id": 2)",
                                       R"("exponential_decay_length_penalty": [5, 1.5])",
                                       R"("min_length": 4)",
                                       R"("min_new_tokens": 1)",
                                       R"("num_beams": 4)",
                                       R"("num_beam_groups": 2)",
                                       R"("penalty_alpha": 0.6)",
                                       R"("dola_layers": "high")",
                                       R"("guidance_scale": 1.5)",
                                       R"("token_healing": true)",
                                       R"("stop_strings": ["x"])",
                                       R"("watermarking_config": {"bias": 2})",
                                       R"("cache_implementation": "quantized")",
                                       R"("num_beams": "4")"}) {
    const std::string_view name = field.substr(1, field.find('"', 1) - 1);
    SCOPED_TRACE(field);
    expect_error(
        ErrorCode::Unsupported, [&] { parse(object(field)); }, "generation_config.json: ", name);
  }
}

TEST(GenerationConfig, NeutralValuesAreFine) {
  EXPECT_NO_THROW(parse(R"({"no_repeat_ngram_size": 0, "encoder_repetition_penalty": 1.0, "bad_words_ids": null,
      "suppress_tokens": [], "forced_bos_token_id": null, "min_length": 0, "num_beams": 1, "num_beam_groups": 1,
      "guidance_scale": 1, "token_healing": false, "length_penalty": 2.0, "early_stopping": true, "use_cache": true,
      "cache_implementation": "static", "typical_p": 1.0, "epsilon_cutoff": 0.0, "prompt_lookup_num_tokens": 3,
      "stop_strings": null, "dola_layers": null, "penalty_alpha": 0})"));
}

TEST(GenerationConfig, NamesWhatOnlySamplingNeeds) {
  const GenerationConfig config = parse(R"({"typical_p": 0.9, "eta_cutoff": 0.001})");
  EXPECT_EQ(config.unsupported_for_sampling, (std::vector<std::string>{"typical_p", "eta_cutoff"}));
}

TEST(GenerationConfig, RefusesMalformedValues) {
  for (const std::string_view field :
       {R"("repetition_penalty": 0)", R"("repetition_penalty": -1)", R"("repetition_penalty": "1")",
        R"("temperature": -1)", R"("top_p": 1.5)", R"("min_p": -0.1)", R"("top_k": -1)", R"("top_k": 1.5)",
        R"("do_sample": 1)", R"("eos_token_id": "x")", R"("eos_token_id": [[2]])"}) {
    const std::string_view name = field.substr(1, field.find('"', 1) - 1);
    SCOPED_TRACE(field);
    expect_error(
        ErrorCode::Corrupt, [&] { parse(object(field)); }, "generation_config.json: ", name);
  }
  expect_error(
      ErrorCode::Corrupt, [] { parse("{"); }, "generation_config.json: expected JSON");
}

}  // namespace
}  // namespace kvfork::checkpoint
