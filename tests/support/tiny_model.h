// Small random-weight checkpoints, written to disk as the Hub lays them out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>

namespace kvfork::test {

struct TinyModel {
  std::string family = "qwen2";  // or "llama"
  std::string dtype = "BF16";    // BF16, F16, F32
  size_t hidden_size = 64;
  size_t intermediate_size = 96;
  size_t num_hidden_layers = 2;
  size_t num_attention_heads = 4;
  size_t num_key_value_heads = 2;
  size_t head_dim = 16;
  size_t vocab_size = 211;
  size_t max_position_embeddings = 2048;
  bool tie_word_embeddings = true;
  uint32_t seed = 1;
};

/// Writes config.json, generation_config.json and model.safetensors into `directory`.
void write_tiny_model(const std::filesystem::path& directory, const TinyModel& model);

}  // namespace kvfork::test
