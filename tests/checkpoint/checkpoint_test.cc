// Whole checkpoints: the golden ones open, and what does not fit together is refused by name.

#include "checkpoint/checkpoint.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>
#include <numbers>

#include "tests/checkpoint/support.h"
#include "tests/support/raw_gguf.h"
#include "tests/support/raw_safetensors.h"

namespace kvfork::checkpoint {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using test::expect_error;
using test::GgufBuilder;
using test::SafetensorsBuilder;
using test::TempDir;
using test::write_file;

json tiny_config() {
  return {{"model_type", "llama"},
          {"hidden_size", 8},
          {"intermediate_size", 6},
          {"num_hidden_layers", 1},
          {"num_attention_heads", 2},
          {"num_key_value_heads", 1},
          {"vocab_size", 5},
          {"max_position_embeddings", 64},
          {"tie_word_embeddings", true}};
}

ModelConfig parsed(const json& config) {
  return parse_config(config.dump(), "config.json");
}

std::vector<TensorSpec> expected_tensors(const ModelConfig& config) {
  return config.spec.tensors;
}

std::string zeros(const std::vector<uint64_t>& shape, size_t element_bytes) {
  return std::string(static_cast<size_t>(*count_elements(shape)) * element_bytes, '\0');
}

// Writes config.json and the tensors that it implies, but for `without`.
void write_checkpoint(const fs::path& dir, const json& config, std::string_view without = "",
                      const std::function<void(SafetensorsBuilder&)>& more = nullptr) {
  write_file(dir / "config.json", config.dump());
  SafetensorsBuilder file;
  for (const TensorSpec& tensor : expected_tensors(parsed(config))) {
    if (tensor.name != without) file.add(tensor.name, "BF16", tensor.shape, zeros(tensor.shape, 2));
  }
  if (more) more(file);
  write_file(dir / "model.safetensors", file.build());
}

void expect_open_error(ErrorCode code, const fs::path& path, std::string_view part, std::string_view more = "") {
  expect_error(
      code, [&] { Checkpoint::open(path, 1); }, path.string(), part, more);
}

TEST(Checkpoint, OpensTheGoldenDirectories) {
  const auto qwen2 = Checkpoint::open(test::golden() / "checkpoints" / "qwen2-bf16-tied");
  EXPECT_EQ(qwen2.config().architecture, "Qwen2ForCausalLM");
  EXPECT_TRUE(qwen2.config().attention_qkv_bias);
  EXPECT_EQ(qwen2.generation_config().repetition_penalty, 1.1);
  EXPECT_EQ(qwen2.eos_token_ids().size(), 2u);
  EXPECT_EQ(qwen2.find_weight("lm_head.weight"), nullptr);
  EXPECT_FALSE(qwen2.is_gguf());
  EXPECT_EQ(qwen2.gguf(), nullptr);

  const auto llama = Checkpoint::open(test::golden() / "checkpoints" / "llama-f32-llama3");
  EXPECT_EQ(llama.config().rope_scaling.kind, RopeScaling::Kind::Llama3);
  EXPECT_EQ(llama.config().head_dim, 12u);
  const Weight* k = llama.find_weight("model.layers.1.self_attn.k_proj.weight");
  ASSERT_NE(k, nullptr);
  EXPECT_EQ(k->dtype, DType::F32);
  EXPECT_EQ(k->shape, (std::vector<uint64_t>{12, 32}));

  const auto sharded = Checkpoint::open(test::golden() / "checkpoints" / "llama-f16-sharded");
  ASSERT_NE(sharded.find_weight("lm_head.weight"), nullptr);
  EXPECT_EQ(sharded.find_weight("lm_head.weight")->dtype, DType::F16);
  EXPECT_EQ(sharded.weights().size(), expected_tensors(sharded.config()).size());
}

TEST(Checkpoint, ExpectsTheTensorsOfEachFamily) {
  json config = tiny_config();
  EXPECT_EQ(expected_tensors(parsed(config)).size(), 2u + 9);
  config["tie_word_embeddings"] = false;
  EXPECT_EQ(expected_tensors(parsed(config)).size(), 3u + 9);
  config["attention_bias"] = true;
  EXPECT_EQ(expected_tensors(parsed(config)).size(), 3u + 9 + 4);
  config["mlp_bias"] = true;
  EXPECT_EQ(expected_tensors(parsed(config)).size(), 3u + 9 + 4 + 3);
  config["model_type"] = "qwen2";
  EXPECT_EQ(expected_tensors(parsed(config)).size(), 3u + 9 + 3);
}

TEST(Checkpoint, MixedTypesAndIgnorableTensorsAreFine) {
  const TempDir dir;
  write_checkpoint(dir.path(), tiny_config(), "model.norm.weight", [](SafetensorsBuilder& file) {
    file.add("model.norm.weight", "F32", {8}, std::string(32, '\0'));
    file.add("lm_head.weight", "F16", {5, 8}, std::string(80, '\0'));
    file.add("model.layers.0.self_attn.rotary_emb.inv_freq", "F64", {2}, std::string(16, '\0'));
  });
  const auto checkpoint = Checkpoint::open(dir.path());
  EXPECT_EQ(checkpoint.weights().size(), 11u);
  EXPECT_EQ(checkpoint.find_weight("model.norm.weight")->dtype, DType::F32);
  EXPECT_EQ(checkpoint.find_weight("lm_head.weight"), nullptr);
  EXPECT_EQ(checkpoint.file_bytes(), fs::file_size(dir.path() / "model.safetensors"));
}

TEST(Checkpoint, NamesEveryTensorThatDoesNotFit) {
  const TempDir dir;
  write_checkpoint(dir.path(), tiny_config(), "model.norm.weight", [](SafetensorsBuilder& file) {
    file.add("model.layers.0.self_attn.q_norm.weight", "BF16", {4}, std::string(8, '\0'));
    file.add("model.layers.1.mlp.up_proj.weight", "BF16", {6, 8}, std::string(96, '\0'));
  });
  expect_error(
      ErrorCode::Corrupt, [&] { Checkpoint::open(dir.path()); }, "model.safetensors", "LlamaForCausalLM",
      "model.norm.weight [8] is missing", "model.layers.0.self_attn.q_norm.weight is unexpected",
      "model.layers.1.mlp.up_proj.weight is unexpected");

  write_checkpoint(dir.path(), tiny_config(), "model.norm.weight", [](SafetensorsBuilder& file) {
    file.add("model.norm.weight", "BF16", {1, 8}, std::string(16, '\0'));
  });
  expect_error(
      ErrorCode::Corrupt, [&] { Checkpoint::open(dir.path()); },
      "model.norm.weight: expected shape [8], found [1, 8]");

  write_checkpoint(dir.path(), tiny_config(), "model.norm.weight", [](SafetensorsBuilder& file) {
    file.add("model.norm.weight", "F8_E4M3", {8}, std::string(8, '\0'));
  });
  expect_error(
      ErrorCode::Unsupported, [&] { Checkpoint::open(dir.path()); },
      "model.norm.weight: F8_E4M3 is not supported as a weight type");
}

TEST(Checkpoint, CutsLongListsOff) {
  const TempDir dir;
  write_checkpoint(dir.path(), tiny_config());
  json deeper = tiny_config();
  deeper["num_hidden_layers"] = 101;
  write_file(dir.path() / "config.json", deeper.dump());
  expect_open_error(ErrorCode::Corrupt, dir.path(), "model.layers.1.input_layernorm.weight [8] is missing",
                    "and 880 more");
}

TEST(Checkpoint, RefusesIncompleteDirectories) {
  const TempDir dir;
  expect_open_error(ErrorCode::NotFound, dir.path(), "expected config.json");
  write_file(dir.path() / "m.gguf", "");
  expect_open_error(ErrorCode::NotFound, dir.path(), "give the GGUF file itself");
  write_file(dir.path() / "config.json", tiny_config().dump());
  expect_open_error(ErrorCode::NotFound, dir.path(), "expected model.safetensors");
  write_file(dir.path() / "pytorch_model.bin", "");
  expect_open_error(ErrorCode::Unsupported, dir.path(), "found pytorch_model.bin");
  write_checkpoint(dir.path(), tiny_config());
  EXPECT_NO_THROW(Checkpoint::open(dir.path()));
  write_file(dir.path() / "adapter_config.json", "{}");
  expect_open_error(ErrorCode::Unsupported, dir.path(), "adapter_config.json");
  expect_open_error(ErrorCode::NotFound, dir.path() / "absent", "No such file");
  expect_open_error(ErrorCode::InvalidArgument, dir.path() / "model.safetensors",
                    "expected a checkpoint directory");
  expect_open_error(ErrorCode::Corrupt, dir.path() / "m.gguf", "truncated");
}

TEST(Checkpoint, EosComesFromTheGenerationConfigFirst) {
  const TempDir dir;
  json config = tiny_config();
  config["eos_token_id"] = 3;
  config["repetition_penalty"] = 1.25;
  write_checkpoint(dir.path(), config);
  // Without generation_config.json, config.json's own generation settings count.
  EXPECT_EQ(Checkpoint::open(dir.path()).eos_token_ids(), std::vector<int32_t>{3});
  EXPECT_EQ(Checkpoint::open(dir.path()).generation_config().repetition_penalty, 1.25);
  write_file(dir.path() / "generation_config.json", R"({"eos_token_id": [1, 4]})");
  EXPECT_EQ(Checkpoint::open(dir.path()).eos_token_ids(), (std::vector<int32_t>{1, 4}));
  EXPECT_EQ(Checkpoint::open(dir.path()).generation_config().repetition_penalty, std::nullopt);
  write_file(dir.path() / "generation_config.json", R"({"temperature": 0.5})");
  EXPECT_EQ(Checkpoint::open(dir.path()).eos_token_ids(), std::vector<int32_t>{3});
  write_file(dir.path() / "generation_config.json", "{");
  expect_open_error(ErrorCode::Corrupt, dir.path(), "generation_config.json");
}

// Two shards, the embedding alone in the second; `map` may be changed before it is written.
class Sharded {
 public:
  Sharded() {
    write_file(path() / "config.json", tiny_config().dump());
    SafetensorsBuilder first, second;
    for (const TensorSpec& tensor : expected_tensors(parsed(tiny_config()))) {
      const bool is_second = tensor.name == "model.embed_tokens.weight";
      (is_second ? second : first).add(tensor.name, "BF16", tensor.shape, zeros(tensor.shape, 2));
      map[tensor.name] = is_second ? "b.safetensors" : "a.safetensors";
    }
    write_file(path() / "a.safetensors", first.build());
    write_file(path() / "b.safetensors", second.build());
  }
  const fs::path& path() const { return dir_.path(); }
  void write_index() const {
    write_file(path() / "model.safetensors.index.json",
               json{{"metadata", {{"total_size", 1}}}, {"weight_map", map}}.dump());
  }
  void expect_refused(ErrorCode code, std::string_view part) const {
    write_index();
    expect_open_error(code, path(), "model.safetensors.index.json", part);
  }

