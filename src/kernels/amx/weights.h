// Weights as first operands of tile products, 16 features by 32 inputs (a block) of bf16 numbers at a time. What is
// missing at the edges is zero, since a tile register always reads 16 full rows.
//
// bf16 weights are read where they lie, in their own row-major layout. A float16 weight is the exact sum of two
// bf16 numbers, each in a tile of its own: its first 8 significant bits, and the rest. The rest has 3 bits at most
// and is no smaller than 2^-24, float16's smallest number, so neither is ever a denormal bf16 number, which tiles
// take for zero.
#pragma once

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/amx/pack.h"
#include "kernels/avx512/vec.h"
#include "kernels/kernels.h"

namespace kvfork::kernels {
namespace {

constexpr size_t kWeightRows = 16;  // features of one weight tile
constexpr int kWeightTile = 4;      // tile registers of weights: this one and the next

/// Up to 16 weight rows from one feature on.
struct WeightRows {
  const char* start;
  size_t row_bytes;
  size_t n_features;

  static WeightRows at(const MatmulArgs& args, size_t feature) {
    const size_t row_bytes = args.k * sizeof(uint16_t);
    const size_t left = feature < args.feature_end ? args.feature_end - feature : 0;
    return {static_cast<const char*>(args.weight) + feature * row_bytes, row_bytes,
            left < kWeightRows ? left : kWeightRows};
  }

  /// Bytes of a row that lie in a block.
  size_t block_bytes(size_t block) const {
    const size_t left = row_bytes - block * 64;
    return left < 64 ? left : 64;
  }

  /// Asks for a block of the rows `next` features on. GCC takes a function that does nothing but prefetch for one
  /// without effect, and drops the calls that it does not inline.
  [[gnu::always_inline]] void prefetch(size_t block, size_t next) const {
    const char* p = start + next * row_bytes + block * 64;
    for (size_t row = 0; row < kWeightRows; ++row) __builtin_prefetch(p + row * row_bytes, 0, 2);
  }
};

/// bf16 weights of 16 * kTiles features.
template <int kTiles>
struct StoredTiles {
  static constexpr size_t kWeightTiles = kTiles;
  static constexpr size_t kFeatures = kTiles * kWeightRows;

  WeightRows rows[kTiles];

  StoredTiles(const MatmulArgs& args, size_t feature) {
    for (int i = 0; i < kTiles; ++i) rows[i] = WeightRows::at(args, feature + static_cast<size_t>(i) * kWeightRows);
  }

  /// Asks memory for weights some blocks ahead; past the end of a row, for the start of those kFeatures on.
  [[gnu::always_inline]] void prepare(size_t block) const {
    const size_t blocks = (rows[0].row_bytes + 63) / 64, at = block + 2;
    for (const WeightRows& tile : rows) at < blocks ? tile.prefetch(at, 0) : tile.prefetch(at - blocks, kFeatures);
  }

  template <class T, int kTile>
  void load(size_t block) const {
    const WeightRows& tile = rows[kTile];
    const size_t offset = block * 64, n_bytes = tile.block_bytes(block);
    if (tile.n_features == kWeightRows && n_bytes == 64)
      return T::template load<kWeightTile + kTile>(tile.start + offset, tile.row_bytes);
    alignas(64) char edge[kTileBytes] = {};
    for (size_t row = 0; row < tile.n_features; ++row)
      __builtin_memcpy(edge + row * 64, tile.start + row * tile.row_bytes + offset, n_bytes);
    T::template load<kWeightTile + kTile>(edge, 64);
  }
};

/// The two bf16 terms of 32 float16 weights. The second of an infinity or NaN is NaN: add_rest (matmul.h) knows.
inline void split_f16(__m512i weights, __m512i& high, __m512i& rest) {
  alignas(64) static constexpr uint16_t kEvenThenOdd[32] = {0,  2,  4,  6,  8,  10, 12, 14, 16, 18, 20,
                                                            22, 24, 26, 28, 30, 1,  3,  5,  7,  9,  11,
                                                            13, 15, 17, 19, 21, 23, 25, 27, 29, 31};
  const __m512i sorted = _mm512_permutexvar_epi16(_mm512_load_si512(kEvenThenOdd), weights);
  const __m512 even = _mm512_cvtph_ps(_mm512_castsi512_si256(sorted));
  const __m512 odd = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(sorted, 1));
  const auto pairs = [](__m512 low_halves, __m512 high_halves) {
    return _mm512_mask_blend_epi16(0xaaaaaaaau, _mm512_srli_epi32(_mm512_castps_si512(low_halves), 16),
                                   _mm512_castps_si512(high_halves));
  };
  high = pairs(even, odd);
  rest = pairs(_mm512_sub_ps(even, first_bits(even)), _mm512_sub_ps(odd, first_bits(odd)));
}

}  // namespace
}  // namespace kvfork::kernels
