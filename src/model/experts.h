// A mixture of experts: which experts a row chooses, and what they give it.
//
// Every expert's rows are gathered, so that its weights are read once per pass. What a row gets does not depend on
// which other rows chose the same experts: products are row by row, and a row adds its experts in ascending order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "checkpoint/model_spec.h"
#include "model/products.h"
#include "model/weights.h"

namespace kvfork::model {

/// The experts of one row in ascending order, from the router's scores [n_experts]. Of equal scores the lower index
/// is chosen. `work` holds 2 * n_experts numbers, `chosen` top_k. Arithmetic is double, without the C library's
/// exponential, whose last bits differ from one version to the next.
void choose_experts(const checkpoint::ExpertsSpec& spec, std::span<const float> correction,
                    std::span<const float> scores, std::span<double> work, std::span<Choice> chosen) noexcept;

class Experts {
 public:
  Experts(const kernels::KernelTable& kernels, const base::ThreadPool& pool, kernels::Rounding rounding);

  /// branch [n_rows, hidden] = what the mixture gives to the rows, whose normalized inputs are `normed`.
  void run(const LayerWeights& layer, size_t n_rows, const float* normed, float* branch,
           Scratch& scratch) const noexcept;

 private:
  void choose(const LayerWeights& layer, size_t n_rows, Scratch& scratch) const noexcept;
  void gather(const LayerWeights& layer, size_t n_rows, Scratch& scratch) const noexcept;
  void project(const Matrix& matrix, size_t n_rows, const float* x, float* y, Scratch& scratch) const noexcept;
  void activate(const MlpWeights& mlp, size_t n_rows, const std::byte* packed, std::byte* packed_inner,
                Scratch& scratch) const noexcept;
  void multiply(const LayerWeights& layer, const float* normed, Scratch& scratch) const noexcept;
  void add_shared(const LayerWeights& layer, size_t n_rows, const float* normed, float* branch,
                  Scratch& scratch) const noexcept;

  const kernels::KernelTable& kernels_;
  const base::ThreadPool& pool_;
  Products products_;
  Products exact_products_;  // of the router, whose inputs are not rounded
};

}  // namespace kvfork::model
