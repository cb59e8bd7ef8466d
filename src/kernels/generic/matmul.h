// Matrix products, written once for every set (V is a set's lanes, portable/vec.h).
//
// The lanes of a vector run along k. For each panel of kPanelK inputs a (row, feature) pair has one vector
// accumulator, which takes its products in ascending k, and one reduction (V::sum4). The panels' sums are added in
// ascending order, then the bias. Tiles and chunks below only choose which accumulators are in registers at the
// same time: none of them changes a pair's own sequence of operations.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "kernels/generic/pack.h"
#include "kernels/generic/unrolled.h"
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
  unrolled<kFeatures>([&](auto f) KVFORK_INLINE { weight[f] = W::template part<kPart>(raw(f)); });
  unrolled<kRows>([&](auto r) KVFORK_INLINE {
    const auto activation = V::load(x + static_cast<size_t>(r) * x_stride + kPart * V::kLanes);
    unrolled<kFeatures>([&](auto f)
                            KVFORK_INLINE { acc[r][f] = W::multiply_add(activation, weight[f], acc[r][f]); });
  });
}

constexpr size_t kLineFloats = 16;  // of a cache line

/// What a tile asks memory for meanwhile, in each step a line: of every weight row, some bytes ahead, and of packed
/// activations (null: none).
struct Prefetch {
  size_t weight_bytes;
  const float* x = nullptr;
};

/// acc[r][f] = products of packed row r and weight row f over n inputs of one panel.
template <class W, int kRows, int kFeatures>
[[gnu::always_inline]] inline void accumulate(const char* const (&weight)[kFeatures], const float* x,
                                              size_t x_stride, size_t n, Prefetch ahead,
                                              typename W::V::Reg (&acc)[kRows][kFeatures]) {
  constexpr size_t kStepBytes = W::kStep * W::kElementBytes;
  unrolled<kRows>(
      [&](auto r) KVFORK_INLINE { unrolled<kFeatures>([&](auto f) KVFORK_INLINE { acc[r][f] = W::V::zero(); }); });
  const size_t n_steps = n / W::kStep;
  for (size_t step = 0; step < n_steps; ++step) {
    size_t at = step * kStepBytes;
    const auto raw = [&](int f) KVFORK_INLINE { return W::load(weight[f] + at); };
    for (int f = 0; f < kFeatures; ++f) __builtin_prefetch(weight[f] + at + ahead.weight_bytes, 0, 2);
    if (ahead.x) __builtin_prefetch(ahead.x + step * kLineFloats, 0, 2);
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
    const auto raw = [&](int f) KVFORK_INLINE { return W::load_n(weight[f] + n_steps * kStepBytes, tail); };
    add_products<W, 0>(raw, at, x_stride, acc);
    if constexpr (W::kParts == 2) add_products<W, 1>(raw, at, x_stride, acc);
  }
}

