// Falcon-H1: every layer has a state (Mamba 2) and attention side by side, and nearly every part a factor.
// Defaults: configuration_falcon_h1.py of Transformers 5.24.0.
#include <algorithm>
#include <array>

#include "base/error.h"
#include "checkpoint/families/draft.h"
#include "checkpoint/families/family.h"

namespace kvfork::checkpoint {
namespace {

constexpr std::array kTensors = {
    TensorRow{Role::MlpNorm, "pre_ff_layernorm", ""},
    TensorRow{Role::Gate, "feed_forward.gate_proj", "", Bias::Mlp},
    TensorRow{Role::Up, "feed_forward.up_proj", "", Bias::Mlp},
    TensorRow{Role::Down, "feed_forward.down_proj", "", Bias::Mlp},
    TensorRow{Role::FinalNorm, "final_layernorm", ""},
};

constexpr std::array kMambaBeside = {
    TensorRow{Role::RecurrentIn, "mamba.in_proj", "", Bias::RecurrentIn},
    TensorRow{Role::Convolution, "mamba.conv1d", "", Bias::Convolution},
    TensorRow{Role::LogFade, "mamba.A_log", "", Bias::Never, true},
    TensorRow{Role::FadeBias, "mamba.dt_bias", "", Bias::Never, true},
    TensorRow{Role::Skip, "mamba.D", "", Bias::Never, true},
    TensorRow{Role::RecurrentNorm, "mamba.norm", ""},
    TensorRow{Role::RecurrentOut, "mamba.out_proj", "", Bias::RecurrentOut},
};

std::vector<double> read_factors(const Draft& draft, std::string_view name, size_t n) {
  const auto factors = draft.fields().find_numbers(name);
  if (!factors) return std::vector<double>(n, 1.0);
  if (factors->size() != n)
    base::fail(ErrorCode::Corrupt, "{}: {}: expected {} numbers, found {}", draft.fields().subject(), name, n,
               factors->size());
  return *factors;
}

// A factor of what goes into a matrix is one of what comes out of it, unless a bias is added there.
void refuse_bias(const Draft& draft, std::string_view bias, std::string_view name, double factor) {
  if (factor != 1 && draft.flag(bias, false))
    base::fail(ErrorCode::Unsupported,
               "{}: {}: found true beside a factor of the input ({} {}); kvfork does not "
               "implement both together",
               draft.fields().subject(), bias, name, factor);
}

void set_factors(Draft& draft) {
  const double attention_in = draft.number("attention_in_multiplier", 1);
  refuse_bias(draft, "attention_bias", "attention_in_multiplier", attention_in);
  const double key = draft.number("key_multiplier", 1);
  const double attention_out = draft.number("attention_out_multiplier", 1);
  const double recurrent_out = draft.number("ssm_out_multiplier", 1);
  const auto factors = read_factors(draft, "mlp_multipliers", 2);
  const double gate = factors[0];
  refuse_bias(draft, "mlp_bias", "mlp_multipliers", gate);
  if (gate == 0)
    base::fail(ErrorCode::Corrupt, "{}: mlp_multipliers: expected a first number other than 0",
               draft.fields().subject());
  for (LayerSpec& layer : draft.spec().layers) {
    auto& projections = layer.attention.projections;  // of q, k and v
    for (ProjectionSpec& projection : projections) projection.scale = attention_in;
    projections[1].scale *= key;
    layer.attention.output_scale = attention_out;
    layer.recurrent->output_scale = recurrent_out;
    // The gate's factor comes with the norm of its input, which is that of the other half too: it is taken back.
    layer.mlp_norm.weight_scale = gate;
    layer.mlp.output_scale = factors[1] / gate;
  }
}

void describe(Draft& draft) {
  draft.read_attention_bias();
  draft.read_mlp_bias();
  Form form;
  form.recurrent_layers.assign(draft.config().num_hidden_layers, "hybrid");
  draft.read_mamba(form, kMambaBeside, "mamba_proj_bias", "projectors_bias", "mamba_conv_bias");
  draft.read_mamba_sizes(form,
                         draft.size("mamba_d_ssm", draft.fields().has("mamba_d_ssm")
                                                       ? draft.size("mamba_expand", 2) * draft.config().hidden_size
                                                       : 1024));
  form.recurrent.normed_before_gate = draft.flag("mamba_norm_before_gate", true);
  if (!draft.flag("mamba_rms_norm", false)) form.recurrent.norm = {};
  form.recurrent_scales = read_factors(draft, "ssm_multipliers", 5);
  const double recurrent_in = draft.number("ssm_in_multiplier", 1);
  refuse_bias(draft, "mamba_proj_bias", "ssm_in_multiplier", recurrent_in);
  for (double& scale : form.recurrent_scales) scale *= recurrent_in;
  draft.spec().embedding_scale = draft.number("embedding_multiplier", 1);
  draft.spec().logit_scale = draft.number("lm_head_multiplier", 1);
  draft.assemble(form);
  set_factors(draft);
}

}  // namespace

const Family kFalconH1 = {
    .model_type = "falcon_h1",
    .class_name = "FalconH1ForCausalLM",
    .gguf_architecture = "",
    .defaults = {.vocab_size = 128000,
                 .hidden_size = 4096,
                 .intermediate_size = 14336,
                 .num_hidden_layers = 32,
                 .num_attention_heads = 32,
                 .num_key_value_heads = 8,
                 .max_position_embeddings = 8192,
                 .rms_norm_eps = 1e-5,
                 .bos_token_id = 1,
                 .eos_token_id = 2},
    .tensors = llama_tensors(),
    .more_tensors = kTensors,
    .describe = describe,
};

}  // namespace kvfork::checkpoint