  json map;

 private:
  TempDir dir_;
};

TEST(Checkpoint, OpensShards) {
  Sharded sharded;
  sharded.write_index();
  EXPECT_EQ(Checkpoint::open(sharded.path()).weights().size(), 11u);
}

TEST(Checkpoint, TheSingleFileWinsOverAnIndex) {
  const TempDir dir;
  write_checkpoint(dir.path(), tiny_config());
  write_file(dir.path() / "model.safetensors.index.json", "not JSON");
  EXPECT_NO_THROW(Checkpoint::open(dir.path()));
}

TEST(Checkpoint, RefusesBadIndexes) {
  for (const char* name :
       {"../b.safetensors", "/etc/b.safetensors", "x/b.safetensors", "..", "", "x\\b.safetensors"}) {
    Sharded sharded;
    sharded.map["model.embed_tokens.weight"] = name;
    sharded.expect_refused(ErrorCode::Corrupt, "expected a plain file name");
  }
  Sharded other;
  other.map["model.embed_tokens.weight"] = "b.bin";
  other.expect_refused(ErrorCode::Unsupported, "expected a .safetensors file");
  Sharded missing;
  missing.map["model.embed_tokens.weight"] = "c.safetensors";
  missing.expect_refused(ErrorCode::NotFound, "c.safetensors");
  Sharded moved;
  moved.map["model.norm.weight"] = "b.safetensors";
  moved.expect_refused(ErrorCode::Corrupt, "model.norm.weight is in a.safetensors, the index says b.safetensors");
  Sharded absent;
  absent.map["extra"] = "b.safetensors";
  absent.expect_refused(ErrorCode::Corrupt, "extra is not in b.safetensors");
  Sharded unlisted;
  unlisted.map.erase("model.norm.weight");
  unlisted.expect_refused(ErrorCode::Corrupt, "model.norm.weight is in a.safetensors and not in the index");
  Sharded broken;
  const auto index = broken.path() / "model.safetensors.index.json";
  for (const char* text :
       {"", "[]", "{}", R"({"weight_map": []})", R"({"weight_map": {}})", R"({"weight_map": {"a": 1}})",
        R"({"weight_map": {"a": "a.safetensors", "a": "a.safetensors"}})"}) {
    SCOPED_TRACE(text);
    write_file(index, text);
    expect_open_error(ErrorCode::Corrupt, broken.path(), "model.safetensors.index.json");
  }
}

// --- GGUF ---

fs::path write_gguf(const TempDir& dir, const GgufBuilder& gguf) {
  const fs::path path = dir.path() / "m.gguf";
  write_file(path, gguf.build());
  return path;
}

float at(const Weight& weight, size_t i) {
  float value = 0;
  std::memcpy(&value, static_cast<const std::byte*>(weight.data) + 4 * i, 4);
  return value;
}

TEST(GgufCheckpoint, ReadsConfigAndWeights) {
  const TempDir dir;
  GgufBuilder gguf;
  test::add_tiny_llama(gguf);
  const auto checkpoint = Checkpoint::open(write_gguf(dir, gguf));
  const ModelConfig& config = checkpoint.config();
  EXPECT_EQ(config.architecture, "LlamaForCausalLM");
  EXPECT_EQ(config.vocab_size, 6u);
  EXPECT_EQ(config.head_dim, 4u);
  EXPECT_EQ(config.num_key_value_heads, 2u);
  EXPECT_EQ(config.max_position_embeddings, 64u);
  EXPECT_EQ(config.rms_norm_eps, static_cast<double>(1e-5f));
  EXPECT_EQ(config.rope_theta, 10000.0);
  EXPECT_TRUE(config.tie_word_embeddings);
  EXPECT_EQ(checkpoint.eos_token_ids(), std::vector<int32_t>{3});
  EXPECT_TRUE(checkpoint.is_gguf());
  EXPECT_EQ(checkpoint.gguf()->architecture(), "llama");
  EXPECT_EQ(checkpoint.weights().size(), 11u);
  EXPECT_EQ(at(*checkpoint.find_weight("model.layers.0.mlp.down_proj.weight"), 95), 10095);
  EXPECT_EQ(checkpoint.find_weight("model.layers.0.self_attn.o_proj.weight")->shape,
            (std::vector<uint64_t>{8, 16}));
}

TEST(GgufCheckpoint, PutsTheHalvesOfRotaryHeadsBack) {
  const TempDir dir;
  GgufBuilder gguf;
  test::add_tiny_llama(gguf);
  const auto checkpoint = Checkpoint::open(write_gguf(dir, gguf));
  // reshape(heads, 2, 2, 8).swapaxes(1, 2): rows 0 1 2 3 of a head come from 0 2 1 3.
  const size_t source[] = {0, 2, 1, 3};
  const Weight& q = *checkpoint.find_weight("model.layers.0.self_attn.q_proj.weight");
  const Weight& k = *checkpoint.find_weight("model.layers.0.self_attn.k_proj.weight");
  const Weight& v = *checkpoint.find_weight("model.layers.0.self_attn.v_proj.weight");
  for (size_t row = 0; row < 16; ++row) {
    const auto first = static_cast<float>(8 * (row / 4 * 4 + source[row % 4]));
    EXPECT_EQ(at(q, 8 * row), 3000 + first);
    EXPECT_EQ(at(q, 8 * row + 7), 3007 + first);
    if (row < 8) {
      EXPECT_EQ(at(k, 8 * row), 4000 + first);
      EXPECT_EQ(at(v, 8 * row), 5000 + static_cast<float>(8 * row));
    }
  }
}

TEST(GgufCheckpoint, DequantizesInParallelAndKeepsHalves) {
  const TempDir dir;
  GgufBuilder gguf;
  gguf.add("general.architecture", "qwen2");
  gguf.add("qwen2.block_count", uint32_t{1});
  gguf.add("qwen2.context_length", uint32_t{64});
  gguf.add("qwen2.embedding_length", uint32_t{32});
  gguf.add("qwen2.feed_forward_length", uint32_t{32});
  gguf.add("qwen2.attention.head_count", uint32_t{2});
  gguf.add("qwen2.attention.layer_norm_rms_epsilon", 1e-6f);
  const std::string half(64, '\x3c');
  const auto q8_0 = [](size_t n_blocks) {
    std::string data;
    for (size_t i = 0; i < n_blocks; ++i)
      data += test::raw(uint16_t{0x3c00}) + std::string(32, static_cast<char>(i));
    return data;
  };
  for (const char* name : {"blk.0.attn_norm.weight", "blk.0.ffn_norm.weight", "output_norm.weight"})
    gguf.add_tensor(name, {32}, 1, half);
  for (const char* name : {"blk.0.attn_q.bias", "blk.0.attn_k.bias", "blk.0.attn_v.bias"})
    gguf.add_tensor(name, {32}, 0, std::string(128, '\0'));
  for (const char* name :
       {"token_embd.weight", "output.weight", "blk.0.attn_q.weight", "blk.0.attn_k.weight", "blk.0.attn_v.weight",
        "blk.0.attn_output.weight", "blk.0.ffn_gate.weight", "blk.0.ffn_up.weight", "blk.0.ffn_down.weight"})
    gguf.add_tensor(name, {32, 32}, 8, q8_0(32));
  for (const size_t n_threads : {1, 3}) {
    const auto checkpoint = Checkpoint::open(write_gguf(dir, gguf), n_threads);
    EXPECT_EQ(checkpoint.config().architecture, "Qwen2ForCausalLM");
    EXPECT_EQ(checkpoint.config().num_key_value_heads, 2u);
    EXPECT_FALSE(checkpoint.config().tie_word_embeddings);
    EXPECT_EQ(checkpoint.find_weight("model.norm.weight")->dtype, DType::F16);
    // qwen2 is not permuted: row i is i throughout.
    const Weight& q = *checkpoint.find_weight("model.layers.0.self_attn.q_proj.weight");
    EXPECT_EQ(q.dtype, DType::F32);
    for (size_t i = 0; i < 32 * 32; ++i) ASSERT_EQ(at(q, i), static_cast<float>(i / 32));
  }
}

TEST(GgufCheckpoint, NamesWhatDoesNotFit) {
  const TempDir dir;
  GgufBuilder unexpected;
  test::add_tiny_llama(unexpected);
  unexpected.add_tensor("blk.0.attn_q_norm.weight", {4}, 0, std::string(16, '\0'));
  // A tensor under a Hugging Face name is as foreign here as any other.
  unexpected.add_tensor("model.norm.weight", {8}, 0, std::string(32, '\0'));
  expect_open_error(ErrorCode::Corrupt, write_gguf(dir, unexpected), "blk.0.attn_q_norm.weight is unexpected",
                    "model.norm.weight is unexpected");
  GgufBuilder type;
  test::add_tiny_llama(type);
  type.add_tensor("output.weight", {8, 6}, 77, "");
  expect_open_error(ErrorCode::Unsupported, write_gguf(dir, type),
                    "output.weight: an unknown type is not supported");
  GgufBuilder bias;
  test::add_tiny_llama(bias);
  bias.add_tensor("blk.0.attn_q.bias", {16}, 0, std::string(64, '\0'));
  expect_open_error(ErrorCode::Corrupt, write_gguf(dir, bias),
                    "model.layers.0.self_attn.k_proj.bias [8] is missing");
}

TEST(GgufCheckpoint, RefusesByNameWhatItDoesNotRun) {
  const auto expect_refused = [](ErrorCode code, const std::function<void(GgufBuilder&)>& change,
                                 std::string_view part) {
    const TempDir dir;
    GgufBuilder gguf;
    test::add_tiny_llama(gguf);
    change(gguf);
    expect_open_error(code, write_gguf(dir, gguf), part);
  };
  expect_refused(
      ErrorCode::Unsupported, [](GgufBuilder& g) { g.add("llama.expert_count", uint32_t{8}); },
      "llama.expert_count");
  expect_refused(
      ErrorCode::Unsupported, [](GgufBuilder& g) { g.add("llama.rope.scaling.type", "yarn"); }, "yarn");
  expect_refused(
      ErrorCode::Unsupported, [](GgufBuilder& g) { g.add("llama.attention.key_length", uint32_t{8}); },
      "key_length");
  expect_refused(
      ErrorCode::Unsupported, [](GgufBuilder& g) { g.add("llama.attention.sliding_window", uint32_t{8}); },
      "llama.attention.sliding_window");
  expect_refused(
      ErrorCode::Corrupt, [](GgufBuilder& g) { g.add("llama.vocab_size", uint32_t{7}); }, "llama.vocab_size");
  const TempDir dir;
  GgufBuilder mamba;
  mamba.add("general.architecture", "mamba");
  expect_open_error(ErrorCode::Unsupported, write_gguf(dir, mamba), "general.architecture", "mamba");
  GgufBuilder empty;
  empty.add("general.architecture", "llama");
  expect_open_error(ErrorCode::Corrupt, write_gguf(dir, empty), "llama.embedding_length is missing");
}

// The divisors that converters write for llama3 scaling, by the formula of Transformers' modeling_rope_utils.
std::string llama3_divisors(double theta, size_t head_dim, double factor, double original) {
  std::string data;
  for (size_t i = 0; i < head_dim / 2; ++i) {
    const double frequency = std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(head_dim));
    const double wavelength = 2 * std::numbers::pi / frequency;
    double divisor = 1;
    if (wavelength > original) {
      divisor = factor;
    } else if (wavelength >= original / 4) {
      const double smooth = (original / wavelength - 1) / 3;
      divisor = 1 / ((1 - smooth) / factor + smooth);
    }
    data += test::raw(static_cast<float>(divisor));
  }
  return data;
}

