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
    const size_t left = args.feature_end - feature;
    return {static_cast<const char*>(args.weight) + feature * row_bytes, row_bytes,
            left < kWeightRows ? left : kWeightRows};
  }

  /// Bytes of a row that lie in a block.
  size_t block_bytes(size_t block) const {
    const size_t left = row_bytes - block * 64;
    return left < 64 ? left : 64;
  }

  /// Asks for a block of the rows `next` features on.
  void prefetch(size_t block, size_t next) const {
    const char* p = start + next * row_bytes + block * 64;
    for (size_t row = 0; row < kWeightRows; ++row) __builtin_prefetch(p + row * row_bytes, 0, 2);
  }
};

/// One of the passes that share a run of blocks, each with up to two groups of columns.
struct Pass {
  size_t blocks;      // of all of k
  size_t run;         // blocks of a run; the last one may have fewer
  size_t begin, end;  // this run
  size_t index, count;
  bool from_memory;  // where the weights come from; otherwise a cache has them

  /// What a pass asks memory for at a block. The first pass brings the weights that it reads itself, some blocks
  /// ahead; the others share in asking for what it will read a run later, so that memory is not idle while they
  /// multiply. Past the end of a row that is the start of those `next` features on.
  void ask(const WeightRows& rows, size_t block, size_t ahead, size_t next) const {
    if (!from_memory || (index > 0 && block % (count - 1) != index - 1)) return;
    const size_t at = block + (index == 0 ? ahead : run);
    at < blocks ? rows.prefetch(at, 0) : rows.prefetch(at - blocks, next);
  }
};

/// bf16 weights of 16 * kTiles features.
template <int kTiles>
struct StoredTiles {
  static constexpr int kWeightTiles = kTiles, kTerms = 1;
  static constexpr size_t kFeatures = kTiles * kWeightRows;
  static constexpr size_t kRunBlocks = SIZE_MAX;
  static constexpr size_t kPassGroups = 6;

  WeightRows rows[kTiles];

  StoredTiles(const MatmulArgs& args, size_t feature) {
    for (int i = 0; i < kTiles; ++i) rows[i] = WeightRows::at(args, feature + static_cast<size_t>(i) * kWeightRows);
  }

  void prepare(const Pass& pass, size_t block) const {
    for (const WeightRows& tile : rows) pass.ask(tile, block, 2, kFeatures);
  }

  template <class T, int kTile>
  void load(const Pass&, size_t block) const {
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

/// float16 weights of 16 features. The first pass over a run makes its tiles, which all passes read: runs are short
/// enough to stay in the first cache, passes have groups enough to be worth it.
struct SplitTiles {
  static constexpr int kWeightTiles = 2, kTerms = 2;
  static constexpr size_t kFeatures = kWeightRows;
  static constexpr size_t kRunBlocks = 16;
  static constexpr size_t kPassGroups = 24;

  WeightRows rows;
  alignas(64) char tiles[kRunBlocks][kTerms][kTileBytes];

  SplitTiles(const MatmulArgs& args, size_t feature) : rows(WeightRows::at(args, feature)) {}

  /// Makes tiles a block before their use, so that a load does not wait for stores.
  void prepare(const Pass& pass, size_t block) {
    pass.ask(rows, block, 3, kFeatures);
    if (pass.index > 0) return;
    if (block == pass.begin) make(pass, block);
    if (block + 1 < pass.end) make(pass, block + 1);
  }

  template <class T, int kTile>
  void load(const Pass& pass, size_t block) const {
    T::template load<kWeightTile + kTile>(tiles[block - pass.begin][kTile], 64);
  }

  void make(const Pass& pass, size_t block) {
    char* out = tiles[block - pass.begin][0];
    const char* in = rows.start + block * 64;
    const size_t n = rows.block_bytes(block) / sizeof(uint16_t);
    for (size_t row = 0; row < kWeightRows; ++row, in += rows.row_bytes, out += 64) {
      __m512i high = _mm512_setzero_si512(), rest = high;
      if (row < rows.n_features)
        split_f16(n == kTileK ? Avx512::load_bits(in) : Avx512::load_halves(in, n), high, rest);
      _mm512_store_si512(out, high);
      _mm512_store_si512(out + kTileBytes, rest);
    }
  }
};

}  // namespace
}  // namespace kvfork::kernels
