// GLM-4 0414 and before (neighbours rotated, gate and up in one matrix) and GLM-4.5 and later (a mixture chosen by
// sigmoid scores). Defaults: the configuration classes of Transformers 4.57.3.
#include <array>

#include "checkpoint/families/draft.h"
#include "checkpoint/families/family.h"

namespace kvfork::checkpoint {
namespace {

constexpr std::array kGlmMlp = {
    TensorRow{Role::GateUp, "mlp.gate_up_proj", "ffn_up"},
};

constexpr std::array kGlm4Norms = {
    TensorRow{Role::AttentionNormAfter, "post_self_attn_layernorm", "post_attention_norm"},
    TensorRow{Role::MlpNormAfter, "post_mlp_layernorm", "post_ffw_norm"},
    TensorRow{Role::GateUp, "mlp.gate_up_proj", "ffn_up"},
};

constexpr std::array kTensors = {
    TensorRow{Role::Embedding, "embed_tokens", "token_embd"},
    TensorRow{Role::AttentionNorm, "input_layernorm", "attn_norm"},
    TensorRow{Role::Q, "self_attn.q_proj", "attn_q", Bias::AttentionInput},
    TensorRow{Role::K, "self_attn.k_proj", "attn_k", Bias::AttentionInput},
    TensorRow{Role::V, "self_attn.v_proj", "attn_v", Bias::AttentionInput},
    TensorRow{Role::Output, "self_attn.o_proj", "attn_output"},
    TensorRow{Role::MlpNorm, "post_attention_layernorm", "ffn_norm"},
    TensorRow{Role::Down, "mlp.down_proj", "ffn_down"},
    TensorRow{Role::FinalNorm, "norm", "output_norm"},
    TensorRow{Role::Head, "lm_head", "output"},
};

// Only q, k and v have biases.
void read_input_bias(Draft& draft, bool absent) {
  draft.read_attention_bias(absent);
  draft.config().attention_output_bias = false;
}

void describe_glm(Draft& draft) {
  read_input_bias(draft, true);
  draft.assemble({.rotates_neighbours = true, .partial_rotary_factor = 0.5});
}

void describe_moe(Draft& draft) {
  read_input_bias(draft, false);
  if (draft.flag("use_qk_norm", false)) draft.add_tensors(head_norm_tensors());
  Form form{.partial_rotary_factor = 0.5};
  draft.read_corrected_experts(form, 128, 1408, 8, 1, true);
  draft.spec().has_draft_layers = true;
  draft.assemble(form);
}

}  // namespace

const Family kGlm = {
    .model_type = "glm",
    .class_name = "GlmForCausalLM",
    .gguf_architecture = "",
    .defaults = {.vocab_size = 151552,
                 .hidden_size = 4096,
                 .intermediate_size = 13696,
                 .num_hidden_layers = 40,
                 .num_attention_heads = 32,
                 .num_key_value_heads = 2,
                 .head_dim = 128,
                 .max_position_embeddings = 131072,
                 .rms_norm_eps = 1.5625e-7},
    .tensors = kTensors,
    .more_tensors = kGlmMlp,
    .describe = describe_glm,
};

const Family kGlm4 = {
    .model_type = "glm4",
    .class_name = "Glm4ForCausalLM",
    .gguf_architecture = "",
    .defaults = {.vocab_size = 151552,
                 .hidden_size = 4096,
                 .intermediate_size = 13696,
                 .num_hidden_layers = 40,
                 .num_attention_heads = 32,
                 .num_key_value_heads = 2,
                 .head_dim = 128,
                 .max_position_embeddings = 131072,
                 .rms_norm_eps = 1.5625e-7},
    .tensors = kTensors,
    .more_tensors = kGlm4Norms,
    .describe = describe_glm,
};

const Family kGlm4Moe = {
    .model_type = "glm4_moe",
    .class_name = "Glm4MoeForCausalLM",
    .gguf_architecture = "",
    .defaults = {.vocab_size = 151552,
                 .hidden_size = 4096,
                 .intermediate_size = 10944,
                 .num_hidden_layers = 46,
                 .num_attention_heads = 96,
                 .num_key_value_heads = 8,
                 .max_position_embeddings = 131072,
                 .rms_norm_eps = 1e-5},
    .tensors = llama_tensors(),
    .more_tensors = corrected_expert_tensors(),
    .experts = expert_tensors(),
    .describe = describe_moe,
};

}  // namespace kvfork::checkpoint