GgufBuilder scaled_llama(const std::string& divisors) {
  GgufBuilder gguf;
  gguf.add("general.architecture", "llama");
  gguf.add("llama.block_count", uint32_t{1});
  gguf.add("llama.context_length", uint32_t{131072});
  gguf.add("llama.embedding_length", uint32_t{8});
  gguf.add("llama.feed_forward_length", uint32_t{1});
  gguf.add("llama.attention.head_count", uint32_t{1});
  gguf.add("llama.rope.dimension_count", uint32_t{64});
  gguf.add("llama.rope.freq_base", 500000.0f);
  const auto add = [&](const char* name, std::vector<uint64_t> shape) {
    gguf.add_tensor(name, shape, 0, zeros(shape, 4));
  };
  add("token_embd.weight", {8, 2});
  add("output_norm.weight", {8});
  add("blk.0.attn_norm.weight", {8});
  for (const char* name : {"blk.0.attn_q.weight", "blk.0.attn_k.weight", "blk.0.attn_v.weight"}) add(name, {8, 64});
  add("blk.0.attn_output.weight", {64, 8});
  add("blk.0.ffn_norm.weight", {8});
  add("blk.0.ffn_gate.weight", {8, 1});
  add("blk.0.ffn_up.weight", {8, 1});
  add("blk.0.ffn_down.weight", {1, 8});
  gguf.add_tensor("rope_freqs.weight", {divisors.size() / 4}, 0, divisors);
  return gguf;
}

