// Qwen3: Llama with a norm of each head of q and k before the rotation. Defaults: configuration_qwen3.py of
// Transformers 4.57.3.
#include <array>

#include "checkpoint/families/draft.h"
#include "checkpoint/families/family.h"

namespace kvfork::checkpoint {
namespace {

constexpr std::array kHeadNorms = {
    TensorRow{Role::QNorm, "self_attn.q_norm", "attn_q_norm"},
    TensorRow{Role::KNorm, "self_attn.k_norm", "attn_k_norm"},
};

void describe(Draft& draft) {
  draft.read_attention_bias();
  draft.refuse_sliding_window("use_sliding_window");
  draft.assemble({});
}

}  // namespace

const Family kQwen3 = {
    .model_type = "qwen3",
    .class_name = "Qwen3ForCausalLM",
    .gguf_architecture = "qwen3",
    .defaults = {.vocab_size = 151936,
                 .hidden_size = 4096,
                 .intermediate_size = 22016,
                 .num_hidden_layers = 32,
                 .num_attention_heads = 32,
                 .num_key_value_heads = 32,
                 .head_dim = 128,
                 .max_position_embeddings = 32768},
    .tensors = llama_tensors(),
    .more_tensors = kHeadNorms,
    .describe = describe,
};

}  // namespace kvfork::checkpoint
