// Qwen3.5 (also 3.6 and 3.8), its mixture, and Qwen3-Next: a gated delta rule in three layers of four, gated
// attention in the fourth. Norm weights are stored less one, but not those of the delta rule. Defaults: the
// configuration classes of Transformers 5.24.0.
#include <algorithm>
#include <array>

#include "checkpoint/families/draft.h"
#include "checkpoint/families/family.h"

namespace kvfork::checkpoint {
namespace {

constexpr std::array kDelta = {
    TensorRow{Role::Convolution, "linear_attn.conv1d", ""},
    TensorRow{Role::LogFade, "linear_attn.A_log", "", Bias::Never, true},
    TensorRow{Role::FadeBias, "linear_attn.dt_bias", "", Bias::Never, true},
    TensorRow{Role::RecurrentNorm, "linear_attn.norm", ""},
    TensorRow{Role::RecurrentOut, "linear_attn.out_proj", ""},
};

constexpr std::array kProjections = {
    TensorRow{Role::RecurrentIn, "linear_attn.in_proj_qkv", ""},
    TensorRow{Role::RecurrentGate, "linear_attn.in_proj_z", ""},
    TensorRow{Role::RecurrentGains, "linear_attn.in_proj_b", ""},
    TensorRow{Role::RecurrentFades, "linear_attn.in_proj_a", ""},
};

constexpr std::array kProjectionsByHead = {
    TensorRow{Role::RecurrentQkvz, "linear_attn.in_proj_qkvz", ""},
    TensorRow{Role::RecurrentGainsFades, "linear_attn.in_proj_ba", ""},
};

// They divide the pairs among the axes of an image. Text has one position for all.
constexpr std::array<std::string_view, 2> kImageSections = {"mrope_section", "mrope_interleaved"};

// Numbers of the delta rule, and which layers have it.
Form read_form(Draft& draft, std::span<const TensorRow> projections) {
  draft.add_tensors(head_norm_tensors());
  draft.add_tensors(projections);
  ModelConfig& config = draft.config();
  draft.read_attention_bias();
  Form form{.norm_offset = 1, .partial_rotary_factor = 0.25};
  form.has_output_gate = true;
  RecurrentSpec& delta = form.recurrent;
  delta.form = RecurrentSpec::Form::GatedDelta;
  delta.width = draft.size("linear_conv_kernel_dim", 4);
  delta.n_heads = draft.size("linear_num_value_heads", 32);
  delta.n_key_heads = draft.size("linear_num_key_heads", 16);
  delta.n_keys = draft.size("linear_key_head_dim", 128);
  delta.n_columns = draft.size("linear_value_head_dim", 128);
  delta.norm = {.kind = NormSpec::Kind::Rms, .eps = config.rms_norm_eps};
  const size_t every = std::max<size_t>(1, draft.size("full_attention_interval", 4));
  std::vector<std::string> usual;
  for (size_t i = 0; i < config.num_hidden_layers; ++i)
    usual.push_back((i + 1) % every == 0 ? "full_attention" : "linear_attention");
  form.recurrent_layers = draft.layer_types(usual, "linear_attention");
  return form;
}

void read_experts(Draft& draft, Form& form, size_t n_experts, size_t top_k, size_t inner, size_t shared) {
  draft.add_tensors(gated_shared_expert_tensors());
  draft.add_tensors(expert_tensors());
  form.n_experts = draft.size("num_experts", draft.size("num_local_experts", n_experts));
  form.expert_inner = draft.size("moe_intermediate_size", inner);
  form.shared_inner = draft.size("shared_expert_intermediate_size", shared);
  form.experts.top_k = draft.size("num_experts_per_tok", top_k);
  form.experts.is_normed = draft.flag("norm_topk_prob", true);
}

void describe(Draft& draft) {
  draft.assemble(read_form(draft, kProjections));
}

void describe_mixture(Draft& draft) {
  Form form = read_form(draft, kProjections);
  read_experts(draft, form, 256, 8, 512, 512);
  draft.assemble(form);
}

void describe_next(Draft& draft) {
  Form form = read_form(draft, kProjectionsByHead);
  read_experts(draft, form, 512, 10, 512, 512);
  draft.read_sparse_layers(form);
  draft.assemble(form);
}

}  // namespace

const Family kQwen35 = {
    .model_type = "qwen3_5_text",
    .class_name = "Qwen3_5ForCausalLM",
    .gguf_architecture = "",
    .defaults = {.vocab_size = 248320,
                 .hidden_size = 4096,
                 .intermediate_size = 12288,
                 .num_hidden_layers = 32,
                 .num_attention_heads = 16,
                 .num_key_value_heads = 4,
                 .head_dim = 256,
                 .max_position_embeddings = 32768},
    .tensors = llama_tensors(),
    .more_tensors = kDelta,
    .rope_keys = kImageSections,
    .describe = describe,
};

const Family kQwen35Moe = {
    .model_type = "qwen3_5_moe_text",
    .class_name = "Qwen3_5MoeForCausalLM",
    .gguf_architecture = "",
    .defaults = {.vocab_size = 248320,
                 .hidden_size = 2048,
                 .intermediate_size = 512,
                 .num_hidden_layers = 40,
                 .num_attention_heads = 16,
                 .num_key_value_heads = 2,
                 .head_dim = 256,
                 .max_position_embeddings = 32768},
    .tensors = llama_tensors(),
    .more_tensors = kDelta,
    .rope_keys = kImageSections,
    .describe = describe_mixture,
};

const Family kQwen3Next = {
    .model_type = "qwen3_next",
    .class_name = "Qwen3NextForCausalLM",
    .gguf_architecture = "",
    .defaults = {.vocab_size = 151936,
                 .hidden_size = 2048,
                 .intermediate_size = 5632,
                 .num_hidden_layers = 48,
                 .num_attention_heads = 16,
                 .num_key_value_heads = 2,
                 .head_dim = 256,
                 .max_position_embeddings = 32768},
    .tensors = llama_tensors(),
    .more_tensors = kDelta,
    .describe = describe_next,
};

}  // namespace kvfork::checkpoint
