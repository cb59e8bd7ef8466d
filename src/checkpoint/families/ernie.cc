// ERNIE 4.5, dense and mixture: neighbours rotated, one word for all biases. Defaults: the configuration classes of
// Transformers 4.57.3.
#include <algorithm>
#include <array>

#include "checkpoint/families/draft.h"
#include "checkpoint/families/family.h"

namespace kvfork::checkpoint {
namespace {

constexpr std::array kMore = {
    TensorRow{Role::RouterCorrectionRow, "mlp.moe_statics.e_score_correction_bias", "exp_probs_b.bias", Bias::Never,
              true},
    TensorRow{Role::SharedGate, "mlp.shared_experts.gate_proj", "ffn_gate_shexp", Bias::Mlp},
    TensorRow{Role::SharedUp, "mlp.shared_experts.up_proj", "ffn_up_shexp", Bias::Mlp},
    TensorRow{Role::SharedDown, "mlp.shared_experts.down_proj", "ffn_down_shexp", Bias::Mlp},
};

void read_bias(Draft& draft) {
  ModelConfig& config = draft.config();
  config.attention_qkv_bias = config.attention_output_bias = config.mlp_bias = draft.flag("use_bias", false);
}

void describe_dense(Draft& draft) {
  read_bias(draft);
  draft.assemble({.rotates_neighbours = true});
}

void describe_moe(Draft& draft) {
  read_bias(draft);
  Form form{.rotates_neighbours = true,
            .n_experts = draft.size("moe_num_experts", 64),
            .expert_inner = draft.size("moe_intermediate_size", 1536)};
  form.shared_inner = form.expert_inner * draft.size("moe_num_shared_experts", 2);
  form.experts.top_k = draft.size("moe_k", 6);
  form.experts.is_normed = true;
  form.experts.least = draft.number("moe_norm_min", 1e-12);
  const auto n_layers = static_cast<int64_t>(draft.config().num_hidden_layers);
  const int64_t first = draft.fields().find_integer("moe_layer_start_index").value_or(1);
  const int64_t end = draft.fields().find_integer("moe_layer_end_index").value_or(-1);
  const int64_t last = end == -1 ? n_layers - 1 : end;
  const auto interval = static_cast<int64_t>(std::max<size_t>(1, draft.size("moe_layer_interval", 1)));
  for (int64_t i = 0; i < n_layers; ++i)
    form.has_experts.push_back((i + 1) % interval == 0 && i >= first && i <= last);
  draft.assemble(form);
}

}  // namespace

const Family kErnie = {
    .model_type = "ernie4_5",
    .class_name = "Ernie4_5ForCausalLM",
    .gguf_architecture = "",
    .defaults = {.vocab_size = 103424,
                 .hidden_size = 1024,
                 .intermediate_size = 3072,
                 .num_hidden_layers = 18,
                 .num_attention_heads = 16,
                 .num_key_value_heads = 2,
                 .head_dim = 128,
                 .max_position_embeddings = 131072,
                 .rms_norm_eps = 1e-5,
                 .rope_theta = 5e5,
                 .tie_word_embeddings = true,
                 .bos_token_id = 1,
                 .eos_token_id = 2},
    .tensors = llama_tensors(),
    .gguf_permutes_qk = true,
    .describe = describe_dense,
};

const Family kErnieMoe = {
    .model_type = "ernie4_5_moe",
    .class_name = "Ernie4_5_MoeForCausalLM",
    .gguf_architecture = "",
    .defaults = {.vocab_size = 103424,
                 .hidden_size = 2560,
                 .intermediate_size = 12288,
                 .num_hidden_layers = 28,
                 .num_attention_heads = 20,
                 .num_key_value_heads = 4,
                 .max_position_embeddings = 131072,
                 .rms_norm_eps = 1e-5,
                 .rope_theta = 5e5,
                 .tie_word_embeddings = true,
                 .bos_token_id = 1,
                 .eos_token_id = 2},
    .tensors = llama_tensors(),
    .more_tensors = kMore,
    .experts = expert_tensors(),
    .gguf_permutes_qk = true,
    .describe = describe_moe,
};

}  // namespace kvfork::checkpoint
