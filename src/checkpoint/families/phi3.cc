// Phi-3, Phi-3.5 and Phi-4: q, k and v in one matrix, gate and up in one, a part of each head rotated, longrope.
// Defaults: configuration_phi3.py of Transformers 4.57.3.
#include <array>

#include "checkpoint/families/draft.h"
#include "checkpoint/families/family.h"

namespace kvfork::checkpoint {
namespace {

constexpr std::array kTensors = {
    TensorRow{Role::Embedding, "embed_tokens", "token_embd"},
    TensorRow{Role::AttentionNorm, "input_layernorm", "attn_norm"},
    TensorRow{Role::Qkv, "self_attn.qkv_proj", "attn_qkv"},
    TensorRow{Role::Output, "self_attn.o_proj", "attn_output"},
    TensorRow{Role::MlpNorm, "post_attention_layernorm", "ffn_norm"},
    TensorRow{Role::GateUp, "mlp.gate_up_proj", "ffn_up"},
    TensorRow{Role::Down, "mlp.down_proj", "ffn_down"},
    TensorRow{Role::FinalNorm, "norm", "output_norm"},
    TensorRow{Role::Head, "lm_head", "output"},
};

void describe(Draft& draft) {
  draft.assemble({.partial_rotary_factor = 1});
  draft.set_window(draft.size("sliding_window", 0));
}

}  // namespace

const Family kPhi3 = {
    .model_type = "phi3",
    .class_name = "Phi3ForCausalLM",
    .gguf_architecture = "",
    .defaults = {.vocab_size = 32064,
                 .hidden_size = 3072,
                 .intermediate_size = 8192,
                 .num_hidden_layers = 32,
                 .num_attention_heads = 32,
                 .num_key_value_heads = 32,
                 .max_position_embeddings = 4096,
                 .rms_norm_eps = 1e-5,
                 .bos_token_id = 1,
                 .eos_token_id = 32000},
    .tensors = kTensors,
    .describe = describe,
};

}  // namespace kvfork::checkpoint
