// Products of bf16 weights with packed activations (pack.h) on tiles (T is AmxTiles or its twin).
//
// The weight is the first operand, 16 features by 32 inputs at a time, in its own row-major layout straight from
// the mapping; a group of columns is the second; sums come out as [feature][column]. An element of a sum takes its
// products block after block of k in ascending order and depends on one weight row and one column alone, so nothing
// below (how features, groups and rows are grouped) changes a bit. Edges are copied into zeroed tiles, since a tile
// register always reads 16 full rows.
#pragma once

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/amx/pack.h"
#include "kernels/amx/tiles.h"
#include "kernels/amx/transpose.h"
#include "kernels/kernels.h"

namespace kvfork::kernels {
namespace {

constexpr size_t kWeightRows = 16;  // features of one weight tile

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

  template <class T, int kTile>
  void load(size_t block) const {
    const size_t offset = block * 64;
    const size_t n_bytes = row_bytes - offset < 64 ? row_bytes - offset : 64;
    if (n_features == kWeightRows && n_bytes == 64) return T::template load<kTile>(start + offset, row_bytes);
    alignas(64) char edge[kTileBytes] = {};
    for (size_t row = 0; row < n_features; ++row)
      __builtin_memcpy(edge + row * 64, start + row * row_bytes + offset, n_bytes);
    T::template load<kTile>(edge, 64);
  }

  /// Asks for a block of the rows `next` features on.
  void prefetch(size_t block, size_t next) const {
    const char* p = start + next * row_bytes + block * 64;
    for (size_t row = 0; row < kWeightRows; ++row) __builtin_prefetch(p + row * row_bytes, 0, 2);
  }
};

/// What a pass over a tile of features asks memory for. The first of the passes that share a tile brings the tile's own
/// weights, two blocks ahead, past the end of a row those that the next tile needs first; the others share in asking
/// for the next tile, so that memory is not idle while they multiply.
struct Ask {
  bool from_memory;
  size_t pass, n_passes;

