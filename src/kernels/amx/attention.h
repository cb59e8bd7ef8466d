// Attention over a whole block of bfloat16 keys and values, on tiles (T is AmxTiles or its twin).
//
// Queries and probabilities enter their products rounded to bfloat16, as activations do in this mode; scores, the
// softmax and all sums are float32. Which rows share a tile changes no bit. A row that sees only a part of the
// block goes the way of the avx512 set: a tile product would multiply by zero what the row may not see, and that
// may be anything.
#pragma once

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/amx/pack.h"
#include "kernels/avx512/vec.h"
#include "kernels/generic/attention.h"
#include "kernels/kernels.h"

namespace kvfork::kernels {
namespace {

constexpr size_t kMaxTileHeadDim = 256;
constexpr size_t kKeyTiles =
    kBlockTokens / kTileColumns;                        // tiles side by side that hold a block's tokens as columns
constexpr size_t kValueBlocks = kBlockTokens / kTileK;  // tiles one after another that hold them as inputs

/// A block's keys and values as second operands: pairs of components of 16 keys, pairs of keys of 16 components.
struct alignas(64) BlockTiles {
  char keys[kMaxTileHeadDim / kTileK][kKeyTiles][kTileBytes];
  char values[kValueBlocks][kMaxTileHeadDim / kTileColumns][kTileBytes];
};

/// Up to 16 rows as first operands; rows of none are zero.
struct alignas(64) RowTiles {
  char queries[kMaxTileHeadDim / kTileK][kTileBytes];
  char weights[kValueBlocks][kTileBytes];
  float scores[kTileColumns][kBlockTokens];
  float out[kTileColumns][kMaxTileHeadDim];
};

/// One row of a tile from two rows of 16 numbers, whose pairs it holds.
inline void interleave(const uint16_t* even, const uint16_t* odd, char* out) {
  const auto wide = [](const uint16_t* p) {
    return _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  };
  const __m512i high = odd ? _mm512_slli_epi32(wide(odd), 16) : _mm512_setzero_si512();
  _mm512_store_si512(out, _mm512_or_si512(even ? wide(even) : _mm512_setzero_si512(), high));
}

inline void prefetch_like(const void* base, const void* read, const void* start) {
  __builtin_prefetch(
      static_cast<const char*>(base) + (static_cast<const char*>(read) - static_cast<const char*>(start)), 0, 2);
}

inline void load_block(const AttentionBlockArgs& args, BlockTiles& tiles) {
  const auto* k = static_cast<const uint16_t*>(args.k_block);
  const auto* v = static_cast<const uint16_t*>(args.v_block);
  const size_t padded = (args.head_dim + kTileK - 1) / kTileK * kTileK;
  for (size_t group = 0; group < kKeyTiles; ++group) {
    const uint16_t* keys = k + group * args.head_dim * kGroupTokens;
    for (size_t d = 0; d < padded; d += 2) {
      const auto row = [&](size_t i) { return i < args.head_dim ? keys + i * kGroupTokens : nullptr; };
      interleave(row(d), row(d + 1), tiles.keys[d / kTileK][group] + d % kTileK * 32);
      if (row(d)) prefetch_like(v, row(d), k);
    }
  }
  const size_t stride = value_stride(args.head_dim);
  for (size_t t = 0; t < kBlockTokens; t += 2) {
    for (size_t d = 0; d < stride; d += kTileColumns) {
      const uint16_t* row = v + t * stride + d;
      interleave(row, row + stride, tiles.values[t / kTileK][d / kTileColumns] + t % kTileK * 32);
      if (args.next_k_block) prefetch_like(args.next_k_block, row, v);
    }
  }
}

/// 32 numbers at a time, rounded, of a row of n: the row's places in consecutive tiles.
inline void round_row(const float* x, size_t n, char (*tiles)[kTileBytes], size_t row) {
  for (size_t i = 0; i < n; i += kTileK) {
    __m512i terms[kMaxTerms];
    split(x + i, n - i, Rounding::ToBF16, terms);
    _mm512_store_si512(tiles[i / kTileK] + row * 64, terms[0]);
  }
}

template <class T, int kTiles>
void zero_tiles() {
  T::template zero<0>();
  if constexpr (kTiles > 1) T::template zero<1>();
  if constexpr (kTiles > 2) T::template zero<2>();
  if constexpr (kTiles > 3) T::template zero<3>();
}

/// sums[0, kTiles) of 16 rows each = first operands (blocks of them) times second operands, `step` bytes between
/// blocks.
template <class T, int kTiles>
void multiply_operands(const char (*a)[kTileBytes], const char* b, size_t step, size_t blocks, float* out,
                       size_t stride) {
  zero_tiles<T, kTiles>();
  for (size_t block = 0; block < blocks; ++block, b += step) {
    T::template load<4>(a[block], 64);
    T::template load<5>(b, 64);
    T::template multiply_add<0, 4, 5>();
    if constexpr (kTiles > 1) {
      T::template load<6>(b + kTileBytes, 64);
      T::template multiply_add<1, 4, 6>();
    }
    if constexpr (kTiles > 2) {
      T::template load<7>(b + 2 * kTileBytes, 64);
      T::template multiply_add<2, 4, 7>();
    }
    if constexpr (kTiles > 3) {
      T::template load<5>(b + 3 * kTileBytes, 64);
      T::template multiply_add<3, 4, 5>();
    }
  }
  T::template store<0>(out, stride * sizeof(float));
  if constexpr (kTiles > 1) T::template store<1>(out + kTileColumns, stride * sizeof(float));
  if constexpr (kTiles > 2) T::template store<2>(out + 2 * kTileColumns, stride * sizeof(float));
  if constexpr (kTiles > 3) T::template store<3>(out + 3 * kTileColumns, stride * sizeof(float));
}

template <class T>
void weigh_on_tiles(const BlockTiles& block, size_t n_tiles, RowTiles& rows) {
  const auto multiply = [&]<int kTiles>(size_t at) {
    multiply_operands<T, kTiles>(rows.weights, block.values[0][at], sizeof block.values[0], kValueBlocks,
                                 rows.out[0] + at * kTileColumns, kMaxTileHeadDim);
  };
  size_t at = 0;
  for (; at + 4 <= n_tiles; at += 4) multiply.template operator()<4>(at);
  if (n_tiles - at == 3) multiply.template operator()<3>(at);
  if (n_tiles - at == 2) multiply.template operator()<2>(at);
  if (n_tiles - at == 1) multiply.template operator()<1>(at);
}

/// Rows [begin, begin + n), at most 16, that all see the whole block.
template <class T>
void attend_tile(const AttentionBlockArgs& args, const BlockTiles& block, size_t begin, size_t n, RowTiles& rows) {
  const size_t stride = value_stride(args.head_dim);
  for (size_t r = 0; r < n; ++r) round_row(args.q[begin + r], args.head_dim, rows.queries, r);
  multiply_operands<T, kKeyTiles>(rows.queries, block.keys[0][0], sizeof block.keys[0], n_blocks(args.head_dim),
                                  rows.scores[0], kBlockTokens);
  for (size_t r = 0; r < n; ++r) {
    soften<Avx512>(rows.scores[r], kBlockTokens, args.scale, args.max + begin + r, args.sum + begin + r);
    round_row(rows.scores[r], kBlockTokens, rows.weights, r);
  }
  weigh_on_tiles<T>(block, stride / kTileColumns, rows);
  for (size_t r = 0; r < n; ++r) {
    float* out = args.out + (begin + r) * stride;
    for (size_t d = 0; d < stride; d += Avx512::kLanes) Avx512::store(out + d, Avx512::load(rows.out[r] + d));
  }
}

/// The same call for rows [begin, end) alone.
inline AttentionBlockArgs rows_of(const AttentionBlockArgs& args, size_t begin, size_t end) {
  AttentionBlockArgs part = args;
  part.q += begin;
  part.n_valid += begin;
  part.n_rows = end - begin;
  part.max += begin;
  part.sum += begin;
  part.out += begin * value_stride(args.head_dim);
  return part;
}

template <class T>
void attend_whole(const AttentionBlockArgs& args) {
  alignas(64) BlockTiles block;
  alignas(64) RowTiles rows;
  load_block(args, block);
  __builtin_memset(rows.queries, 0, sizeof rows.queries);
  __builtin_memset(rows.weights, 0, sizeof rows.weights);
  T::configure();
  for (size_t begin = 0; begin < args.n_rows; begin += kTileColumns) {
    const size_t left = args.n_rows - begin;
    attend_tile<T>(args, block, begin, left < kTileColumns ? left : kTileColumns, rows);
  }
  T::release();
}

template <class T>
void attention_block_on_tiles(const AttentionBlockArgs& args) noexcept {
  if (args.kv_type != Element::BF16 || args.head_dim > kMaxTileHeadDim) return attention_block<Avx512>(args);
  for (size_t begin = 0, end; begin < args.n_rows; begin = end) {
    const bool whole = args.n_valid[begin] == kBlockTokens;
    for (end = begin + 1; end < args.n_rows && (args.n_valid[end] == kBlockTokens) == whole;) ++end;
    const AttentionBlockArgs part = rows_of(args, begin, end);
    whole ? attend_whole<T>(part) : attention_block<Avx512>(part);
  }
}

}  // namespace
}  // namespace kvfork::kernels
