// Products of bf16 and float16 weights with packed activations (pack.h) on tiles (T is AmxTiles or its twin).
//
// Weights are the first operand (weights.h), groups of columns the second; sums come out as [feature][column]. An
// element of a sum takes its products block after block of k in ascending order and depends on one term of one
// weight row and on one column alone, so nothing below (how features, groups, rows and runs of k are grouped)
// changes a bit.
#pragma once

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/amx/pack.h"
#include "kernels/amx/tiles.h"
#include "kernels/amx/transpose.h"
#include "kernels/amx/weights.h"
#include "kernels/kernels.h"

namespace kvfork::kernels {
namespace {

constexpr size_t kSumFloats = kWeightRows * kTileColumns;

/// Sums of a weight tile with each group of columns in hand, [group][feature][column].
constexpr size_t kMaxPassGroups = 24;
using Sums = float[kMaxPassGroups][kSumFloats];

/// What a sum was before the run: nothing yet, or what the run before left.
template <class T, int kTile>
void start_sum(const Pass& pass, const float* sum) {
  if (pass.begin == 0) return T::template zero<kTile>();
  T::template load<kTile>(sum, 64);
}

/// sums[tile][first + g] += the products of a run of weights with kG groups of columns, the first of them at
/// `group`.
template <class T, int kG, class Weights>
void multiply_tiles(Weights& weights, const Pass& pass, const char* group, Sums* sums, size_t first) {
  constexpr bool kTwo = Weights::kWeightTiles == 2;
  start_sum<T, 0>(pass, sums[0][first]);
  if constexpr (kG == 2) start_sum<T, 1>(pass, sums[0][first + 1]);
  if constexpr (kTwo) start_sum<T, 2>(pass, sums[1][first]);
  if constexpr (kTwo && kG == 2) start_sum<T, 3>(pass, sums[1][first + 1]);
  for (size_t block = pass.begin; block < pass.end; ++block) {
    T::template load<6>(group + block * kTileBytes, 64);
    if constexpr (kG == 2) T::template load<7>(group + (pass.blocks + block) * kTileBytes, 64);
    weights.prepare(pass, block);
    weights.template load<T, 0>(pass, block);
    T::template multiply_add<0, kWeightTile, 6>();
    if constexpr (kG == 2) T::template multiply_add<1, kWeightTile, 7>();
    if constexpr (kTwo) {
      weights.template load<T, 1>(pass, block);
      T::template multiply_add<2, kWeightTile + 1, 6>();
      if constexpr (kG == 2) T::template multiply_add<3, kWeightTile + 1, 7>();
    }
  }
  T::template store<0>(sums[0][first], 64);
  if constexpr (kG == 2) T::template store<1>(sums[0][first + 1], 64);
  if constexpr (kTwo) T::template store<2>(sums[1][first], 64);
  if constexpr (kTwo && kG == 2) T::template store<3>(sums[1][first + 1], 64);
}

/// Adds to the sum of first terms that of later, smaller ones. A sum that is infinite or NaN stands alone: the
/// others may have met its infinity with a zero.
inline __m512 add_rest(__m512 high, __m512 rest) {
  const __mmask16 finite = _mm512_cmp_ps_mask(_mm512_sub_ps(high, high), _mm512_setzero_ps(), _CMP_EQ_OQ);
  return _mm512_mask_add_ps(high, finite, high, rest);
}

/// Makes the sums of the two terms of weights one.
inline void add_rests(float* high, const float* rest) {
  for (size_t i = 0; i < kSumFloats; i += Avx512::kLanes)
    Avx512::store(high + i, add_rest(Avx512::load(high + i), Avx512::load(rest + i)));
}

/// Adds the three sums of an activation's terms. The smallest terms first.
inline __m512 add_terms(__m512 high, __m512 middle, __m512 low) {
  return add_rest(high, _mm512_add_ps(middle, low));
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

/// Rows of y from groups [group, group + n_groups) of columns, for the features of one Weights. The first run of
/// groups reads the weights from memory, later ones find them in the cache.
template <class T, class Weights>
void multiply_features(const MatmulArgs& args, const Columns& columns, size_t group, size_t n_groups,
                       size_t feature, Sums* sums) {
  const size_t blocks = n_blocks(args.k), group_bytes = blocks * kTileBytes;
  const char* packed = static_cast<const char*>(args.packed) + group * group_bytes;
  Weights weights(args, feature);
  Pass pass{.blocks = blocks,
            .run = blocks < Weights::kRunBlocks ? blocks : Weights::kRunBlocks,
            .begin = 0,
            .end = 0,
            .index = 0,
            .count = (n_groups + 1) / 2,
            .from_memory = group == 0};
  do {
    pass.begin = pass.end;
    pass.end = blocks - pass.begin < pass.run ? blocks : pass.begin + pass.run;
    for (pass.index = 0; pass.index < pass.count; ++pass.index) {
      const size_t first = 2 * pass.index;
      const char* at = packed + first * group_bytes;
      n_groups - first == 1 ? multiply_tiles<T, 1>(weights, pass, at, sums, first)
                            : multiply_tiles<T, 2>(weights, pass, at, sums, first);
    }
  } while (pass.end < blocks);
  if constexpr (Weights::kTerms == 2) {
    for (size_t g = 0; g < n_groups; ++g) add_rests(sums[0][g], sums[1][g]);
  }
  for (size_t f = 0; f * kWeightRows < Weights::kFeatures; ++f) {
    for (size_t g = 0; g < n_groups; g += columns.shared ? 1 : columns.n_terms) {
      const size_t row = columns.shared ? 0 : (group + g) / columns.n_terms * kTileColumns;
      const size_t row_end = args.n_rows - row < kTileColumns ? args.n_rows : row + kTileColumns;
      finish(args, columns, feature + f * kWeightRows, row, row_end, &sums[f][g]);
    }
  }
}

/// Few groups of columns at a time, over all features. LastWeights takes the last ones where they are few.
template <class T, class Weights, class LastWeights>
void multiply_groups(const MatmulArgs& args) {
  constexpr size_t kGroups = Weights::kPassGroups;
  static_assert(kGroups % 2 == 0 && kGroups % kMaxTerms == 0 && kGroups <= kMaxPassGroups);
  const Columns columns(args.n_rows, args.rounding);
  alignas(64) Sums sums[2];
  for (size_t group = 0; group < columns.n_groups; group += kGroups) {
    const size_t left = columns.n_groups - group, n_groups = left < kGroups ? left : kGroups;
    for (size_t feature = args.feature_begin; feature < args.feature_end; feature += Weights::kFeatures) {
      args.feature_end - feature > LastWeights::kFeatures
          ? multiply_features<T, Weights>(args, columns, group, n_groups, feature, sums)
          : multiply_features<T, LastWeights>(args, columns, group, n_groups, feature, sums);
    }
  }
}

template <class T>
void amx_matmul(const MatmulArgs& args) {
  if (args.n_rows == 0 || args.feature_begin >= args.feature_end) return;
  T::configure();
  args.weight_type == Element::F16 ? multiply_groups<T, SplitTiles, SplitTiles>(args)
                                   : multiply_groups<T, StoredTiles<2>, StoredTiles<1>>(args);
  T::release();
}

}  // namespace
}  // namespace kvfork::kernels
