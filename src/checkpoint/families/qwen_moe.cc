// Qwen1.5/2 MoE (a gated shared expert, biases of q, k and v) and Qwen3 MoE (heads of q and k normalized).
// Defaults: the configuration classes of Transformers 4.57.3.
#include "checkpoint/families/draft.h"
#include "checkpoint/families/family.h"

namespace kvfork::checkpoint {
namespace {

void describe_experts(Draft& draft, Form form, size_t top_k, size_t n_experts, size_t inner) {
  // Transformers 5 writes Qwen3's number under the second name.
  form.n_experts = draft.size("num_experts", draft.size("num_local_experts", n_experts));
  form.expert_inner = draft.size("moe_intermediate_size", inner);
  form.experts.top_k = draft.size("num_experts_per_tok", top_k);
  form.experts.is_normed = draft.flag("norm_topk_prob", false);
  draft.read_sparse_layers(form);
  draft.assemble(form);
  const std::vector<std::string> usual(draft.config().num_hidden_layers, "sliding_attention");
  draft.set_windows(draft.layer_types(usual), draft.switched_window());
}

void describe_qwen2(Draft& draft) {
  draft.config().attention_qkv_bias = draft.flag("qkv_bias", true);
  describe_experts(draft, {.shared_inner = draft.size("shared_expert_intermediate_size", 5632)}, 4, 60, 1408);
}

void describe_qwen3(Draft& draft) {
  draft.read_attention_bias();
  describe_experts(draft, {}, 8, 128, 768);
}

}  // namespace

const Family kQwen2Moe = {
    .model_type = "qwen2_moe",
    .class_name = "Qwen2MoeForCausalLM",
    .gguf_architecture = "",
    .defaults = {.vocab_size = 151936,
                 .hidden_size = 2048,
                 .intermediate_size = 5632,
                 .num_hidden_layers = 24,
                 .num_attention_heads = 16,
                 .num_key_value_heads = 16,
                 .max_position_embeddings = 32768},
    .tensors = llama_tensors(),
    .more_tensors = gated_shared_expert_tensors(),
    .experts = expert_tensors(),
    .describe = describe_qwen2,
};

const Family kQwen3Moe = {
    .model_type = "qwen3_moe",
    .class_name = "Qwen3MoeForCausalLM",
    .gguf_architecture = "",
    .defaults = {.vocab_size = 151936,
                 .hidden_size = 2048,
                 .intermediate_size = 6144,
                 .num_hidden_layers = 24,
                 .num_attention_heads = 32,
                 .num_key_value_heads = 4,
                 .max_position_embeddings = 32768},
    .tensors = llama_tensors(),
    .more_tensors = head_norm_tensors(),
    .experts = expert_tensors(),
    .describe = describe_qwen3,
};

}  // namespace kvfork::checkpoint
