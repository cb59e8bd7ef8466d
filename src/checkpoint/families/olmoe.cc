// OLMoE: q and k normalized whole, values cut, a mixture of experts. Defaults: configuration_olmoe.py of
// Transformers 4.57.3.
#include "checkpoint/families/draft.h"
#include "checkpoint/families/family.h"

namespace kvfork::checkpoint {
namespace {

void describe(Draft& draft) {
  draft.read_attention_bias();
  Form form{.head_norms = HeadNormForm::Whole,
            .clip = draft.number("clip_qkv", 0),
            .n_experts = draft.size("num_experts", 64),
            .expert_inner = draft.config().intermediate_size};
  form.experts.top_k = draft.size("num_experts_per_tok", 8);
  form.experts.is_normed = draft.flag("norm_topk_prob", false);
  draft.assemble(form);
}

}  // namespace

const Family kOlmoe = {
    .model_type = "olmoe",
    .class_name = "OlmoeForCausalLM",
    .gguf_architecture = "",
    .defaults = {.vocab_size = 50304,
                 .hidden_size = 2048,
                 .intermediate_size = 2048,
                 .num_hidden_layers = 16,
                 .num_attention_heads = 16,
                 .num_key_value_heads = 16,
                 .max_position_embeddings = 4096,
                 .rms_norm_eps = 1e-5,
                 .eos_token_id = 50279},
    .tensors = llama_tensors(),
    .more_tensors = head_norm_tensors(),
    .experts = expert_tensors(),
    .describe = describe,
};

}  // namespace kvfork::checkpoint
