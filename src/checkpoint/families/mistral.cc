// Mistral: one window for all layers. Ministral: a window by kind of layer. Defaults: configuration_mistral.py and
// configuration_ministral.py of Transformers 4.57.3.
#include "checkpoint/families/draft.h"
#include "checkpoint/families/family.h"

namespace kvfork::checkpoint {
namespace {

// null switches the window off; without the key it is 4096.
size_t window_of(Draft& draft) {
  return draft.fields().has("sliding_window") ? draft.size("sliding_window", 0) : 4096;
}

void describe_mistral(Draft& draft) {
  draft.assemble({});
  draft.set_window(window_of(draft));
}

void describe_ministral(Draft& draft) {
  const size_t window = window_of(draft);
  draft.assemble({});
  const std::vector<std::string> usual(draft.config().num_hidden_layers, "sliding_attention");
  draft.set_windows(draft.layer_types(usual), window);
}

}  // namespace

const Family kMistral = {
    .model_type = "mistral",
    .class_name = "MistralForCausalLM",
    .gguf_architecture = "",
    .defaults = {.vocab_size = 32000,
                 .hidden_size = 4096,
                 .intermediate_size = 14336,
                 .num_hidden_layers = 32,
                 .num_attention_heads = 32,
                 .num_key_value_heads = 8,
                 .max_position_embeddings = 131072,
                 .bos_token_id = 1,
                 .eos_token_id = 2},
    .tensors = llama_tensors(),
    .describe = describe_mistral,
};

const Family kMinistral = {
    .model_type = "ministral",
    .class_name = "MinistralForCausalLM",
    .gguf_architecture = "",
    .defaults = {.vocab_size = 32000,
                 .hidden_size = 4096,
                 .intermediate_size = 14336,
                 .num_hidden_layers = 32,
                 .num_attention_heads = 32,
                 .num_key_value_heads = 8,
                 .max_position_embeddings = 131072,
                 .bos_token_id = 1,
                 .eos_token_id = 2},
    .tensors = llama_tensors(),
    .describe = describe_ministral,
};

}  // namespace kvfork::checkpoint
