// How weights are read and activations packed to match (V is a set's lanes, portable/vec.h).
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "kernels/kernels.h"
#include "kernels/scalar.h"

namespace kvfork::kernels {
namespace {

/// Products of weights that were widened to float32.
template <class V>
struct FusedProducts {
  static typename V::Reg multiply_add(typename V::Reg x, typename V::Reg weight, typename V::Reg sum) {
    return V::fma(x, weight, sum);
  }
};

/// One step over k reads kStep weights as kParts vectors, which meet kPackedStep floats of packed activations. bf16 pairs are
/// split into even and odd places by a shift and a mask, which is cheaper than unpacking in order; `pack` puts the
/// activations into the same order.
template <class Lanes>
struct Bf16Weights : FusedProducts<Lanes> {
  using V = Lanes;
  static constexpr Element kType = Element::BF16;
  static constexpr size_t kElementBytes = 2;
  static constexpr int kParts = 2;
  static constexpr size_t kStep = kParts * V::kLanes;
  static constexpr size_t kPackedStep = kStep;
  using Raw = typename V::Bits;
  static Raw load(const char* p) { return V::load_bits(p); }
  static Raw load_n(const char* p, size_t n) { return V::load_halves(p, n); }
  template <int kPart>
  static typename V::Reg part(Raw raw) {
    return kPart == 0 ? V::bf16_even(raw) : V::bf16_odd(raw);
  }
};

/// Whether a set multiplies pairs of bf16 numbers at once. It does so where activations are rounded to bf16.
template <class V>
constexpr bool kDotsBf16 = requires(typename V::Reg r) { V::dot_bf16(r, r, r); };

template <class V>
constexpr bool packs_pairs(Element weight_type, Rounding rounding) {
  return kDotsBf16<V> && weight_type == Element::BF16 && rounding == Rounding::ToBF16;
}

/// Pairs of bf16 weights with pairs of activations, both as they lie in memory.
template <class Lanes>
struct Bf16Pairs {
  using V = Lanes;
  static constexpr Element kType = Element::BF16;
  static constexpr size_t kElementBytes = 2;
  static constexpr int kParts = 1;
  static constexpr size_t kStep = 2 * V::kLanes;
  static constexpr size_t kPackedStep = V::kLanes;
  using Raw = typename V::Bits;
  static Raw load(const char* p) { return V::load_bits(p); }
  static Raw load_n(const char* p, size_t n) { return V::load_halves(p, n); }
  template <int kPart>
  static typename V::Reg part(Raw raw) {
    return V::from_bits(raw);
  }
  static typename V::Reg multiply_add(typename V::Reg x, typename V::Reg weight, typename V::Reg sum) {
    return V::dot_bf16(x, weight, sum);
  }
};

template <class Lanes>
struct F16Weights : FusedProducts<Lanes> {
  using V = Lanes;
  static constexpr Element kType = Element::F16;
  static constexpr size_t kElementBytes = 2;
  static constexpr int kParts = 1;
  static constexpr size_t kStep = V::kLanes;
  static constexpr size_t kPackedStep = kStep;
  using Raw = typename V::Reg;
  static Raw load(const char* p) { return V::load_f16(p); }
  static Raw load_n(const char* p, size_t n) { return V::load_f16_n(p, n); }
  template <int kPart>
  static typename V::Reg part(Raw raw) {
    return raw;
  }
};

template <class Lanes>
struct F32Weights : FusedProducts<Lanes> {
  using V = Lanes;
  static constexpr Element kType = Element::F32;
  static constexpr size_t kElementBytes = 4;
  static constexpr int kParts = 1;
  static constexpr size_t kStep = V::kLanes;
  static constexpr size_t kPackedStep = kStep;
  using Raw = typename V::Reg;
  static Raw load(const char* p) { return V::load(reinterpret_cast<const float*>(p)); }
  static Raw load_n(const char* p, size_t n) { return V::load_n(reinterpret_cast<const float*>(p), n); }
  template <int kPart>
  static typename V::Reg part(Raw raw) {
    return raw;
  }
};

template <class V>
size_t pack_step(Element weight_type) {
  return weight_type == Element::BF16 ? Bf16Weights<V>::kStep : V::kLanes;
}

/// Rows a multiple of 4096 bytes apart would fall into the same few cache sets, so such a row gets one line more.
template <class V>
size_t packed_row_bytes(size_t k, Element weight_type) noexcept {
  const size_t bytes = round_up(round_up(k, pack_step<V>(weight_type)) * sizeof(float), 64);
  return bytes % 4096 == 0 ? bytes + 64 : bytes;
}

template <class V>
void pack_row(const float* x, size_t k, Element weight_type, Rounding rounding, float* out) {
  const auto load = [=](size_t i) {
    const auto v = i + V::kLanes <= k ? V::load(x + i) : i < k ? V::load_n(x + i, k - i) : V::zero();
    return rounding == Rounding::ToBF16 ? V::round_bf16(v) : v;
  };
  const size_t step = pack_step<V>(weight_type);
  if constexpr (kDotsBf16<V>) {
    if (packs_pairs<V>(weight_type, rounding)) {
      for (size_t i = 0; i < k; i += step, out += V::kLanes) V::store(out, V::from_bits(V::upper_halves(load(i), load(i + V::kLanes))));
      return;
    }
  }
  for (size_t i = 0; i < k; i += step, out += step) {
    auto first = load(i);
    if (weight_type == Element::BF16) {
      auto second = load(i + V::kLanes);
      V::deinterleave(first, second, &first, &second);
      V::store(out + V::kLanes, second);
    }
    V::store(out, first);
  }
}

template <class V>
size_t packed_bytes(size_t n_rows, size_t k, Element weight_type) noexcept {
  return n_rows * packed_row_bytes<V>(k, weight_type);
}

template <class V>
void pack(const PackArgs& args) noexcept {
  const size_t row_bytes = packed_row_bytes<V>(args.k, args.weight_type);
  for (size_t row = args.row_begin; row < args.row_end; ++row) {
    float* out = reinterpret_cast<float*>(static_cast<char*>(args.packed) + row * row_bytes);
    pack_row<V>(args.x + (row - args.row_begin) * args.x_stride, args.k, args.weight_type, args.rounding, out);
  }
}

}  // namespace
}  // namespace kvfork::kernels
