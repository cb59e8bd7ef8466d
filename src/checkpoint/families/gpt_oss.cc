// gpt-oss, of weights in bf16 or float32: sinks, windows in every second layer, clamped experts with biases, stored
// transposed. Defaults: configuration_gpt_oss.py of Transformers 5.24.0.
#include <array>

#include "checkpoint/families/draft.h"
#include "checkpoint/families/family.h"

namespace kvfork::checkpoint {
namespace {

constexpr std::array kTensors = {
    TensorRow{Role::Sinks, "self_attn.sinks", "", Bias::Never, true},
    TensorRow{Role::Router, "mlp.router", "", Bias::Always},
    TensorRow{Role::ExpertsGateUp, "mlp.experts.gate_up_proj", "", Bias::Always, true, true},
    TensorRow{Role::ExpertsDown, "mlp.experts.down_proj", "", Bias::Always, true, true},
};

void describe(Draft& draft) {
  constexpr double kAlpha = 1.702;
  if (draft.number("swiglu_alpha", kAlpha) != kAlpha)
    draft.fields().fail_unsupported("swiglu_alpha", *draft.fields().find("swiglu_alpha"), "1.702");
  draft.read_attention_bias(true);
  const ModelConfig& config = draft.config();
  Form form{.clamp = draft.number("swiglu_limit", 7)};
  form.n_experts = draft.size("num_local_experts", draft.size("num_experts", 128));
  form.expert_inner = config.intermediate_size;
  form.experts.top_k = draft.size("num_experts_per_tok", draft.size("experts_per_token", 4));
  form.experts.score = ExpertsSpec::Score::SoftmaxOfChosen;
  draft.assemble(form);
  draft.set_windows(draft.layer_types(draft.usual_layer_types(2)),
                    draft.size("sliding_window", draft.fields().has("sliding_window") ? 0 : 128));
}

}  // namespace

const Family kGptOss = {
    .model_type = "gpt_oss",
    .class_name = "GptOssForCausalLM",
    .gguf_architecture = "",
    .defaults = {.vocab_size = 201088,
                 .hidden_size = 2880,
                 .intermediate_size = 2880,
                 .num_hidden_layers = 36,
                 .num_attention_heads = 64,
                 .num_key_value_heads = 8,
                 .head_dim = 64,
                 .max_position_embeddings = 131072,
                 .rms_norm_eps = 1e-5,
                 .rope_theta = 150000},
    .tensors = llama_tensors(),
    .more_tensors = kTensors,
    .describe = describe,
};

}  // namespace kvfork::checkpoint
