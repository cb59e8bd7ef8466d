// config.json: fields, defaults of each family, and refusals of what would change the result.

#include "checkpoint/config.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/checkpoint/support.h"

namespace kvfork::checkpoint {
namespace {

using nlohmann::json;
using test::expect_error;

json llama() {
  return {{"model_type", "llama"},
          {"architectures", {"LlamaForCausalLM"}},
          {"hidden_size", 64},
          {"intermediate_size", 100},
          {"num_hidden_layers", 2},
          {"num_attention_heads", 4},
          {"num_key_value_heads", 2},
          {"vocab_size", 300},
          {"max_position_embeddings", 128}};
}

json qwen2() {
  json config = llama();
  config["model_type"] = "qwen2";
  config["architectures"] = {"Qwen2ForCausalLM"};
  return config;
}

json with(json config, std::string_view key, json value) {
  config[std::string(key)] = std::move(value);
  return config;
}

json without(json config, std::string_view key) {
  config.erase(std::string(key));
  return config;
}

ModelConfig parse(const json& config) {
  return parse_config(config.dump(), "config.json");
}

void expect_refused(ErrorCode code, const json& config, std::string_view part) {
  SCOPED_TRACE(config.dump());
  expect_error(
      code, [&] { parse(config); }, "config.json: ", part);
}

TEST(Config, ReadsAllFields) {
  json full = llama();
  full["head_dim"] = 24;
  full["rms_norm_eps"] = 1e-5;
  full["rope_theta"] = 500000;
  full["tie_word_embeddings"] = true;
  full["attention_bias"] = true;
  full["mlp_bias"] = true;
  full["dtype"] = "bfloat16";
  full["eos_token_id"] = {7, 8};
  full["bos_token_id"] = 5;
  full["pad_token_id"] = 6;
  full["rope_scaling"] = {{"rope_type", "llama3"},
                          {"factor", 32.0},
                          {"low_freq_factor", 1.0},
                          {"high_freq_factor", 4.0},
                          {"original_max_position_embeddings", 8192}};
  const ModelConfig config = parse(full);
  EXPECT_EQ(config.model_type, "llama");
  EXPECT_EQ(config.architecture, "LlamaForCausalLM");
  EXPECT_EQ(config.head_dim, 24u);
  EXPECT_EQ(config.num_key_value_heads, 2u);
  EXPECT_EQ(config.rms_norm_eps, 1e-5);
  EXPECT_EQ(config.rope_theta, 500000.0);
  EXPECT_TRUE(config.tie_word_embeddings);
  EXPECT_TRUE(config.attention_qkv_bias);
  EXPECT_TRUE(config.attention_output_bias);
  EXPECT_TRUE(config.mlp_bias);
  EXPECT_EQ(config.torch_dtype, "bfloat16");
  EXPECT_EQ(config.eos_token_id, (std::vector<int32_t>{7, 8}));
  EXPECT_EQ(config.bos_token_id, 5);
  EXPECT_EQ(config.pad_token_id, 6);
  EXPECT_EQ(config.rope_scaling.kind, RopeScaling::Kind::Llama3);
  EXPECT_EQ(config.rope_scaling.factor, 32.0);
  EXPECT_EQ(config.rope_scaling.original_max_position_embeddings, 8192.0);
}

TEST(Config, DefaultsOfLlama) {
  const ModelConfig config = parse({{"model_type", "llama"}});
  EXPECT_EQ(config.vocab_size, 32000u);
  EXPECT_EQ(config.hidden_size, 4096u);
  EXPECT_EQ(config.intermediate_size, 11008u);
  EXPECT_EQ(config.num_key_value_heads, 32u);
  EXPECT_EQ(config.head_dim, 128u);
  EXPECT_EQ(config.max_position_embeddings, 2048u);
  EXPECT_EQ(config.rms_norm_eps, 1e-6);
  EXPECT_EQ(config.rope_theta, 10000.0);
  EXPECT_FALSE(config.tie_word_embeddings);
  EXPECT_FALSE(config.attention_qkv_bias);
  EXPECT_EQ(config.eos_token_id, std::vector<int32_t>{2});
  EXPECT_EQ(config.bos_token_id, 1);
  EXPECT_EQ(parse(without(llama(), "num_key_value_heads")).num_key_value_heads, 4u);
}

TEST(Config, DefaultsOfQwen2) {
  const ModelConfig config = parse({{"model_type", "qwen2"}});
  EXPECT_EQ(config.vocab_size, 151936u);
  EXPECT_EQ(config.intermediate_size, 22016u);
  EXPECT_EQ(config.max_position_embeddings, 32768u);
  EXPECT_TRUE(config.attention_qkv_bias);
  EXPECT_FALSE(config.attention_output_bias);
  EXPECT_TRUE(config.eos_token_id.empty());
  EXPECT_EQ(config.bos_token_id, std::nullopt);
  // 32 whatever the number of heads, as Qwen2Config has it; null means as many as heads.
  const json wide = with(with(qwen2(), "num_attention_heads", 64), "hidden_size", 128);
  EXPECT_EQ(parse(without(wide, "num_key_value_heads")).num_key_value_heads, 32u);
  EXPECT_EQ(parse(with(qwen2(), "num_key_value_heads", nullptr)).num_key_value_heads, 4u);
  // Qwen2's attention has its biases in code: the file's word is not read.
  EXPECT_FALSE(parse(with(qwen2(), "attention_bias", true)).attention_output_bias);
}

TEST(Config, NullTakesTheDefaultButForTokens) {
  EXPECT_EQ(parse(with(llama(), "head_dim", nullptr)).head_dim, 16u);
  EXPECT_EQ(parse(with(llama(), "rope_scaling", nullptr)).rope_scaling.kind, RopeScaling::Kind::None);
  EXPECT_TRUE(parse(with(llama(), "eos_token_id", nullptr)).eos_token_id.empty());
  EXPECT_EQ(parse(with(llama(), "bos_token_id", nullptr)).bos_token_id, std::nullopt);
}

TEST(Config, ModelTypeOrArchitectureSuffices) {
  EXPECT_EQ(parse(without(llama(), "architectures")).architecture, "LlamaForCausalLM");
  EXPECT_EQ(parse(without(qwen2(), "model_type")).model_type, "qwen2");
}

TEST(Config, RefusesOtherArchitecturesByName) {
  expect_refused(ErrorCode::Unsupported, with(llama(), "architectures", {"LlamaForSequenceClassification"}),
                 "found LlamaForSequenceClassification");
  expect_refused(ErrorCode::Unsupported, with(without(llama(), "architectures"), "model_type", "mamba"),
                 "found mamba");
  expect_refused(ErrorCode::Unsupported, with(qwen2(), "architectures", {"LlamaForCausalLM"}), "different models");
  expect_refused(ErrorCode::Corrupt, json::object(), "model_type");
  expect_refused(ErrorCode::Corrupt, with(llama(), "architectures", "LlamaForCausalLM"), "architectures");
}

TEST(Config, RopeTypes) {
  const auto scaling = [](json value) { return with(llama(), "rope_scaling", std::move(value)); };
  EXPECT_EQ(parse(scaling({{"rope_type", "default"}})).rope_scaling.kind, RopeScaling::Kind::None);
  EXPECT_EQ(parse(scaling({{"type", "linear"}, {"factor", 2}})).rope_scaling.factor, 2.0);
  EXPECT_EQ(parse(scaling({{"rope_type", "yarn"}, {"factor", 2.0}})).rope_scaling.kind, RopeScaling::Kind::Yarn);
  EXPECT_EQ(parse(scaling({{"rope_type", "dynamic"}, {"factor", 2.0}})).rope_scaling.kind, RopeScaling::Kind::Dynamic);
  for (const char* type : {"longrope", "su"}) {
    expect_refused(ErrorCode::Corrupt, scaling({{"rope_type", type}, {"factor", 2.0}}), "short_factor");
    const json factors(8, 1.5);
    const json full = {{"rope_type", type}, {"factor", 2.0}, {"short_factor", factors}, {"long_factor", factors}};
    EXPECT_EQ(parse(scaling(full)).rope_scaling.kind, RopeScaling::Kind::LongRope);
  }
  expect_refused(ErrorCode::Unsupported, scaling({{"rope_type", "mrope"}, {"factor", 2.0}}), "mrope");
  expect_refused(ErrorCode::Unsupported, scaling({{"rope_type", "default"}, {"mrope_section", {1, 2}}}),
                 "mrope_section");
  expect_refused(ErrorCode::Corrupt, scaling(json::object()), "expected rope_type");
  expect_refused(ErrorCode::Corrupt, scaling("llama3"), "rope_scaling: expected a JSON object");
  expect_refused(ErrorCode::Corrupt, scaling({{"rope_type", "linear"}}), "factor is missing");
  expect_refused(ErrorCode::Corrupt, scaling({{"rope_type", "linear"}, {"factor", 0}}),
                 "factor: expected a positive");
  expect_refused(ErrorCode::Corrupt,
                 scaling({{"rope_type", "llama3"},
                          {"factor", 8.0},
                          {"low_freq_factor", 4.0},
                          {"high_freq_factor", 4.0},
                          {"original_max_position_embeddings", 64}}),
                 "high_freq_factor above");
  expect_refused(
      ErrorCode::Corrupt,
      scaling({{"rope_type", "llama3"}, {"factor", 8.0}, {"low_freq_factor", 1.0}, {"high_freq_factor", 4.0}}),
      "original_max_position_embeddings is missing");
}

TEST(Config, RopeParametersOfTransformers5) {
  const ModelConfig config =
      parse(with(llama(), "rope_parameters", {{"rope_type", "linear"}, {"factor", 2.0}, {"rope_theta", 7.5}}));
  EXPECT_EQ(config.rope_theta, 7.5);
  EXPECT_EQ(config.rope_scaling.kind, RopeScaling::Kind::Linear);
}

TEST(Config, SlidingWindows) {
  const auto windows = [](const json& config) {
    std::vector<size_t> found;
    for (const LayerSpec& layer : parse(config).spec.layers) found.push_back(layer.attention.window);
    return found;
  };
  // As Qwen2.5 ships it: there, but off.
  json off = with(with(qwen2(), "sliding_window", 32768), "use_sliding_window", false);
  EXPECT_EQ(windows(with(off, "max_window_layers", 1)), (std::vector<size_t>{0, 0}));
  const json on = with(off, "use_sliding_window", true);
  EXPECT_EQ(windows(with(on, "max_window_layers", 1)), (std::vector<size_t>{0, 32768}));
  EXPECT_EQ(windows(on), (std::vector<size_t>{0, 0}));  // from layer 28 on
  EXPECT_EQ(windows(with(on, "layer_types", {"sliding_attention", "full_attention"})),
            (std::vector<size_t>{32768, 0}));
  expect_refused(ErrorCode::Unsupported, with(llama(), "sliding_window", 64), "sliding_window");
  EXPECT_NO_THROW(parse(with(qwen2(), "layer_types", {"full_attention", "full_attention"})));
  expect_refused(ErrorCode::Unsupported, with(qwen2(), "layer_types", {"full_attention", "linear_attention"}),
                 "linear_attention");
  expect_refused(ErrorCode::Corrupt, with(qwen2(), "layer_types", {"full_attention"}),
                 "layer_types: expected 2 entries");
}

TEST(Config, RefusesWhatWouldChangeTheResult) {
  expect_refused(ErrorCode::Unsupported, with(llama(), "hidden_act", "gelu_10"), "hidden_act");
  EXPECT_EQ(parse(with(llama(), "hidden_act", "gelu")).hidden_act, "gelu");
  EXPECT_EQ(parse(with(llama(), "hidden_act", "swish")).hidden_act, "silu");
  expect_refused(ErrorCode::Unsupported, with(llama(), "quantization_config", {{"quant_method", "gptq"}}),
                 "quantization_config");
  expect_refused(ErrorCode::Unsupported, with(llama(), "pretraining_tp", 2), "pretraining_tp");
  expect_refused(ErrorCode::Unsupported, with(llama(), "partial_rotary_factor", 0.5), "partial_rotary_factor");
  expect_refused(ErrorCode::Unsupported, with(llama(), "final_logit_softcapping", 30.0), "final_logit_softcapping");
  expect_refused(ErrorCode::Unsupported, with(llama(), "is_encoder_decoder", true), "is_encoder_decoder");
  expect_refused(ErrorCode::Unsupported, with(llama(), "pruned_heads", {{"0", {1}}}), "pruned_heads");
  json neutral = with(with(with(llama(), "pretraining_tp", 1), "quantization_config", nullptr), "pruned_heads",
                      json::object());
  neutral["partial_rotary_factor"] = 1.0;
  neutral["attention_dropout"] = 0.1;
  neutral["some_field_of_the_future"] = {1, 2, 3};
  EXPECT_NO_THROW(parse(neutral));
}

TEST(Config, RefusesSizesOutOfRange) {
  for (const char* name : {"hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
                           "num_key_value_heads", "head_dim", "vocab_size", "max_position_embeddings"}) {
    expect_refused(ErrorCode::Corrupt, with(llama(), name, 0), name);
    expect_refused(ErrorCode::Corrupt, with(llama(), name, uint64_t{1} << 60), name);
    expect_refused(ErrorCode::Corrupt, with(llama(), name, -1), name);
    expect_refused(ErrorCode::Corrupt, with(llama(), name, 64.0), name);
    expect_refused(ErrorCode::Corrupt, with(llama(), name, "64"), name);
  }
  expect_refused(ErrorCode::Corrupt, with(llama(), "num_key_value_heads", 3), "divisor of num_attention_heads");
  expect_refused(ErrorCode::Corrupt, with(llama(), "head_dim", 15), "even");
  expect_refused(ErrorCode::Corrupt, with(llama(), "rms_norm_eps", -1e-6), "rms_norm_eps");
  expect_refused(ErrorCode::Corrupt, with(llama(), "rope_theta", 0), "rope_theta");
  expect_refused(ErrorCode::Corrupt, with(llama(), "eos_token_id", "</s>"), "eos_token_id: expected a token id");
  expect_refused(ErrorCode::Corrupt, with(llama(), "eos_token_id", {1, 1e30}), "eos_token_id: expected a token id");
  expect_refused(ErrorCode::Corrupt, with(llama(), "tie_word_embeddings", 1), "tie_word_embeddings");
}

TEST(Config, JsonErrorsCarryAPosition) {
  const auto fails = [](std::string_view text, std::string_view part) {
    SCOPED_TRACE(text);
    expect_error(
        ErrorCode::Corrupt, [&] { parse_config(text, "config.json"); }, "config.json: ", part);
  };
  fails("", "the end of the text at line 1, column 1");
  fails("{\n  \"a\": 1,\n}", "line 3, column 1 (byte 12)");
  fails("{\"a\": 1} // no", "line 1, column 10");
  fails("{\"a\": NaN}", "line 1, column 7");
  fails("{\"a\": \"\\x\"}", "line 1, column 8");
  fails("{\"a\": 01}", "line 1, column 8");
  fails("{\"a\": tru}", "line 1, column 10");
  fails("[1]", "expected a JSON object, found a list");
  fails("{\"a\": \"\x80\"}", "invalid byte at line 1, column 8");
  const std::string deep = std::string(5000, '[') + std::string(5000, ']');
  fails(deep, "expected JSON");
}

TEST(Config, IntegersBeyond64BitsAreNumbers) {
  EXPECT_NO_THROW(parse_config(R"({"model_type":"llama","limit":1000000000000000019884624838656})", "c"));
  EXPECT_EQ(parse_config(R"({"model_type":"llama","rope_theta":100000000000000000000})", "c").rope_theta, 1e20);
  const char* size = R"({"model_type":"llama","hidden_size":100000000000000000000})";
  expect_error(
      ErrorCode::Corrupt, [&] { parse_config(size, "c"); }, "c: hidden_size: expected a non-negative integer");
}

TEST(Config, MessagesEscapeControlCharacters) {
  expect_error(
      ErrorCode::Corrupt, [] { parse_config("{\"model_type\":\"llama\",\"vocab_size\":\"a\\n\\u001b[2J\"}", "c"); },
      R"(found the string "a\n\u001b[2J")");
}

TEST(Config, TheLastOfEqualKeysCounts) {
  EXPECT_EQ(parse_config(R"({"model_type":"llama","vocab_size":1,"vocab_size":2})", "c").vocab_size, 2u);
}

}  // namespace
}  // namespace kvfork::checkpoint
