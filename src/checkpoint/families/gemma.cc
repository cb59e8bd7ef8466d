// Gemma, Gemma 2, Gemma 3 (text) and VaultGemma: norm weights stored less one, embeddings times sqrt(hidden_size),
// and from Gemma 2 on norms after the branches, caps and windows. Defaults: the configuration classes of
// Transformers 4.57.3.
#include <array>
#include <cmath>

#include "checkpoint/families/draft.h"
#include "checkpoint/families/family.h"

namespace kvfork::checkpoint {
namespace {

constexpr std::array kNormsAfter = {
    TensorRow{Role::AttentionNormAfter, "post_attention_layernorm", "post_attention_norm"},
    TensorRow{Role::MlpNorm, "pre_feedforward_layernorm", "ffn_norm"},
    TensorRow{Role::MlpNormAfter, "post_feedforward_layernorm", "post_ffw_norm"},
};

constexpr std::array kGemma3Norms = {
    TensorRow{Role::AttentionNormAfter, "post_attention_layernorm", "post_attention_norm"},
    TensorRow{Role::MlpNorm, "pre_feedforward_layernorm", "ffn_norm"},
    TensorRow{Role::MlpNormAfter, "post_feedforward_layernorm", "post_ffw_norm"},
    TensorRow{Role::QNorm, "self_attn.q_norm", "attn_q_norm"},
    TensorRow{Role::KNorm, "self_attn.k_norm", "attn_k_norm"},
};

constexpr std::array kVaultNorms = {
    TensorRow{Role::MlpNorm, "pre_feedforward_layernorm", "ffn_norm"},
};

constexpr std::array kGgufFields = {
    GgufField{"attention.sliding_window", "sliding_window"},
    GgufField{"attn_logit_softcapping", "attn_logit_softcapping"},
    GgufField{"final_logit_softcapping", "final_logit_softcapping"},
};

// Converters to GGUF have added the one already.
Form gemma_form(Draft& draft) {
  draft.read_attention_bias();
  draft.spec().embedding_scale = std::sqrt(static_cast<double>(draft.config().hidden_size));
  return {.norm_offset = draft.names().is_gguf() ? 0.0 : 1.0};
}

void describe_gemma(Draft& draft) {
  draft.assemble(gemma_form(draft));
}

// `every`: of so many layers the last sees all keys.
void describe_later(Draft& draft, Form form, size_t every) {
  // GGUF files do not say it; llama.cpp tells the 27B models, which have their own, by their number of layers.
  const ModelConfig& config = draft.config();
  const bool is_27b = config.num_hidden_layers == 46 || config.num_hidden_layers == 62;
  const size_t scalar_of_file = is_27b ? config.hidden_size / config.num_attention_heads : config.head_dim;
  const double scalar =
      draft.names().is_gguf() ? static_cast<double>(scalar_of_file) : draft.number("query_pre_attn_scalar", 256);
  form.score_scale = 1 / std::sqrt(scalar);
  draft.assemble(form);
  draft.set_windows(draft.layer_types(draft.usual_layer_types(every)), draft.size("sliding_window", 4096));
}

void describe_gemma2(Draft& draft) {
  Form form = gemma_form(draft);
  // null switches a cap off; without the key it is there.
  const auto cap = [&](std::string_view name, double absent) {
    return draft.fields().has(name) ? draft.number(name, 0) : absent;
  };
  form.score_cap = cap("attn_logit_softcapping", 50);
  draft.spec().logit_cap = cap("final_logit_softcapping", 30);
  describe_later(draft, form, 2);
}

void describe_gemma3(Draft& draft) {
  Form form = gemma_form(draft);
  form.score_cap = draft.number("attn_logit_softcapping", 0);
  draft.spec().logit_cap = draft.number("final_logit_softcapping", 0);
  if (draft.flag("use_bidirectional_attention", false))
    draft.fields().fail_unsupported("use_bidirectional_attention",
                                    *draft.fields().find("use_bidirectional_attention"), "false");
  describe_later(draft, form, draft.size("sliding_window_pattern", draft.size("_sliding_window_pattern", 6)));
  // Layers with a window rotate by a base of their own, and without scaling.
  const bool is_by_layer = draft.fields().find("rope_parameters").has_value();
  const double local_theta = draft.number("rope_local_base_freq", 10000);
  const RopeSettings local =
      is_by_layer ? read_rope(draft.fields(), {.theta = 10000, .scaling = {}, .partial_rotary_factor = {}},
                              draft.config().max_position_embeddings, "sliding_attention")
                  : RopeSettings{local_theta, {}, {}};
  draft.rotate_windows_by(local, form);
}

}  // namespace

const Family kGemma = {
    .model_type = "gemma",
    .class_name = "GemmaForCausalLM",
    .gguf_architecture = "gemma",
    .defaults = {.vocab_size = 256000,
                 .hidden_size = 3072,
                 .intermediate_size = 24576,
                 .num_hidden_layers = 28,
                 .num_attention_heads = 16,
                 .num_key_value_heads = 16,
                 .head_dim = 256,
                 .max_position_embeddings = 8192,
                 .hidden_act = "gelu_pytorch_tanh",
                 .tie_word_embeddings = true,
                 .bos_token_id = 2,
                 .eos_token_id = 1},
    .tensors = llama_tensors(),
    .describe = describe_gemma,
};

const Family kGemma2 = {
    .model_type = "gemma2",
    .class_name = "Gemma2ForCausalLM",
    .gguf_architecture = "gemma2",
    .defaults = {.vocab_size = 256000,
                 .hidden_size = 2304,
                 .intermediate_size = 9216,
                 .num_hidden_layers = 26,
                 .num_attention_heads = 8,
                 .num_key_value_heads = 4,
                 .head_dim = 256,
                 .max_position_embeddings = 8192,
                 .hidden_act = "gelu_pytorch_tanh",
                 .tie_word_embeddings = true,
                 .bos_token_id = 2,
                 .eos_token_id = 1},
    .fields = {.hidden_act = "hidden_activation"},
    .tensors = llama_tensors(),
    .more_tensors = kNormsAfter,
    .gguf_fields = kGgufFields,
    .describe = describe_gemma2,
};

const Family kGemma3 = {
    .model_type = "gemma3_text",
    .class_name = "Gemma3ForCausalLM",
    .gguf_architecture = "gemma3",
    .defaults = {.vocab_size = 262208,
                 .hidden_size = 2304,
                 .intermediate_size = 9216,
                 .num_hidden_layers = 26,
                 .num_attention_heads = 8,
                 .num_key_value_heads = 4,
                 .head_dim = 256,
                 .max_position_embeddings = 131072,
                 .rope_theta = 1e6,
                 .hidden_act = "gelu_pytorch_tanh",
                 .tie_word_embeddings = true,
                 .bos_token_id = 2,
                 .eos_token_id = 1},
    .fields = {.hidden_act = "hidden_activation"},
    .tensors = llama_tensors(),
    .more_tensors = kGemma3Norms,
    .gguf_fields = kGgufFields,
    .describe = describe_gemma3,
};

const Family kVaultGemma = {
    .model_type = "vaultgemma",
    .class_name = "VaultGemmaForCausalLM",
    .gguf_architecture = "",
    .defaults = {.vocab_size = 256000,
                 .hidden_size = 2304,
                 .intermediate_size = 9216,
                 .num_hidden_layers = 26,
                 .num_attention_heads = 8,
                 .num_key_value_heads = 4,
                 .head_dim = 256,
                 .max_position_embeddings = 8192,
                 .hidden_act = "gelu_pytorch_tanh",
                 .tie_word_embeddings = true,
                 .bos_token_id = 2,
                 .eos_token_id = 1},
    .fields = {.hidden_act = "hidden_activation"},
    .tensors = llama_tensors(),
    .more_tensors = kVaultNorms,
    .gguf_fields = kGgufFields,
    .describe = describe_gemma2,
};

}  // namespace kvfork::checkpoint
