// The activations of a feed-forward layer, each a function of one vector, chosen outside of loops over vectors.
#pragma once

#include "kernels/generic/exp.h"
#include "kernels/kernels.h"

namespace kvfork::kernels {
namespace {

template <Activation kChosen>
struct ActivationTag {
  static constexpr Activation value = kChosen;
};

/// Calls f with the tag of an activation that is known at run time only.
template <class F>
void with_activation(Activation activation, const F& f) {
  switch (activation) {
    case Activation::Silu:
      return f(ActivationTag<Activation::Silu>());
    case Activation::Gelu:
      return f(ActivationTag<Activation::Gelu>());
    case Activation::GeluTanh:
      return f(ActivationTag<Activation::GeluTanh>());
    case Activation::Relu:
      return f(ActivationTag<Activation::Relu>());
    case Activation::ReluSquared:
      return f(ActivationTag<Activation::ReluSquared>());
    case Activation::Sigmoid:
      return f(ActivationTag<Activation::Sigmoid>());
    case Activation::SwishClamped:
      return f(ActivationTag<Activation::SwishClamped>());
  }
}

/// x / (1 + e^-z).
template <class V>
typename V::Reg swish(typename V::Reg x, typename V::Reg z) {
  return V::div(x, V::add(V::broadcast(1.0f), exp<V>(V::sub(V::zero(), z))));
}

/// x / 2 * (1 + y).
template <class V>
typename V::Reg gelu(typename V::Reg x, typename V::Reg y) {
  return V::mul(V::mul(V::broadcast(0.5f), x), V::add(V::broadcast(1.0f), y));
}

template <class V, Activation kChosen>
typename V::Reg activation_of(typename V::Reg x) {
  if constexpr (kChosen == Activation::Silu) return swish<V>(x, x);
  if constexpr (kChosen == Activation::Sigmoid) return swish<V>(V::broadcast(1.0f), x);
  if constexpr (kChosen == Activation::SwishClamped) return swish<V>(x, V::mul(V::broadcast(1.702f), x));
  if constexpr (kChosen == Activation::Gelu) return gelu<V>(x, erf<V>(V::mul(x, V::broadcast(0x1.6a09e6p-1f))));
  if constexpr (kChosen == Activation::GeluTanh) {
    const auto inner = V::fma(V::broadcast(0.044715f), V::mul(V::mul(x, x), x), x);
    return gelu<V>(x, tanh<V>(V::mul(V::broadcast(0x1.988454p-1f), inner)));
  }
  const auto positive = V::max(V::zero(), x);
  return kChosen == Activation::Relu ? positive : V::mul(positive, positive);
}

/// What a gate makes of `up`.
template <class V, Activation kChosen>
typename V::Reg gated_by(typename V::Reg gate, typename V::Reg up, typename V::Reg clamp) {
  if constexpr (kChosen != Activation::SwishClamped) return V::mul(activation_of<V, kChosen>(gate), up);
  const auto bounded = V::max(V::sub(V::zero(), clamp), V::min(clamp, up));
  return V::mul(V::add(bounded, V::broadcast(1.0f)), activation_of<V, kChosen>(V::min(clamp, gate)));
}

}  // namespace
}  // namespace kvfork::kernels
