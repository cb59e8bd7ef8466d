// MiniMax M2: q and k normalized whole, a part of each head rotated, experts by sigmoid scores with a correction.
// Defaults: configuration_minimax_m2.py of Transformers 5.24.0.
#include <array>

#include "checkpoint/families/draft.h"
#include "checkpoint/families/family.h"

namespace kvfork::checkpoint {
namespace {

constexpr std::array kExperts = {
    TensorRow{Role::Router, "block_sparse_moe.gate", ""},
    TensorRow{Role::RouterCorrection, "block_sparse_moe.e_score_correction_bias", "", Bias::Never, true},
    TensorRow{Role::ExpertGate, "block_sparse_moe.experts.{}.w1", ""},
    TensorRow{Role::ExpertUp, "block_sparse_moe.experts.{}.w3", ""},
    TensorRow{Role::ExpertDown, "block_sparse_moe.experts.{}.w2", ""},
};

void describe(Draft& draft) {
  const ModelConfig& config = draft.config();
  Form form{.head_norms = HeadNormForm::Whole};
  if (draft.flag("use_qk_norm", true)) draft.add_tensors(head_norm_tensors());
  const double rotated = static_cast<double>(draft.size("rotary_dim", config.head_dim));
  form.partial_rotary_factor = rotated / static_cast<double>(config.head_dim);
  form.n_experts = draft.size("num_local_experts", draft.size("num_experts", 256));
  form.expert_inner = config.intermediate_size;
  form.experts.top_k = draft.size("num_experts_per_tok", 8);
  form.experts.score = ExpertsSpec::Score::Sigmoid;
  form.experts.is_normed = true;
  draft.assemble(form);
}

}  // namespace

const Family kMiniMaxM2 = {
    .model_type = "minimax_m2",
    .class_name = "MiniMaxM2ForCausalLM",
    .gguf_architecture = "",
    .defaults = {.vocab_size = 200064,
                 .hidden_size = 3072,
                 .intermediate_size = 1536,
                 .num_hidden_layers = 62,
                 .num_attention_heads = 48,
                 .num_key_value_heads = 8,
                 .head_dim = 128,
                 .max_position_embeddings = 196608,
                 .rope_theta = 5e6,
                 .bos_token_id = 200034,
                 .eos_token_id = 200020},
    .tensors = llama_tensors(),
    .more_tensors = kExperts,
    .describe = describe,
};

}  // namespace kvfork::checkpoint
