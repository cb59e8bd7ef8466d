// The forward pass: tokens of one or several sequences through the whole decoder.
//
// Immutable after construction; several passes may run at once on different sequences and scratch buffers (the pool
// serializes their parallel regions). What a row computes does not depend on the other rows of its pass.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "checkpoint/config.h"
#include "kernels/kernels.h"
#include "model/attention.h"
#include "model/kv_cache.h"
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
  Forward(const checkpoint::ModelConfig& config, const Weights& weights, const kernels::KernelTable& kernels,
          const base::ThreadPool& pool, kernels::Rounding rounding);

  /// Makes room in `scratch` for sequences of up to n_tokens tokens, so that passes over them allocate nothing.
  /// Throws Error{Limit}.
  void reserve(size_t n_tokens, Scratch& scratch) const { attention_.reserve(n_tokens, scratch); }

  /// Runs the steps; together 1 to scratch.max_rows() ids, no sequence twice. Writes the steps' logits one after
  /// the other to `logits` [sum of n_logits, vocab]. On return every sequence has grown by its ids. Throws
  /// Error{Limit} before anything has changed; after that nothing can fail.
  void run(std::span<const Step> steps, float* logits, Scratch& scratch) const;

 private:
  void embed(std::span<const Step> steps, std::span<const SequenceRows> sequences, Scratch& scratch) const noexcept;
  void project_qkv(const LayerWeights& layer, size_t n_rows, Scratch& scratch) const noexcept;
  void feed_forward(const LayerWeights& layer, size_t n_rows, Scratch& scratch) const noexcept;
  void compute_logits(std::span<const Step> steps, float* logits, Scratch& scratch) const noexcept;

  struct Division;
  struct Target {
    const Matrix& matrix;
    float* y;
  };
  void normalize_and_pack(size_t n_rows, const std::vector<float>& norm, kernels::Element type, std::byte* packed,
                          Scratch& scratch) const noexcept;
  void pack(const float* x, size_t n_rows, size_t k, kernels::Element type, Scratch& scratch) const noexcept;
  template <class Make>
  void pack_rows(size_t n_rows, size_t k, kernels::Element type, std::byte* packed,
                 const Make& make) const noexcept;
  kernels::MatmulArgs product(const Matrix& matrix, const Division& division, size_t item, const std::byte* packed,
                              std::byte* workspace) const noexcept;
  void multiply(std::span<const Target> targets, size_t n_rows, Scratch& scratch) const noexcept;
  void multiply_add(const Matrix& matrix, size_t n_rows, const std::byte* packed, Scratch& scratch) const noexcept;

  const checkpoint::ModelConfig& config_;
  const Weights& weights_;
  const kernels::KernelTable& kernels_;
  const base::ThreadPool& pool_;
  kernels::Rounding rounding_;
  Attention attention_;
  std::vector<float> inverse_frequencies_;
};

}  // namespace kvfork::model
