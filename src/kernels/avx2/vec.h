// Eight lanes of AVX2 with FMA and F16C, with the operations that kernels/generic asks for; portable/vec.h says
// what each does.
#pragma once

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

namespace kvfork::kernels {
namespace {

struct Avx2 {
  using Reg = __m256;
  using Bits = __m256i;
  static constexpr size_t kLanes = 8;
  static constexpr int kTileFeatures = 3, kTileRows = 3;
  static constexpr int kLongRowFeatures = 3;
  static constexpr int kAttentionRows = 4, kAttentionColumns = 2;

  static __m256i first(size_t n) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)), lane);
  }

  static Reg zero() { return _mm256_setzero_ps(); }
  static Reg broadcast(float x) { return _mm256_set1_ps(x); }
  static Reg load(const float* p) { return _mm256_loadu_ps(p); }
  static Reg load_n(const float* p, size_t n) { return _mm256_maskload_ps(p, first(n)); }
  static void store(float* p, Reg x) { _mm256_storeu_ps(p, x); }
  static void store_n(float* p, size_t n, Reg x) { _mm256_maskstore_ps(p, first(n), x); }

  static Reg add(Reg a, Reg b) { return _mm256_add_ps(a, b); }
  static Reg sub(Reg a, Reg b) { return _mm256_sub_ps(a, b); }
  static Reg mul(Reg a, Reg b) { return _mm256_mul_ps(a, b); }
  static Reg div(Reg a, Reg b) { return _mm256_div_ps(a, b); }
  static Reg fma(Reg a, Reg b, Reg c) { return _mm256_fmadd_ps(a, b, c); }
  static Reg min(Reg a, Reg b) { return _mm256_min_ps(a, b); }
  static Reg max(Reg a, Reg b) { return _mm256_max_ps(a, b); }
  static Reg copy_sign(Reg x, Reg sign) {
    const __m256 bit = _mm256_set1_ps(-0.0f);
    return _mm256_or_ps(_mm256_andnot_ps(bit, x), _mm256_and_ps(bit, sign));
  }
  static Reg keep_first(Reg x, size_t n, Reg other) {
    return _mm256_blendv_ps(other, x, _mm256_castsi256_ps(first(n)));
  }

  static Reg round_even(Reg x) { return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  static Reg scale(Reg x, Reg n) {
    const __m256i whole = _mm256_cvtps_epi32(n);
    const __m256i half = _mm256_srai_epi32(whole, 1);
    return mul(mul(x, power_of_two(half)), power_of_two(_mm256_sub_epi32(whole, half)));
  }

  static Bits load_bits(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
  static Bits load_halves(const void* p, size_t n) {
    uint16_t copy[2 * kLanes] = {};
    __builtin_memcpy(copy, p, n * sizeof *copy);
    return load_bits(copy);
  }
  static Reg bf16_even(Bits x) { return _mm256_castsi256_ps(_mm256_slli_epi32(x, 16)); }
  static Reg bf16_odd(Bits x) {
    return _mm256_castsi256_ps(_mm256_and_si256(x, _mm256_set1_epi32(static_cast<int>(0xffff0000u))));
  }

  static Reg load_bf16(const void* p) {
    const __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p)));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
  }
  static Reg load_f16(const void* p) { return _mm256_cvtph_ps(_mm_loadu_si128(static_cast<const __m128i*>(p))); }
  static Reg load_f16_n(const void* p, size_t n) {
    uint16_t copy[kLanes] = {};
    __builtin_memcpy(copy, p, n * sizeof *copy);
    return load_f16(copy);
  }

  static Reg round_bf16(Reg x) {
    const __m256i bits = _mm256_castps_si256(x);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i up = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x00400000));
    const __m256 nan = _mm256_cmp_ps(x, x, _CMP_UNORD_Q);
    return bf16_odd(
        _mm256_castps_si256(_mm256_blendv_ps(_mm256_castsi256_ps(up), _mm256_castsi256_ps(quiet), nan)));
  }

  static void deinterleave(Reg a, Reg b, Reg* even, Reg* odd) {
    *even = in_order(_mm256_shuffle_ps(a, b, 0x88));
    *odd = in_order(_mm256_shuffle_ps(a, b, 0xdd));
  }

  static void interleave(Reg even, Reg odd, Reg* a, Reg* b) {
    const __m256 low = _mm256_unpacklo_ps(even, odd), high = _mm256_unpackhi_ps(even, odd);
    *a = _mm256_permute2f128_ps(low, high, 0x20);
    *b = _mm256_permute2f128_ps(low, high, 0x31);
  }

  static float max_lane(Reg x) {
    const __m128 q = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    const __m128 d = _mm_max_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_max_ss(d, _mm_movehdup_ps(d)));
  }

  static void sum4(Reg a, Reg b, Reg c, Reg d, float* out) {
    const __m256 ab = _mm256_add_ps(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b));
    const __m256 cd = _mm256_add_ps(_mm256_unpacklo_ps(c, d), _mm256_unpackhi_ps(c, d));
    const __m256 quads = _mm256_add_ps(_mm256_shuffle_ps(ab, cd, 0x44), _mm256_shuffle_ps(ab, cd, 0xee));
    _mm_storeu_ps(out, _mm_add_ps(_mm256_castps256_ps128(quads), _mm256_extractf128_ps(quads, 1)));
  }

 private:
  static Reg power_of_two(__m256i n) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
  }
  static Reg in_order(__m256 x) { return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(x), 0xd8)); }
};

}  // namespace
}  // namespace kvfork::kernels
