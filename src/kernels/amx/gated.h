// The gated half of a feed-forward layer on tiles: what the next product takes as inputs is made where the sums
// lie.
//
// Sums are [feature][column], and so are, in pairs of features, the tiles of packed activations (pack.h): no number
// changes its lane between the two products. Every number is what matmul, activate_mul and pack would make of it.
#pragma once

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/amx/matmul.h"
#include "kernels/generic/elementwise.h"
#include "kernels/kernels.h"

namespace kvfork::kernels {
namespace {

/// Sums of one feature with 16 rows, terms joined, and its bias.
inline __m512 result_of(const MatmulArgs& args, size_t n_terms, size_t feature, const float (*sums)[kSumFloats],
                        size_t place) {
  const auto term = [&](size_t i) { return Avx512::load(sums[i] + place * kTileColumns); };
  const __m512 sum = n_terms == kMaxTerms ? add_terms(term(0), term(1), term(2)) : term(0);
  return args.bias ? Avx512::add(sum, Avx512::broadcast(args.bias[feature])) : sum;
}

/// Where the first term of 16 rows' packed inputs from `feature` on lies.
inline char* packed_place(const GatedArgs& args, const Columns& columns, size_t row, size_t feature) {
  return static_cast<char*>(args.packed) +
         (columns.group(row, 0) * n_blocks(args.n_features) + feature / kTileK) * kTileBytes +
         feature % kTileK / 2 * 64;
}

/// 16 features of 16 rows become half a block of packed inputs.
template <Activation kChosen>
void pack_gated(const GatedArgs& args, const Columns& columns, size_t feature, size_t row,
                const float (*gate)[kSumFloats], const float (*up)[kSumFloats]) {
  const size_t group_bytes = n_blocks(args.n_features) * kTileBytes, n_terms = columns.n_terms;
  const __m512 clamp = Avx512::broadcast(args.clamp);
  char* out = packed_place(args, columns, row, feature);
  for (size_t place = 0; place < kWeightRows; place += 2, out += 64) {
    __m512i even[kMaxTerms] = {}, odd[kMaxTerms] = {};
    const auto make = [&](size_t i, __m512i(&terms)[kMaxTerms]) {
      if (feature + i >= args.gate.feature_end) return;
      split_in_place(gated_by<Avx512, kChosen>(result_of(args.gate, n_terms, feature + i, gate, i),
                                               result_of(args.up, n_terms, feature + i, up, i), clamp),
                     args.gate.rounding, terms);
    };
    make(place, even);
    make(place + 1, odd);
    for (size_t term = 0; term < n_terms; ++term)
      _mm512_store_si512(out + term * group_bytes, _mm512_or_si512(_mm512_srli_epi32(even[term], 16), odd[term]));
  }
}

/// Half a block that no feature gives is zero.
inline void pad_gated(const GatedArgs& args, const Columns& columns) {
  const size_t end = round_up(args.n_features, kWeightRows);
  if (args.gate.feature_end < args.n_features || end % kTileK == 0) return;
  for (size_t row = args.gate.row_begin; row < args.gate.row_end; row += kTileColumns) {
    for (size_t term = 0; term < columns.n_terms; ++term)
      __builtin_memset(packed_place(args, columns, row, end) + term * n_blocks(args.n_features) * kTileBytes, 0,
                       kTileBytes / 2);
  }
}

template <class T, class P>
void multiply_gated(const GatedArgs& args, const Columns& columns) {
  T::configure();
  multiply_chunks<T, P>({args.gate, args.up}, columns, [&](const Chunk& chunk, size_t feature, PanelSums* sums) {
    for_tiles<P>(args.gate, columns, chunk, feature, [&](size_t tile, size_t group, size_t row, size_t at) {
      with_activation(args.activation, [&](auto tag) {
        pack_gated<decltype(tag)::value>(args, columns, at, row, &sums[0][tile][group], &sums[1][tile][group]);
      });
    });
  });
  T::release();
  pad_gated(args, columns);
}

}  // namespace
}  // namespace kvfork::kernels
