// Activations as the second operand of tile products with bf16 numbers: bf16 weights, or the terms of float16 ones.
//
// In float32 mode an activation is the exact sum of three bf16 numbers: its first 8 significant bits, the next 8,
// and the rest. Each is a column of its own, whose products with bf16 numbers are exact; the three sums are added
// at the end (matmul.h). In bfloat16 mode there is one column per row. Columns lie in groups of 16, one tile wide:
//
//   packed[group][k / 32][16 pairs of k][16 columns], pairs of bf16
//
// While all columns fit into one group they share it, column row * n_terms + term. Otherwise 16 rows make n_terms
// groups. What a column holds is the same in either place, and so are the bits that come of it. Columns of no row
// are zero.
#pragma once

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/amx/transpose.h"
#include "kernels/avx512/vec.h"
#include "kernels/kernels.h"
#include "kernels/scalar.h"

namespace kvfork::kernels {
namespace {

constexpr size_t kTileColumns = 16;  // columns of a group; features of a weight tile
constexpr size_t kTileK = 32;        // bf16 numbers of one tile row
constexpr size_t kTileBytes = 1024;
constexpr size_t kMaxTerms = 3;

struct Columns {
  size_t n_terms;
  size_t n_groups;
  bool shared;

  Columns(size_t n_rows, Rounding rounding) : n_terms(rounding == Rounding::ToBF16 ? 1 : kMaxTerms) {
    shared = n_rows * n_terms <= kTileColumns;
    n_groups = shared ? 1 : (n_rows + kTileColumns - 1) / kTileColumns * n_terms;
  }
  size_t group(size_t row, size_t term) const { return shared ? 0 : row / kTileColumns * n_terms + term; }
  /// After the groups of the rows before `row_end`.
  size_t end_group(size_t row_end) const {
    return shared ? 1 : (row_end + kTileColumns - 1) / kTileColumns * n_terms;
  }
  size_t column(size_t row, size_t term) const { return shared ? row * n_terms + term : row % kTileColumns; }
};

inline size_t n_blocks(size_t k) {
  return (k + kTileK - 1) / kTileK;
}

inline size_t amx_packed_bytes(size_t n_rows, size_t k) {
  return Columns(n_rows, Rounding::None).n_groups * n_blocks(k) * kTileBytes;
}

/// x cut after 8 significant bits.
inline __m512 first_bits(__m512 x) {
  return Avx512::bf16_odd(_mm512_castps_si512(x));
}

/// The terms of x, each in the upper halves. An infinity or a NaN is its first term alone.
inline void split(__m512 x, __m512 (&terms)[kMaxTerms]) {
  const __mmask16 finite = _mm512_cmp_ps_mask(_mm512_sub_ps(x, x), _mm512_setzero_ps(), _CMP_EQ_OQ);
  const __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
  const __m512i bits = _mm512_castps_si512(x);
  const __m512i quiet = _mm512_mask_or_epi32(bits, nan, bits, _mm512_set1_epi32(0x00400000));
  terms[0] = first_bits(_mm512_castsi512_ps(quiet));
  const __m512 rest = _mm512_maskz_sub_ps(finite, x, terms[0]);
  terms[1] = first_bits(rest);
  terms[2] = _mm512_sub_ps(rest, terms[1]);
}

/// Terms of 16 activations, or the one rounded number, each in the upper half of its lane.
inline void split_in_place(__m512 x, Rounding rounding, __m512i (&terms)[kMaxTerms]) {
  if (rounding == Rounding::ToBF16) {
    terms[0] = _mm512_castps_si512(Avx512::round_bf16(x));
    return;
  }
  __m512 parts[kMaxTerms];
  split(x, parts);
  for (size_t i = 0; i < kMaxTerms; ++i)
    terms[i] = _mm512_and_si512(_mm512_castps_si512(parts[i]), _mm512_set1_epi32(static_cast<int>(0xffff0000u)));
}

/// Terms of 32 activations of one row from x on (`n` of them; the rest are zero).
inline void split(const float* x, size_t n, Rounding rounding, __m512i (&terms)[kMaxTerms]) {
  const __m512 a = n >= 16 ? Avx512::load(x) : Avx512::load_n(x, n);
  const __m512 b = n >= 32 ? Avx512::load(x + 16) : n > 16 ? Avx512::load_n(x + 16, n - 16) : Avx512::zero();
  if (rounding == Rounding::ToBF16) {
    terms[0] = Avx512::upper_halves(Avx512::round_bf16(a), Avx512::round_bf16(b));
    return;
  }
  __m512 terms_a[kMaxTerms], terms_b[kMaxTerms];
  split(a, terms_a);
  split(b, terms_b);
  for (size_t i = 0; i < kMaxTerms; ++i) terms[i] = Avx512::upper_halves(terms_a[i], terms_b[i]);
}

/// The rows of args within one run of 16 (or all of a shared group), block by block. The inputs are those from a
/// block on, as x begins there, up to `input_end`.
inline void pack_run(const PackArgs& args, size_t begin, size_t end, size_t first_block, size_t input_end) {
  const Columns columns(args.n_rows, args.rounding);
  const size_t blocks = n_blocks(args.k), end_block = n_blocks(input_end);
  for (size_t block = first_block; block < end_block; ++block) {
    const size_t at = (block - first_block) * kTileK, left = input_end - block * kTileK;
    const size_t n = left < kTileK ? left : kTileK;
    __m512i tiles[kMaxTerms][kTileColumns];
    for (auto& tile : tiles) {
      for (__m512i& column : tile) column = _mm512_setzero_si512();
    }
    for (size_t row = begin; row < end; ++row) {
      __m512i terms[kMaxTerms];
      split(args.x + (row - args.row_begin) * args.x_stride + at, n, args.rounding, terms);
      for (size_t term = 0; term < columns.n_terms; ++term)
        tiles[columns.shared ? 0 : term][columns.column(row, term)] = terms[term];
    }
    for (size_t i = 0; i < (columns.shared ? 1 : columns.n_terms); ++i) {
      transpose16(tiles[i]);
      char* out = static_cast<char*>(args.packed) + (columns.group(begin, i) * blocks + block) * kTileBytes;
      for (size_t pair = 0; pair < kTileColumns; ++pair) _mm512_store_si512(out + pair * 64, tiles[i][pair]);
    }
  }
}

inline void amx_pack_inputs(const PackArgs& args, size_t input_begin, size_t input_end) {
  for (size_t begin = args.row_begin, end; begin < args.row_end; begin = end) {
    end = begin / kTileColumns * kTileColumns + kTileColumns;
    if (end > args.row_end) end = args.row_end;
    pack_run(args, begin, end, input_begin / kTileK, input_end);
  }
}

}  // namespace
}  // namespace kvfork::kernels
