// Functions of single elements; lanes never meet, so any split of a row gives the same bits.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "kernels/generic/activation.h"
#include "kernels/generic/exp.h"
#include "kernels/kernels.h"
#include "kernels/scalar.h"

namespace kvfork::kernels {
namespace {

/// y[i] = f(x[i]...), one vector after another; y may be any of them.
template <class V, class F, class... X>
void map(size_t n, float* y, const F& f, const X*... x) {
  size_t i = 0;
  for (; i + V::kLanes <= n; i += V::kLanes) V::store(y + i, f(V::load(x + i)...));
  if (i < n) V::store_n(y + i, n - i, f(V::load_n(x + i, n - i)...));
}

template <class V>
void activate(Activation activation, const float* x, size_t n, float* y) noexcept {
  using Reg = typename V::Reg;
  with_activation(activation, [=](auto tag) {
    map<V>(
        n, y, [](Reg a) { return activation_of<V, decltype(tag)::value>(a); }, x);
  });
}

template <class V>
void activate_mul(Activation activation, float clamp, const float* gate, const float* up, size_t n,
                  float* y) noexcept {
  using Reg = typename V::Reg;
  const Reg bound = V::broadcast(clamp);
  with_activation(activation, [=](auto tag) {
    map<V>(
        n, y, [=](Reg a, Reg b) { return gated_by<V, decltype(tag)::value>(a, b, bound); }, gate, up);
  });
}

template <class V>
void add(float* x, const float* y, size_t n) noexcept {
  using Reg = typename V::Reg;
  map<V>(
      n, x, [](Reg a, Reg b) { return V::add(a, b); }, x, y);
}

template <class V>
void multiply(float* x, const float* y, size_t n) noexcept {
  using Reg = typename V::Reg;
  map<V>(
      n, x, [](Reg a, Reg b) { return V::mul(a, b); }, x, y);
}

template <class V>
void add_scaled(float* x, const float* y, float factor, size_t n) noexcept {
  using Reg = typename V::Reg;
  const Reg by = V::broadcast(factor);
  map<V>(
      n, x, [=](Reg a, Reg b) { return V::add(a, V::mul(by, b)); }, x, y);
}

template <class V>
void scale(float* x, float factor, size_t n) noexcept {
  using Reg = typename V::Reg;
  const Reg by = V::broadcast(factor);
  map<V>(
      n, x, [=](Reg a) { return V::mul(a, by); }, x);
}

template <class V>
void cap(float* x, float limit, size_t n) noexcept {
  using Reg = typename V::Reg;
  const Reg most = V::broadcast(limit);
  map<V>(
      n, x, [=](Reg a) { return V::mul(tanh<V>(V::div(a, most)), most); }, x);
}

template <class V>
void clip(float* x, float limit, size_t n) noexcept {
  using Reg = typename V::Reg;
  const Reg most = V::broadcast(limit), least = V::broadcast(-limit);
  map<V>(
      n, x, [=](Reg a) { return V::max(least, V::min(most, a)); }, x);
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
