// Writes small random-weight checkpoints for tests.

#include "tests/support/tiny_model.h"

#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <vector>

namespace kvfork::test {
namespace {

using Json = nlohmann::ordered_json;

uint16_t to_bf16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  return static_cast<uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

// Normal float16 range only: the weights here are far from its ends.
uint16_t to_f16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  const uint32_t sign = (bits >> 16) & 0x8000;
  const int exponent = static_cast<int>((bits >> 23) & 0xFF) - 127 + 15;
  if (exponent <= 0) return static_cast<uint16_t>(sign);
  return static_cast<uint16_t>(sign | static_cast<uint32_t>(exponent) << 10 | ((bits >> 13) & 0x3FF));
}

class Writer {
 public:
  Writer(std::string dtype, uint32_t seed) : dtype_(std::move(dtype)), random_(seed) {}

  void add(const std::string& name, std::vector<size_t> shape, float mean, float spread) {
    size_t n = 1;
    for (const size_t size : shape) n *= size;
    const size_t begin = data_.size();
    std::normal_distribution<float> normal(mean, spread);
    for (size_t i = 0; i < n; ++i) append(normal(random_));
    header_[name] = {{"dtype", dtype_}, {"shape", shape}, {"data_offsets", {begin, data_.size()}}};
  }

  void save(const std::filesystem::path& path) const {
    std::string header = header_.dump();
    header.append((8 - header.size() % 8) % 8, ' ');
    const uint64_t n = header.size();
    std::ofstream file(path, std::ios::binary);
    file.write(reinterpret_cast<const char*>(&n), 8);
    file.write(header.data(), static_cast<std::streamsize>(header.size()));
    file.write(data_.data(), static_cast<std::streamsize>(data_.size()));
  }

 private:
  void append(float value) {
    if (dtype_ == "F32") {
      data_.append(reinterpret_cast<const char*>(&value), 4);
    } else {
      const uint16_t half = dtype_ == "BF16" ? to_bf16(value) : to_f16(value);
      data_.append(reinterpret_cast<const char*>(&half), 2);
    }
  }

  std::string dtype_;
  std::mt19937 random_;
  Json header_;
  std::string data_;
};

}  // namespace

void write_tiny_model(const std::filesystem::path& directory, const TinyModel& model) {
  const bool is_qwen2 = model.family == "qwen2";
  const Json config = {{"model_type", model.family},
                       {"architectures", {is_qwen2 ? "Qwen2ForCausalLM" : "LlamaForCausalLM"}},
                       {"hidden_size", model.hidden_size},
                       {"intermediate_size", model.intermediate_size},
                       {"num_hidden_layers", model.num_hidden_layers},
                       {"num_attention_heads", model.num_attention_heads},
                       {"num_key_value_heads", model.num_key_value_heads},
                       {"head_dim", model.head_dim},
                       {"vocab_size", model.vocab_size},
                       {"max_position_embeddings", model.max_position_embeddings},
                       {"rms_norm_eps", 1e-6},
                       {"rope_theta", 10000.0},
                       {"hidden_act", "silu"},
                       {"tie_word_embeddings", model.tie_word_embeddings},
                       {"eos_token_id", 2}};
  std::ofstream(directory / "config.json") << config.dump(1);
  std::ofstream(directory / "generation_config.json") << Json{{"eos_token_id", {2, 3}}}.dump(1);

  Writer writer(model.dtype, model.seed);
  const auto matrix = [&](const std::string& name, size_t n_features, size_t k) {
    writer.add(name + ".weight", {n_features, k}, 0, 1.5f / std::sqrt(static_cast<float>(k)));
  };
  const size_t q_size = model.num_attention_heads * model.head_dim;
  const size_t kv_size = model.num_key_value_heads * model.head_dim;
  matrix("model.embed_tokens", model.vocab_size, model.hidden_size);
  for (size_t i = 0; i < model.num_hidden_layers; ++i) {
    const std::string layer = "model.layers." + std::to_string(i) + ".";
    const auto projection = [&](const std::string& name, size_t n_features) {
      matrix(layer + "self_attn." + name, n_features, model.hidden_size);
      if (is_qwen2) writer.add(layer + "self_attn." + name + ".bias", {n_features}, 0, 0.5f);
    };
    writer.add(layer + "input_layernorm.weight", {model.hidden_size}, 1, 0.2f);
    projection("q_proj", q_size);
    projection("k_proj", kv_size);
    projection("v_proj", kv_size);
    matrix(layer + "self_attn.o_proj", model.hidden_size, q_size);
    writer.add(layer + "post_attention_layernorm.weight", {model.hidden_size}, 1, 0.2f);
    matrix(layer + "mlp.gate_proj", model.intermediate_size, model.hidden_size);
    matrix(layer + "mlp.up_proj", model.intermediate_size, model.hidden_size);
    matrix(layer + "mlp.down_proj", model.hidden_size, model.intermediate_size);
  }
  writer.add("model.norm.weight", {model.hidden_size}, 1, 0.2f);
  if (!model.tie_word_embeddings) matrix("lm_head", model.vocab_size, model.hidden_size);
  writer.save(directory / "model.safetensors");
}

}  // namespace kvfork::test
