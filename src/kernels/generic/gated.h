// The gated half of a feed-forward layer in one call: two products, their activation and the packing of what comes
// of it, over so few features at a time that nothing in between leaves the cache.
#pragma once

#include <stddef.h>

#include "kernels/generic/elementwise.h"
#include "kernels/generic/matmul.h"
#include "kernels/generic/pack.h"
#include "kernels/kernels.h"

namespace kvfork::kernels {
namespace {

/// Features whose results are whole steps of every type, packed as inputs.
template <class V>
constexpr size_t kRangeFeatures = 2 * V::kLanes < kLineFloats ? kLineFloats : 2 * V::kLanes;

/// Memory of the results of both products.
constexpr size_t kGatedBytes = 256 * 1024;

/// The rows of a call, so that results of at least a range of features fit.
template <class V>
size_t chunk_rows(size_t n_rows, Rounding) noexcept {
  constexpr size_t kMost = kGatedBytes / (2 * sizeof(float) * kRangeFeatures<V>);
  return n_rows < kMost ? n_rows : kMost;
}

/// The parts that `gated` puts together, and where the first of them has its own workspace.
template <class Lanes>
struct GenericProducts {
  using V = Lanes;
  static constexpr size_t kWorkspaceBytes = 0;
  static void matmul(const MatmulArgs& args) { kernels::matmul<V>(args); }
  static void pack_inputs(const PackArgs& args, size_t begin, size_t end) {
    kernels::pack_inputs<V>(args, begin, end);
  }
};

/// Features [begin, end) of one of the two products, into y [n_rows, end - begin].
template <class Products>
void multiply_part(MatmulArgs args, size_t begin, size_t end, float* y, const void* next_weight) {
  args.feature_begin = begin;
  args.feature_end = end;
  args.y_stride = end - begin;
  // As y of row 0 and feature 0 would lie; only what the call names is touched.
  args.y = reinterpret_cast<float*>(reinterpret_cast<uintptr_t>(y) -
                                    (args.row_begin * args.y_stride + begin) * sizeof *y);
  args.next_weight = next_weight;
  Products::matmul(args);
}

inline const void* weights_of(const MatmulArgs& args, size_t feature) {
  return static_cast<const char*>(args.weight) + feature * args.k * element_bytes(args.weight_type);
}

template <class Products>
void gated(const GatedArgs& args) noexcept {
  using V = typename Products::V;
  const MatmulArgs& gate = args.gate;
  const size_t n_rows = gate.row_end - gate.row_begin;
  if (n_rows == 0) return;
  const size_t at_a_time = fitting_features(kGatedBytes / 2, n_rows, sizeof(float), kRangeFeatures<V>);
  float* y = reinterpret_cast<float*>(static_cast<char*>(gate.workspace) + Products::kWorkspaceBytes);
  float* up = y + kGatedBytes / 2 / sizeof *y;
  for (size_t begin = gate.feature_begin, end; begin < gate.feature_end; begin = end) {
    end = gate.feature_end - begin < at_a_time ? gate.feature_end : begin + at_a_time;
    multiply_part<Products>(gate, begin, end, y, weights_of(args.up, begin));
    multiply_part<Products>(args.up, begin, end, up, weights_of(gate, end));
    activate_mul<V>(args.activation, args.clamp, y, up, n_rows * (end - begin), y);
    Products::pack_inputs({.x = y,
                           .x_stride = end - begin,
                           .row_begin = gate.row_begin,
                           .row_end = gate.row_end,
                           .n_rows = gate.n_rows,
                           .k = args.n_features,
                           .weight_type = args.out_type,
                           .rounding = gate.rounding,
                           .packed = args.packed},
                          begin, end);
  }
}

}  // namespace
}  // namespace kvfork::kernels
