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

/// One step over k reads kStep weights as kParts vectors, which meet kPackedStep floats of packed activations. bf16
/// pairs are split into even and odd places by a shift and a mask, which is cheaper than unpacking in order; `pack`
/// puts the activations into the same order.
template <class Lanes>
struct Bf16Weights : FusedProducts<Lanes> {
  using V = Lanes;
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
constexpr bool kDotsBf16 = requires(typename V::Reg r) {
  V::dot_bf16(r, r, r);
};

/// Pairs of bf16 weights with pairs of activations, both as they lie in memory.
template <class Lanes>
struct Bf16Pairs {
  using V = Lanes;
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

/// Inputs are packed, multiplied and summed in panels of this many at most, of equal length but for the last. That
/// is part of the order of operations: another number gives other bits. Measured (AVX-512 of Zen 4, 512 rows of
/// 4864 inputs): 0.86 of the peak of multiply-adds with 768, 0.88 with 1024 to 2048, which has fewer sums over
/// lanes.
constexpr size_t kPanelK = 2048;

/// How packed activations lie: panel after panel of k, in each row after row, `stride` floats apart.
template <class W>
struct PackedLayout {
  static constexpr size_t kMultiple = 32;  // of a panel's inputs: whole steps in every set
  static_assert(kMultiple % W::kStep == 0 && kPanelK % kMultiple == 0);

  size_t n_rows;
  size_t k;
  size_t panel_inputs = kMultiple;
  size_t n_panels = 1;

  PackedLayout(size_t rows, size_t inputs) : n_rows(rows), k(inputs) {
    if (k == 0) return;
    const size_t least = (k + kPanelK - 1) / kPanelK;
    panel_inputs = round_up((k + least - 1) / least, kMultiple);
    n_panels = (k + panel_inputs - 1) / panel_inputs;
  }

  size_t panel(size_t input) const { return input / panel_inputs; }
  size_t begin(size_t panel) const { return panel * panel_inputs; }
  size_t n_inputs(size_t panel) const { return panel + 1 < n_panels ? panel_inputs : k - begin(panel); }
  /// Rows a multiple of 1024 bytes apart would fall into the same few cache sets, so such a row gets one line more.
  size_t stride(size_t panel) const {
    const size_t floats = round_up((n_inputs(panel) + W::kStep - 1) / W::kStep * W::kPackedStep, 16);
    return floats % 256 == 0 ? floats + 16 : floats;
  }
  size_t offset(size_t panel, size_t row) const {
    return (panel == 0 ? 0 : panel * n_rows * stride(0)) + row * stride(panel);
  }
  size_t n_bytes() const { return offset(n_panels - 1, n_rows) * sizeof(float); }
};

/// Calls use(W{}) with the weights that a product of this type and rounding reads.
template <class V, class Use>
auto with_weights(Element weight_type, Rounding rounding, const Use& use) {
  if constexpr (kDotsBf16<V>) {
    if (weight_type == Element::BF16 && rounding == Rounding::ToBF16) return use(Bf16Pairs<V>{});
  }
  switch (weight_type) {
    case Element::F32:
      return use(F32Weights<V>{});
    case Element::F16:
      return use(F16Weights<V>{});
    case Element::BF16:
      break;
  }
  return use(Bf16Weights<V>{});
}

/// One step of activations from x on, of which n are left.
template <class W>
void pack_step(const float* x, size_t n, Rounding rounding, float* out) {
  using V = typename W::V;
  const auto load = [=](size_t i) {
    const auto v = i + V::kLanes <= n ? V::load(x + i) : i < n ? V::load_n(x + i, n - i) : V::zero();
    return rounding == Rounding::ToBF16 ? V::round_bf16(v) : v;
  };
  if constexpr (W::kPackedStep < W::kStep) {
    V::store(out, V::from_bits(V::upper_halves(load(0), load(V::kLanes))));
  } else if constexpr (W::kParts == 2) {
    typename V::Reg even, odd;
    V::deinterleave(load(0), load(V::kLanes), &even, &odd);
    V::store(out, even);
    V::store(out + V::kLanes, odd);
  } else {
    V::store(out, load(0));
  }
}

/// Enough for every rounding: pairs take half the floats of a panel and a line more at most.
template <class V>
size_t packed_bytes(size_t n_rows, size_t k, Element weight_type) noexcept {
  return with_weights<V>(weight_type, Rounding::None,
                         [&]<class W>(W) { return PackedLayout<W>(n_rows, k).n_bytes(); });
}

/// Inputs [begin, end) of what `pack` packs, x being where the first of them is. They begin at a whole step.
template <class V>
void pack_inputs(const PackArgs& args, size_t begin, size_t end) {
  with_weights<V>(args.weight_type, args.rounding, [&]<class W>(W) {
    const PackedLayout<W> layout(args.n_rows, args.k);
    for (size_t row = args.row_begin; row < args.row_end; ++row) {
      const float* x = args.x + (row - args.row_begin) * args.x_stride;
      for (size_t at = begin, panel_end; at < end; at = panel_end) {
        const size_t panel = layout.panel(at), first = at - layout.begin(panel);
        panel_end = layout.begin(panel) + layout.n_inputs(panel);
        if (panel_end > end) panel_end = end;
        float* out =
            static_cast<float*>(args.packed) + layout.offset(panel, row) + first / W::kStep * W::kPackedStep;
        for (size_t i = at; i < panel_end; i += W::kStep, out += W::kPackedStep)
          pack_step<W>(x + (i - begin), panel_end - i, args.rounding, out);
      }
    }
  });
}

template <class V>
void pack(const PackArgs& args) noexcept {
  pack_inputs<V>(args, 0, args.k);
}

}  // namespace
}  // namespace kvfork::kernels
