// Functions of one row: norms and rotary positions.
#pragma once

#include <stddef.h>

#include "kernels/generic/elementwise.h"
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
float mean_of(const float* x, size_t n) {
  auto sum = V::zero();
  size_t i = 0;
  for (; i + V::kLanes <= n; i += V::kLanes) sum = V::add(sum, V::load(x + i));
  if (i < n) sum = V::add(sum, V::load_n(x + i, n - i));
  return sum_lanes<V>(sum) / static_cast<float>(n);
}

/// The mean of (x - from)^2. A difference from 0 is the number itself.
template <class V>
float mean_square(const float* x, size_t n, typename V::Reg from) {
  auto squares = V::zero();
  size_t i = 0;
  for (; i + V::kLanes <= n; i += V::kLanes) {
    const auto d = V::sub(V::load(x + i), from);
    squares = V::fma(d, d, squares);
  }
  if (i < n) {
    const auto d = V::keep_first(V::sub(V::load_n(x + i, n - i), from), n - i, V::zero());
    squares = V::fma(d, d, squares);
  }
  return sum_lanes<V>(squares) / static_cast<float>(n);
}

template <class V>
void norm(const NormArgs& args) noexcept {
  using Reg = typename V::Reg;
  const Reg mean = args.subtracts_mean ? V::broadcast(mean_of<V>(args.x, args.n)) : V::zero();
  const Reg scale = V::broadcast(1.0f / __builtin_sqrtf(mean_square<V>(args.x, args.n, mean) + args.eps));
  const auto normalized = [=](Reg x) { return V::mul(V::sub(x, mean), scale); };
  if (args.weight) {
    map<V>(
        args.n, args.y, [=](Reg x, Reg weight) { return V::mul(weight, normalized(x)); }, args.x, args.weight);
  } else {
    map<V>(args.n, args.y, normalized, args.x);
  }
  if (args.bias) add<V>(args.y, args.bias, args.n);
}

/// Two roundings of products and one of their sum, as the reference has them; so never fused.
template <class V>
void rotate_pairs(typename V::Reg& a, typename V::Reg& b, typename V::Reg c, typename V::Reg s) {
  const auto turned = V::sub(V::mul(a, c), V::mul(b, s));
  b = V::add(V::mul(b, c), V::mul(a, s));
  a = turned;
}

/// n <= kLanes pairs; here and below.
template <class V>
void rotate_halves(float* low, float* high, const float* cos, const float* sin, size_t n) {
  const auto load = [=](const float* p) { return n == V::kLanes ? V::load(p) : V::load_n(p, n); };
  const auto store = [=](float* p, typename V::Reg x) { n == V::kLanes ? V::store(p, x) : V::store_n(p, n, x); };
  auto a = load(low), b = load(high);
  rotate_pairs<V>(a, b, load(cos), load(sin));
  store(low, a);
  store(high, b);
}

template <class V>
void rotate_neighbours(float* x, const float* cos, const float* sin, size_t n) {
  const size_t n_first = 2 * n < V::kLanes ? 2 * n : V::kLanes, n_second = 2 * n - n_first;
  typename V::Reg first = V::load_n(x, n_first), second = V::load_n(x + n_first, n_second), a, b;
  V::deinterleave(first, second, &a, &b);
  rotate_pairs<V>(a, b, V::load_n(cos, n), V::load_n(sin, n));
  V::interleave(a, b, &first, &second);
  V::store_n(x, n_first, first);
  V::store_n(x + n_first, n_second, second);
}

template <class V>
void rope(const RopeArgs& args) noexcept {
  const float *cos = args.cos, *sin = args.sin;
  for (size_t head = 0; head < args.n_heads; ++head) {
    float* x = args.x + head * args.head_stride;
    const auto rotate = [=](size_t i, size_t n) {
      if (args.neighbours) return rotate_neighbours<V>(x + 2 * i, cos + i, sin + i, n);
      rotate_halves<V>(x + i, x + args.n_pairs + i, cos + i, sin + i, n);
    };
    size_t i = 0;
    for (; i + V::kLanes <= args.n_pairs; i += V::kLanes) rotate(i, V::kLanes);
    if (i < args.n_pairs) rotate(i, args.n_pairs - i);
  }
}

}  // namespace
}  // namespace kvfork::kernels
