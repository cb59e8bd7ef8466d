// dots.llm1: heads of q and k normalized, a mixture chosen by sigmoid scores, windows. Defaults:
// configuration_dots1.py of Transformers 4.57.3.
#include "checkpoint/families/draft.h"
#include "checkpoint/families/family.h"

namespace kvfork::checkpoint {
namespace {

void describe(Draft& draft) {
  draft.add_tensors(head_norm_tensors());
  draft.read_attention_bias();
  Form form;
  draft.read_corrected_experts(form, 0, 1408, 0, 0, false);
  draft.assemble(form);
  const size_t window = draft.size("sliding_window", 4096);
  std::vector<std::string> usual = draft.usual_layer_types(0);
  for (size_t i = draft.size("max_window_layers", 62); i < usual.size(); ++i) usual[i] = "sliding_attention";
  draft.set_windows(draft.layer_types(usual), window);
}

}  // namespace

const Family kDots1 = {
    .model_type = "dots1",
    .class_name = "Dots1ForCausalLM",
    .gguf_architecture = "",
    .defaults = {.vocab_size = 152064,
                 .hidden_size = 4608,
                 .intermediate_size = 10944,
                 .num_hidden_layers = 62,
                 .num_attention_heads = 32,
                 .num_key_value_heads = 32,
                 .max_position_embeddings = 2048},
    .tensors = llama_tensors(),
    .more_tensors = corrected_expert_tensors(),
    .experts = expert_tensors(),
    .describe = describe,
};

}  // namespace kvfork::checkpoint
