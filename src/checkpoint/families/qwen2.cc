// Qwen2 and Qwen2.5: Llama with biases of q, k and v, whatever the config says. Defaults: configuration_qwen2.py of
// Transformers 4.57.3.
#include "checkpoint/families/draft.h"
#include "checkpoint/families/family.h"

namespace kvfork::checkpoint {
namespace {

void describe(Draft& draft) {
  draft.config().attention_qkv_bias = true;
  draft.assemble({});
  draft.set_switched_windows();
}

}  // namespace

const Family kQwen2 = {
    .model_type = "qwen2",
    .class_name = "Qwen2ForCausalLM",
    .gguf_architecture = "qwen2",
    .defaults = {.vocab_size = 151936,
                 .hidden_size = 4096,
                 .intermediate_size = 22016,
                 .num_hidden_layers = 32,
                 .num_attention_heads = 32,
                 .num_key_value_heads = 32,
                 .max_position_embeddings = 32768},
    .tensors = llama_tensors(),
    .describe = describe,
};

}  // namespace kvfork::checkpoint
