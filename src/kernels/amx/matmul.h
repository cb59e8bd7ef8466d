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
#include "kernels/amx/panels.h"
#include "kernels/amx/tiles.h"
#include "kernels/amx/transpose.h"
#include "kernels/amx/weights.h"
#include "kernels/kernels.h"

namespace kvfork::kernels {
namespace {

constexpr size_t kSumFloats = kWeightRows * kTileColumns;

/// Two tiles of weights with up to two groups of columns: sums of four tiles, [weight tile][group].
using FourSums = float* [2][2];

template <class T, int kG>
void start_sums(bool first, const FourSums& sums) {
  if (first) {
    T::template zero<0>();
    T::template zero<2>();
    if constexpr (kG == 2) T::template zero<1>();
    if constexpr (kG == 2) T::template zero<3>();
  } else {
    T::template load<0>(sums[0][0], 64);
    T::template load<2>(sums[1][0], 64);
    if constexpr (kG == 2) T::template load<1>(sums[0][1], 64);
    if constexpr (kG == 2) T::template load<3>(sums[1][1], 64);
  }
}

template <class T, int kG>
void store_sums(const FourSums& sums) {
  T::template store<0>(sums[0][0], 64);
  T::template store<2>(sums[1][0], 64);
  if constexpr (kG == 2) T::template store<1>(sums[0][1], 64);
  if constexpr (kG == 2) T::template store<3>(sums[1][1], 64);
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

/// From [feature][column] to rows of y, for up to 16 rows from `row` on, whose first group's sums are at `sums`.
inline void finish(const MatmulArgs& args, const Columns& columns, size_t feature, size_t row,
                   const float (*sums)[kSumFloats]) {
  const size_t row_end = args.row_end - row < kTileColumns ? args.row_end : row + kTileColumns;
  __m512i v[16];
  const bool terms = columns.n_terms == kMaxTerms, separate = !columns.shared && terms;
  for (size_t f = 0; f < kWeightRows; ++f) {
    const auto part = [&](size_t term) { return Avx512::load(sums[term] + f * kTileColumns); };
    v[f] = _mm512_castps_si512(separate ? add_terms(part(0), part(1), part(2)) : part(0));
  }
  transpose16(v);
  const auto column = [&](size_t i) { return _mm512_castsi512_ps(v[i]); };
  const size_t left = args.feature_end - feature, n = left < kWeightRows ? left : kWeightRows;
  float* y = args.y + row * args.y_stride + feature;
  if (!args.bias && n == kWeightRows && row_end - row == kTileColumns) {
    for (size_t i = 0; i < kTileColumns; ++i, y += args.y_stride) Avx512::store(y, column(i));
    return;
  }
  const __m512 bias = args.bias ? Avx512::load_n(args.bias + feature, n) : Avx512::zero();
  for (size_t i = 0; row + i < row_end; ++i, y += args.y_stride) {
    const bool joined = columns.shared && terms;
    const __m512 sum = joined ? add_terms(column(3 * i), column(3 * i + 1), column(3 * i + 2)) : column(i);
    Avx512::store_n(y, n, args.bias ? _mm512_add_ps(sum, bias) : sum);
  }
}

/// What a product works in (MatmulArgs::workspace): a panel of weights and sums of tiles, [panel][weight
/// tile][group]. Columns of few blocks stay in the second-level cache from one panel to the next; of many blocks
/// only a run does, beside the sums of so many panels.
constexpr size_t kChunkGroups = 36, kChunkPanels = 8, kFittingBlocks = 32;
static_assert(kChunkGroups % (2 * kMaxTerms) == 0);
using PanelSums = float[2][kChunkGroups][kSumFloats];
struct alignas(64) ProductWorkspace {
  Panel panel;
  PanelSums sums[kChunkPanels];
};

inline ProductWorkspace& workspace_of(const MatmulArgs& args) {
  return *static_cast<ProductWorkspace*>(args.workspace);
}

/// Groups of columns that pass over the same weights: of [from, end) the first, cut into chunks of nearly equal
/// size.
struct Chunk {
  size_t begin, end;

  static Chunk first(const Columns& columns, size_t from, size_t end) {
    const size_t left = end - from, n_chunks = (left + kChunkGroups - 1) / kChunkGroups;
    const size_t n = round_up((left + n_chunks - 1) / n_chunks, columns.shared ? 1 : 2 * columns.n_terms);
    return {from, n < left ? from + n : end};
  }
  size_t n_groups() const { return end - begin; }
};

/// What a pass over a panel asks memory for meanwhile: in each block a line of n_rows rows of weights.
struct Asked {
  const char* at;
  size_t row_bytes, n_rows;
};

/// Sums of kG groups of columns += their products with a run of weights. kFirst: the first pass over the panel.
template <class T, int kG, bool kFirst, class P>
void multiply_panel(const P& weights, const Run& run, const char* columns, size_t group_bytes, Asked asked) {
  const auto load = [&]<int kTile>(size_t block) {
    if constexpr (kFirst) return weights.template load_first<T, kTile>(run, block);
    T::template load<kWeightTile + kTile>(weights.panel.tiles[block - run.begin][kTile], 64);
  };
  columns += run.begin * kTileBytes;
  for (size_t block = run.begin; block < run.end; ++block, columns += kTileBytes, asked.at += 64) {
    T::template load_passing<6>(columns, 64);
    load.template operator()<0>(block);
    T::template multiply_add<0, kWeightTile, 6>();
    if constexpr (kG == 2) {
      T::template load_passing<7>(columns + group_bytes, 64);
      T::template multiply_add<1, kWeightTile, 7>();
    }
    load.template operator()<1>(block);
    T::template multiply_add<2, kWeightTile + 1, 6>();
    if constexpr (kG == 2) T::template multiply_add<3, kWeightTile + 1, 7>();
    for (size_t row = 0; row < asked.n_rows; ++row) __builtin_prefetch(asked.at + row * asked.row_bytes, 0, 2);
  }
}

/// A chunk's groups of columns with the weights of one panel. `next`: the weights of the panel after it.
template <class T, class P>
void multiply_chunk(const MatmulArgs& args, const Chunk& chunk, size_t feature, const Run& run, const char* next,
                    PanelSums& sums) {
  const P weights(args, feature, run, workspace_of(args).panel);
  const size_t group_bytes = n_blocks(args.k) * kTileBytes, n_pairs = (chunk.n_groups() + 1) / 2;
  Asked asked{next, args.k * sizeof(uint16_t), (P::kFeatures + n_pairs - 1) / n_pairs};
  for (size_t g = 0; g < chunk.n_groups(); g += 2, asked.at += asked.n_rows * asked.row_bytes) {
    const bool one = g + 1 == chunk.n_groups();
    const FourSums four = {{sums[0][g], sums[0][one ? g : g + 1]}, {sums[1][g], sums[1][one ? g : g + 1]}};
    const char* columns = static_cast<const char*>(args.packed) + (chunk.begin + g) * group_bytes;
    const auto multiply = [&]<int kG, bool kFirst>() {
      start_sums<T, kG>(run.begin == 0, four);
      multiply_panel<T, kG, kFirst>(weights, run, columns, group_bytes, asked);
      store_sums<T, kG>(four);
    };
    if (g == 0)
      one ? multiply.template operator()<1, true>() : multiply.template operator()<2, true>();
    else
      one ? multiply.template operator()<1, false>() : multiply.template operator()<2, false>();
  }
  if constexpr (P::kTwoTerms) {
    const bool last = run.end == n_blocks(args.k);
    for (size_t g = 0; last && g < chunk.n_groups(); ++g) add_rests(sums[0][g], sums[1][g]);
  }
}

/// Products of the same columns with kN matrices. Runs of k outside, features inside: what a run needs of a chunk's
/// columns stays in the second-level cache. Calls use(chunk, feature, sums) for the features of each panel, with
/// the sums of every matrix one after the other.
template <class T, class P, size_t kN, class Use>
void multiply_chunks(const MatmulArgs (&args)[kN], const Columns& columns, const Use& use) {
  const size_t blocks = n_blocks(args[0].k), n_runs = blocks == 0 ? 1 : (blocks + kRunBlocks - 1) / kRunBlocks;
  const size_t run_blocks = (blocks + n_runs - 1) / n_runs, feature_end = args[0].feature_end;
  const size_t at_a_time = (blocks <= kFittingBlocks ? 1 : kChunkPanels / kN) * P::kFeatures;
  const size_t group_end = columns.end_group(args[0].row_end);
  const auto weights_at = [&](size_t n, size_t feature, size_t block) {
    return WeightRows::at(args[n], feature).start + block * 64;
  };
  for (size_t group = columns.group(args[0].row_begin, 0); group < group_end;) {
    const Chunk chunk = Chunk::first(columns, group, group_end);
    group = chunk.end;
    for (size_t first = args[0].feature_begin, last; first < feature_end; first = last) {
      last = feature_end - first < at_a_time ? feature_end : first + at_a_time;
      for (size_t i = 0; i < n_runs; ++i) {
        const bool is_last = i + 1 == n_runs;
        const Run run{i * run_blocks, is_last ? blocks : (i + 1) * run_blocks};
        PanelSums* sums = workspace_of(args[0]).sums;
        for (size_t feature = first; feature < last; feature += P::kFeatures, sums += kN) {
          for (size_t n = 0; n < kN; ++n) {
            const char* next = n + 1 < kN                      ? weights_at(n + 1, feature, run.begin)
                               : feature + P::kFeatures < last ? weights_at(0, feature + P::kFeatures, run.begin)
                               : is_last                       ? weights_at(0, last, 0)
                                                               : weights_at(0, first, run.end);
            multiply_chunk<T, P>(args[n], chunk, feature, run, next, sums[n]);
          }
          if (is_last) use(chunk, feature, sums);
        }
      }
    }
  }
}

/// Calls use(tile, group, row, feature) for the sums of every weight tile with every 16 rows of a chunk (or all of
/// a shared group): the group that holds the first of their terms, and what they belong to.
template <class P, class Use>
void for_tiles(const MatmulArgs& args, const Columns& columns, const Chunk& chunk, size_t feature, const Use& use) {
  for (size_t tile = 0; tile * kWeightRows < P::kFeatures && feature < args.feature_end; ++tile) {
    for (size_t g = 0; g < chunk.n_groups(); g += columns.shared ? 1 : columns.n_terms)
      use(tile, g, (chunk.begin + g) / columns.n_terms * kTileColumns, feature);
    feature += kWeightRows;
  }
}

template <class T, class P>
void multiply_panels(const MatmulArgs& args, const Columns& columns) {
  multiply_chunks<T, P>({args}, columns, [&](const Chunk& chunk, size_t feature, PanelSums* sums) {
    for_tiles<P>(args, columns, chunk, feature, [&](size_t tile, size_t group, size_t row, size_t at) {
      finish(args, columns, at, row, &sums[0][tile][group]);
    });
  });
}

/// One pass over the weights where they lie, with one or two groups of columns.
template <class T, class Weights, int kG>
void multiply_in_place(const MatmulArgs& args, const Columns& columns, size_t feature) {
  constexpr bool kTwo = Weights::kWeightTiles == 2;
  const size_t blocks = n_blocks(args.k), group_bytes = blocks * kTileBytes;
  const char* packed = static_cast<const char*>(args.packed) + columns.group(args.row_begin, 0) * group_bytes;
  const Weights weights(args, feature);
  PanelSums& sums = workspace_of(args).sums[0];
  const FourSums four = {{sums[0][0], sums[0][1]}, {sums[1][0], sums[1][1]}};
  start_sums<T, kG>(true, four);
  for (size_t block = 0; block < blocks; ++block) {
    T::template load<6>(packed + block * kTileBytes, 64);
    if constexpr (kG == 2) T::template load<7>(packed + group_bytes + block * kTileBytes, 64);
    weights.prepare(block);
    weights.template load<T, 0>(block);
    T::template multiply_add<0, kWeightTile, 6>();
    if constexpr (kG == 2) T::template multiply_add<1, kWeightTile, 7>();
    if constexpr (kTwo) {
      weights.template load<T, 1>(block);
      T::template multiply_add<2, kWeightTile + 1, 6>();
      if constexpr (kG == 2) T::template multiply_add<3, kWeightTile + 1, 7>();
    }
  }
  store_sums<T, kG>(four);
  for (size_t f = 0; f < Weights::kWeightTiles; ++f) {
    for (size_t g = 0; g < kG; ++g)
      finish(args, columns, feature + f * kWeightRows, args.row_begin + g * kTileColumns, &sums[f][g]);
  }
}

template <class T, int kG>
void multiply_few(const MatmulArgs& args, const Columns& columns) {
  for (size_t feature = args.feature_begin; feature < args.feature_end; feature += 2 * kWeightRows) {
    args.feature_end - feature > kWeightRows ? multiply_in_place<T, StoredTiles<2>, kG>(args, columns, feature)
                                             : multiply_in_place<T, StoredTiles<1>, kG>(args, columns, feature);
  }
}

inline size_t n_groups_of(const MatmulArgs& args, const Columns& columns) {
  return columns.end_group(args.row_end) - columns.group(args.row_begin, 0);
}

/// So few groups of columns are not worth a panel.
constexpr size_t kGroupsInPlace = 2;

template <class T>
void amx_matmul(const MatmulArgs& args) {
  if (args.row_begin >= args.row_end || args.feature_begin >= args.feature_end) return;
  const Columns columns(args.n_rows, args.rounding);
  const size_t n_groups = n_groups_of(args, columns);
  T::configure();
  if (args.weight_type == Element::F16) {
    multiply_panels<T, SplitPanel>(args, columns);
  } else if (n_groups > kGroupsInPlace) {
    multiply_panels<T, StoredPanel>(args, columns);
  } else {
    n_groups == 2 ? multiply_few<T, 2>(args, columns) : multiply_few<T, 1>(args, columns);
  }
  T::release();
}

}  // namespace
}  // namespace kvfork::kernels
