// Hunyuan, dense and mixture: heads of q and k normalized after the rotation, whose base a factor alpha stretches.
// Defaults: the configuration classes of Transformers 4.57.3.
#include <array>

#include "checkpoint/families/draft.h"
#include "checkpoint/families/family.h"

namespace kvfork::checkpoint {
namespace {

constexpr std::array kHeadNorms = {
    TensorRow{Role::QNorm, "self_attn.query_layernorm", "attn_q_norm"},
    TensorRow{Role::KNorm, "self_attn.key_layernorm", "attn_k_norm"},
};

constexpr std::array kMoe = {
    TensorRow{Role::Router, "mlp.gate.wg", "ffn_gate_inp"},
    TensorRow{Role::SharedGate, "mlp.shared_mlp.gate_proj", "ffn_gate_shexp"},
    TensorRow{Role::SharedUp, "mlp.shared_mlp.up_proj", "ffn_up_shexp"},
    TensorRow{Role::SharedDown, "mlp.shared_mlp.down_proj", "ffn_down_shexp"},
};

void describe_dense(Draft& draft) {
  draft.read_attention_bias();
  draft.assemble({.norms_after_rotation = true});
}

// A number, or a list with one for each layer, all equal.
size_t same_for_all(Draft& draft, std::string_view name, size_t absent) {
  const auto value = draft.fields().find(name);
  if (!value || !value->is_array()) return draft.size(name, absent);
  const auto list = *draft.fields().find_numbers(name);
  for (const double number : list) {
    if (number != list.front()) draft.fields().fail_unsupported(name, *value, "one number for all layers");
  }
  return list.empty() ? absent : static_cast<size_t>(list.front());
}

void describe_moe(Draft& draft) {
  draft.add_tensors(kHeadNorms);
  draft.read_attention_bias();
  const size_t inner = draft.config().intermediate_size;
  Form form{.norms_after_rotation = true,
            .n_experts = same_for_all(draft, "num_experts", 1),
            .expert_inner = inner,
            .shared_inner = inner};
  form.experts.top_k = same_for_all(draft, "moe_topk", 1);
  form.experts.is_normed = true;
  draft.assemble(form);
}

}  // namespace

const Family kHunyuan = {
    .model_type = "hunyuan_v1_dense",
    .class_name = "HunYuanDenseV1ForCausalLM",
    .gguf_architecture = "",
    .defaults = {.vocab_size = 290943,
                 .hidden_size = 4096,
                 .intermediate_size = 11008,
                 .num_hidden_layers = 32,
                 .num_attention_heads = 32,
                 .max_position_embeddings = 2048,
                 .rms_norm_eps = 1e-5,
                 .bos_token_id = 1,
                 .eos_token_id = 2},
    .tensors = llama_tensors(),
    .more_tensors = kHeadNorms,
    .describe = describe_dense,
};

const Family kHunyuanMoe = {
    .model_type = "hunyuan_v1_moe",
    .class_name = "HunYuanMoEV1ForCausalLM",
    .gguf_architecture = "",
    .defaults = {.vocab_size = 290943,
                 .hidden_size = 4096,
                 .intermediate_size = 11008,
                 .num_hidden_layers = 32,
                 .num_attention_heads = 32,
                 .max_position_embeddings = 2048,
                 .rms_norm_eps = 1e-5,
                 .bos_token_id = 1,
                 .eos_token_id = 2},
    .tensors = llama_tensors(),
    .more_tensors = kMoe,
    .experts = expert_tensors(),
    .describe = describe_moe,
};

}  // namespace kvfork::checkpoint
