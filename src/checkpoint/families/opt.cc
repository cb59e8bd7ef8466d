// OPT: learned positions, of which the first two are unused, layer norms and biases everywhere. Defaults:
// configuration_opt.py of Transformers 4.57.3.
#include <array>

#include "checkpoint/families/draft.h"
#include "checkpoint/families/family.h"

namespace kvfork::checkpoint {
namespace {

constexpr std::array kTensors = {
    TensorRow{Role::Embedding, "embed_tokens", ""},
    TensorRow{Role::Positions, "embed_positions", ""},
    TensorRow{Role::AttentionNorm, "self_attn_layer_norm", "", Bias::Always},
    TensorRow{Role::Q, "self_attn.q_proj", "", Bias::Always},
    TensorRow{Role::K, "self_attn.k_proj", "", Bias::Always},
    TensorRow{Role::V, "self_attn.v_proj", "", Bias::Always},
    TensorRow{Role::Output, "self_attn.out_proj", "", Bias::Always},
    TensorRow{Role::MlpNorm, "final_layer_norm", "", Bias::Always},
    TensorRow{Role::Up, "fc1", "", Bias::Always},
    TensorRow{Role::Down, "fc2", "", Bias::Always},
    TensorRow{Role::FinalNorm, "final_layer_norm", "", Bias::Always},
    TensorRow{Role::Head, "lm_head", ""},
};

// A field that must hold `wanted`, for the rest is not implemented.
void expect_flag(Draft& draft, std::string_view name, bool wanted) {
  if (draft.flag(name, wanted) != wanted)
    draft.fields().fail_unsupported(name, *draft.fields().find(name), wanted ? "true" : "false");
}

void describe(Draft& draft) {
  for (const char* name : {"do_layer_norm_before", "enable_bias", "layer_norm_elementwise_affine"})
    expect_flag(draft, name, true);
  expect_flag(draft, "_remove_final_layer_norm", false);
  const size_t projected = draft.size("word_embed_proj_dim", draft.config().hidden_size);
  if (projected != draft.config().hidden_size)
    draft.fields().fail_unsupported("word_embed_proj_dim", *draft.fields().find("word_embed_proj_dim"),
                                    "hidden_size");
  draft.config().rms_norm_eps = 1e-5;  // fixed in the code
  draft.assemble({.norm = NormSpec::Kind::Layer,
                  .position_offset = 2,
                  .n_positions = draft.config().max_position_embeddings + 2});
}

}  // namespace

const Family kOpt = {
    .model_type = "opt",
    .class_name = "OPTForCausalLM",
    .gguf_architecture = "",
    .defaults = {.vocab_size = 50272,
                 .hidden_size = 768,
                 .intermediate_size = 3072,
                 .num_hidden_layers = 12,
                 .num_attention_heads = 12,
                 .max_position_embeddings = 2048,
                 .hidden_act = "relu",
                 .tie_word_embeddings = true,
                 .bos_token_id = 2,
                 .eos_token_id = 2},
    .fields = {.hidden_act = "activation_function", .intermediate_size = "ffn_dim"},
    .prefix = "model.decoder.",
    .tensors = kTensors,
    .describe = describe,
};

}  // namespace kvfork::checkpoint
