// How a mixture's tensors, one by one or stacked, become an ExpertsSpec.
#include <algorithm>
#include <array>

#include "checkpoint/activation.h"
#include "checkpoint/families/draft.h"

namespace kvfork::checkpoint {
namespace {

constexpr std::array kExperts = {
    TensorRow{Role::Router, "mlp.gate", "ffn_gate_inp"},
    TensorRow{Role::ExpertGate, "mlp.experts.{}.gate_proj", ""},
    TensorRow{Role::ExpertUp, "mlp.experts.{}.up_proj", ""},
    TensorRow{Role::ExpertDown, "mlp.experts.{}.down_proj", ""},
    TensorRow{Role::ExpertsGateUp, "mlp.experts.gate_up_proj", "", Bias::Never, true},
    TensorRow{Role::ExpertsDown, "mlp.experts.down_proj", "ffn_down_exps", Bias::Never, true},
    TensorRow{Role::ExpertsGate, "", "ffn_gate_exps"},
    TensorRow{Role::ExpertsUp, "", "ffn_up_exps"},
};

constexpr std::array kGatedSharedExpert = {
    TensorRow{Role::SharedGate, "mlp.shared_expert.gate_proj", "ffn_gate_shexp"},
    TensorRow{Role::SharedUp, "mlp.shared_expert.up_proj", "ffn_up_shexp"},
    TensorRow{Role::SharedDown, "mlp.shared_expert.down_proj", "ffn_down_shexp"},
    TensorRow{Role::SharedRouter, "mlp.shared_expert_gate", "ffn_gate_inp_shexp"},
};

constexpr std::array kCorrectedExperts = {
    TensorRow{Role::RouterCorrection, "mlp.gate.e_score_correction_bias", "exp_probs_b.bias", Bias::Never, true},
    TensorRow{Role::SharedGate, "mlp.shared_experts.gate_proj", "ffn_gate_shexp"},
    TensorRow{Role::SharedUp, "mlp.shared_experts.up_proj", "ffn_up_shexp"},
    TensorRow{Role::SharedDown, "mlp.shared_experts.down_proj", "ffn_down_shexp"},
};

// Expert `expert` of a tensor that holds all of them below each other, each `stride` rows.
MatrixSpec part_of(const MatrixSpec& all, size_t expert, size_t stride, size_t first, size_t n_features) {
  MatrixSpec part = all;
  part.first_row = expert * stride + first;
  part.n_features = n_features;
  return part;
}

}  // namespace

std::span<const TensorRow> expert_tensors() noexcept {
  return kExperts;
}

std::span<const TensorRow> gated_shared_expert_tensors() noexcept {
  return kGatedSharedExpert;
}

std::span<const TensorRow> corrected_expert_tensors() noexcept {
  return kCorrectedExperts;
}

void Draft::read_sparse_layers(Form& form) const {
  const size_t step = std::max<size_t>(1, size("decoder_sparse_step", 1));
  const auto dense = fields_.find_numbers("mlp_only_layers").value_or(std::vector<double>{});
  for (size_t i = 0; i < config_.num_hidden_layers; ++i)
    form.has_experts.push_back((i + 1) % step == 0 &&
                               std::find(dense.begin(), dense.end(), static_cast<double>(i)) == dense.end());
}

MlpSpec Draft::shared_mlp(size_t layer, const Form& form) {
  const size_t hidden = config_.hidden_size, inner = form.shared_inner;
  MlpSpec mlp{.activation = activation_of(config_.hidden_act)};
  if (is_fused(Role::SharedGateUp, Role::SharedUp, layer)) {
    mlp.gate = matrix(Role::SharedGateUp, layer, 2 * inner, hidden);
    mlp.up = part_of(mlp.gate, 0, 0, inner, inner);
    mlp.gate.n_features = inner;
  } else {
    if (find_row(Role::SharedGate) != nullptr) mlp.gate = matrix(Role::SharedGate, layer, inner, hidden);
    mlp.up = matrix(Role::SharedUp, layer, inner, hidden);
  }
  mlp.down = matrix(Role::SharedDown, layer, hidden, inner);
  return mlp;
}

ExpertsSpec Draft::experts(size_t layer, const Form& form) {
  const size_t n = form.n_experts, inner = form.expert_inner;
  ExpertsSpec experts = form.experts;
  experts.router = matrix(Role::Router, layer, n, config_.hidden_size);
  const size_t hidden = form.expert_hidden != 0 ? form.expert_hidden : config_.hidden_size;
  if (form.expert_hidden != 0) {
    experts.before = matrix(Role::ExpertsBefore, layer, hidden, config_.hidden_size);
    experts.after = matrix(Role::ExpertsAfter, layer, config_.hidden_size, hidden);
  }
  if (const TensorRow* row = find_row(Role::RouterCorrection))
    experts.correction = add(*row, layer, ".weight", {n});
  if (const TensorRow* row = find_row(Role::RouterCorrectionRow))
    experts.correction = add(*row, layer, ".weight", {1, n});

  MatrixSpec gates, ups, downs;
  const auto stack = [&](Role role, size_t rows, size_t k) {
    MatrixSpec all = matrix(role, layer, n * rows, k);
    spec().tensors[all.tensor].shape = {n, rows, k};
    if (all.bias != kNoTensor) spec().tensors[all.bias].shape = {n, rows};
    transpose(get_row(role), all.tensor, k);
    transpose(get_row(role), all.bias, 1);
    return all;
  };
  const bool is_gated = find_row(Role::ExpertGate) != nullptr || find_row(Role::ExpertsGate) != nullptr;
  const bool has_both = is_fused(Role::ExpertsGateUp, Role::ExpertUp, layer) && !is_there(Role::ExpertsUp, layer);
  const bool is_stacked = has_both || is_fused(Role::ExpertsUp, Role::ExpertUp, layer);
  if (has_both) {
    gates = stack(Role::ExpertsGateUp, 2 * inner, hidden);
  } else if (is_stacked) {
    if (is_gated) gates = stack(Role::ExpertsGate, inner, hidden);
    ups = stack(Role::ExpertsUp, inner, hidden);
  }
  if (is_stacked) downs = stack(Role::ExpertsDown, hidden, inner);
  for (size_t i = 0; i < n; ++i) {
    MlpSpec mlp{.activation = activation_of(config_.hidden_act), .clamp = form.clamp};
    if (has_both) {
      mlp.gate = part_of(gates, i, 2 * inner, 0, inner);
      mlp.up = part_of(gates, i, 2 * inner, inner, inner);
    } else if (is_stacked) {
      if (is_gated) mlp.gate = part_of(gates, i, inner, 0, inner);
      mlp.up = part_of(ups, i, inner, 0, inner);
    }
    if (is_stacked) {
      mlp.down = part_of(downs, i, hidden, 0, hidden);
    } else {
      expert_ = i;
      if (is_gated) mlp.gate = matrix(Role::ExpertGate, layer, inner, hidden);
      mlp.up = matrix(Role::ExpertUp, layer, inner, hidden);
      mlp.down = matrix(Role::ExpertDown, layer, hidden, inner);
    }
    experts.experts.push_back(mlp);
  }
  if (form.shared_inner != 0) {
    experts.shared = shared_mlp(layer, form);
    if (find_row(Role::SharedRouter) != nullptr)
      experts.shared_gate = matrix(Role::SharedRouter, layer, 1, config_.hidden_size);
  }
  return experts;
}

}  // namespace kvfork::checkpoint
