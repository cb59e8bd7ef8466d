// Runs a mixture of experts: every chosen expert over its own rows, then each row's sum.
#include "model/experts.h"

#include <algorithm>

#include "base/check.h"
#include "model/double_math.h"

namespace kvfork::model {

Experts::Experts(const kernels::KernelTable& kernels, const base::ThreadPool& pool, kernels::Rounding rounding)
    : kernels_(kernels),
      pool_(pool),
      products_(kernels, pool, rounding),
      exact_products_(kernels, pool, kernels::Rounding::None) {}

void Experts::run(const LayerWeights& layer, size_t n_rows, const float* normed, float* branch,
                  Scratch& scratch) const noexcept {
  const Matrix& router = layer.experts.router;
  exact_products_.pack(normed, n_rows, router.k, router.type, scratch.packed);
  const ProductTarget target{&router, scratch.experts.scores, router.n_features};
  exact_products_.multiply({&target, 1}, n_rows, scratch.packed, scratch);
  choose(layer, n_rows, scratch);
  gather(layer, n_rows, scratch);
  const bool has_projections = layer.experts.before.n_features != 0;
  if (has_projections) project(layer.experts.before, n_rows, normed, scratch.experts.projected, scratch);
  multiply(layer, has_projections ? scratch.experts.projected : normed, scratch);

  const size_t width = layer.experts.experts.front().down.n_features;
  float* sums = has_projections ? scratch.experts.projected : branch;
  const size_t top_k = layer.spec->experts->top_k;
  pool_.run(n_rows, [&](size_t row, size_t) noexcept {
    float* y = sums + row * width;
    std::fill_n(y, width, 0.0f);
    for (size_t i = row * top_k; i < (row + 1) * top_k; ++i)
      kernels_.add_scaled(y, scratch.experts.results + scratch.experts.slots[i] * width,
                          scratch.experts.choices[i].weight, width);
  });
  if (has_projections) project(layer.experts.after, n_rows, sums, branch, scratch);
  if (layer.experts.shared.down.n_features != 0) add_shared(layer, n_rows, normed, branch, scratch);
}

// y [n_rows, n_features] = x W^T (+ bias)
void Experts::project(const Matrix& matrix, size_t n_rows, const float* x, float* y,
                      Scratch& scratch) const noexcept {
  products_.pack(x, n_rows, matrix.k, matrix.type, scratch.packed);
  const ProductTarget target{&matrix, y, matrix.n_features};
  products_.multiply({&target, 1}, n_rows, scratch.packed, scratch);
}

// packed_inner = what the feed-forward gives to its last product.
void Experts::activate(const MlpWeights& mlp, size_t n_rows, const std::byte* packed, std::byte* packed_inner,
                       Scratch& scratch) const noexcept {
  if (mlp.is_gated()) return products_.multiply_gated(mlp, n_rows, packed, packed, packed_inner, scratch);
  products_.multiply_activated(mlp, n_rows, packed, packed_inner, scratch);
}

void Experts::choose(const LayerWeights& layer, size_t n_rows, Scratch& scratch) const noexcept {
  const checkpoint::ExpertsSpec& spec = *layer.spec->experts;
  const size_t n_experts = layer.experts.experts.size();
  pool_.run(n_rows, [&](size_t row, size_t thread) noexcept {
    choose_experts(spec, layer.experts.correction, {scratch.experts.scores + row * n_experts, n_experts},
                   std::span(scratch.experts.work).subspan(thread * 2 * n_experts, 2 * n_experts),
                   std::span(scratch.experts.choices).subspan(row * spec.top_k, spec.top_k));
  });
}

// Lists the rows of every chosen expert, and gives each pair of row and expert a slot: those of an expert follow
// one another, in the order of their rows.
void Experts::gather(const LayerWeights& layer, size_t n_rows, Scratch& scratch) const noexcept {
  Scratch::Experts& all = scratch.experts;
  const MlpWeights& first = layer.experts.experts.front();
  const size_t top_k = layer.spec->experts->top_k;
  std::fill(all.counts.begin(), all.counts.end(), 0);
  for (size_t i = 0; i < n_rows * top_k; ++i) ++all.counts[all.choices[i].expert];
  all.active.clear();
  size_t slot = 0, packed = 0, packed_inner = 0;
  for (size_t expert = 0; expert < layer.experts.experts.size(); ++expert) {
    const size_t n = all.counts[expert];
    all.counts[expert] = static_cast<uint32_t>(slot);  // from here on the next free slot of the expert
    if (n == 0) continue;
    const MlpWeights& mlp = layer.experts.experts[expert];
    all.active.push_back({expert, slot, n, packed, packed_inner});
    slot += n;
    packed += kernels_.packed_bytes(n, first.up.k, mlp.up.type);
    packed_inner += kernels_.packed_bytes(n, first.down.k, mlp.down.type);
  }
  KVFORK_CHECK(packed <= all.packed_bytes && packed_inner <= all.packed_inner_bytes);
  for (size_t i = 0; i < n_rows * top_k; ++i) {
    const uint32_t place = all.counts[all.choices[i].expert]++;
    all.slots[i] = place;
    all.rows[place] = static_cast<uint32_t>(i / top_k);
  }
}

// results [slots, hidden] = what each expert makes of its rows.
void Experts::multiply(const LayerWeights& layer, const float* normed, Scratch& scratch) const noexcept {
  Scratch::Experts& all = scratch.experts;
  const size_t width = layer.experts.experts.front().down.n_features;
  for (const Scratch::ExpertRows& rows : all.active) {
    const MlpWeights& mlp = layer.experts.experts[rows.expert];
    std::byte* packed = all.packed + rows.packed;
    std::byte* packed_inner = all.packed_inner + rows.packed_inner;
    products_.pack_gathered(normed, std::span(all.rows).subspan(rows.first_slot, rows.n_rows), width, mlp.up.type,
                            packed, scratch);
    activate(mlp, rows.n_rows, packed, packed_inner, scratch);
    const ProductTarget target{&mlp.down, all.results + rows.first_slot * width, width};
    products_.multiply({&target, 1}, rows.n_rows, packed_inner, scratch);
  }
}

void Experts::add_shared(const LayerWeights& layer, size_t n_rows, const float* normed, float* branch,
                         Scratch& scratch) const noexcept {
  const MlpWeights& shared = layer.experts.shared;
  const Matrix& gate = layer.experts.shared_gate;
  const size_t hidden = shared.down.n_features;
  if (gate.n_features != 0) {
    exact_products_.pack(normed, n_rows, hidden, gate.type, scratch.packed);
    const ProductTarget target{&gate, scratch.experts.scores, 1};
    exact_products_.multiply({&target, 1}, n_rows, scratch.packed, scratch);
  }
  products_.pack(normed, n_rows, hidden, shared.up.type, scratch.packed);
  activate(shared, n_rows, scratch.packed, scratch.packed_gated, scratch);
  const ProductTarget target{&shared.down, scratch.product, hidden};
  products_.multiply({&target, 1}, n_rows, scratch.packed_gated, scratch);
  pool_.run(n_rows, [&](size_t row, size_t) noexcept {
    const float* y = scratch.product + row * hidden;
    if (gate.n_features == 0) {
      kernels_.add(branch + row * hidden, y, hidden);
    } else {
      kernels_.add_scaled(branch + row * hidden, y, sigmoid(scratch.experts.scores[row]), hidden);
    }
  });
}

}  // namespace kvfork::model
