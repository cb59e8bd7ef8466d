// Llama: the form that the other families vary. Defaults: configuration_llama.py of Transformers 4.57.3.
#include <array>

#include "checkpoint/families/draft.h"
#include "checkpoint/families/family.h"

namespace kvfork::checkpoint {
namespace {

// GGUF names: gguf-py's tensor_mapping.py.
constexpr std::array kTensors = {
    TensorRow{Role::Embedding, "embed_tokens", "token_embd"},
    TensorRow{Role::AttentionNorm, "input_layernorm", "attn_norm"},
    TensorRow{Role::Q, "self_attn.q_proj", "attn_q", Bias::AttentionInput},
    TensorRow{Role::K, "self_attn.k_proj", "attn_k", Bias::AttentionInput},
    TensorRow{Role::V, "self_attn.v_proj", "attn_v", Bias::AttentionInput},
    TensorRow{Role::Output, "self_attn.o_proj", "attn_output", Bias::AttentionOutput},
    TensorRow{Role::MlpNorm, "post_attention_layernorm", "ffn_norm"},
    TensorRow{Role::Gate, "mlp.gate_proj", "ffn_gate", Bias::Mlp},
    TensorRow{Role::Up, "mlp.up_proj", "ffn_up", Bias::Mlp},
    TensorRow{Role::Down, "mlp.down_proj", "ffn_down", Bias::Mlp},
    TensorRow{Role::FinalNorm, "norm", "output_norm"},
    TensorRow{Role::Head, "lm_head", "output"},
};

constexpr std::array kHeadNorms = {
    TensorRow{Role::QNorm, "self_attn.q_norm", "attn_q_norm"},
    TensorRow{Role::KNorm, "self_attn.k_norm", "attn_k_norm"},
};

void describe(Draft& draft) {
  draft.read_attention_bias();
  draft.read_mlp_bias();
  draft.assemble({});
}

}  // namespace

std::span<const TensorRow> llama_tensors() noexcept {
  return kTensors;
}

std::span<const TensorRow> head_norm_tensors() noexcept {
  return kHeadNorms;
}

const Family kLlama = {
    .model_type = "llama",
    .class_name = "LlamaForCausalLM",
    .gguf_architecture = "llama",
    .defaults = {.vocab_size = 32000,
                 .hidden_size = 4096,
                 .intermediate_size = 11008,
                 .num_hidden_layers = 32,
                 .num_attention_heads = 32,
                 .max_position_embeddings = 2048,
                 .bos_token_id = 1,
                 .eos_token_id = 2},
    .tensors = kTensors,
    .gguf_permutes_qk = true,
    .describe = describe,
};

}  // namespace kvfork::checkpoint
