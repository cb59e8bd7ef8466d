// The table of a set whose every entry is the generic one.
#pragma once

#include "kernels/generic/attention.h"
#include "kernels/generic/elementwise.h"
#include "kernels/generic/kv.h"
#include "kernels/generic/matmul.h"
#include "kernels/generic/norm.h"
#include "kernels/generic/pack.h"
#include "kernels/kernels.h"

namespace kvfork::kernels {
namespace {

template <class V>
constexpr KernelTable make_table(const char* name) {
  return {
      .name = name,
      .pack_rows = 1,
      .item_features = item_features<V>,
      .packed_bytes = packed_bytes<V>,
      .pack = pack<V>,
      .matmul = matmul<V>,
      .rms_norm = rms_norm<V>,
      .rope = rope<V>,
      .silu_mul = silu_mul<V>,
      .add = add<V>,
      .widen = widen<V>,
      .store_kv = store_kv<V>,
      .attention_block = attention_block<V>,
      .attention_merge = attention_merge<V>,
      .attention_finish = attention_finish<V>,
  };
}

}  // namespace
}  // namespace kvfork::kernels
