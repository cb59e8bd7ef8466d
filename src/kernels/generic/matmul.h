// Matrix products, written once for every set (V is a set's lanes, portable/vec.h).
//
// The lanes of a vector run along k. For each panel of kPanelK inputs a (row, feature) pair has one vector accumulator,
// which takes its products in ascending k, and one reduction (V::sum4). The panels' sums are added in ascending order,
// then the bias. Tiles and chunks below only choose which accumulators are in registers at the same time: none of them
// changes a pair's own sequence of operations.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "kernels/generic/pack.h"
#include "kernels/generic/unrolled.h"
#include "kernels/kernels.h"
#include "kernels/scalar.h"

namespace kvfork::kernels {
namespace {

template <class V, int kRows, int kFeatures>
[[gnu::always_inline]] inline void clear(typename V::Reg (&acc)[kRows][kFeatures]) {
  unrolled<kRows>([&](auto r) KVFORK_INLINE { unrolled<kFeatures>([&](auto f) KVFORK_INLINE { acc[r][f] = V::zero(); }); });
}

/// acc[r][f] += products of packed row r (x + r * x_stride) and one part of one step's weights, raw(f).
template <class W, int kPart, int kRows, int kFeatures, class Raw>
[[gnu::always_inline]] inline void add_products(const Raw& raw, const float* x, size_t x_stride,
                                                typename W::V::Reg (&acc)[kRows][kFeatures]) {
  using V = typename W::V;
  typename V::Reg weight[kFeatures];
  unrolled<kFeatures>([&](auto f) KVFORK_INLINE { weight[f] = W::template part<kPart>(raw(f)); });
  unrolled<kRows>([&](auto r) KVFORK_INLINE {
    const auto activation = V::load(x + static_cast<size_t>(r) * x_stride + kPart * V::kLanes);
    unrolled<kFeatures>([&](auto f) KVFORK_INLINE { acc[r][f] = W::multiply_add(activation, weight[f], acc[r][f]); });
  });
}

/// What a tile asks for meanwhile: every weight row, some bytes ahead, and a line of packed activations a step.
struct Prefetch {
  size_t weight_bytes;
  const float* x;
};

/// acc[r][f] = products of packed row r and weight row f over n inputs of one panel.
template <class W, int kRows, int kFeatures>
[[gnu::always_inline]] inline void accumulate(const char* const (&weight)[kFeatures], const float* x, size_t x_stride, size_t n,
                                              Prefetch ahead, typename W::V::Reg (&acc)[kRows][kFeatures]) {
  constexpr size_t kStepBytes = W::kStep * W::kElementBytes;
  clear<typename W::V>(acc);
  const size_t n_steps = n / W::kStep;
  for (size_t step = 0; step < n_steps; ++step) {
    size_t at = step * kStepBytes;
    const auto raw = [&](int f) { return W::load(weight[f] + at); };
    for (int f = 0; f < kFeatures; ++f) __builtin_prefetch(weight[f] + at + ahead.weight_bytes, 0, 2);
    __builtin_prefetch(ahead.x + step * 16, 0, 2);
    add_products<W, 0>(raw, x + step * W::kPackedStep, x_stride, acc);
    if constexpr (W::kParts == 2) {
      // Kept in registers between the two parts, the weights would push accumulators out to the stack. So the
      // compiler must not see that the second part reads the same ones.
      __asm__("" : "+r"(at));
      add_products<W, 1>(raw, x + step * W::kPackedStep, x_stride, acc);
    }
  }
  if (const size_t tail = n % W::kStep; tail != 0) {
    const float* at = x + n_steps * W::kPackedStep;
    const auto raw = [&](int f) { return W::load_n(weight[f] + n_steps * kStepBytes, tail); };
    add_products<W, 0>(raw, at, x_stride, acc);
    if constexpr (W::kParts == 2) add_products<W, 1>(raw, at, x_stride, acc);
  }
}

/// Calls use(r, sum) for every row of accumulators, sum[f] being the sum of a feature's lanes.
template <class V, int kRows, int kFeatures, class Use>
[[gnu::always_inline]] inline void for_sums(const typename V::Reg (&acc)[kRows][kFeatures], const Use& use) {
  unrolled<kRows>([&](auto r) KVFORK_INLINE {
    const auto lanes_of = [&](auto f) KVFORK_INLINE {
      if constexpr (f < kFeatures) return acc[r][f];
      else return V::zero();
    };
    float sum[(kFeatures + 3) / 4 * 4];
    unrolled<(kFeatures + 3) / 4>([&](auto four) KVFORK_INLINE {
      constexpr int kFirst = 4 * four;
      V::sum4(lanes_of(Constant<kFirst>{}), lanes_of(Constant<kFirst + 1>{}), lanes_of(Constant<kFirst + 2>{}),
              lanes_of(Constant<kFirst + 3>{}), sum + kFirst);
    });
    use(r, sum);
  });
}

// Measured with one row (fraction of a plain sequential read, Zen 4): rows of 3.5 KB 114% with 1 KB ahead, 95% with
// 4 KB; rows of 19 KB 67% with 1 KB, 95% with 4 KB (AVX2). AVX-512 reads 83% with the latter rows in tiles of 4
// features, 94% with 8.
constexpr size_t kAheadShort = 1024, kAheadLong = 4096;
constexpr size_t kFittingBytes = 8 * 1024;  // packed rows that stay in the first-level cache while weights stream through

template <class W>
bool rows_fit(const MatmulArgs& args) {
  return args.n_rows * args.k * sizeof(float) <= kFittingBytes;
}

template <class W>
const char* weight_at(const MatmulArgs& args, size_t feature, size_t panel) {
  return static_cast<const char*>(args.weight) + (feature * args.k + panel * kPanelK) * W::kElementBytes;
}

/// Few rows: one pass over the weights in memory. The features are cut into kFeatures parts of equal length, and a tile
/// takes one feature of each: every weight row is then read to its end by one of few streams that run through memory in
/// order, which is what the processor's own prefetchers follow. Tiles of adjacent features read less than half as fast.
template <class W, int kRows, int kFeatures>
void multiply_few(const MatmulArgs& args) {
  using V = typename W::V;
  const PackedLayout<W> layout(args.n_rows, args.k);
  const float* x = static_cast<const float*>(args.packed);
  const size_t ahead = rows_fit<W>(args) ? kAheadShort : kAheadLong;
  const size_t n_tiles = (args.feature_end - args.feature_begin + kFeatures - 1) / kFeatures;
  for (size_t tile = 0; tile < n_tiles; ++tile) {
    const auto feature = [&](size_t f) { return args.feature_begin + tile + f * n_tiles; };
    float total[kRows][kFeatures] = {};
    for (size_t panel = 0; panel < layout.n_panels; ++panel) {
      const char* weight[kFeatures];
      for (size_t f = 0; f < kFeatures; ++f) {
        // Where a part is one feature short, the last feature is taken again and the result dropped.
        weight[f] = weight_at<W>(args, feature(f) < args.feature_end ? feature(f) : args.feature_end - 1, panel);
      }
      typename V::Reg acc[kRows][kFeatures];
      accumulate<W>(weight, x + layout.offset(panel, 0), layout.stride(panel), layout.n_inputs(panel), {ahead, x}, acc);
      for_sums<V>(acc, [&](auto r, const float* sum) KVFORK_INLINE {
        for (int f = 0; f < kFeatures; ++f) total[r][f] = panel == 0 ? sum[f] : total[r][f] + sum[f];
      });
    }
    for (size_t r = 0; r < kRows; ++r) {
      for (size_t f = 0; f < kFeatures; ++f) {
        if (feature(f) >= args.feature_end) continue;
        args.y[r * args.y_stride + feature(f)] = args.bias ? total[r][f] + args.bias[feature(f)] : total[r][f];
      }
    }
  }
}

/// Features whose weights of one panel stay in the second-level cache while all rows pass.
template <class V>
constexpr size_t chunk_features(size_t element_bytes) {
  constexpr size_t kChunkBytes = 256 * 1024;
  return round_up(kChunkBytes / (kPanelK * element_bytes), V::kTileFeatures);
}

/// Features of a chunk in one panel, for a tile of rows.
struct ChunkRows {
  size_t begin, end;  // features
  size_t panel;
  size_t row;
  size_t n_rows;
  size_t tile, n_tiles;  // which tile of rows, of how many
};

/// y[0, kFeatures) = or += a row's sums over one panel, and the bias after the last.
template <int kFeatures>
[[gnu::always_inline]] inline void add_sums(const float* sum, bool is_first, const float* bias, float* y) {
  float total[kFeatures];
  for (int f = 0; f < kFeatures; ++f) total[f] = is_first ? sum[f] : y[f] + sum[f];
  for (int f = 0; f < kFeatures; ++f) y[f] = bias ? total[f] + bias[f] : total[f];
}

/// Bytes from a weight to its like in the panel or, after the last, in the features that follow.
template <class W>
size_t next_chunk(const MatmulArgs& args, const PackedLayout<W>& layout, const ChunkRows& chunk) {
  constexpr size_t kPanelBytes = kPanelK * W::kElementBytes;
  if (chunk.panel + 1 < layout.n_panels) return kPanelBytes;
  return (chunk.end - chunk.begin) * args.k * W::kElementBytes - chunk.panel * kPanelBytes;
}

template <class W, int kRows>
void multiply_chunk_rows(const MatmulArgs& args, const PackedLayout<W>& layout, const ChunkRows& chunk) {
  using V = typename W::V;
  constexpr int kFeatures = V::kTileFeatures;
  if constexpr (kRows > 1) {
    if (chunk.n_rows < kRows) return multiply_chunk_rows<W, kRows - 1>(args, layout, chunk);
  }
  const float* x = static_cast<const float*>(args.packed) + layout.offset(chunk.panel, chunk.row);
  const size_t x_stride = layout.stride(chunk.panel);
  const size_t n = layout.n_inputs(chunk.panel);
  const float* bias = chunk.panel + 1 == layout.n_panels ? args.bias : nullptr;
  // The first rows ask for the chunk's own weights, a tile of features ahead; the others share in asking for the chunk
  // that follows.
  const size_t tile_bytes = kFeatures * args.k * W::kElementBytes;
  const size_t next_chunk_bytes = next_chunk<W>(args, layout, chunk);
  Prefetch next{.weight_bytes = tile_bytes, .x = x + kRows * x_stride};
  size_t turn = chunk.tile;
  for (size_t first = chunk.begin; first < chunk.end; first += kFeatures, next.x += n / W::kStep * 16) {
    const char* weight[kFeatures];
    for (size_t f = 0; f < kFeatures; ++f) {
      // Where the last tile is short, the last feature is taken again and the result dropped.
      weight[f] = weight_at<W>(args, first + f < chunk.end ? first + f : chunk.end - 1, chunk.panel);
    }
    if (chunk.tile > 0) {
      turn = turn == 1 ? chunk.n_tiles - 1 : turn - 1;
      next.weight_bytes = turn == 1 ? next_chunk_bytes : 0;
    }
    typename V::Reg acc[kRows][kFeatures];
    accumulate<W>(weight, x, x_stride, n, next, acc);
    for_sums<V>(acc, [&](auto r, const float* sum) KVFORK_INLINE {
      float* y = args.y + (chunk.row + static_cast<size_t>(r)) * args.y_stride + first;
      const float* b = bias ? bias + first : nullptr;
      if (first + kFeatures <= chunk.end) {
        add_sums<kFeatures>(sum, chunk.panel == 0, b, y);
      } else {
        for (size_t f = 0; first + f < chunk.end; ++f) add_sums<1>(sum + f, chunk.panel == 0, b ? b + f : nullptr, y + f);
      }
    });
  }
}

/// Many rows, in tiles of nearly equal size: one row alone would leave multipliers idle.
template <class W>
void multiply_many(const MatmulArgs& args) {
  constexpr size_t kMostRows = W::V::kTileRows, kMostFeatures = chunk_features<typename W::V>(W::kElementBytes);
  const PackedLayout<W> layout(args.n_rows, args.k);
  ChunkRows chunk{.n_tiles = (args.n_rows + kMostRows - 1) / kMostRows};
  for (chunk.begin = args.feature_begin; chunk.begin < args.feature_end; chunk.begin = chunk.end) {
    const size_t left = args.feature_end - chunk.begin;
    chunk.end = chunk.begin + (left < kMostFeatures ? left : kMostFeatures);
    for (chunk.panel = 0; chunk.panel < layout.n_panels; ++chunk.panel) {
      chunk.row = 0;
      for (chunk.tile = 0; chunk.tile < chunk.n_tiles; ++chunk.tile, chunk.row += chunk.n_rows) {
        const size_t tiles_left = chunk.n_tiles - chunk.tile;
        chunk.n_rows = (args.n_rows - chunk.row + tiles_left - 1) / tiles_left;
        multiply_chunk_rows<W, kMostRows>(args, layout, chunk);
      }
    }
  }
}

template <class W, int kRows>
void multiply_up_to(const MatmulArgs& args) {
  using V = typename W::V;
  if constexpr (kRows > 1) {
    if (args.n_rows < kRows) return multiply_up_to<W, kRows - 1>(args);
  } else if constexpr (V::kLongRowFeatures != V::kTileFeatures) {
    if (!rows_fit<W>(args)) return multiply_few<W, kRows, V::kLongRowFeatures>(args);
  }
  multiply_few<W, kRows, V::kTileFeatures>(args);
}

template <class W>
void multiply(const MatmulArgs& args) {
  if (args.n_rows == 0 || args.feature_begin >= args.feature_end) return;
  args.n_rows <= W::V::kTileRows ? multiply_up_to<W, W::V::kTileRows>(args) : multiply_many<W>(args);
}

/// Few rows: enough bytes to stream. Many rows: a chunk.
template <class V>
size_t item_features(size_t n_rows, size_t k, Element weight_type) noexcept {
  constexpr size_t kItemBytes = 128 * 1024, kMultiple = 16;
  const size_t element_bytes = weight_type == Element::F32 ? 4 : 2;
  if (n_rows > V::kTileRows) return chunk_features<V>(element_bytes);
  const size_t fitting = kItemBytes / (k * element_bytes + 1);
  return fitting < kMultiple ? kMultiple : fitting / kMultiple * kMultiple;
}

template <class V>
void matmul(const MatmulArgs& args) noexcept {
  with_weights<V>(args.weight_type, args.rounding, [&]<class W>(W) { multiply<W>(args); });
}

}  // namespace
}  // namespace kvfork::kernels
