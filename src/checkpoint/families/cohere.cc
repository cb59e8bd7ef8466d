// Command R and R7B: layer norms without bias, both branches read the same norm, neighbours rotated, logits scaled.
// Defaults: the configuration classes of Transformers 4.57.3.
#include <array>

#include "checkpoint/families/draft.h"
#include "checkpoint/families/family.h"

namespace kvfork::checkpoint {
namespace {

constexpr std::array kTensors = {
    TensorRow{Role::Embedding, "embed_tokens", "token_embd"},
    TensorRow{Role::AttentionNorm, "input_layernorm", "attn_norm"},
    TensorRow{Role::Q, "self_attn.q_proj", "attn_q", Bias::AttentionInput},
    TensorRow{Role::K, "self_attn.k_proj", "attn_k", Bias::AttentionInput},
    TensorRow{Role::V, "self_attn.v_proj", "attn_v", Bias::AttentionInput},
    TensorRow{Role::Output, "self_attn.o_proj", "attn_output", Bias::AttentionOutput},
    TensorRow{Role::Gate, "mlp.gate_proj", "ffn_gate"},
    TensorRow{Role::Up, "mlp.up_proj", "ffn_up"},
    TensorRow{Role::Down, "mlp.down_proj", "ffn_down"},
    TensorRow{Role::FinalNorm, "norm", "output_norm"},
    TensorRow{Role::Head, "lm_head", "output"},
};

Form cohere_form(Draft& draft) {
  draft.read_attention_bias();
  draft.spec().logit_scale = draft.number("logit_scale", 0.0625);
  return {.norm = NormSpec::Kind::Layer,
          .head_norms = HeadNormForm::Heads,
          .rotates_neighbours = true,
          .branches = Branches::ParallelSharedNorm};
}

void describe_cohere(Draft& draft) {
  if (draft.flag("use_qk_norm", false)) draft.add_tensors(head_norm_tensors());
  draft.assemble(cohere_form(draft));
}

void describe_cohere2(Draft& draft) {
  const Form form = cohere_form(draft);
  draft.assemble(form);
  const size_t every = draft.size("sliding_window_pattern", draft.size("_sliding_window_pattern", 4));
  draft.set_windows(draft.layer_types(draft.usual_layer_types(every)), draft.size("sliding_window", 4096));
  draft.stop_rotation_of_full_layers();
}

}  // namespace

const Family kCohere = {
    .model_type = "cohere",
    .class_name = "CohereForCausalLM",
    .gguf_architecture = "",
    .defaults = {.vocab_size = 256000,
                 .hidden_size = 8192,
                 .intermediate_size = 22528,
                 .num_hidden_layers = 40,
                 .num_attention_heads = 64,
                 .max_position_embeddings = 8192,
                 .rms_norm_eps = 1e-5,
                 .tie_word_embeddings = true,
                 .bos_token_id = 5,
                 .eos_token_id = 255001},
    .fields = {.norm_eps = "layer_norm_eps"},
    .tensors = kTensors,
    .describe = describe_cohere,
};

const Family kCohere2 = {
    .model_type = "cohere2",
    .class_name = "Cohere2ForCausalLM",
    .gguf_architecture = "",
    .defaults = {.vocab_size = 256000,
                 .hidden_size = 8192,
                 .intermediate_size = 22528,
                 .num_hidden_layers = 40,
                 .num_attention_heads = 64,
                 .head_dim = 128,
                 .max_position_embeddings = 8192,
                 .rms_norm_eps = 1e-5,
                 .tie_word_embeddings = true,
                 .bos_token_id = 5,
                 .eos_token_id = 255001},
    .fields = {.norm_eps = "layer_norm_eps"},
    .tensors = kTensors,
    .describe = describe_cohere2,
};

}  // namespace kvfork::checkpoint
