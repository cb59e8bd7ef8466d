// The forward pass: tokens of one or several sequences through the whole decoder that a ModelSpec describes.
//
// Immutable after construction; several passes may run at once on different sequences and scratch buffers (the pool
// serializes their parallel regions). What a row computes does not depend on the other rows of its pass.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/thread_pool.h"
#include "checkpoint/model_spec.h"
#include "kernels/kernels.h"
#include "model/attention.h"
#include "model/experts.h"
#include "model/kv_cache.h"
#include "model/products.h"
#include "model/recurrent.h"
#include "model/scratch.h"
#include "model/weights.h"

namespace kvfork::model {

/// One sequence's part in a pass. `ids` continue the sequence; logits are computed for the last n_logits of them.
struct Step {
  KvSequence* kv = nullptr;      // room for ids reserved
  std::span<const int32_t> ids;  // each in [0, vocab)
  size_t n_logits = 0;           // 0..ids.size()
};

class Forward {
 public:
  /// All references must outlive the pass.
  Forward(const checkpoint::ModelSpec& spec, const Weights& weights, const kernels::KernelTable& kernels,
          const base::ThreadPool& pool, kernels::Rounding rounding);

  /// Makes room in `scratch` for sequences of up to n_tokens tokens, so that passes over them allocate nothing.
  /// Throws Error{Limit}.
  void reserve(size_t n_tokens, Scratch& scratch) const { attention_.reserve(n_tokens, scratch); }

  /// Runs the steps; together 1 to scratch.max_rows() ids, no sequence twice. Writes the steps' logits one after
  /// the other to `logits` [sum of n_logits, vocab]. On return every sequence has grown by its ids. Throws
  /// Error{Limit} before anything has changed; after that nothing can fail.
  void run(std::span<const Step> steps, float* logits, Scratch& scratch) const;

 private:
  void embed(std::span<const Step> steps, Scratch& scratch) const noexcept;
  void rotate_positions(Scratch& scratch) const noexcept;
  void project(const LayerWeights& layer, std::span<const checkpoint::ProjectionSpec> specs,
               std::span<const Matrix> matrices, size_t width, Scratch& scratch) const noexcept;
  void add_recurrent(size_t index, const LayerWeights& layer, Scratch& scratch) const noexcept;
  void add_attention(size_t index, const LayerWeights& layer, Scratch& scratch) const noexcept;
  void add_mixed(const LayerWeights& layer, const Matrix& output, double scale, bool is_kept,
                 Scratch& scratch) const noexcept;
  void add_feed_forward(const LayerWeights& layer, Scratch& scratch) const noexcept;
  void add_experts(const LayerWeights& layer, Scratch& scratch) const noexcept;
  void add_product(const Matrix& matrix, const std::byte* packed, const Norm& norm_after, double scale,
                   Scratch& scratch) const noexcept;
  void compute_logits(std::span<const Step> steps, float* logits, Scratch& scratch) const noexcept;

  const checkpoint::ModelSpec& spec_;
  const Weights& weights_;
  const kernels::KernelTable& kernels_;
  Attention attention_;
  Recurrent recurrent_;
  Products products_;
  Experts experts_;
  float residual_scale_;
};

}  // namespace kvfork::model
