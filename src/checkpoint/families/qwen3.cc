// Qwen3: Llama with a norm of each head of q and k before the rotation. Defaults: configuration_qwen3.py of
// Transformers 4.57.3.
#include "checkpoint/families/draft.h"
#include "checkpoint/families/family.h"

namespace kvfork::checkpoint {
namespace {

void describe(Draft& draft) {
  draft.read_attention_bias();
  draft.assemble({});
  draft.set_switched_windows();
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
    .more_tensors = head_norm_tensors(),
    .describe = describe,
};

}  // namespace kvfork::checkpoint
