// Seed-OSS: biases of q, k and v, with a word of its own for the output. Defaults: configuration_seed_oss.py of
// Transformers 4.57.3.
#include "checkpoint/families/draft.h"
#include "checkpoint/families/family.h"

namespace kvfork::checkpoint {
namespace {

void describe(Draft& draft) {
  draft.read_attention_bias(true);
  draft.config().attention_output_bias =
      draft.names().is_gguf() ? draft.config().attention_output_bias : draft.flag("attention_out_bias", false);
  draft.read_mlp_bias();
  draft.assemble({});
}

}  // namespace

const Family kSeedOss = {
    .model_type = "seed_oss",
    .class_name = "SeedOssForCausalLM",
    .gguf_architecture = "",
    .defaults = {.vocab_size = 155136,
                 .hidden_size = 4096,
                 .intermediate_size = 27648,
                 .num_hidden_layers = 64,
                 .num_attention_heads = 80,
                 .num_key_value_heads = 8,
                 .head_dim = 128,
                 .max_position_embeddings = 524288,
                 .bos_token_id = 0,
                 .eos_token_id = 2},
    .tensors = llama_tensors(),
    .describe = describe,
};

}  // namespace kvfork::checkpoint
