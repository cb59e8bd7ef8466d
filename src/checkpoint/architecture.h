// What is known about each family of decoders: its names, its defaults, and the tensors a config implies.
//
// A new family is one more entry here plus what is truly new in it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/config.h"

namespace kvfork::checkpoint {

struct Architecture {
  std::string_view model_type;  ///< config.json's model_type, and GGUF's general.architecture
  std::string_view class_name;  ///< config.json's architectures[0]

  // Transformers' defaults for fields that a config.json leaves out.
  size_t vocab_size;
  size_t hidden_size;
  size_t intermediate_size;
  size_t num_hidden_layers;
  size_t num_attention_heads;
  size_t num_key_value_heads;  ///< 0: as many as attention heads
  size_t max_position_embeddings;
  double rms_norm_eps;
  std::optional<int32_t> bos_token_id;
  std::optional<int32_t> eos_token_id;

  bool has_qkv_bias;          ///< always, whatever the config says
  bool reads_attention_bias;  ///< attention_bias and mlp_bias decide
  bool has_sliding_window;    ///< use_sliding_window, sliding_window, max_window_layers and layer_types are read
  bool gguf_permutes_qk;      ///< GGUF converters interleave the halves of rotary q and k rows
};

/// The supported family of this model_type, or nullptr.
const Architecture* find_architecture(std::string_view model_type) noexcept;

/// The supported family of this class name, or nullptr.
const Architecture* find_architecture_of_class(std::string_view class_name) noexcept;

/// "Qwen2ForCausalLM, LlamaForCausalLM".
std::string list_architectures();

struct ExpectedTensor {
  std::string name;
  std::vector<uint64_t> shape;
};

/// Every tensor that a model of this config needs, under Hugging Face names, in the order of the forward pass.
/// The config must have passed check_config.
std::vector<ExpectedTensor> expected_tensors(const ModelConfig& config);

/// Tensors that a checkpoint may hold although the model does not use them, as Transformers has it: lm_head.weight
/// beside tied embeddings, and rotary inv_freq buffers.
bool is_ignorable_tensor(std::string_view name, const ModelConfig& config);

/// The Hugging Face name of a GGUF tensor ("blk.0.attn_q.weight" -> "model.layers.0.self_attn.q_proj.weight"), or
/// nothing when it has none here.
std::optional<std::string> find_hf_name(std::string_view gguf_name);

}  // namespace kvfork::checkpoint
