// GPT-2: learned positions, layer norms and biases everywhere, matrices stored transposed. Defaults:
// configuration_gpt2.py of Transformers 4.57.3.
#include <array>

#include "checkpoint/families/draft.h"
#include "checkpoint/families/family.h"

namespace kvfork::checkpoint {
namespace {

constexpr std::array kTensors = {
    TensorRow{Role::Embedding, "wte", ""},
    TensorRow{Role::Positions, "wpe", ""},
    TensorRow{Role::AttentionNorm, "ln_1", "", Bias::Always},
    TensorRow{Role::Qkv, "attn.c_attn", "", Bias::Always, false, true},
    TensorRow{Role::Output, "attn.c_proj", "", Bias::Always, false, true},
    TensorRow{Role::MlpNorm, "ln_2", "", Bias::Always},
    TensorRow{Role::Up, "mlp.c_fc", "", Bias::Always, false, true},
    TensorRow{Role::Down, "mlp.c_proj", "", Bias::Always, false, true},
    TensorRow{Role::FinalNorm, "ln_f", "", Bias::Always},
    TensorRow{Role::Head, "lm_head", ""},
};

void describe(Draft& draft) {
  for (const auto& [name, usual] :
       {std::pair{"scale_attn_weights", true}, std::pair{"scale_attn_by_inverse_layer_idx", false},
        std::pair{"add_cross_attention", false}}) {
    if (draft.flag(name, usual) != usual)
      draft.fields().fail_unsupported(name, *draft.fields().find(name), usual ? "true" : "false");
  }
  ModelConfig& config = draft.config();
  config.intermediate_size = draft.size("n_inner", 4 * config.hidden_size);
  draft.assemble({.norm = NormSpec::Kind::Layer, .n_positions = config.max_position_embeddings});
}

}  // namespace

const Family kGpt2 = {
    .model_type = "gpt2",
    .class_name = "GPT2LMHeadModel",
    .gguf_architecture = "",
    .defaults = {.vocab_size = 50257,
                 .hidden_size = 768,
                 .intermediate_size = 3072,
                 .num_hidden_layers = 12,
                 .num_attention_heads = 12,
                 .max_position_embeddings = 1024,
                 .rms_norm_eps = 1e-5,
                 .hidden_act = "gelu_new",
                 .tie_word_embeddings = true,
                 .bos_token_id = 50256,
                 .eos_token_id = 50256},
    .fields = {.norm_eps = "layer_norm_epsilon",
               .hidden_act = "activation_function",
               .hidden_size = "n_embd",
               .intermediate_size = "n_inner",
               .num_hidden_layers = "n_layer",
               .num_attention_heads = "n_head",
               .max_position_embeddings = "n_positions"},
    .prefix = "transformer.",
    .layer_prefix = "h.",
    .tensors = kTensors,
    .describe = describe,
};

}  // namespace kvfork::checkpoint
