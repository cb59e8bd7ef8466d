// StableLM: layer norms with biases, a quarter of each head rotated. Defaults: configuration_stablelm.py of
// Transformers 4.57.3.
#include <array>

#include "checkpoint/families/draft.h"
#include "checkpoint/families/family.h"

namespace kvfork::checkpoint {
namespace {

constexpr std::array kNorms = {
    TensorRow{Role::AttentionNorm, "input_layernorm", "attn_norm", Bias::Always},
    TensorRow{Role::FinalNorm, "norm", "output_norm", Bias::Always},
    TensorRow{Role::MlpNorm, "post_attention_layernorm", "ffn_norm", Bias::Always},
};

void describe(Draft& draft) {
  draft.config().attention_qkv_bias =
      draft.names().is_gguf() ? draft.names().has("blk.0.attn_q.bias") : draft.flag("use_qkv_bias", false);
  const bool is_parallel = draft.flag("use_parallel_residual", false);
  draft.assemble({.norm = NormSpec::Kind::Layer,
                  .partial_rotary_factor = 0.25,
                  .branches = is_parallel ? Branches::ParallelSharedNorm : Branches::Sequential});
}

}  // namespace

const Family kStableLm = {
    .model_type = "stablelm",
    .class_name = "StableLmForCausalLM",
    .gguf_architecture = "",
    .defaults = {.vocab_size = 50304,
                 .hidden_size = 2560,
                 .intermediate_size = 6912,
                 .num_hidden_layers = 32,
                 .num_attention_heads = 32,
                 .num_key_value_heads = 32,
                 .max_position_embeddings = 4096,
                 .rms_norm_eps = 1e-5,
                 .bos_token_id = 0,
                 .eos_token_id = 0},
    .fields = {.norm_eps = "layer_norm_eps"},
    .tensors = llama_tensors(),
    .more_tensors = kNorms,
    .describe = describe,
};

}  // namespace kvfork::checkpoint
