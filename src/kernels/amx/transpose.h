// A 16 x 16 transpose of 32-bit numbers in registers.
#pragma once

#include <immintrin.h>

namespace kvfork::kernels {
namespace {

inline void transpose16(__m512i (&v)[16]) {
  __m512i pairs[16], quads[16];
  for (int i = 0; i < 16; i += 2) {
    pairs[i] = _mm512_unpacklo_epi32(v[i], v[i + 1]);
    pairs[i + 1] = _mm512_unpackhi_epi32(v[i], v[i + 1]);
  }
  // Now each 128-bit lane of quads[4 * i + c] holds column c of that lane's four, for rows 4 * i to 4 * i + 3.
  for (int i = 0; i < 16; i += 4) {
    quads[i] = _mm512_unpacklo_epi64(pairs[i], pairs[i + 2]);
    quads[i + 1] = _mm512_unpackhi_epi64(pairs[i], pairs[i + 2]);
    quads[i + 2] = _mm512_unpacklo_epi64(pairs[i + 1], pairs[i + 3]);
    quads[i + 3] = _mm512_unpackhi_epi64(pairs[i + 1], pairs[i + 3]);
  }
  for (int c = 0; c < 4; ++c) {
    const __m512i low_even = _mm512_shuffle_i32x4(quads[c], quads[4 + c], 0x88);
    const __m512i low_odd = _mm512_shuffle_i32x4(quads[c], quads[4 + c], 0xdd);
    const __m512i high_even = _mm512_shuffle_i32x4(quads[8 + c], quads[12 + c], 0x88);
    const __m512i high_odd = _mm512_shuffle_i32x4(quads[8 + c], quads[12 + c], 0xdd);
    v[c] = _mm512_shuffle_i32x4(low_even, high_even, 0x88);
    v[8 + c] = _mm512_shuffle_i32x4(low_even, high_even, 0xdd);
    v[4 + c] = _mm512_shuffle_i32x4(low_odd, high_odd, 0x88);
    v[12 + c] = _mm512_shuffle_i32x4(low_odd, high_odd, 0xdd);
  }
}

}  // namespace
}  // namespace kvfork::kernels
