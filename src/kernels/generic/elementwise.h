// Functions of single elements; lanes never meet, so any split of a row gives the same bits.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "kernels/generic/exp.h"
#include "kernels/kernels.h"
#include "kernels/scalar.h"

namespace kvfork::kernels {
namespace {

template <class V>
typename V::Reg silu_times(typename V::Reg gate, typename V::Reg up) {
  const auto one = V::broadcast(1.0f);
  const auto silu = V::div(gate, V::add(one, exp<V>(V::sub(V::zero(), gate))));
  return V::mul(silu, up);
}

template <class V>
void silu_mul(const float* gate, const float* up, size_t n, float* y) noexcept {
  size_t i = 0;
  for (; i + V::kLanes <= n; i += V::kLanes) V::store(y + i, silu_times<V>(V::load(gate + i), V::load(up + i)));
  if (i < n) V::store_n(y + i, n - i, silu_times<V>(V::load_n(gate + i, n - i), V::load_n(up + i, n - i)));
}

template <class V>
void add(float* x, const float* y, size_t n) noexcept {
  size_t i = 0;
  for (; i + V::kLanes <= n; i += V::kLanes) V::store(x + i, V::add(V::load(x + i), V::load(y + i)));
  if (i < n) V::store_n(x + i, n - i, V::add(V::load_n(x + i, n - i), V::load_n(y + i, n - i)));
}

template <class V>
void widen(const void* x, Element type, size_t n, float* y) noexcept {
  const char* from = static_cast<const char*>(x);
  if (type == Element::F32) {
    __builtin_memcpy(y, x, n * sizeof *y);
    return;
  }
  const bool bf16 = type == Element::BF16;
  size_t i = 0;
  for (; i + V::kLanes <= n; i += V::kLanes) {
    V::store(y + i, bf16 ? V::load_bf16(from + 2 * i) : V::load_f16(from + 2 * i));
  }
  for (; i < n; ++i) {
    uint16_t bits;
    __builtin_memcpy(&bits, from + 2 * i, sizeof bits);
    y[i] = bf16 ? bf16_to_f32(bits) : f16_to_f32(bits);
  }
}

}  // namespace
}  // namespace kvfork::kernels
