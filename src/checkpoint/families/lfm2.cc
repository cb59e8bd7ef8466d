// LFM2 and its mixture: short convolutions between attention layers, heads of q and k normalized. Defaults: the
// configuration classes of Transformers 5.24.0.
#include <algorithm>
#include <array>

#include "checkpoint/families/draft.h"
#include "checkpoint/families/family.h"

namespace kvfork::checkpoint {
namespace {

// The bias of a convolution layer's matrices is `conv_bias`, which no other tensor uses: mlp_bias stands for it.
constexpr std::array kTensors = {
    TensorRow{Role::Embedding, "embed_tokens", ""},
    TensorRow{Role::AttentionNorm, "operator_norm", ""},
    TensorRow{Role::Q, "self_attn.q_proj", ""},
    TensorRow{Role::K, "self_attn.k_proj", ""},
    TensorRow{Role::V, "self_attn.v_proj", ""},
    TensorRow{Role::QNorm, "self_attn.q_layernorm", ""},
    TensorRow{Role::KNorm, "self_attn.k_layernorm", ""},
    TensorRow{Role::Output, "self_attn.out_proj", ""},
    TensorRow{Role::RecurrentIn, "conv.in_proj", "", Bias::Mlp},
    TensorRow{Role::Convolution, "conv.conv", "", Bias::Mlp},
    TensorRow{Role::RecurrentOut, "conv.out_proj", "", Bias::Mlp},
    TensorRow{Role::MlpNorm, "ffn_norm", ""},
    TensorRow{Role::Gate, "feed_forward.w1", ""},
    TensorRow{Role::Up, "feed_forward.w3", ""},
    TensorRow{Role::Down, "feed_forward.w2", ""},
    TensorRow{Role::FinalNorm, "embedding_norm", ""},
    TensorRow{Role::Head, "lm_head", ""},
};

constexpr std::array kMixture = {
    TensorRow{Role::Router, "feed_forward.gate", ""},
    TensorRow{Role::ExpertGate, "feed_forward.experts.{}.w1", ""},
    TensorRow{Role::ExpertUp, "feed_forward.experts.{}.w3", ""},
    TensorRow{Role::ExpertDown, "feed_forward.experts.{}.w2", ""},
    TensorRow{Role::ExpertsGateUp, "feed_forward.experts.gate_up_proj", "", Bias::Never, true},
    TensorRow{Role::ExpertsDown, "feed_forward.experts.down_proj", "", Bias::Never, true},
};

constexpr std::array kExpertBias = {
    TensorRow{Role::RouterCorrection, "feed_forward.expert_bias", "", Bias::Never, true},
};

// The width of the feed-forward is made of the number in the config.
size_t adjusted_inner(const Draft& draft, size_t inner) {
  if (!draft.flag("block_auto_adjust_ff_dim", true)) return inner;
  inner = 2 * inner / 3;
  const auto multiplier = draft.fields().find("block_ffn_dim_multiplier");
  if (multiplier && multiplier->is_null()) return inner;
  inner = static_cast<size_t>(draft.number("block_ffn_dim_multiplier", 1) * static_cast<double>(inner));
  const size_t multiple = std::max<size_t>(1, draft.size("block_multiple_of", 256));
  return (inner + multiple - 1) / multiple * multiple;
}

std::vector<std::string> find_layers(const Draft& draft, size_t n_layers) {
  std::vector<std::string> usual(n_layers, "full_attention");
  if (const auto attention = draft.fields().find_numbers("full_attn_idxs")) {
    usual.assign(n_layers, "conv");
    for (const double index : *attention) {
      if (index >= 0 && index < static_cast<double>(n_layers)) usual[static_cast<size_t>(index)] = "full_attention";
    }
  }
  return draft.layer_types(usual, "conv");
}

Form read_form(Draft& draft) {
  ModelConfig& config = draft.config();
  config.mlp_bias = draft.flag("conv_bias", false);
  config.tie_word_embeddings = draft.flag("tie_embedding", config.tie_word_embeddings);
  Form form;
  form.recurrent_layers = find_layers(draft, config.num_hidden_layers);
  form.recurrent.width = draft.size("conv_L_cache", 3);
  return form;
}

void describe(Draft& draft) {
  const Form form = read_form(draft);
  ModelConfig& config = draft.config();
  config.intermediate_size = adjusted_inner(draft, draft.size("block_ff_dim", config.intermediate_size));
  draft.assemble(form);
}

void describe_mixture(Draft& draft) {
  Form form = read_form(draft);
  if (draft.flag("use_expert_bias", true)) draft.add_tensors(kExpertBias);
  form.n_experts = draft.size("num_experts", 32);
  form.expert_inner = draft.size("moe_intermediate_size", 1792);
  form.experts.top_k = draft.size("num_experts_per_tok", 4);
  form.experts.score = ExpertsSpec::Score::Sigmoid;
  form.experts.is_normed = draft.flag("norm_topk_prob", true);
  form.experts.tiny = 1e-6;
  form.experts.scale = draft.number("routed_scaling_factor", 1);
  const size_t first = draft.size("num_dense_layers", 2);
  for (size_t i = 0; i < draft.config().num_hidden_layers; ++i) form.has_experts.push_back(i >= first);
  draft.assemble(form);
}

}  // namespace

const Family kLfm2 = {
    .model_type = "lfm2",
    .class_name = "Lfm2ForCausalLM",
    .gguf_architecture = "",
    .defaults = {.vocab_size = 65536,
                 .hidden_size = 2560,
                 .intermediate_size = 12288,
                 .num_hidden_layers = 32,
                 .num_attention_heads = 32,
                 .num_key_value_heads = 8,
                 .max_position_embeddings = 128000,
                 .rms_norm_eps = 1e-5,
                 .rope_theta = 1e6,
                 .tie_word_embeddings = true,
                 .bos_token_id = 1,
                 .eos_token_id = 2},
    .fields = {.norm_eps = "norm_eps"},
    .tensors = kTensors,
    .describe = describe,
};

const Family kLfm2Moe = {
    .model_type = "lfm2_moe",
    .class_name = "Lfm2MoeForCausalLM",
    .gguf_architecture = "",
    .defaults = {.vocab_size = 65536,
                 .hidden_size = 2048,
                 .intermediate_size = 7168,
                 .num_hidden_layers = 32,
                 .num_attention_heads = 32,
                 .num_key_value_heads = 8,
                 .max_position_embeddings = 128000,
                 .rms_norm_eps = 1e-5,
                 .rope_theta = 1e6,
                 .tie_word_embeddings = true,
                 .bos_token_id = 1,
                 .eos_token_id = 2},
    .fields = {.norm_eps = "norm_eps"},
    .tensors = kTensors,
    .more_tensors = kMixture,
    .describe = describe_mixture,
};

}  // namespace kvfork::checkpoint
