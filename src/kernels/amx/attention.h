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

/// What a call works in (AttentionBlockArgs::workspace).
struct AttentionWorkspace {
  BlockTiles block;
  RowTiles rows[2];
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

/// kRows rows of scores become p, rounded: the operations of soften on each, several rows at a time.
template <int kRows>
void soften_rows(const AttentionBlockArgs& args, size_t row, const float (*scores)[kBlockTokens], size_t place,
                 char (*weights)[kTileBytes]) {
  constexpr int kVectors = kBlockTokens / Avx512::kLanes;
  const Score how{args.scale, args.cap};
  __m512 x[kRows][kVectors], sums[4] = {};
  for (int r = 0; r < kRows; ++r) {
    __m512 largest = Avx512::broadcast(-__builtin_inff());
    for (int i = 0; i < kVectors; ++i) {
      x[r][i] = scaled<Avx512>(Avx512::load(scores[r] + i * 16), how);
      largest = Avx512::max(largest, x[r][i]);
    }
    args.max[row + static_cast<size_t>(r)] = Avx512::max_lane(largest);
  }
  for (int r = 0; r < kRows; ++r) {
    const __m512 max = Avx512::broadcast(args.max[row + static_cast<size_t>(r)]);
    for (int i = 0; i < kVectors; ++i) {
      x[r][i] = exp<Avx512>(Avx512::sub(x[r][i], max));
      sums[r] = Avx512::add(sums[r], x[r][i]);
    }
    for (int i = 0; i < kVectors; i += 2)
      _mm512_store_si512(weights[i / 2] + (place + static_cast<size_t>(r)) * 64,
                         Avx512::upper_halves(Avx512::round_bf16(x[r][i]), Avx512::round_bf16(x[r][i + 1])));
  }
  float total[4];
  Avx512::sum4(sums[0], sums[1], sums[2], sums[3], total);
  for (int r = 0; r < kRows; ++r) args.sum[row + static_cast<size_t>(r)] = total[r];
}

/// Up to 16 rows that all see the whole block, on their way through its products.
template <class T>
struct TileWalk {
  const AttentionBlockArgs& args;
  const BlockTiles& block;

  size_t n_tiles() const { return (args.n_rows + kTileColumns - 1) / kTileColumns; }
  size_t begin(size_t tile) const { return tile * kTileColumns; }
  size_t n(size_t tile) const {
    const size_t left = args.n_rows - begin(tile);
    return left < kTileColumns ? left : kTileColumns;
  }
  void round_queries(size_t tile, RowTiles& rows) const {
    for (size_t r = 0; r < n(tile); ++r) round_row(args.q[begin(tile) + r], args.head_dim, rows.queries, r);
  }
  void score(RowTiles& rows) const {
    multiply_operands<T, kKeyTiles>(rows.queries, block.keys[0][0], sizeof block.keys[0], n_blocks(args.head_dim),
                                    rows.scores[0], kBlockTokens);
  }
  void soften(size_t tile, RowTiles& rows) const {
    size_t r = 0;
    for (; r + 4 <= n(tile); r += 4) soften_rows<4>(args, begin(tile) + r, rows.scores + r, r, rows.weights);
    for (; r < n(tile); ++r) soften_rows<1>(args, begin(tile) + r, rows.scores + r, r, rows.weights);
  }
  void weigh(RowTiles& rows) const { weigh_on_tiles<T>(block, value_stride(args.head_dim) / kTileColumns, rows); }
  void copy_out(size_t tile, const RowTiles& rows) const {
    const size_t stride = value_stride(args.head_dim);
    for (size_t r = 0; r < n(tile); ++r) {
      float* out = args.out + (begin(tile) + r) * stride;
      for (size_t d = 0; d < stride; d += Avx512::kLanes) Avx512::store(out + d, Avx512::load(rows.out[r] + d));
    }
  }
};

inline bool sees_all(const KeyRange& seen) {
  return seen.first == 0 && seen.last == kBlockTokens;
}

/// The same call for rows [begin, end) alone.
inline AttentionBlockArgs rows_of(const AttentionBlockArgs& args, size_t begin, size_t end) {
  AttentionBlockArgs part = args;
  part.q += begin;
  part.seen += begin;
  part.n_rows = end - begin;
  part.max += begin;
  part.sum += begin;
  part.out += begin * value_stride(args.head_dim);
  return part;
}

/// A tile load waits until what it reads has left the store buffer. So between storing an operand and loading it
/// lies the work on another tile of rows.
template <class T>
void attend_whole(const AttentionBlockArgs& args) {
  auto& [block, rows] = *static_cast<AttentionWorkspace*>(args.workspace);
  load_block(args, block);
  for (RowTiles& tile : rows) {
    __builtin_memset(tile.queries, 0, n_blocks(args.head_dim) * kTileBytes);
    __builtin_memset(tile.weights, 0, sizeof tile.weights);
  }
  T::configure();
  const TileWalk<T> walk{args, block};
  const size_t n_tiles = walk.n_tiles();
  walk.round_queries(0, rows[0]);
  for (size_t tile = 0; tile <= n_tiles; ++tile) {
    RowTiles& here = rows[tile % 2];
    RowTiles& other = rows[1 - tile % 2];  // of the tile before, and of the next one its queries
    if (tile + 1 < n_tiles) walk.round_queries(tile + 1, other);
    if (tile < n_tiles) walk.score(here);
    if (tile > 0) walk.weigh(other);
    if (tile < n_tiles) walk.soften(tile, here);
    if (tile > 0) walk.copy_out(tile - 1, other);
  }
  T::release();
}

template <class T>
void attention_block_on_tiles(const AttentionBlockArgs& args) noexcept {
  if (args.kv_type != Element::BF16 || args.head_dim > kMaxTileHeadDim) return attention_block<Avx512>(args);
  for (size_t begin = 0, end; begin < args.n_rows; begin = end) {
    const bool whole = sees_all(args.seen[begin]);
    for (end = begin + 1; end < args.n_rows && sees_all(args.seen[end]) == whole;) ++end;
    const AttentionBlockArgs part = rows_of(args, begin, end);
    whole ? attend_whole<T>(part) : attention_block<Avx512>(part);
  }
}

}  // namespace
}  // namespace kvfork::kernels
