// Phi-1, Phi-1.5 and Phi-2: layer norms and biases everywhere, both branches read the same norm, a feed-forward
// without gate. Defaults: configuration_phi.py of Transformers 4.57.3.
#include <array>

#include "checkpoint/families/draft.h"
#include "checkpoint/families/family.h"

namespace kvfork::checkpoint {
namespace {

constexpr std::array kTensors = {
    TensorRow{Role::Embedding, "embed_tokens", "token_embd"},
    TensorRow{Role::AttentionNorm, "input_layernorm", "attn_norm", Bias::Always},
    TensorRow{Role::Q, "self_attn.q_proj", "attn_q", Bias::Always},
    TensorRow{Role::K, "self_attn.k_proj", "attn_k", Bias::Always},
    TensorRow{Role::V, "self_attn.v_proj", "attn_v", Bias::Always},
    TensorRow{Role::Output, "self_attn.dense", "attn_output", Bias::Always},
    TensorRow{Role::Up, "mlp.fc1", "ffn_up", Bias::Always},
    TensorRow{Role::Down, "mlp.fc2", "ffn_down", Bias::Always},
    TensorRow{Role::FinalNorm, "final_layernorm", "output_norm", Bias::Always},
    TensorRow{Role::Head, "lm_head", "output", Bias::Always},
};

constexpr std::array kHeadNorms = {
    TensorRow{Role::QNorm, "self_attn.q_layernorm", "", Bias::Always},
    TensorRow{Role::KNorm, "self_attn.k_layernorm", "", Bias::Always},
};

void describe(Draft& draft) {
  if (draft.flag("qk_layernorm", false)) draft.add_tensors(kHeadNorms);
  draft.assemble(
      {.norm = NormSpec::Kind::Layer, .partial_rotary_factor = 0.5, .branches = Branches::ParallelSharedNorm});
}

}  // namespace

const Family kPhi = {
    .model_type = "phi",
    .class_name = "PhiForCausalLM",
    .gguf_architecture = "",
    .defaults = {.vocab_size = 51200,
                 .hidden_size = 2048,
                 .intermediate_size = 8192,
                 .num_hidden_layers = 24,
                 .num_attention_heads = 32,
                 .max_position_embeddings = 2048,
                 .rms_norm_eps = 1e-5,
                 .hidden_act = "gelu_new",
                 .bos_token_id = 1,
                 .eos_token_id = 2},
    .fields = {.norm_eps = "layer_norm_eps"},
    .tensors = kTensors,
    .describe = describe,
};

}  // namespace kvfork::checkpoint