/// Calls use(r, sum) for every row of accumulators, sum[f] being the sum of a feature's lanes.
template <class V, int kRows, int kFeatures, class Use>
[[gnu::always_inline]] inline void for_sums(const typename V::Reg (&acc)[kRows][kFeatures], const Use& use) {
  unrolled<kRows>([&](auto r) KVFORK_INLINE {
    const auto lanes_of = [&](auto f) KVFORK_INLINE {
      if constexpr (f < kFeatures)
        return acc[r][f];
      else
        return V::zero();
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

/// Some rows and, of `first`, `first + stride`, ..., the features before `end`, in one panel. Where these are fewer
/// than the registers take, the last is multiplied again and the result dropped.
struct Tile {
  size_t row;
  size_t first, stride, end;
  size_t panel;
};

/// y[0, kFeatures) = or += a row's sums over one panel, and the bias after the last.
template <int kFeatures>
[[gnu::always_inline]] inline void add_sums(const float* sum, bool is_first, const float* bias, float* y) {
  float total[kFeatures];
  for (int f = 0; f < kFeatures; ++f) total[f] = is_first ? sum[f] : y[f] + sum[f];
  for (int f = 0; f < kFeatures; ++f) y[f] = bias ? total[f] + bias[f] : total[f];
}

template <class W>
const char* weight_at(const MatmulArgs& args, size_t feature, size_t input) {
  return static_cast<const char*>(args.weight) + (feature * args.k + input) * W::kElementBytes;
}

template <class W, int kRows, int kFeatures>
[[gnu::always_inline]] inline void multiply_tile(const MatmulArgs& args, const PackedLayout<W>& layout,
                                                 const Tile& tile, Prefetch ahead) {
  using V = typename W::V;
  const auto feature = [&](size_t f) { return tile.first + f * tile.stride; };
  const char* weight[kFeatures];
  for (size_t f = 0; f < kFeatures; ++f)
    weight[f] = weight_at<W>(args, feature(f) < tile.end ? feature(f) : tile.end - 1, layout.begin(tile.panel));
  const float* x = static_cast<const float*>(args.packed) + layout.offset(tile.panel, tile.row);
  typename V::Reg acc[kRows][kFeatures];
  accumulate<W>(weight, x, layout.stride(tile.panel), layout.n_inputs(tile.panel), ahead, acc);
  const float* bias = tile.panel + 1 == layout.n_panels ? args.bias : nullptr;
  const bool adjacent = tile.stride == 1 && tile.first + kFeatures <= tile.end;
  for_sums<V>(acc, [&](auto r, const float* sum) KVFORK_INLINE {
    float* y = args.y + (tile.row + static_cast<size_t>(r)) * args.y_stride;
    if (adjacent)
      return add_sums<kFeatures>(sum, tile.panel == 0, bias ? bias + tile.first : nullptr, y + tile.first);
    for (size_t f = 0; f < kFeatures && feature(f) < tile.end; ++f)
      add_sums<1>(sum + f, tile.panel == 0, bias ? bias + feature(f) : nullptr, y + feature(f));
  });
}

// Measured with one row (fraction of a plain sequential read, Zen 4): rows of 3.5 KB 114% with 1 KB ahead, 95% with
// 4 KB; rows of 19 KB 67% with 1 KB, 95% with 4 KB (AVX2). AVX-512 reads 83% with the latter rows in tiles of 4
// features, 94% with 8.
constexpr size_t kAheadShort = 1024, kAheadLong = 4096;

/// Whether the packed rows stay in the first-level cache while weights stream through it.
template <class W>
bool rows_fit(const PackedLayout<W>& layout) {
  constexpr size_t kFittingBytes = 8 * 1024;
  return layout.n_bytes() <= kFittingBytes;
}

/// Few rows: one pass over the weights in memory. The features are cut into kFeatures parts (the last may be short
/// or empty), and a tile takes one feature of each: every weight row is then read to its end by one of few streams
/// that run through memory in order, which is what the processor's own prefetchers follow. Tiles of adjacent
/// features read less than half as fast.
template <class W, int kRows, int kFeatures>
void multiply_few(const MatmulArgs& args, const PackedLayout<W>& layout) {
  const Prefetch ahead{.weight_bytes = rows_fit(layout) ? kAheadShort : kAheadLong};
  const size_t n_tiles = (args.feature_end - args.feature_begin + kFeatures - 1) / kFeatures;
  Tile tile{
      .row = args.row_begin, .first = args.feature_begin, .stride = n_tiles, .end = args.feature_end, .panel = 0};
  for (; tile.first < args.feature_begin + n_tiles; ++tile.first) {
    for (tile.panel = 0; tile.panel < layout.n_panels; ++tile.panel)
      multiply_tile<W, kRows, kFeatures>(args, layout, tile, ahead);
  }
}

template <class W, int kRows>
void multiply_up_to(const MatmulArgs& args, const PackedLayout<W>& layout) {
  using V = typename W::V;
  if constexpr (kRows > 1) {
    if (args.row_end - args.row_begin < kRows) return multiply_up_to<W, kRows - 1>(args, layout);
  } else if constexpr (V::kLongRowFeatures != V::kTileFeatures) {
    if (!rows_fit(layout)) return multiply_few<W, kRows, V::kLongRowFeatures>(args, layout);
  }
  multiply_few<W, kRows, V::kTileFeatures>(args, layout);
}

/// Features of k inputs that fit into some bytes: a multiple, at least one.
constexpr size_t fitting_features(size_t n_bytes, size_t k, size_t element_bytes, size_t multiple) {
  const size_t fitting = k == 0 ? multiple : n_bytes / (k * element_bytes);
  return fitting < multiple ? multiple : fitting / multiple * multiple;
}

/// Features whose weights of one panel stay in the second-level cache while all rows pass: whole tiles, and whole
/// cache lines of y.
template <class V>
constexpr size_t chunk_features(size_t element_bytes) {
  constexpr size_t kChunkBytes = 256 * 1024;
  constexpr size_t kMultiple = V::kTileFeatures % 3 == 0 ? 3 * kLineFloats : kLineFloats;
  static_assert(kMultiple % V::kTileFeatures == 0);
  return fitting_features(kChunkBytes, kPanelK, element_bytes, kMultiple);
}

/// Features [begin, end) in one panel, for one of several tiles of rows.
struct ChunkRows {
  size_t begin, end;
  size_t panel;
  size_t row, n_rows;
  size_t tile, n_tiles;
};

/// Bytes from the chunk's first weight in its panel to the first that is multiplied after the chunk.
template <class W>
size_t next_chunk(const MatmulArgs& args, const PackedLayout<W>& layout, const ChunkRows& chunk) {
  const size_t input = layout.begin(chunk.panel);
  const char* here = weight_at<W>(args, chunk.begin, input);
  const char* next = weight_at<W>(args, chunk.end, 0);
  if (chunk.panel + 1 < layout.n_panels)
    next = weight_at<W>(args, chunk.begin, layout.begin(chunk.panel + 1));
  else if (chunk.end == args.feature_end && args.next_weight)
    next = static_cast<const char*>(args.next_weight);
  return reinterpret_cast<uintptr_t>(next) - reinterpret_cast<uintptr_t>(here);
}

/// kRows rows or, down to kLeast, as many as the chunk's. The first tile of rows asks memory for the chunk's own
/// weights, a tile of features ahead; of the others the last ones share in asking for what comes after the chunk.
template <class W, int kRows, int kLeast>
void multiply_chunk_rows(const MatmulArgs& args, const PackedLayout<W>& layout, const ChunkRows& chunk) {
  constexpr int kFeatures = W::V::kTileFeatures;
  if constexpr (kRows > kLeast) {
    if (chunk.n_rows < kRows) return multiply_chunk_rows<W, kRows - 1, kLeast>(args, layout, chunk);
  }
  const size_t next_bytes = next_chunk<W>(args, layout, chunk);
  const size_t n_steps = layout.n_inputs(chunk.panel) / W::kStep;
  Tile tile{.row = chunk.row, .first = chunk.begin, .stride = 1, .end = chunk.end, .panel = chunk.panel};
  Prefetch ahead{.weight_bytes = kFeatures * args.k * W::kElementBytes,
                 .x = static_cast<const float*>(args.packed) + layout.offset(chunk.panel, chunk.row + kRows)};
  for (size_t i = 0; tile.first < chunk.end; ++i, tile.first += kFeatures, ahead.x += n_steps * kLineFloats) {
    const size_t others = chunk.n_tiles - 1;
    if (chunk.tile > 0) ahead.weight_bytes = i % others == others - chunk.tile ? next_bytes : 0;
    multiply_tile<W, kRows, kFeatures>(args, layout, tile, ahead);
  }
}

/// Many rows, in tiles of nearly equal size: one row alone would leave multipliers idle.
template <class W>
void multiply_many(const MatmulArgs& args, const PackedLayout<W>& layout) {
  constexpr int kMostRows = W::V::kTileRows;
  constexpr size_t kMostFeatures = chunk_features<typename W::V>(W::kElementBytes);
  ChunkRows chunk{.n_tiles = (args.row_end - args.row_begin + kMostRows - 1) / kMostRows};
  for (chunk.begin = args.feature_begin; chunk.begin < args.feature_end; chunk.begin = chunk.end) {
    const size_t left = args.feature_end - chunk.begin;
    chunk.end = chunk.begin + (left < kMostFeatures ? left : kMostFeatures);
    for (chunk.panel = 0; chunk.panel < layout.n_panels; ++chunk.panel) {
      chunk.row = args.row_begin;
      for (chunk.tile = 0; chunk.tile < chunk.n_tiles; ++chunk.tile, chunk.row += chunk.n_rows) {
        const size_t tiles_left = chunk.n_tiles - chunk.tile;
        chunk.n_rows = (args.row_end - chunk.row + tiles_left - 1) / tiles_left;
        multiply_chunk_rows<W, kMostRows, (kMostRows + 1) / 2>(args, layout, chunk);
      }
    }
  }
}

template <class W>
void multiply(const MatmulArgs& args) {
  if (args.row_begin >= args.row_end || args.feature_begin >= args.feature_end) return;
  const PackedLayout<W> layout(args.n_rows, args.k);
  if (args.row_end - args.row_begin <= W::V::kTileRows) {
    multiply_up_to<W, W::V::kTileRows>(args, layout);
  } else {
    multiply_many(args, layout);
  }
}

/// Few rows: enough bytes to stream. Many rows: a chunk.
template <class V>
size_t item_features(size_t n_rows, size_t k, Element weight_type) noexcept {
  constexpr size_t kItemBytes = 128 * 1024;
  const size_t n_bytes = element_bytes(weight_type);
  return n_rows > V::kTileRows ? chunk_features<V>(n_bytes) : fitting_features(kItemBytes, k, n_bytes, kLineFloats);
}

template <class V>
void matmul(const MatmulArgs& args) noexcept {
  with_weights<V>(args.weight_type, args.rounding, [&]<class W>(W) { multiply<W>(args); });
}

}  // namespace
}  // namespace kvfork::kernels
