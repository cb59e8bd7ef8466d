// A checkpoint's tensors as the forward pass reads them: checked views of the mapped file.
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

struct LayerWeights {
  std::vector<float> input_norm;           // [hidden]
  Matrix q, k, v;                          // [n_heads * head_dim, hidden], [n_kv_heads * head_dim, hidden] twice
  Matrix o;                                // [hidden, n_heads * head_dim]
  std::vector<float> post_attention_norm;  // [hidden]
  Matrix gate, up;                         // [intermediate, hidden]
  Matrix down;                             // [hidden, intermediate]
};

struct Weights {
  Matrix embedding;  // [vocab, hidden]
  std::vector<LayerWeights> layers;
  std::vector<float> final_norm;  // [hidden]
  Matrix lm_head;                 // [vocab, hidden]; the embedding when tied
};

/// Views of `checkpoint` (already checked against its config).
Weights make_weights(const checkpoint::Checkpoint& checkpoint);

}  // namespace kvfork::model
