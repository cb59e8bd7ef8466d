// Sixteen lanes of AVX-512, with the operations that kernels/generic asks for; portable/vec.h says what each does.
#pragma once

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

namespace kvfork::kernels {
namespace {

struct Avx512 {
  using Reg = __m512;
  using Bits = __m512i;
  static constexpr size_t kLanes = 16;
  static constexpr int kTileFeatures = 4, kTileRows = 6;
  static constexpr int kLongRowFeatures = 8;
  static constexpr int kAttentionRows = 6, kAttentionColumns = 4;

  static __mmask16 first(size_t n) { return static_cast<__mmask16>((1u << n) - 1u); }

  static Reg zero() { return _mm512_setzero_ps(); }
  static Reg broadcast(float x) { return _mm512_set1_ps(x); }
  static Reg load(const float* p) { return _mm512_loadu_ps(p); }
  static Reg load_n(const float* p, size_t n) { return _mm512_maskz_loadu_ps(first(n), p); }
  static void store(float* p, Reg x) { _mm512_storeu_ps(p, x); }
  static void store_n(float* p, size_t n, Reg x) { _mm512_mask_storeu_ps(p, first(n), x); }

  static Reg add(Reg a, Reg b) { return _mm512_add_ps(a, b); }
  static Reg sub(Reg a, Reg b) { return _mm512_sub_ps(a, b); }
  static Reg mul(Reg a, Reg b) { return _mm512_mul_ps(a, b); }
  static Reg div(Reg a, Reg b) { return _mm512_div_ps(a, b); }
  static Reg fma(Reg a, Reg b, Reg c) { return _mm512_fmadd_ps(a, b, c); }
  static Reg min(Reg a, Reg b) { return _mm512_min_ps(a, b); }
  static Reg max(Reg a, Reg b) { return _mm512_max_ps(a, b); }
  static Reg copy_sign(Reg x, Reg sign) {
    const __m512 bit = _mm512_set1_ps(-0.0f);
    return _mm512_or_ps(_mm512_andnot_ps(bit, x), _mm512_and_ps(bit, sign));
  }
  static Reg keep_first(Reg x, size_t n, Reg other) { return _mm512_mask_mov_ps(other, first(n), x); }

  static Reg round_even(Reg x) { return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  static Reg scale(Reg x, Reg n) { return _mm512_scalef_ps(x, n); }

  static Bits load_bits(const void* p) { return _mm512_loadu_si512(p); }
  static Bits load_halves(const void* p, size_t n) {
    return _mm512_maskz_loadu_epi16(static_cast<__mmask32>((uint64_t{1} << n) - 1u), p);
  }
  static Reg bf16_even(Bits x) { return _mm512_castsi512_ps(_mm512_slli_epi32(x, 16)); }
  static Reg bf16_odd(Bits x) {
    return _mm512_castsi512_ps(_mm512_and_si512(x, _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
  }

  static Reg load_bf16(const void* p) {
    const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
  }
  static Reg load_f16(const void* p) { return _mm512_cvtph_ps(_mm256_loadu_si256(static_cast<const __m256i*>(p))); }
  static Reg load_f16_n(const void* p, size_t n) { return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(first(n), p)); }

  static Reg round_bf16(Reg x) {
    const __m512i bits = _mm512_castps_si512(x);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i up = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    const __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x00400000));
    const __m512i all = _mm512_mask_mov_epi32(up, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), quiet);
    return bf16_odd(all);
  }

  /// The upper halves of a, then of b, in the order of their lanes.
  static Bits upper_halves(Reg a, Reg b) {
    const __m256i low = _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_castps_si512(a), 16));
    const __m256i high = _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_castps_si512(b), 16));
    return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
  }

  static void deinterleave(Reg a, Reg b, Reg* even, Reg* odd) {
    const __m512i evens = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
    *even = _mm512_permutex2var_ps(a, evens, b);
    *odd = _mm512_permutex2var_ps(a, _mm512_add_epi32(evens, _mm512_set1_epi32(1)), b);
  }

  static void interleave(Reg even, Reg odd, Reg* a, Reg* b) {
    const __m512i low = _mm512_set_epi32(23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    *a = _mm512_permutex2var_ps(even, low, odd);
    *b = _mm512_permutex2var_ps(even, _mm512_add_epi32(low, _mm512_set1_epi32(8)), odd);
  }

  static float max_lane(Reg x) {
    const __m256 m = _mm256_max_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
    const __m128 q = _mm_max_ps(_mm256_castps256_ps128(m), _mm256_extractf128_ps(m, 1));
    const __m128 d = _mm_max_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_max_ss(d, _mm_movehdup_ps(d)));
  }

  static void sum4(Reg a, Reg b, Reg c, Reg d, float* out) {
    const __m512 ab = _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
    const __m512 cd = _mm512_add_ps(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
    const __m512 quads = _mm512_add_ps(_mm512_shuffle_ps(ab, cd, 0x44), _mm512_shuffle_ps(ab, cd, 0xee));
    const __m512 pairs = _mm512_add_ps(quads, _mm512_shuffle_f32x4(quads, quads, 0xb1));
    _mm_storeu_ps(out, _mm_add_ps(_mm512_castps512_ps128(pairs), _mm512_extractf32x4_ps(pairs, 2)));
  }
};

}  // namespace
}  // namespace kvfork::kernels
