// Mixtral: Mistral with a mixture of experts whose weights are divided by their sum. Defaults:
// configuration_mixtral.py of Transformers 4.57.3.
#include <array>

#include "checkpoint/families/draft.h"
#include "checkpoint/families/family.h"

namespace kvfork::checkpoint {
namespace {

constexpr std::array kExperts = {
    TensorRow{Role::Router, "block_sparse_moe.gate", "ffn_gate_inp"},
    TensorRow{Role::ExpertGate, "block_sparse_moe.experts.{}.w1", ""},
    TensorRow{Role::ExpertUp, "block_sparse_moe.experts.{}.w3", ""},
    TensorRow{Role::ExpertDown, "block_sparse_moe.experts.{}.w2", ""},
};

void describe(Draft& draft) {
  Form form{.n_experts = draft.size("num_local_experts", 8), .expert_inner = draft.config().intermediate_size};
  form.experts.top_k = draft.size("num_experts_per_tok", 2);
  form.experts.is_normed = true;
  draft.assemble(form);
  draft.set_window(draft.size("sliding_window", 0));
}

}  // namespace

const Family kMixtral = {
    .model_type = "mixtral",
    .class_name = "MixtralForCausalLM",
    .gguf_architecture = "",
    .defaults = {.vocab_size = 32000,
                 .hidden_size = 4096,
                 .intermediate_size = 14336,
                 .num_hidden_layers = 32,
                 .num_attention_heads = 32,
                 .num_key_value_heads = 8,
                 .max_position_embeddings = 131072,
                 .rms_norm_eps = 1e-5,
                 .rope_theta = 1e6,
                 .bos_token_id = 1,
                 .eos_token_id = 2},
    .tensors = llama_tensors(),
    .more_tensors = kExperts,
    .describe = describe,
};

}  // namespace kvfork::checkpoint
