// GPT-NeoX and Pythia: q, k and v of each head below each other in one matrix, layer norms and biases everywhere.
// Defaults: configuration_gpt_neox.py of Transformers 4.57.3.
#include <array>

#include "checkpoint/families/draft.h"
#include "checkpoint/families/family.h"

namespace kvfork::checkpoint {
namespace {

constexpr std::array kTensors = {
    TensorRow{Role::Embedding, "embed_in", "token_embd"},
    TensorRow{Role::AttentionNorm, "input_layernorm", "attn_norm", Bias::Always},
    TensorRow{Role::QkvByHead, "attention.query_key_value", "", Bias::AttentionInput},
    TensorRow{Role::Qkv, "", "attn_qkv", Bias::AttentionInput},
    TensorRow{Role::Output, "attention.dense", "attn_output", Bias::AttentionOutput},
    TensorRow{Role::MlpNorm, "post_attention_layernorm", "ffn_norm", Bias::Always},
    TensorRow{Role::Up, "mlp.dense_h_to_4h", "ffn_up", Bias::Always},
    TensorRow{Role::Down, "mlp.dense_4h_to_h", "ffn_down", Bias::Always},
    TensorRow{Role::FinalNorm, "final_layer_norm", "output_norm", Bias::Always},
    TensorRow{Role::Head, "embed_out", "output"},
};

void describe(Draft& draft) {
  ModelConfig& config = draft.config();
  config.attention_qkv_bias = config.attention_output_bias = draft.flag("attention_bias", true);
  if (const auto base = draft.fields().find_number("rotary_emb_base")) config.rope_theta = *base;
  const bool is_parallel = draft.flag("use_parallel_residual", true);
  draft.assemble({.norm = NormSpec::Kind::Layer,
                  .partial_rotary_factor = draft.number("rotary_pct", 0.25),
                  .branches = is_parallel ? Branches::ParallelOwnNorm : Branches::Sequential});
}

}  // namespace

const Family kGptNeoX = {
    .model_type = "gpt_neox",
    .class_name = "GPTNeoXForCausalLM",
    .gguf_architecture = "",
    .defaults = {.vocab_size = 50432,
                 .hidden_size = 6144,
                 .intermediate_size = 24576,
                 .num_hidden_layers = 44,
                 .num_attention_heads = 64,
                 .max_position_embeddings = 2048,
                 .rms_norm_eps = 1e-5,
                 .hidden_act = "gelu",
                 .bos_token_id = 0,
                 .eos_token_id = 2},
    .fields = {.norm_eps = "layer_norm_eps"},
    .prefix = "gpt_neox.",
    .tensors = kTensors,
    .describe = describe,
};

}  // namespace kvfork::checkpoint