TEST(GgufCheckpoint, RecoversLlama3Scaling) {
  const TempDir dir;
  const auto checkpoint = Checkpoint::open(write_gguf(dir, scaled_llama(llama3_divisors(5e5, 64, 32, 8192))));
  EXPECT_EQ(checkpoint.config().rope_scaling.kind, RopeScaling::Kind::Llama3);
  EXPECT_EQ(checkpoint.config().rope_scaling.factor, 32.0);
  EXPECT_EQ(checkpoint.config().rope_scaling.original_max_position_embeddings, 8192.0);
  std::string ones;
  for (int i = 0; i < 32; ++i) ones += test::raw(1.0f);
  EXPECT_EQ(Checkpoint::open(write_gguf(dir, scaled_llama(ones))).config().rope_scaling.kind,
            RopeScaling::Kind::None);
  expect_open_error(ErrorCode::Unsupported, write_gguf(dir, scaled_llama(llama3_divisors(5e5, 64, 32, 4096))),
                    "rope_freqs.weight");
  expect_open_error(ErrorCode::Corrupt, write_gguf(dir, scaled_llama(ones.substr(4))), "rope_freqs.weight");
}

TEST(GgufCheckpointDeathTest, DequantizedWeightsAreReadOnly) {
  const TempDir dir;
  GgufBuilder gguf;
  test::add_tiny_llama(gguf);
  const auto checkpoint = Checkpoint::open(write_gguf(dir, gguf));
  void* data = const_cast<void*>(checkpoint.find_weight("model.layers.0.self_attn.q_proj.weight")->data);
  EXPECT_DEATH(std::memset(data, 1, 1), "");
}

}  // namespace
}  // namespace kvfork::checkpoint
