// Single numbers: bf16, f16 and their conversions. Internal linkage throughout, because a function compiled for a
// wide instruction set must never stand in for another machine's.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace kvfork::kernels {

static inline uint32_t float_bits(float x) {
  uint32_t bits;
  __builtin_memcpy(&bits, &x, sizeof bits);
  return bits;
}

static inline float bits_float(uint32_t bits) {
  float x;
  __builtin_memcpy(&x, &bits, sizeof x);
  return x;
}

static inline float bf16_to_f32(uint16_t x) {
  return bits_float(static_cast<uint32_t>(x) << 16);
}

/// To nearest, ties to even; overflow gives infinity, NaN stays NaN.
static inline uint16_t f32_to_bf16(float x) {
  const uint32_t bits = float_bits(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

/// Exact. A half's exponent and fraction, moved into place, are the number times 2^-112.
static inline float f16_to_f32(uint16_t x) {
  uint32_t magnitude = static_cast<uint32_t>(x & 0x7fffu) << 13;
  if (magnitude >= 0x0f800000u) {
    magnitude |= 0x7f800000u;
  } else {
    magnitude = float_bits(bits_float(magnitude) * 0x1p112f);
  }
  return bits_float(magnitude | (static_cast<uint32_t>(x & 0x8000u) << 16));
}

static constexpr size_t round_up(size_t n, size_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

}  // namespace kvfork::kernels
