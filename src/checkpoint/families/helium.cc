// Helium: Llama with neighbours rotated. Defaults: configuration_helium.py of Transformers 4.57.3.
#include "checkpoint/families/draft.h"
#include "checkpoint/families/family.h"

namespace kvfork::checkpoint {
namespace {

void describe(Draft& draft) {
  draft.read_attention_bias();
  draft.config().attention_output_bias = false;
  draft.read_mlp_bias();
  draft.assemble({.rotates_neighbours = true});
}

}  // namespace

const Family kHelium = {
    .model_type = "helium",
    .class_name = "HeliumForCausalLM",
    .gguf_architecture = "",
    .defaults = {.vocab_size = 48000,
                 .hidden_size = 2560,
                 .intermediate_size = 7040,
                 .num_hidden_layers = 24,
                 .num_attention_heads = 20,
                 .num_key_value_heads = 20,
                 .head_dim = 128,
                 .max_position_embeddings = 4096,
                 .rms_norm_eps = 1e-8,
                 .rope_theta = 1e5,
                 .bos_token_id = 1,
                 .eos_token_id = 2},
    .tensors = llama_tensors(),
    .describe = describe,
};

}  // namespace kvfork::checkpoint
