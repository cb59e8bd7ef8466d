// Four lanes in plain C++, and the specification of the vector operations that kernels/generic is written in. Each
// set has such a struct; they differ in the number of lanes, in whether `fma` rounds once, and in nothing else.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "kernels/scalar.h"

namespace kvfork::kernels {
namespace {

struct Portable {
  // Arithmetic on this type is element by element; any GCC or Clang target has it.
  typedef float Reg __attribute__((vector_size(16)));
  typedef uint32_t Bits __attribute__((vector_size(16)));
  static constexpr size_t kLanes = 4;
  // Sizes of register tiles; they change no bit. Accumulators (rows x features in products, rows x vectors in
  // attention), operands and a temporary have to fit the registers. kLongRowFeatures: features at once for a single
  // row that does not stay in the first-level cache.
  static constexpr int kTileFeatures = 2, kTileRows = 4;
  static constexpr int kLongRowFeatures = 2;
  static constexpr int kAttentionRows = 2, kAttentionColumns = 2;

  static Reg zero() { return Reg{}; }
  static Reg broadcast(float x) { return Reg{x, x, x, x}; }
  static Reg load(const float* p) { return copy_from(p, sizeof(Reg)); }
  /// The first n <= kLanes lanes from p, zero in the others. Only n numbers are read.
  static Reg load_n(const float* p, size_t n) { return copy_from(p, n * sizeof *p); }
  static void store(float* p, Reg x) { __builtin_memcpy(p, &x, sizeof x); }
  static void store_n(float* p, size_t n, Reg x) { __builtin_memcpy(p, &x, n * sizeof *p); }

  static Reg add(Reg a, Reg b) { return a + b; }
  static Reg sub(Reg a, Reg b) { return a - b; }
  static Reg mul(Reg a, Reg b) { return a * b; }
  static Reg div(Reg a, Reg b) { return a / b; }
  /// a * b + c, with two roundings; with one where the set has such an instruction.
  static Reg fma(Reg a, Reg b, Reg c) { return a * b + c; }
  /// b where the two do not compare, so a NaN in b stays.
  static Reg min(Reg a, Reg b) { return a < b ? a : b; }
  static Reg max(Reg a, Reg b) { return a > b ? a : b; }
  /// x with the sign of `sign`; of NaN too.
  static Reg copy_sign(Reg x, Reg sign) {
    return as_float((as_bits(x) & 0x7fffffffu) | (as_bits(sign) & 0x80000000u));
  }
  /// x in the first n lanes, `other` in the rest.
  static Reg keep_first(Reg x, size_t n, Reg other) {
    const uint32_t count = static_cast<uint32_t>(n);
    return Bits{0, 1, 2, 3} < Bits{count, count, count, count} ? x : other;
  }

  /// To a whole number, ties to even, for |x| < 2^22.
  static Reg round_even(Reg x) {
    const Reg shift = broadcast(0x1.8p23f);
    return (x + shift) - shift;
  }
  /// x * 2^n for whole n in [-252, 254], with one rounding.
  static Reg scale(Reg x, Reg n) {
    const Int whole = __builtin_convertvector(n, Int);
    const Int half = whole >> 1;
    return x * power_of_two(half) * power_of_two(whole - half);
  }

  /// 2 * kLanes 16-bit numbers.
  static Bits load_bits(const void* p) {
    Bits x;
    __builtin_memcpy(&x, p, sizeof x);
    return x;
  }
  /// The first n <= 2 * kLanes of them, zero in the others.
  static Bits load_halves(const void* p, size_t n) {
    Bits x{};
    __builtin_memcpy(&x, p, 2 * n);
    return x;
  }
  /// bf16 numbers at even and at odd places, widened.
  static Reg bf16_even(Bits x) { return as_float(x << 16); }
  static Reg bf16_odd(Bits x) { return as_float(x & 0xffff0000u); }

  /// kLanes consecutive numbers, widened.
  static Reg load_bf16(const void* p) { return as_float(load_wide(p, kLanes) << 16); }
  static Reg load_f16(const void* p) { return f16(load_wide(p, kLanes)); }
  static Reg load_f16_n(const void* p, size_t n) { return f16(load_wide(p, n)); }

  /// The nearest bf16, ties to even; NaN stays NaN.
  static Reg round_bf16(Reg x) {
    const Bits bits = as_bits(x);
    const Bits up = bits + ((bits >> 16) & 1u) + 0x7fffu;
    return bf16_odd(x == x ? up : bits | 0x00400000u);
  }

  /// Of the 2 * kLanes numbers a, b: those at even and at odd places.
  static void deinterleave(Reg a, Reg b, Reg* even, Reg* odd) {
    *even = Reg{a[0], a[2], b[0], b[2]};
    *odd = Reg{a[1], a[3], b[1], b[3]};
  }

  /// The reverse: a, b are the numbers of even and odd in turn.
  static void interleave(Reg even, Reg odd, Reg* a, Reg* b) {
    *a = Reg{even[0], odd[0], even[1], odd[1]};
    *b = Reg{even[2], odd[2], even[3], odd[3]};
  }

  static float max_lane(Reg x) {
    const float low = x[0] > x[2] ? x[0] : x[2];
    const float high = x[1] > x[3] ? x[1] : x[3];
    return low > high ? low : high;
  }

  /// out[0..4) = the sums of the lanes of a, b, c and d. With quad(i) = (x[4i] + x[4i + 2]) + (x[4i + 1] + x[4i +
  /// 3]), a sum is quad(0) of 4 lanes, quad(0) + quad(1) of 8, (quad(0) + quad(1)) + (quad(2) + quad(3)) of 16.
  static void sum4(Reg a, Reg b, Reg c, Reg d, float* out) {
    out[0] = quad(a);
    out[1] = quad(b);
    out[2] = quad(c);
    out[3] = quad(d);
  }

 private:
  typedef int32_t Int __attribute__((vector_size(16)));
  typedef uint16_t Halves __attribute__((vector_size(8)));

  static Reg copy_from(const void* p, size_t bytes) {
    Reg x{};
    __builtin_memcpy(&x, p, bytes);
    return x;
  }
  static Reg as_float(Bits x) { return reinterpret_cast<Reg>(x); }
  static Bits as_bits(Reg x) { return reinterpret_cast<Bits>(x); }
  static Reg power_of_two(Int n) { return reinterpret_cast<Reg>((n + 127) << 23); }
  static float quad(Reg x) { return (x[0] + x[2]) + (x[1] + x[3]); }

  static Bits load_wide(const void* p, size_t n) {
    Halves x{};
    __builtin_memcpy(&x, p, 2 * n);
    return __builtin_convertvector(x, Bits);
  }
  /// As scalar.h's f16_to_f32.
  static Reg f16(Bits x) {
    const Bits magnitude = (x & 0x7fffu) << 13;
    const Bits special = magnitude | 0x7f800000u;
    const Bits finite = as_bits(as_float(magnitude) * 0x1p112f);
    const Bits limit = Bits{} + 0x0f800000u;
    return as_float((magnitude >= limit ? special : finite) | ((x & 0x8000u) << 16));
  }
};

}  // namespace
}  // namespace kvfork::kernels
