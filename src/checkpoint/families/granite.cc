// Granite, Granite MoE, and Granite 4, whose layers may have a state (Mamba 2): four multipliers. Defaults: the
// configuration classes of Transformers 4.57.3.
#include <algorithm>
#include <array>

#include "checkpoint/families/draft.h"
#include "checkpoint/families/family.h"

namespace kvfork::checkpoint {
namespace {

constexpr std::array kMoe = {
    TensorRow{Role::Router, "block_sparse_moe.router.layer", "ffn_gate_inp"},
    TensorRow{Role::ExpertsGateUp, "block_sparse_moe.input_linear", ""},
    TensorRow{Role::ExpertsDown, "block_sparse_moe.output_linear", "ffn_down_exps"},
    TensorRow{Role::ExpertsGate, "", "ffn_gate_exps"},
    TensorRow{Role::ExpertsUp, "", "ffn_up_exps"},
};

constexpr std::array kHybrid = {
    TensorRow{Role::GateUp, "shared_mlp.input_linear", ""},
    TensorRow{Role::Down, "shared_mlp.output_linear", "ffn_down"},
    TensorRow{Role::Router, "block_sparse_moe.router.layer", "ffn_gate_inp"},
    TensorRow{Role::ExpertsGateUp, "block_sparse_moe.input_linear", ""},
    TensorRow{Role::ExpertsDown, "block_sparse_moe.output_linear", "ffn_down_exps"},
    TensorRow{Role::SharedGateUp, "shared_mlp.input_linear", ""},
    TensorRow{Role::SharedDown, "shared_mlp.output_linear", ""},
};

constexpr std::array kHybridBase = {
    TensorRow{Role::Embedding, "embed_tokens", "token_embd"},
    TensorRow{Role::AttentionNorm, "input_layernorm", "attn_norm"},
    TensorRow{Role::Q, "self_attn.q_proj", "attn_q", Bias::AttentionInput},
    TensorRow{Role::K, "self_attn.k_proj", "attn_k", Bias::AttentionInput},
    TensorRow{Role::V, "self_attn.v_proj", "attn_v", Bias::AttentionInput},
    TensorRow{Role::Output, "self_attn.o_proj", "attn_output", Bias::AttentionOutput},
    TensorRow{Role::MlpNorm, "post_attention_layernorm", "ffn_norm"},
    TensorRow{Role::FinalNorm, "norm", "output_norm"},
    TensorRow{Role::Head, "lm_head", "output"},
};

constexpr std::array kMamba = {
    TensorRow{Role::RecurrentIn, "mamba.in_proj", "", Bias::RecurrentIn},
    TensorRow{Role::Convolution, "mamba.conv1d", "", Bias::Convolution},
    TensorRow{Role::LogFade, "mamba.A_log", "", Bias::Never, true},
    TensorRow{Role::FadeBias, "mamba.dt_bias", "", Bias::Never, true},
    TensorRow{Role::Skip, "mamba.D", "", Bias::Never, true},
    TensorRow{Role::RecurrentNorm, "mamba.norm", ""},
    TensorRow{Role::RecurrentOut, "mamba.out_proj", "", Bias::RecurrentOut},
};

constexpr std::array kGgufFields = {
    GgufField{"attention.scale", "attention_multiplier"},
    GgufField{"embedding_scale", "embedding_multiplier"},
    GgufField{"residual_scale", "residual_multiplier"},
    GgufField{"logit_scale", "logits_scaling"},
};

Form granite_form(Draft& draft) {
  draft.read_attention_bias();
  ModelSpec& spec = draft.spec();
  spec.embedding_scale = draft.number("embedding_multiplier", 1);
  spec.residual_scale = draft.number("residual_multiplier", 1);
  spec.logit_scale = 1 / draft.number("logits_scaling", 1);
  return {.score_scale = draft.number("attention_multiplier", 1)};
}

void add_experts(Draft& draft, Form& form, size_t n_experts) {
  form.n_experts = n_experts;
  form.expert_inner = draft.config().intermediate_size;
  form.experts.top_k = draft.size("num_experts_per_tok", 2);
  form.experts.score = ExpertsSpec::Score::SoftmaxOfChosen;
}

void describe_granite(Draft& draft) {
  const Form form = granite_form(draft);
  draft.read_mlp_bias();
  draft.assemble(form);
}

void describe_moe(Draft& draft) {
  Form form = granite_form(draft);
  add_experts(draft, form, draft.size("num_local_experts", 8));
  draft.assemble(form);
}

void describe_hybrid(Draft& draft) {
  Form form = granite_form(draft);
  const std::vector<std::string> usual(draft.config().num_hidden_layers, "linear_attention");
  std::vector<std::string> types = draft.layer_types(usual, "linear_attention");
  if (std::find(types.begin(), types.end(), "linear_attention") != types.end()) {
    draft.read_mamba(form, kMamba, "mamba_proj_bias", "mamba_proj_bias", "mamba_conv_bias");
    draft.read_mamba_sizes(form, draft.size("mamba_expand", 2) * draft.config().hidden_size);
    form.recurrent_layers = std::move(types);
  }
  const size_t n_experts = draft.size("num_local_experts", 8);
  if (n_experts != 0) add_experts(draft, form, n_experts);
  const size_t shared = draft.size("shared_intermediate_size", 1024);
  form.shared_inner = n_experts != 0 ? shared : 0;
  draft.config().intermediate_size = shared;
  draft.assemble(form);
  if (draft.fields().find_string("position_embedding_type").value_or("") != "rope") draft.stop_rotation();
}

}  // namespace

const Family kGranite = {
    .model_type = "granite",
    .class_name = "GraniteForCausalLM",
    .gguf_architecture = "granite",
    .defaults = {.vocab_size = 32000,
                 .hidden_size = 4096,
                 .intermediate_size = 11008,
                 .num_hidden_layers = 32,
                 .num_attention_heads = 32,
                 .num_key_value_heads = 32,
                 .max_position_embeddings = 2048,
                 .bos_token_id = 1,
                 .eos_token_id = 2},
    .tensors = llama_tensors(),
    .gguf_permutes_qk = true,
    .gguf_fields = kGgufFields,
    .describe = describe_granite,
};

const Family kGraniteMoe = {
    .model_type = "granitemoe",
    .class_name = "GraniteMoeForCausalLM",
    .gguf_architecture = "",
    .defaults = {.vocab_size = 32000,
                 .hidden_size = 4096,
                 .intermediate_size = 11008,
                 .num_hidden_layers = 32,
                 .num_attention_heads = 32,
                 .num_key_value_heads = 32,
                 .max_position_embeddings = 2048,
                 .bos_token_id = 1,
                 .eos_token_id = 2},
    .tensors = llama_tensors(),
    .more_tensors = kMoe,
    .gguf_permutes_qk = true,
    .describe = describe_moe,
};

const Family kGraniteMoeHybrid = {
    .model_type = "granitemoehybrid",
    .class_name = "GraniteMoeHybridForCausalLM",
    .gguf_architecture = "",
    .defaults = {.vocab_size = 32000,
                 .hidden_size = 4096,
                 .intermediate_size = 11008,
                 .num_hidden_layers = 32,
                 .num_attention_heads = 32,
                 .num_key_value_heads = 32,
                 .max_position_embeddings = 2048,
                 .bos_token_id = 1,
                 .eos_token_id = 2},
    .tensors = kHybridBase,
    .more_tensors = kHybrid,
    .describe = describe_hybrid,
};

}  // namespace kvfork::checkpoint
