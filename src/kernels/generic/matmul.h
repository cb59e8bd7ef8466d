// Matrix products, written once for every set (V is a set's lanes, portable/vec.h).
//
// The lanes of a vector run along k. A (row, feature) pair has one vector accumulator that takes its products in
// ascending k, then one reduction (V::sum4), then the bias. Tiles, panels and chunks below only choose which
// accumulators are in registers at the same time: none of them changes a pair's own sequence of operations.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "kernels/generic/pack.h"
#include "kernels/kernels.h"
#include "kernels/scalar.h"

namespace kvfork::kernels {
namespace {

/// acc[r][f] += products of packed row r (x + r * x_stride) and one part of one step's weights, raw(f).
template <class W, int kPart, int kRows, int kFeatures, class Raw>
[[gnu::always_inline]] inline void add_products(const Raw& raw, const float* x, size_t x_stride,
                                                typename W::V::Reg (&acc)[kRows][kFeatures]) {
  using V = typename W::V;
  typename V::Reg weight[kFeatures];
  for (int f = 0; f < kFeatures; ++f) weight[f] = W::template part<kPart>(raw(f));
  for (int r = 0; r < kRows; ++r) {
    const auto activation = V::load(x + static_cast<size_t>(r) * x_stride + kPart * V::kLanes);
    for (int f = 0; f < kFeatures; ++f) acc[r][f] = W::multiply_add(activation, weight[f], acc[r][f]);
  }
}

/// A stretch of k: whole steps, then `tail` single weights. `ahead` is how many bytes ahead weights are prefetched.
struct Stretch {
  size_t n_steps;
  size_t tail;
  size_t ahead;
};

/// acc[r][f] += products of packed row r and weight row f over a stretch that begins at x and weight[f].
template <class W, int kRows, int kFeatures>
void accumulate(const char* const (&weight)[kFeatures], const float* x, size_t x_stride, Stretch stretch,
                typename W::V::Reg (&total)[kRows][kFeatures]) {
  using V = typename W::V;
  constexpr size_t kStepBytes = W::kStep * W::kElementBytes;
  typename V::Reg acc[kRows][kFeatures];
  for (int r = 0; r < kRows; ++r) {
    for (int f = 0; f < kFeatures; ++f) acc[r][f] = total[r][f];
  }
  for (size_t step = 0; step < stretch.n_steps; ++step) {
    size_t at = step * kStepBytes;
    const auto raw = [&](int f) { return W::load(weight[f] + at); };
    for (int f = 0; f < kFeatures; ++f) __builtin_prefetch(weight[f] + at + stretch.ahead, 0, 2);
    add_products<W, 0>(raw, x + step * W::kPackedStep, x_stride, acc);
    if constexpr (W::kParts == 2) {
      // Kept in registers between the two parts, the weights would push accumulators out to the stack. So the
      // compiler must not see that the second part reads the same ones.
      __asm__("" : "+r"(at));
      add_products<W, 1>(raw, x + step * W::kPackedStep, x_stride, acc);
    }
  }
  if (stretch.tail != 0) {
    const float* at = x + stretch.n_steps * W::kPackedStep;
    const auto raw = [&](int f) { return W::load_n(weight[f] + stretch.n_steps * kStepBytes, stretch.tail); };
    add_products<W, 0>(raw, at, x_stride, acc);
    if constexpr (W::kParts == 2) add_products<W, 1>(raw, at, x_stride, acc);
  }
  for (int r = 0; r < kRows; ++r) {
    for (int f = 0; f < kFeatures; ++f) total[r][f] = acc[r][f];
  }
}

/// Reduces the accumulators and writes those of features before `end`; feature f is first_feature + f * stride.
template <class V, int kRows, int kFeatures>
void finish(const typename V::Reg (&acc)[kRows][kFeatures], size_t row, size_t first_feature, size_t stride,
            size_t end, const MatmulArgs& args) {
  for (size_t r = 0; r < kRows; ++r) {
    float sum[(kFeatures + 3) / 4 * 4];
    const auto lanes_of = [&](int f) { return f < kFeatures ? acc[r][f] : V::zero(); };
    for (int f = 0; f < kFeatures; f += 4) {
      V::sum4(lanes_of(f), lanes_of(f + 1), lanes_of(f + 2), lanes_of(f + 3), sum + f);
    }
    float* y = args.y + (row + r) * args.y_stride;
    for (size_t f = 0; f < kFeatures; ++f) {
      const size_t feature = first_feature + f * stride;
      if (feature < end) y[feature] = args.bias ? sum[f] + args.bias[feature] : sum[f];
    }
  }
}

/// A range of features for some rows, and how to walk it. The range is cut into kFeatures parts of equal length,
/// and a tile takes one feature of each: every weight row is then read to its end by one of few streams that run
/// through memory in order, which is what the processor's own prefetchers follow. Tiles of adjacent features read
/// less than half as fast.
struct Walk {
  size_t row;
  size_t n_rows;
  size_t begin;
  size_t end;
  size_t panel_steps;  // steps of k after which the next tile has its turn; accumulators are kept meanwhile
  bool rows_fit;       // the packed rows stay in the first-level cache while weights stream through it
};

constexpr size_t kMaxChunkFeatures = 128;

// Measured with one row (fraction of a plain sequential read, Zen 4): rows of 3.5 KB 114% with 1 KB ahead, 95% with
// 4 KB; rows of 19 KB 67% with 1 KB, 95% with 4 KB (AVX2). AVX-512 reads 83% with the latter rows in tiles of 4
// features, 94% with 8.
constexpr size_t kAheadShort = 1024, kAheadLong = 4096;

template <class W, int kRows, int kFeatures>
void multiply_rows(const MatmulArgs& args, const Walk& walk) {
  using V = typename W::V;
  const size_t x_stride = packed_row_bytes<V>(args.k, W::kType) / sizeof(float);
  const float* x = static_cast<const float*>(args.packed) + walk.row * x_stride;
  const size_t n_steps = args.k / W::kStep;
  const size_t n_tiles = (walk.end - walk.begin + kFeatures - 1) / kFeatures;
  typename V::Reg kept[kMaxChunkFeatures / kFeatures + 1][kRows][kFeatures];
  for (size_t step = 0, next; step == 0 || step < n_steps; step = next) {
    next = n_steps - step <= walk.panel_steps ? n_steps : step + walk.panel_steps;
    const bool last = next == n_steps;
    for (size_t tile = 0; tile < n_tiles; ++tile) {
      const char* weight[kFeatures];
      for (size_t f = 0; f < kFeatures; ++f) {
        const size_t feature = walk.begin + tile + f * n_tiles;
        // Where a part is one feature short, the last feature is taken again and the result dropped.
        const size_t from = feature < walk.end ? feature : walk.end - 1;
        weight[f] = static_cast<const char*>(args.weight) + (from * args.k + step * W::kStep) * W::kElementBytes;
      }
      typename V::Reg fresh[kRows][kFeatures];
      auto& total = step == 0 && last ? fresh : kept[tile];
      if (step == 0) {
        for (int r = 0; r < kRows; ++r) {
          for (int f = 0; f < kFeatures; ++f) total[r][f] = V::zero();
        }
      }
      accumulate<W, kRows, kFeatures>(
          weight, x + step * W::kPackedStep, x_stride,
          {next - step, last ? args.k % W::kStep : 0, walk.rows_fit ? kAheadShort : kAheadLong}, total);
      if (last) finish<V, kRows, kFeatures>(total, walk.row, walk.begin + tile, n_tiles, walk.end, args);
    }
    if (last) break;
  }
}

template <class W, int kRows>
void multiply_up_to(const MatmulArgs& args, const Walk& walk) {
  using V = typename W::V;
  if constexpr (kRows > 1) {
    if (walk.n_rows < kRows) return multiply_up_to<W, kRows - 1>(args, walk);
  } else if constexpr (V::kLongRowFeatures != V::kTileFeatures) {
    if (!walk.rows_fit) return multiply_rows<W, kRows, V::kLongRowFeatures>(args, walk);
  }
  multiply_rows<W, kRows, V::kTileFeatures>(args, walk);
}

/// Few rows: one pass over the weights in memory. Many rows: chunks of features whose weights stay in the
/// second-level cache while all rows pass, and panels of k for which a tile's rows stay in the first-level cache.
template <class W>
void multiply(const MatmulArgs& args) {
  using V = typename W::V;
  constexpr size_t kRows = V::kTileRows;
  constexpr size_t kChunkBytes = 256 * 1024, kPanelBytes = 22 * 1024;
  constexpr size_t kWholeK = ~size_t{0};
  constexpr size_t kPanelSteps = kPanelBytes / (kRows * W::kPackedStep * sizeof(float));
  constexpr size_t kFittingBytes = 8 * 1024;
  if (args.n_rows == 0 || args.feature_begin >= args.feature_end) return;
  size_t chunk = args.feature_end - args.feature_begin;
  if (args.n_rows > kRows) {
    const size_t fitting = round_up(kChunkBytes / (args.k * W::kElementBytes + 1) + 1, V::kTileFeatures);
    if (fitting < chunk) chunk = fitting;
    if (kMaxChunkFeatures < chunk) chunk = kMaxChunkFeatures;
  }
  const size_t block_rows = args.n_rows < kRows ? args.n_rows : kRows;
  const bool rows_fit = block_rows * args.k * sizeof(float) <= kFittingBytes;
  for (size_t begin = args.feature_begin; begin < args.feature_end; begin += chunk) {
    const size_t end = args.feature_end - begin < chunk ? args.feature_end : begin + chunk;
    for (size_t row = 0; row < args.n_rows; row += kRows) {
      const size_t n_rows = args.n_rows - row < kRows ? args.n_rows - row : kRows;
      // The first rows wait for memory, so they read each weight row whole.
      multiply_up_to<W, kRows>(args, {row, n_rows, begin, end, row == 0 ? kWholeK : kPanelSteps, rows_fit});
    }
  }
}

template <class V>
void matmul(const MatmulArgs& args) noexcept {
  switch (args.weight_type) {
    case Element::F32:
      return multiply<F32Weights<V>>(args);
    case Element::F16:
      return multiply<F16Weights<V>>(args);
    case Element::BF16:
      if constexpr (kDotsBf16<V>) {
        if (packs_pairs<V>(args.weight_type, args.rounding)) return multiply<Bf16Pairs<V>>(args);
      }
      return multiply<Bf16Weights<V>>(args);
  }
}

}  // namespace
}  // namespace kvfork::kernels
