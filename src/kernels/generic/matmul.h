// Matrix products, written once for every set (V is a set's lanes, portable/vec.h).
//
// The lanes of a vector run along k. A (row, feature) pair has one vector accumulator that takes its products in
// ascending k, then one reduction (V::sum4), then the bias. Tiles, panels and chunks below only choose which
// accumulators are in registers at the same time: none of them changes a pair's own sequence of operations.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "kernels/kernels.h"
#include "kernels/scalar.h"

namespace kvfork::kernels {
namespace {

/// One step over k reads kParts vectors of weights. bf16 pairs are split into even and odd places by a shift and a
/// mask, which is cheaper than unpacking in order; `pack` puts the activations into the same order.
template <class Lanes>
struct Bf16Weights {
  using V = Lanes;
  static constexpr size_t kElementBytes = 2;
  static constexpr int kParts = 2;
  static constexpr size_t kStep = kParts * V::kLanes;
  using Raw = typename V::Bits;
  static Raw load(const char* p) { return V::load_bits(p); }
  static Raw load_n(const char* p, size_t n) { return V::load_halves(p, n); }
  template <int kPart>
  static typename V::Reg part(Raw raw) {
    return kPart == 0 ? V::bf16_even(raw) : V::bf16_odd(raw);
  }
};

template <class Lanes>
struct F16Weights {
  using V = Lanes;
  static constexpr size_t kElementBytes = 2;
  static constexpr int kParts = 1;
  static constexpr size_t kStep = V::kLanes;
  using Raw = typename V::Reg;
  static Raw load(const char* p) { return V::load_f16(p); }
  static Raw load_n(const char* p, size_t n) { return V::load_f16_n(p, n); }
  template <int kPart>
  static typename V::Reg part(Raw raw) {
    return raw;
  }
};

template <class Lanes>
struct F32Weights {
  using V = Lanes;
  static constexpr size_t kElementBytes = 4;
  static constexpr int kParts = 1;
  static constexpr size_t kStep = V::kLanes;
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
void pack(const float* x, size_t x_stride, size_t n_rows, size_t k, Element weight_type, Rounding rounding,
          void* packed) noexcept {
  const size_t row_bytes = packed_row_bytes<V>(k, weight_type);
  for (size_t row = 0; row < n_rows; ++row) {
    float* out = reinterpret_cast<float*>(static_cast<char*>(packed) + row * row_bytes);
    pack_row<V>(x + row * x_stride, k, weight_type, rounding, out);
  }
}

/// A stretch of k: whole steps, then `tail` single weights.
struct Stretch {
  size_t first_step;
  size_t n_steps;
  size_t tail;
};

template <class W, int kPart, int kRows, int kFeatures>
void add_products(const typename W::Raw (&raw)[kFeatures], const float* x, size_t x_stride,
                  typename W::V::Reg (&acc)[kRows][kFeatures]) {
  using V = typename W::V;
  typename V::Reg weight[kFeatures];
  for (int f = 0; f < kFeatures; ++f) weight[f] = W::template part<kPart>(raw[f]);
  for (int r = 0; r < kRows; ++r) {
    const auto activation = V::load(x + static_cast<size_t>(r) * x_stride + kPart * V::kLanes);
    for (int f = 0; f < kFeatures; ++f) acc[r][f] = V::fma(activation, weight[f], acc[r][f]);
  }
}

/// acc[r][f] += products of packed row r (x + r * x_stride) and weight row f over a stretch that begins at `weight`
/// and `x`. `ahead` is how many bytes ahead in each weight row to prefetch.
template <class W, int kRows, int kFeatures>
void accumulate(const char* const (&weight)[kFeatures], const float* x, size_t x_stride, Stretch stretch, size_t ahead,
                typename W::V::Reg (&acc_out)[kRows][kFeatures]) {
  using V = typename W::V;
  constexpr size_t kStepBytes = W::kStep * W::kElementBytes;
  typename V::Reg acc[kRows][kFeatures];
  for (int r = 0; r < kRows; ++r) {
    for (int f = 0; f < kFeatures; ++f) acc[r][f] = acc_out[r][f];
  }
  typename W::Raw raw[kFeatures];
  for (size_t step = 0; step < stretch.n_steps; ++step) {
    for (int f = 0; f < kFeatures; ++f) {
      const char* at = weight[f] + step * kStepBytes;
      raw[f] = W::load(at);
      __builtin_prefetch(at + ahead, 0, 3);
    }
    add_products<W, 0>(raw, x + step * W::kStep, x_stride, acc);
    if constexpr (W::kParts == 2) add_products<W, 1>(raw, x + step * W::kStep, x_stride, acc);
  }
  if (stretch.tail != 0) {
    for (int f = 0; f < kFeatures; ++f) raw[f] = W::load_n(weight[f] + stretch.n_steps * kStepBytes, stretch.tail);
    add_products<W, 0>(raw, x + stretch.n_steps * W::kStep, x_stride, acc);
    if constexpr (W::kParts == 2) add_products<W, 1>(raw, x + stretch.n_steps * W::kStep, x_stride, acc);
  }
  for (int r = 0; r < kRows; ++r) {
    for (int f = 0; f < kFeatures; ++f) acc_out[r][f] = acc[r][f];
  }
}

/// Writes the reduced accumulators of n_features <= kFeatures features.
template <class V, int kRows, int kFeatures>
void finish(const typename V::Reg (&acc)[kRows][kFeatures], size_t n_features, const float* bias, float* y,
            size_t y_stride) {
  for (int r = 0; r < kRows; ++r) {
    float sum[(kFeatures + 3) / 4 * 4];
    for (int f = 0; f < kFeatures; f += 4) {
      const auto lane_sums = [&](int i) { return i < kFeatures ? acc[r][i] : V::zero(); };
      V::sum4(lane_sums(f), lane_sums(f + 1), lane_sums(f + 2), lane_sums(f + 3), sum + f);
    }
    float* out = y + static_cast<size_t>(r) * y_stride;
    for (size_t f = 0; f < n_features; ++f) out[f] = bias ? sum[f] + bias[f] : sum[f];
  }
}

/// Sizes of the blocking. Chunk: features whose weights stay in the second-level cache while all rows pass. Panel:
/// the part of k for which a tile's activation rows stay in the first-level cache.
struct Blocking {
  size_t chunk_features;
  size_t panel_steps;
  size_t ahead_first;
  size_t ahead_later;
};

constexpr size_t kMaxChunkFeatures = 64;

/// All features of a chunk for kRows rows from `row` on.
template <class W, int kRows, int kFeatures>
void multiply_rows(const MatmulArgs& args, size_t row, size_t begin, size_t end, size_t panel_steps, size_t ahead) {
  using V = typename W::V;
  constexpr Element kType = W::kElementBytes == 4 ? Element::F32 : W::kParts == 2 ? Element::BF16 : Element::F16;
  const size_t weight_bytes = args.k * W::kElementBytes;
  const size_t x_stride = packed_row_bytes<V>(args.k, kType) / sizeof(float);
  const float* x = static_cast<const float*>(args.packed) + row * x_stride;
  const size_t n_steps = args.k / W::kStep;
  typename V::Reg carried[kMaxChunkFeatures / kFeatures + 1][kRows][kFeatures];
  size_t step = 0;
  do {
    const size_t panel_end = n_steps - step <= panel_steps ? n_steps : step + panel_steps;
    const bool last = panel_end == n_steps;
    const Stretch stretch{step, panel_end - step, last ? args.k % W::kStep : 0};
    for (size_t feature = begin; feature < end; feature += kFeatures) {
      const size_t n_features = end - feature < kFeatures ? end - feature : kFeatures;
      const char* weight[kFeatures];
      for (size_t f = 0; f < kFeatures; ++f) {
        // Past the last feature its row is taken again, and the result dropped.
        const size_t from = feature + (f < n_features ? f : n_features - 1);
        weight[f] = static_cast<const char*>(args.weight) + from * weight_bytes + step * W::kStep * W::kElementBytes;
      }
      typename V::Reg acc[kRows][kFeatures];
      auto& partial = last && step == 0 ? acc : carried[(feature - begin) / kFeatures];
      if (step == 0) {
        for (int r = 0; r < kRows; ++r) {
          for (int f = 0; f < kFeatures; ++f) partial[r][f] = V::zero();
        }
      }
      accumulate<W, kRows, kFeatures>(weight, x + step * W::kStep, x_stride, stretch, ahead, partial);
      if (last) {
        finish<V, kRows, kFeatures>(partial, n_features, args.bias ? args.bias + feature : nullptr,
                                    args.y + row * args.y_stride + feature, args.y_stride);
      }
    }
    step = panel_end;
  } while (step < n_steps);
}

template <class W, int kRows>
void multiply_up_to(const MatmulArgs& args, size_t row, size_t n_rows, size_t begin, size_t end, size_t panel_steps,
                    size_t ahead) {
  if constexpr (kRows > 1) {
    if (n_rows < kRows) return multiply_up_to<W, kRows - 1>(args, row, n_rows, begin, end, panel_steps, ahead);
  }
  multiply_rows<W, kRows, W::V::kTileFeatures>(args, row, begin, end, panel_steps, ahead);
}

template <class W>
void multiply(const MatmulArgs& args) {
  using V = typename W::V;
  constexpr size_t kRows = V::kTileRows;
  constexpr size_t kFeatures = V::kTileFeatures;
  constexpr size_t kChunkBytes = 256 * 1024;
  constexpr size_t kPanelBytes = 20 * 1024;
  constexpr size_t kAheadMemory = 4096, kAheadCache = 256;
  if (args.n_rows <= kRows) {
    if (args.n_rows != 0) {
      multiply_up_to<W, kRows>(args, 0, args.n_rows, args.feature_begin, args.feature_end, ~size_t{0}, kAheadMemory);
    }
    return;
  }
  const size_t weight_bytes = args.k * W::kElementBytes + 1;
  const size_t in_cache = round_up(kChunkBytes / weight_bytes + 1, kFeatures);
  const size_t chunk = in_cache < kMaxChunkFeatures ? in_cache : kMaxChunkFeatures;
  const size_t panel_steps = kPanelBytes / (kRows * W::kStep * sizeof(float));
  for (size_t begin = args.feature_begin; begin < args.feature_end; begin += chunk) {
    const size_t end = args.feature_end - begin < chunk ? args.feature_end : begin + chunk;
    for (size_t row = 0; row < args.n_rows; row += kRows) {
      const size_t n_rows = args.n_rows - row < kRows ? args.n_rows - row : kRows;
      multiply_up_to<W, kRows>(args, row, n_rows, begin, end, panel_steps, row == 0 ? kAheadMemory : kAheadCache);
    }
  }
}

template <class V>
void matmul(const MatmulArgs& args) noexcept {
  switch (args.weight_type) {
    case Element::F32: return multiply<F32Weights<V>>(args);
    case Element::F16: return multiply<F16Weights<V>>(args);
    case Element::BF16: return multiply<Bf16Weights<V>>(args);
  }
}

}  // namespace
}  // namespace kvfork::kernels
