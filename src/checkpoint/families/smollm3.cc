// SmolLM3: every few layers one does not rotate. Defaults: configuration_smollm3.py of Transformers 4.57.3.
#include "checkpoint/families/draft.h"
#include "checkpoint/families/family.h"

namespace kvfork::checkpoint {
namespace {

// no_rope_layers holds 1 for a layer that rotates.
std::vector<bool> rotating_layers(const Draft& draft, size_t n_layers) {
  std::vector<bool> rotates(n_layers);
  const auto listed = draft.fields().find_numbers("no_rope_layers");
  const size_t interval = draft.size("no_rope_layer_interval", 4);
  for (size_t i = 0; i < n_layers; ++i)
    rotates[i] = listed && i < listed->size() ? (*listed)[i] != 0 : interval == 0 || (i + 1) % interval != 0;
  return rotates;
}

void describe(Draft& draft) {
  draft.read_attention_bias();
  draft.read_mlp_bias();
  draft.assemble({});
  const size_t n_layers = draft.config().num_hidden_layers;
  const std::vector<bool> rotates = rotating_layers(draft, n_layers);
  const size_t window = draft.switched_window();
  const size_t none = draft.add_no_rotation();
  std::vector<std::string> usual = draft.usual_layer_types(0);
  for (size_t i = 0; i < n_layers; ++i) {
    if (rotates[i]) continue;
    draft.spec().layers[i].attention.rotation = none;
    if (window != 0) usual[i] = "sliding_attention";
  }
  draft.set_windows(draft.layer_types(usual), window);
}

}  // namespace

const Family kSmolLm3 = {
    .model_type = "smollm3",
    .class_name = "SmolLM3ForCausalLM",
    .gguf_architecture = "",
    .defaults = {.vocab_size = 128256,
                 .hidden_size = 2048,
                 .intermediate_size = 11008,
                 .num_hidden_layers = 36,
                 .num_attention_heads = 16,
                 .num_key_value_heads = 4,
                 .max_position_embeddings = 32768,
                 .rope_theta = 2e6,
                 .tie_word_embeddings = true,
                 .bos_token_id = 128000,
                 .eos_token_id = 128001},
    .tensors = llama_tensors(),
    .gguf_permutes_qk = true,
    .describe = describe,
};

}  // namespace kvfork::checkpoint
