// What attention on tiles works in: a block's keys and values as second operands of tile products, queries and
// probabilities as first ones.
#pragma once

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/amx/pack.h"
#include "kernels/avx512/vec.h"
#include "kernels/kernels.h"

namespace kvfork::kernels {
namespace {

constexpr size_t kMaxTileHeadDim = 256;
constexpr size_t kKeyTiles =
    kBlockTokens / kTileColumns;                        // tiles side by side that hold a block's tokens as columns
constexpr size_t kValueBlocks = kBlockTokens / kTileK;  // tiles one after another that hold them as inputs
constexpr size_t kWalkTiles = 8;                        // of 16 rows each, that a walk over blocks takes together
constexpr size_t kRowTiles = 2;                         // of these, that products take together

/// A block's keys and values: pairs of components of 16 keys, pairs of keys of 16 components.
struct alignas(64) BlockTiles {
  char keys[kMaxTileHeadDim / kTileK][kKeyTiles][kTileBytes];
  char values[kValueBlocks][kMaxTileHeadDim / kTileColumns][kTileBytes];
};

/// What lies between the products of kRowTiles tiles of rows with a block. Tiles of float32 numbers are
/// [row][column].
struct alignas(64) RowTiles {
  static constexpr size_t kRows = kRowTiles * kTileColumns;
  float scores[kKeyTiles][kRows][kTileColumns];
  char weights[kRowTiles][kValueBlocks][kTileBytes];
  float out[kMaxTileHeadDim / kTileColumns][kRows][kTileColumns];
  float max[kRows];
  float sum[kRows];
};

/// What a call works in (AttentionArgs::workspace).
struct AttentionWorkspace {
  BlockTiles block;
  char queries[kWalkTiles][kMaxTileHeadDim / kTileK][kTileBytes];
  RowTiles rows;
};

/// A tile row from two rows of 16 numbers, one after the other in x: pairs of one of each.
inline __m512i interleaved(__m512i x) {
  alignas(64) static constexpr uint16_t kOneOfEach[32] = {0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,
                                                          21, 6,  22, 7,  23, 8,  24, 9,  25, 10, 26,
                                                          11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  return _mm512_permutexvar_epi16(_mm512_load_si512(kOneOfEach), x);
}

/// Inlined, or GCC drops the calls (weights.h).
[[gnu::always_inline]] inline void prefetch_like(const void* base, const void* read, const void* start) {
  __builtin_prefetch(
      static_cast<const char*>(base) + (static_cast<const char*>(read) - static_cast<const char*>(start)), 0, 2);
}

/// Meanwhile asks for the block's values.
inline void load_keys(const KvBlockData& from, size_t head_dim, BlockTiles& tiles) {
  const auto* k = static_cast<const uint16_t*>(from.k);
  for (size_t group = 0; group < kKeyTiles; ++group, k += head_dim * kGroupTokens) {
    for (size_t d = 0; d < round_up(head_dim, kTileK); d += 2) {
      const uint16_t* row = k + d * kGroupTokens;  // and the next one after it
      const size_t n = d < head_dim ? (head_dim - d) * kGroupTokens : 0;
      const __m512i pair = n >= 32 ? Avx512::load_bits(row) : Avx512::load_halves(row, n);
      _mm512_store_si512(tiles.keys[d / kTileK][group] + d % kTileK * 32, interleaved(pair));
      if (n > 0) prefetch_like(from.v, row, from.k);
    }
  }
}

/// Values of the keys that are named; the others are zero. Meanwhile asks for `next_k`, if not null.
inline void load_values(const void* from, const KeyRange& keys, size_t head_dim, const void* next_k,
                        BlockTiles& tiles) {
  static constexpr uint16_t kZeros[kMaxTileHeadDim] = {};
  const auto* v = static_cast<const uint16_t*>(from);
  const size_t stride = value_stride(head_dim);
  const auto row = [&](size_t t) { return t >= keys.first && t < keys.last ? v + t * stride : kZeros; };
  for (size_t t = 0; t < kBlockTokens; t += 2) {
    const uint16_t *even = row(t), *odd = row(t + 1);
    for (size_t d = 0; d < stride; d += kTileColumns) {
      const __m256i high = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(odd + d));
      const __m256i low = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(even + d));
      _mm512_store_si512(tiles.values[t / kTileK][d / kTileColumns] + t % kTileK * 32,
                         interleaved(_mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1)));
      if (next_k) prefetch_like(next_k, v + t * stride + d, v);
    }
  }
}

/// Whether no value of these keys is infinite or NaN.
inline bool are_finite(const void* values, const KeyRange& keys, size_t head_dim) {
  const auto* v = static_cast<const uint16_t*>(values);
  const size_t stride = value_stride(head_dim);
  const __m256i exponent = _mm256_set1_epi16(0x7f80);
  __mmask16 found = 0;
  for (size_t i = keys.first * stride; i < keys.last * stride; i += 16) {
    const __m256i x = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(v + i));
    found |= _mm256_cmpeq_epi16_mask(_mm256_and_si256(x, exponent), exponent);
  }
  return found == 0;
}

/// n queries, rounded, as rows of tiles; rows of none are zero.
inline void round_queries(const float* const* q, size_t n, size_t head_dim,
                          char (*tiles)[kMaxTileHeadDim / kTileK][kTileBytes]) {
  for (size_t row = 0; row < round_up(n, kTileColumns); ++row) {
    for (size_t d = 0; d < head_dim; d += kTileK) {
      __m512i terms[kMaxTerms] = {};
      if (row < n) split(q[row] + d, head_dim - d, Rounding::ToBF16, terms);
      _mm512_store_si512(tiles[row / kTileColumns][d / kTileK] + row % kTileColumns * 64, terms[0]);
    }
  }
}

}  // namespace
}  // namespace kvfork::kernels
