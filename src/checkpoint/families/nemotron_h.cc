// Nemotron-H (Nemotron Nano 2, Nemotron 3): each layer is one thing, a state (Mamba 2), attention without rotation,
// a feed-forward or a mixture of such. Defaults: configuration_nemotron_h.py of Transformers 5.24.0.
#include <array>
#include <limits>

#include "base/error.h"
#include "checkpoint/families/draft.h"
#include "checkpoint/families/family.h"

namespace kvfork::checkpoint {
namespace {

constexpr std::array kTensors = {
    TensorRow{Role::Embedding, "embeddings", ""},
    TensorRow{Role::AttentionNorm, "norm", ""},
    TensorRow{Role::Q, "mixer.q_proj", ""},
    TensorRow{Role::K, "mixer.k_proj", ""},
    TensorRow{Role::V, "mixer.v_proj", ""},
    TensorRow{Role::Output, "mixer.o_proj", ""},
    TensorRow{Role::MlpNorm, "norm", ""},
    TensorRow{Role::Up, "mixer.up_proj", "", Bias::Mlp},
    TensorRow{Role::Down, "mixer.down_proj", "", Bias::Mlp},
    TensorRow{Role::Router, "mixer.gate", ""},
    TensorRow{Role::RouterCorrection, "mixer.gate.e_score_correction_bias", "", Bias::Never, true},
    TensorRow{Role::ExpertsBefore, "mixer.fc1_latent_proj", "", Bias::Mlp},
    TensorRow{Role::ExpertsAfter, "mixer.fc2_latent_proj", "", Bias::Mlp},
    TensorRow{Role::ExpertUp, "mixer.experts.{}.up_proj", ""},
    TensorRow{Role::ExpertDown, "mixer.experts.{}.down_proj", ""},
    TensorRow{Role::ExpertsUp, "mixer.experts.up_proj", "", Bias::Never, true},
    TensorRow{Role::ExpertsDown, "mixer.experts.down_proj", "", Bias::Never, true},
    TensorRow{Role::SharedUp, "mixer.shared_experts.up_proj", "", Bias::Mlp},
    TensorRow{Role::SharedDown, "mixer.shared_experts.down_proj", "", Bias::Mlp},
    TensorRow{Role::FinalNorm, "norm_f", ""},
    TensorRow{Role::Head, "lm_head", ""},
};

constexpr std::array kMambaMixer = {
    TensorRow{Role::RecurrentIn, "mixer.in_proj", "", Bias::RecurrentIn},
    TensorRow{Role::Convolution, "mixer.conv1d", "", Bias::Convolution},
    TensorRow{Role::LogFade, "mixer.A_log", "", Bias::Never, true},
    TensorRow{Role::FadeBias, "mixer.dt_bias", "", Bias::Never, true},
    TensorRow{Role::Skip, "mixer.D", "", Bias::Never, true},
    TensorRow{Role::RecurrentNorm, "mixer.norm", ""},
    TensorRow{Role::RecurrentOut, "mixer.out_proj", "", Bias::RecurrentOut},
};

std::string_view type_of_letter(char letter) {
  switch (letter) {
    case 'M':
      return "linear_attention";
    case '*':
      return "full_attention";
    case '-':
      return "mlp";
    case 'E':
      return "moe";
    default:
      return "";
  }
}

// By name, or by a letter for each layer.
std::vector<std::string> read_layers(const Draft& draft) {
  std::vector<std::string> types;
  auto names = draft.fields().find_strings("layers_block_type");
  if (!names) names = draft.fields().find_strings("layer_types");
  if (names) {
    for (const std::string_view name : *names)
      types.emplace_back(name == "mamba" ? "linear_attention" : name == "attention" ? "full_attention" : name);
  } else {
    const auto letters = draft.fields().find_string("hybrid_override_pattern");
    for (const char letter : letters.value_or("ME*-")) types.emplace_back(type_of_letter(letter));
  }
  for (const std::string& type : types) {
    if (type != "linear_attention" && type != "full_attention" && type != "mlp" && type != "moe")
      base::fail(ErrorCode::Unsupported,
                 "{}: types of layers: expected linear_attention, full_attention, mlp or moe (M, *, - or E), found "
                 "\"{}\"; kvfork does not implement it",
                 draft.fields().subject(), type);
  }
  constexpr size_t kMostLayers = size_t{1} << 12;
  if (types.empty() || types.size() > kMostLayers)
    base::fail(ErrorCode::Corrupt, "{}: types of layers: expected 1 to {} of them, found {}",
               draft.fields().subject(), kMostLayers, types.size());
  return types;
}

void describe(Draft& draft) {
  ModelConfig& config = draft.config();
  draft.read_mlp_bias();
  Form form;
  form.recurrent_layers = read_layers(draft);
  form.has_single_branches = true;
  config.num_hidden_layers = form.recurrent_layers.size();
  draft.read_mamba(form, kMambaMixer, "use_bias", "use_bias", "use_conv_bias");
  RecurrentSpec& mamba = form.recurrent;
  // The reference takes time_step_min as the lower bound of every step, and leaves time_step_limit unread.
  mamba.least_step = draft.number("time_step_min", draft.number("mamba_dt_min", 0.001));
  mamba.most_step = std::numeric_limits<double>::max();
  mamba.n_heads = draft.size("mamba_num_heads", 128);
  mamba.n_columns = draft.size("mamba_head_dim", 64);
  mamba.n_key_heads = draft.size("n_groups", draft.size("mamba_n_groups", 8));
  mamba.n_keys = draft.size("ssm_state_size", 128);
  mamba.width = draft.size("conv_kernel", draft.size("mamba_d_conv", 4));
  draft.read_corrected_experts(form, 8, 7688, 2, 1, true);
  form.expert_hidden = draft.size("moe_latent_size", 0);
  form.shared_inner = draft.size("moe_shared_expert_intermediate_size", 7688);
  form.has_experts.clear();
  for (const std::string& type : form.recurrent_layers) form.has_experts.push_back(type == "moe");
  draft.assemble(form);
  draft.stop_rotation();
}

}  // namespace

const Family kNemotronH = {
    .model_type = "nemotron_h",
    .class_name = "NemotronHForCausalLM",
    .gguf_architecture = "",
    .defaults = {.vocab_size = 131072,
                 .hidden_size = 4096,
                 .intermediate_size = 21504,
                 .num_hidden_layers = 4,
                 .num_attention_heads = 32,
                 .num_key_value_heads = 8,
                 .head_dim = 128,
                 .max_position_embeddings = 4096,
                 .rms_norm_eps = 1e-5,
                 .hidden_act = "relu2",
                 .bos_token_id = 1,
                 .eos_token_id = 2},
    .fields = {.norm_eps = "layer_norm_epsilon", .hidden_act = "mlp_hidden_act"},
    .prefix = "backbone.",
    .tensors = kTensors,
    .describe = describe,
};

}  // namespace kvfork::checkpoint
