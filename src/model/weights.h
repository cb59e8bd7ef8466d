// A checkpoint's tensors as the forward pass reads them: checked views of the mapped file, in the order of the
// spec.
//
// Matrices point into the checkpoint, which must outlive them; norm weights and biases are small and are widened to
// float32 copies. Immutable after construction; any thread may read.
#pragma once

#include <cstddef>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "kernels/kernels.h"

namespace kvfork::model {

/// [n_features, k] row-major, and an optional bias [n_features].
struct Matrix {
  const void* data = nullptr;
  kernels::Element type = kernels::Element::F32;
  size_t n_features = 0;
  size_t k = 0;
  std::vector<float> bias;

  const float* bias_or_null() const noexcept { return bias.empty() ? nullptr : bias.data(); }
  /// Where a feature's weights begin; the last one's end for n_features.
  const std::byte* row(size_t feature) const noexcept {
    return static_cast<const std::byte*>(data) + feature * k * kernels::element_bytes(type);
  }
};

struct Norm {
  checkpoint::NormSpec::Kind kind = checkpoint::NormSpec::Kind::None;
  std::vector<float> weight;  // empty: none
  std::vector<float> bias;    // empty: none
  float eps = 0;

  bool exists() const noexcept { return kind != checkpoint::NormSpec::Kind::None; }
  /// The norm of n numbers, or of part `part` of the weights where there are several of n.
  kernels::NormArgs args(const float* x, size_t n, float* y, size_t part = 0) const noexcept {
    return {.x = x,
            .weight = weight.empty() ? nullptr : weight.data() + part * n,
            .bias = bias.empty() ? nullptr : bias.data() + part * n,
            .eps = eps,
            .subtracts_mean = kind == checkpoint::NormSpec::Kind::Layer,
            .n = n,
            .y = y};
  }
};

struct MlpWeights {
  Matrix gate, up;  // [inner, hidden]; no gate: n_features 0
  Matrix down;      // [hidden, inner]
  kernels::Activation activation = kernels::Activation::Silu;
  float clamp = 0;

  bool is_gated() const noexcept { return gate.n_features != 0; }
};

/// A mixture of experts; empty where a layer has none.
struct ExpertsWeights {
  Matrix router;                  // [n_experts, hidden]
  std::vector<float> correction;  // [n_experts], or empty
  Matrix before, after;           // around the experts, or n_features 0
  std::vector<MlpWeights> experts;
  MlpWeights shared;   // of no experts: down.n_features 0
  Matrix shared_gate;  // [1, hidden], or n_features 0
};

/// A layer with a state; empty where a layer has none.
struct RecurrentWeights {
  std::vector<Matrix> projections;      // [.., hidden]
  std::vector<float> convolution;       // [width, n_channels]
  std::vector<float> convolution_bias;  // [n_channels], or empty
  std::vector<float> fade_rate;         // [n_heads] exp(A_log)
  std::vector<float> fade_bias;         // [n_heads]
  std::vector<float> skip;              // [n_heads], or empty
  Norm read_norm, write_norm;  // of GatedDelta: rows of n_keys get unit length; reads are divided by sqrt(n_keys)
  Norm norm;
  Matrix output;  // [hidden, value_width]
};

/// A layer of the spec; `spec` says how its parts go together and must outlive it.
struct LayerWeights {
  const checkpoint::LayerSpec* spec = nullptr;
  Norm attention_norm;              // [hidden]
  std::vector<Matrix> projections;  // those of spec->attention, [.., hidden]
  Norm q_norm, k_norm;
  std::vector<float> sinks;  // [n_heads], or empty
  Matrix output;             // [hidden, n_heads * head_dim]
  RecurrentWeights recurrent;
  Norm attention_norm_after;  // [hidden]
  Norm mlp_norm;              // [hidden]
  MlpWeights mlp;
  ExpertsWeights experts;
  Norm mlp_norm_after;  // [hidden]
};

struct Weights {
  Matrix embedding;  // [vocab, hidden]
  Matrix positions;  // [positions, hidden], or n_features 0
  std::vector<LayerWeights> layers;
  Norm final_norm;  // [hidden]
  Matrix head;      // [vocab, hidden]; the embedding when tied
};

/// Views of `checkpoint`, which must outlive them.
Weights make_weights(const checkpoint::Checkpoint& checkpoint);

}  // namespace kvfork::model
