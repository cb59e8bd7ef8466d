// The table of a set whose every entry is the generic one.
#pragma once

#include "kernels/generic/attention.h"
#include "kernels/generic/elementwise.h"
#include "kernels/generic/gated.h"
#include "kernels/generic/kv.h"
#include "kernels/generic/matmul.h"
#include "kernels/generic/norm.h"
#include "kernels/generic/pack.h"
#include "kernels/generic/recurrence.h"
#include "kernels/kernels.h"

namespace kvfork::kernels {
namespace {

template <class V>
constexpr KernelTable make_table(const char* name) {
  return {
      .name = name,
      .workspace_bytes = kGatedBytes,
      .pack_rows = 1,
      .chunk_rows = chunk_rows<V>,
      .range_features = kRangeFeatures<V>,
      .item_features = item_features<V>,
      .packed_bytes = packed_bytes<V>,
      .pack = pack<V>,
      .matmul = matmul<V>,
      .gated = gated<GenericProducts<V>>,
      .norm = norm<V>,
      .rope = rope<V>,
      .activate = activate<V>,
      .activate_mul = activate_mul<V>,
      .scale = scale<V>,
      .add_scaled = add_scaled<V>,
      .cap = cap<V>,
      .clip = clip<V>,
      .multiply = multiply<V>,
      .add = add<V>,
      .widen = widen<V>,
      .store_kv = store_kv<V>,
      .attention = attention<V>,
      .attention_merge = attention_merge<V>,
      .attention_finish = attention_finish<V>,
      .convolve = convolve<V>,
      .recur = recur<V>,
  };
}

}  // namespace
}  // namespace kvfork::kernels
