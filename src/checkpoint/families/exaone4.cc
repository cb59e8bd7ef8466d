// EXAONE 4: norms after the branches, heads of q and k normalized, layers that see all keys do not rotate.
// Defaults: configuration_exaone4.py of Transformers 4.57.3.
#include <array>

#include "checkpoint/families/draft.h"
#include "checkpoint/families/family.h"

namespace kvfork::checkpoint {
namespace {

constexpr std::array kTensors = {
    TensorRow{Role::Embedding, "embed_tokens", "token_embd"},
    TensorRow{Role::Q, "self_attn.q_proj", "attn_q"},
    TensorRow{Role::K, "self_attn.k_proj", "attn_k"},
    TensorRow{Role::V, "self_attn.v_proj", "attn_v"},
    TensorRow{Role::QNorm, "self_attn.q_norm", "attn_q_norm"},
    TensorRow{Role::KNorm, "self_attn.k_norm", "attn_k_norm"},
    TensorRow{Role::Output, "self_attn.o_proj", "attn_output"},
    TensorRow{Role::AttentionNormAfter, "post_attention_layernorm", "post_attention_norm"},
    TensorRow{Role::Gate, "mlp.gate_proj", "ffn_gate"},
    TensorRow{Role::Up, "mlp.up_proj", "ffn_up"},
    TensorRow{Role::Down, "mlp.down_proj", "ffn_down"},
    TensorRow{Role::MlpNormAfter, "post_feedforward_layernorm", "post_ffw_norm"},
    TensorRow{Role::FinalNorm, "norm", "output_norm"},
    TensorRow{Role::Head, "lm_head", "output"},
};

void describe(Draft& draft) {
  draft.assemble({});
  const size_t window = draft.fields().has("sliding_window") ? draft.size("sliding_window", 0) : 4096;
  // The pattern may be a word such as LLLG, of which the length counts.
  const auto pattern = draft.fields().find("sliding_window_pattern");
  std::string_view word;
  const bool is_word = pattern && pattern->get(word) == simdjson::SUCCESS;
  const size_t every = window == 0 ? 0 : is_word ? word.size() : draft.size("sliding_window_pattern", 4);
  draft.set_windows(draft.layer_types(draft.usual_layer_types(every)), window);
  if (window != 0) draft.stop_rotation_of_full_layers();
}

}  // namespace

const Family kExaone4 = {
    .model_type = "exaone4",
    .class_name = "Exaone4ForCausalLM",
    .gguf_architecture = "",
    .defaults = {.vocab_size = 102400,
                 .hidden_size = 4096,
                 .intermediate_size = 16384,
                 .num_hidden_layers = 32,
                 .num_attention_heads = 32,
                 .num_key_value_heads = 32,
                 .max_position_embeddings = 2048,
                 .rms_norm_eps = 1e-5,
                 .bos_token_id = 0,
                 .eos_token_id = 2},
    .tensors = kTensors,
    .describe = describe,
};

}  // namespace kvfork::checkpoint
