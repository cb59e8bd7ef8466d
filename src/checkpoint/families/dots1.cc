// dots.llm1: heads of q and k normalized, a mixture chosen by sigmoid scores, windows. Defaults:
// configuration_dots1.py of Transformers 4.57.3.
#include <array>

#include "checkpoint/families/draft.h"
#include "checkpoint/families/family.h"

namespace kvfork::checkpoint {
namespace {

constexpr std::array kMore = {
    TensorRow{Role::QNorm, "self_attn.q_norm", "attn_q_norm"},
    TensorRow{Role::KNorm, "self_attn.k_norm", "attn_k_norm"},
    TensorRow{Role::Router, "mlp.gate", "ffn_gate_inp"},
    TensorRow{Role::ExpertGate, "mlp.experts.{}.gate_proj", ""},
    TensorRow{Role::ExpertUp, "mlp.experts.{}.up_proj", ""},
    TensorRow{Role::ExpertDown, "mlp.experts.{}.down_proj", ""},
    TensorRow{Role::ExpertsGateUp, "mlp.experts.gate_up_proj", "", Bias::Never, true},
    TensorRow{Role::ExpertsDown, "mlp.experts.down_proj", "ffn_down_exps", Bias::Never, true},
    TensorRow{Role::ExpertsGate, "", "ffn_gate_exps"},
    TensorRow{Role::ExpertsUp, "", "ffn_up_exps"},
    TensorRow{Role::RouterCorrection, "mlp.gate.e_score_correction_bias", "exp_probs_b.bias", Bias::Never, true},
    TensorRow{Role::SharedGate, "mlp.shared_experts.gate_proj", "ffn_gate_shexp"},
    TensorRow{Role::SharedUp, "mlp.shared_experts.up_proj", "ffn_up_shexp"},
    TensorRow{Role::SharedDown, "mlp.shared_experts.down_proj", "ffn_down_shexp"},
};

void describe(Draft& draft) {
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
    .more_tensors = kMore,
    .describe = describe,
};

}  // namespace kvfork::checkpoint
