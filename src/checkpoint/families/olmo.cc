// OLMo (norms without weights), OLMo 2 and OLMo 3 (norms after the branches, q and k normalized whole). Defaults:
// the configuration classes of Transformers 4.57.3.
#include <array>

#include "checkpoint/families/draft.h"
#include "checkpoint/families/family.h"

namespace kvfork::checkpoint {
namespace {

constexpr std::array kTensors = {
    TensorRow{Role::Embedding, "embed_tokens", "token_embd"},
    TensorRow{Role::Q, "self_attn.q_proj", "attn_q", Bias::AttentionInput},
    TensorRow{Role::K, "self_attn.k_proj", "attn_k", Bias::AttentionInput},
    TensorRow{Role::V, "self_attn.v_proj", "attn_v", Bias::AttentionInput},
    TensorRow{Role::QNorm, "self_attn.q_norm", "attn_q_norm"},
    TensorRow{Role::KNorm, "self_attn.k_norm", "attn_k_norm"},
    TensorRow{Role::Output, "self_attn.o_proj", "attn_output", Bias::AttentionOutput},
    TensorRow{Role::AttentionNormAfter, "post_attention_layernorm", "post_attention_norm"},
    TensorRow{Role::Gate, "mlp.gate_proj", "ffn_gate"},
    TensorRow{Role::Up, "mlp.up_proj", "ffn_up"},
    TensorRow{Role::Down, "mlp.down_proj", "ffn_down"},
    TensorRow{Role::MlpNormAfter, "post_feedforward_layernorm", "post_ffw_norm"},
    TensorRow{Role::FinalNorm, "norm", "output_norm"},
    TensorRow{Role::Head, "lm_head", "output"},
};

void describe_olmo(Draft& draft) {
  draft.read_attention_bias();
  draft.config().rms_norm_eps = 1e-5;  // fixed in the code
  draft.assemble({.norm = NormSpec::Kind::Layer, .clip = draft.number("clip_qkv", 0), .norms_have_weights = false});
}

void describe_olmo2(Draft& draft) {
  draft.read_attention_bias();
  draft.assemble({.head_norms = HeadNormForm::Whole});
}

void describe_olmo3(Draft& draft) {
  describe_olmo2(draft);
  draft.set_windows(draft.layer_types(draft.usual_layer_types(4)), draft.size("sliding_window", 4096));
  // Layers with a window rotate without scaling.
  draft.rotate_windows_by({draft.config().rope_theta, {}, {}}, {});
}

}  // namespace

const Family kOlmo = {
    .model_type = "olmo",
    .class_name = "OlmoForCausalLM",
    .gguf_architecture = "",
    .defaults = {.vocab_size = 50304,
                 .hidden_size = 4096,
                 .intermediate_size = 11008,
                 .num_hidden_layers = 32,
                 .num_attention_heads = 32,
                 .max_position_embeddings = 2048,
                 .eos_token_id = 50279},
    .tensors = llama_tensors(),
    .gguf_permutes_qk = true,
    .describe = describe_olmo,
};

const Family kOlmo2 = {
    .model_type = "olmo2",
    .class_name = "Olmo2ForCausalLM",
    .gguf_architecture = "olmo2",
    .defaults = {.vocab_size = 50304,
                 .hidden_size = 4096,
                 .intermediate_size = 11008,
                 .num_hidden_layers = 32,
                 .num_attention_heads = 32,
                 .max_position_embeddings = 2048,
                 .rms_norm_eps = 1e-5,
                 .eos_token_id = 50279},
    .tensors = kTensors,
    .describe = describe_olmo2,
};

const Family kOlmo3 = {
    .model_type = "olmo3",
    .class_name = "Olmo3ForCausalLM",
    .gguf_architecture = "",
    .defaults = {.vocab_size = 50304,
                 .hidden_size = 4096,
                 .intermediate_size = 11008,
                 .num_hidden_layers = 32,
                 .num_attention_heads = 32,
                 .max_position_embeddings = 2048,
                 .rms_norm_eps = 1e-5,
                 .eos_token_id = 50279},
    .tensors = kTensors,
    .describe = describe_olmo3,
};

}  // namespace kvfork::checkpoint
