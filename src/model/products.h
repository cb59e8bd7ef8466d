// Matrix products over the thread pool: how activations are packed, and how a product is divided into items of
// work.
//
// Immutable; several passes may use one at once with scratch buffers of their own. No bit of a result depends on
// the division or on the number of threads (docs/numerics.md).
#pragma once

#include <cstddef>
#include <span>

#include "base/thread_pool.h"
#include "kernels/kernels.h"
#include "model/scratch.h"
#include "model/weights.h"

namespace kvfork::model {

class Products {
 public:
  Products(const kernels::KernelTable& kernels, const base::ThreadPool& pool, kernels::Rounding rounding)
      : kernels_(kernels), pool_(pool), rounding_(rounding) {}

  /// packed = norm(rows[r]) for every row of `width` numbers, for products with weights of `type`. Without a norm
  /// the rows must follow one another.
  void pack_normalized(std::span<const float* const> rows, size_t width, const Norm& norm, kernels::Element type,
                       std::byte* packed, Scratch& scratch) const noexcept;

  /// y [n_rows, width] = norm(rows[r]).
  void normalize(std::span<const float* const> rows, size_t width, const Norm& norm, float* y) const noexcept;

  /// packed = x [n_rows, k].
  void pack(const float* x, size_t n_rows, size_t k, kernels::Element type, std::byte* packed) const noexcept;

  /// packed = the rows of x [.., k] that `rows` numbers, one after the other.
  void pack_gathered(const float* x, std::span<const uint32_t> rows, size_t k, kernels::Element type,
                     std::byte* packed, Scratch& scratch) const noexcept;

  /// y [n_rows, n_features] = packed W^T (+ bias) for every target, all of one packing and width.
  void multiply(std::span<const ProductTarget> targets, size_t n_rows, const std::byte* packed,
                Scratch& scratch) const noexcept;

  /// x [n_rows, n_features] += packed W^T (+ bias).
  void multiply_add(const Matrix& matrix, size_t n_rows, const std::byte* packed, float* x,
                    Scratch& scratch) const noexcept;

  /// packed_out = activation(packed W_gate^T) * (packed_up W_up^T), for the product with W_down.
  void multiply_gated(const MlpWeights& mlp, size_t n_rows, const std::byte* packed, const std::byte* packed_up,
                      std::byte* packed_out, Scratch& scratch) const noexcept;

  /// The same without a gate: packed_out = activation(packed W_up^T).
  void multiply_activated(const MlpWeights& mlp, size_t n_rows, const std::byte* packed, std::byte* packed_out,
                          Scratch& scratch) const noexcept;

  /// x += factor * norm(y) for every row of `width` numbers; y is used up.
  void add_normalized(float* x, float* y, size_t n_rows, size_t width, const Norm& norm,
                      float factor) const noexcept;

 private:
  struct Division;
  template <class Make>
  void pack_rows(size_t n_rows, size_t k, kernels::Element type, std::byte* packed,
                 const Make& make) const noexcept;
  kernels::MatmulArgs arguments(const Matrix& matrix, const Division& division, size_t item,
                                const std::byte* packed, std::byte* workspace) const noexcept;

  const kernels::KernelTable& kernels_;
  const base::ThreadPool& pool_;
  kernels::Rounding rounding_;
};

}  // namespace kvfork::model
