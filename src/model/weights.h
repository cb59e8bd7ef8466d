// A checkpoint's tensors as the forward pass reads them: checked views of the mapped file, in the order of the spec.
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
  std::vector<float> weight;
  float eps = 0;

  bool exists() const noexcept { return !weight.empty(); }
};

struct MlpWeights {
  Matrix gate, up;  // [inner, hidden]
  Matrix down;      // [hidden, inner]
};

/// A layer of the spec; `spec` says how its parts go together and must outlive it.
struct LayerWeights {
  const checkpoint::LayerSpec* spec = nullptr;
  Norm attention_norm;              // [hidden]
  std::vector<Matrix> projections;  // those of spec->attention, [.., hidden]
  Norm q_norm, k_norm;
  Matrix output;  // [hidden, n_heads * head_dim]
  Norm mlp_norm;  // [hidden]
  MlpWeights mlp;
};

struct Weights {
  Matrix embedding;  // [vocab, hidden]
  std::vector<LayerWeights> layers;
  Norm final_norm;  // [hidden]
  Matrix head;      // [vocab, hidden]; the embedding when tied
};

/// Views of `checkpoint`, which must outlive them.
Weights make_weights(const checkpoint::Checkpoint& checkpoint);

}  // namespace kvfork::model