  template <int kF>
  void prefetch(const WeightRows (&rows)[2], size_t block, size_t blocks) const {
    constexpr size_t kNext = kF * kWeightRows;
    if (!from_memory) return;
    if (pass == 0) {
      const size_t ahead = block + 2;
      for (int f = 0; f < kF; ++f) ahead < blocks ? rows[f].prefetch(ahead, 0) : rows[f].prefetch(ahead - blocks, kNext);
    } else if (block % (n_passes - 1) == pass - 1) {
      for (int f = 0; f < kF; ++f) rows[f].prefetch(block, kNext);
    }
  }
};

/// Sums of a feature tile with each group of columns in hand, [group][feature][column].
constexpr size_t kPassGroups =
    6;  // a multiple of the number of terms, and of the two groups that a tile pass takes
using Sums = float[kPassGroups][kWeightRows * kTileColumns];

/// sums[f][g] = the products of 16 * kF features with kG groups of columns, whole k.
template <class T, int kF, int kG>
void multiply_tiles(const MatmulArgs& args, size_t feature, const char* group, size_t blocks, const Ask& ask,
                    Sums* sums, size_t first) {
  const WeightRows rows[2] = {WeightRows::at(args, feature), WeightRows::at(args, feature + (kF - 1) * kWeightRows)};
  T::template zero<0>();
  if constexpr (kG == 2) T::template zero<1>();
  if constexpr (kF == 2) T::template zero<2>();
  if constexpr (kF == 2 && kG == 2) T::template zero<3>();
  for (size_t block = 0; block < blocks; ++block, group += kTileBytes) {
    T::template load<6>(group, 64);
    if constexpr (kG == 2) T::template load<7>(group + blocks * kTileBytes, 64);
    ask.prefetch<kF>(rows, block, blocks);
    rows[0].template load<T, 4>(block);
    T::template multiply_add<0, 4, 6>();
    if constexpr (kG == 2) T::template multiply_add<1, 4, 7>();
    if constexpr (kF == 2) {
      rows[1].template load<T, 5>(block);
      T::template multiply_add<2, 5, 6>();
      if constexpr (kG == 2) T::template multiply_add<3, 5, 7>();
    }
  }
  T::template store<0>(sums[0][first], 64);
  if constexpr (kG == 2) T::template store<1>(sums[0][first + 1], 64);
  if constexpr (kF == 2) T::template store<2>(sums[1][first], 64);
  if constexpr (kF == 2 && kG == 2) T::template store<3>(sums[1][first + 1], 64);
}

template <class T, int kF>
void multiply_groups(const MatmulArgs& args, size_t feature, const char* packed, size_t blocks, size_t n_groups,
                     bool from_memory, Sums* sums) {
  size_t first = 0;
  Ask ask{.from_memory = from_memory, .pass = 0, .n_passes = (n_groups + 1) / 2};
  for (; first + 2 <= n_groups; first += 2, ++ask.pass)
    multiply_tiles<T, kF, 2>(args, feature, packed + first * blocks * kTileBytes, blocks, ask, sums, first);
  if (first < n_groups)
    multiply_tiles<T, kF, 1>(args, feature, packed + first * blocks * kTileBytes, blocks, ask, sums, first);
}

/// Adds the three sums of a number. The smallest terms first.
inline __m512 add_terms(__m512 high, __m512 middle, __m512 low) {
  return _mm512_add_ps(high, _mm512_add_ps(middle, low));
}

inline void write_row(const MatmulArgs& args, size_t row, size_t feature, __m512 sum) {
  const size_t left = args.feature_end - feature;
  const size_t n = left < kWeightRows ? left : kWeightRows;
  if (args.bias) sum = _mm512_add_ps(sum, Avx512::load_n(args.bias + feature, n));
  Avx512::store_n(args.y + row * args.y_stride + feature, n, sum);
}

/// From [feature][column] to rows of y, for rows [row, row_end) whose first group's sums are at `sums`.
inline void finish(const MatmulArgs& args, const Columns& columns, size_t feature, size_t row, size_t row_end,
                   const float (*sums)[kWeightRows * kTileColumns]) {
  __m512i v[16];
  const bool separate = !columns.shared && columns.n_terms == kMaxTerms;
  for (size_t f = 0; f < kWeightRows; ++f) {
    const auto part = [&](size_t term) { return Avx512::load(sums[term] + f * kTileColumns); };
    v[f] = _mm512_castps_si512(separate ? add_terms(part(0), part(1), part(2)) : part(0));
  }
  transpose16(v);
  const auto column = [&](size_t i) { return _mm512_castsi512_ps(v[i]); };
  for (size_t i = 0; row + i < row_end; ++i) {
    const bool joined = columns.shared && columns.n_terms == kMaxTerms;
    write_row(args, row + i, feature,
              joined ? add_terms(column(3 * i), column(3 * i + 1), column(3 * i + 2)) : column(i));
  }
}

/// Passes of few groups over the features: the first reads the weights from memory, later ones find them in the
/// cache.
template <class T>
void amx_matmul(const MatmulArgs& args) {
  if (args.n_rows == 0 || args.feature_begin >= args.feature_end) return;
  const Columns columns(args.n_rows, args.rounding);
  const size_t blocks = n_blocks(args.k);
  alignas(64) Sums sums[2];
  T::configure();
  for (size_t group = 0; group < columns.n_groups; group += kPassGroups) {
    const size_t left = columns.n_groups - group;
    const size_t n_groups = left < kPassGroups ? left : kPassGroups;
    const char* packed = static_cast<const char*>(args.packed) + group * blocks * kTileBytes;
    for (size_t feature = args.feature_begin; feature < args.feature_end; feature += 2 * kWeightRows) {
      const bool two = args.feature_end - feature > kWeightRows;
      if (two)
        multiply_groups<T, 2>(args, feature, packed, blocks, n_groups, group == 0, sums);
      else
        multiply_groups<T, 1>(args, feature, packed, blocks, n_groups, group == 0, sums);
      for (size_t f = 0; f < (two ? 2 : 1); ++f) {
        for (size_t g = 0; g < n_groups; g += columns.shared ? 1 : columns.n_terms) {
          const size_t row = columns.shared ? 0 : (group + g) / columns.n_terms * kTileColumns;
          const size_t row_end = args.n_rows - row < kTileColumns ? args.n_rows : row + kTileColumns;
          finish(args, columns, feature + f * kWeightRows, row, row_end, &sums[f][g]);
        }
      }
    }
  }
  T::release();
}

}  // namespace
}  // namespace kvfork::kernels
