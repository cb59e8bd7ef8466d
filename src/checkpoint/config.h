// config.json: everything that decides what a model computes, under Hugging Face's own keys.
//
// Defaults for missing fields are those of Transformers 4.57.3. What would change the result and is not
// implemented is refused by name; docs/checkpoints.md lists how each field is treated.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/model_spec.h"
#include "checkpoint/tensor_names.h"

namespace kvfork::checkpoint {

/// Scaling of the rotary frequencies, as Transformers' modeling_rope_utils computes it.
struct RopeScaling {
  enum class Kind {
    None,
    Linear,    ///< every frequency divided by `factor`
    Llama3,    ///< low_freq_factor, high_freq_factor, original_max_position_embeddings
    Yarn,      ///< beta_fast, beta_slow, truncate, mscale, mscale_all_dim, attention_factor
    LongRope,  ///< short_factor, long_factor, original_max_position_embeddings, attention_factor
    Dynamic,   ///< as without scaling up to max_position_embeddings, beyond which the model does not run; `alpha`
  };
  Kind kind = Kind::None;
  double factor = 1;
  double low_freq_factor = 1;
  double high_freq_factor = 4;
  double original_max_position_embeddings = 8192;
  double beta_fast = 32;
  double beta_slow = 1;
  bool truncate = true;
  double mscale = 0;          ///< 0: not given
  double mscale_all_dim = 0;  ///< 0: not given
  double alpha = 0;           ///< 0: not given
  std::optional<double> attention_factor;
  std::vector<double> short_factor, long_factor;
};

struct ModelConfig {
  std::string model_type;    ///< "qwen2", "llama"
  std::string architecture;  ///< "Qwen2ForCausalLM", "LlamaForCausalLM"
  size_t hidden_size = 0;
  size_t intermediate_size = 0;
  size_t num_hidden_layers = 0;
  size_t num_attention_heads = 0;
  size_t num_key_value_heads = 0;  ///< divides num_attention_heads
  size_t head_dim = 0;             ///< even; need not be hidden_size / num_attention_heads
  size_t vocab_size = 0;
  size_t max_position_embeddings = 0;
  double rms_norm_eps = 0;
  double rope_theta = 0;
  RopeScaling rope_scaling;
  bool tie_word_embeddings = false;
  bool attention_qkv_bias = false;
  bool attention_output_bias = false;
  bool mlp_bias = false;
  std::string hidden_act;   ///< always "silu" for now
  std::string torch_dtype;  ///< as written, without "torch."; empty when not given. Informs, decides nothing
  std::vector<int32_t> eos_token_id;  ///< empty when the file says null or nothing
  std::optional<int32_t> bos_token_id;
  std::optional<int32_t> pad_token_id;
  ModelSpec spec;  ///< what the model computes
};

/// Throws Error{Corrupt} for text that is not a config, Error{Unsupported} for one that kvfork does not run.
/// `subject` names the text in errors. `names` are those of the checkpoint's tensors, where they decide over the
/// form of the model.
ModelConfig parse_config(std::string_view json, std::string_view subject, const TensorNames& names = {});

/// Throws Error{Corrupt} naming the first size out of range. After it, sizes multiply without overflow and every
/// relation stated in ModelConfig holds.
void check_config(const ModelConfig& config, std::string_view subject);

}  // namespace kvfork::checkpoint
