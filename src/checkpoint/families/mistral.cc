// Mistral: one window for all layers. Ministral: a window by kind of layer. Ministral 3: queries that grow with
// their position. Defaults: the configuration classes of Transformers 4.57.3, and of 5.24.0 for Ministral 3.
#include <array>

#include "base/error.h"
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

constexpr std::array<std::string_view, 2> kStretchKeys = {"llama_4_scaling_beta", "max_position_embeddings"};

void describe_ministral3(Draft& draft) {
  constexpr double kBeta = 0.1, kLength = 16384;
  ModelConfig& config = draft.config();
  double beta = kBeta, length = kLength;
  if (const auto parameters = draft.fields().find("rope_parameters")) {
    const JsonFields rope(*parameters, draft.fields().subject() + ": rope_parameters");
    beta = rope.find_number("llama_4_scaling_beta").value_or(0);
    length = rope.find_number("original_max_position_embeddings").value_or(0);
  } else {
    config.rope_scaling = {.kind = RopeScaling::Kind::Yarn,
                           .factor = 16,
                           .original_max_position_embeddings = kLength,
                           .mscale = 1,
                           .mscale_all_dim = 1};
  }
  if (beta != 0 && !(length >= 1))
    base::fail(ErrorCode::Corrupt,
               "{}: rope_parameters: expected original_max_position_embeddings of at least 1 beside "
               "llama_4_scaling_beta, found {}",
               draft.fields().subject(), length);
  draft.assemble({});
  draft.set_window(draft.size("sliding_window", 0));
  for (LayerSpec& layer : draft.spec().layers) {
    layer.attention.stretch = beta;
    layer.attention.stretch_length = static_cast<size_t>(length);
  }
}

}  // namespace

const Family kMinistral3 = {
    .model_type = "ministral3",
    .class_name = "Ministral3ForCausalLM",
    .gguf_architecture = "",
    .defaults = {.vocab_size = 131072,
                 .hidden_size = 4096,
                 .intermediate_size = 14336,
                 .num_hidden_layers = 34,
                 .num_attention_heads = 32,
                 .num_key_value_heads = 8,
                 .head_dim = 128,
                 .max_position_embeddings = 262144,
                 .rms_norm_eps = 1e-5,
                 .rope_theta = 1e6,
                 .bos_token_id = 1,
                 .eos_token_id = 2},
    .tensors = llama_tensors(),
    .rope_keys = kStretchKeys,
    .describe = describe_ministral3,
};

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
