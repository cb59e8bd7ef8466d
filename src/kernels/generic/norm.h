// Functions of one row: RMS norm and rotary positions.
#pragma once

#include <stddef.h>

#include "kernels/kernels.h"

namespace kvfork::kernels {
namespace {

template <class V>
float sum_lanes(typename V::Reg x) {
  float sum[4];
  V::sum4(x, V::zero(), V::zero(), V::zero(), sum);
  return sum[0];
}

template <class V>
void rms_norm(const float* x, const float* weight, float eps, size_t n, float* y) noexcept {
  auto squares = V::zero();
  size_t i = 0;
  for (; i + V::kLanes <= n; i += V::kLanes) squares = V::fma(V::load(x + i), V::load(x + i), squares);
  if (i < n) squares = V::fma(V::load_n(x + i, n - i), V::load_n(x + i, n - i), squares);
  const float mean = sum_lanes<V>(squares) / static_cast<float>(n);
  const auto scale = V::broadcast(1.0f / __builtin_sqrtf(mean + eps));
  for (i = 0; i + V::kLanes <= n; i += V::kLanes) {
    V::store(y + i, V::mul(V::load(weight + i), V::mul(V::load(x + i), scale)));
  }
  if (i < n) {
    V::store_n(y + i, n - i, V::mul(V::load_n(weight + i, n - i), V::mul(V::load_n(x + i, n - i), scale)));
  }
}

/// One vector of n <= kLanes pairs: two roundings of products and one of their sum, as the reference has them; so
/// never fused.
template <class V>
void rotate_pairs(float* low, float* high, const float* cos, const float* sin, size_t n) {
  const auto load = [=](const float* p) { return n == V::kLanes ? V::load(p) : V::load_n(p, n); };
  const auto store = [=](float* p, typename V::Reg x) { n == V::kLanes ? V::store(p, x) : V::store_n(p, n, x); };
  const auto a = load(low), b = load(high), c = load(cos), s = load(sin);
  store(low, V::sub(V::mul(a, c), V::mul(b, s)));
  store(high, V::add(V::mul(b, c), V::mul(a, s)));
}

template <class V>
void rope(float* x, size_t n_heads, size_t head_dim, const float* cos, const float* sin) noexcept {
  const size_t half = head_dim / 2;
  for (size_t head = 0; head < n_heads; ++head) {
    float* low = x + head * head_dim;
    size_t i = 0;
    for (; i + V::kLanes <= half; i += V::kLanes)
      rotate_pairs<V>(low + i, low + half + i, cos + i, sin + i, V::kLanes);
    if (i < half) rotate_pairs<V>(low + i, low + half + i, cos + i, sin + i, half - i);
  }
}

}  // namespace
}  // namespace kvfork::kernels
