// The lanes of AVX-512 with its product of bfloat16 pairs.
#pragma once

#include <immintrin.h>

#include "kernels/avx512/vec.h"

namespace kvfork::kernels {
namespace {

struct Avx512Bf16 : Avx512 {
  /// Lane by lane, c + the products of the two bfloat16 numbers that a lane of a and b holds; the upper ones first.
  /// Numbers too small for normal ones count as zero.
  static Reg dot_bf16(Reg a, Reg b, Reg c) {
    return _mm512_dpbf16_ps(c, (__m512bh)_mm512_castps_si512(a), (__m512bh)_mm512_castps_si512(b));
  }
  static Reg from_bits(Bits x) { return _mm512_castsi512_ps(x); }
};

}  // namespace
}  // namespace kvfork::kernels
