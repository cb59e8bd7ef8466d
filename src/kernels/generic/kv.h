// Storing keys and values into a block. Moves and roundings of single numbers: the same bits in every set.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "kernels/kernels.h"
#include "kernels/scalar.h"

namespace kvfork::kernels {
namespace {

inline void convert(float x, float* out) {
  *out = x;
}
inline void convert(float x, uint16_t* out) {
  *out = f32_to_bf16(x);
}

template <class V, class T>
void store_keys(const StoreKvArgs& args, T* k_block) {
  for (size_t token = 0; token < args.n_tokens; ++token) {
    const size_t slot = args.slot + token;
    T* group = k_block + slot / kGroupTokens * args.head_dim * kGroupTokens + slot % kGroupTokens;
    const float* k = args.k + token * args.k_stride;
    for (size_t d = 0; d < args.head_dim; ++d) convert(k[d], group + d * kGroupTokens);
  }
}

template <class V, class T>
void store_values(const StoreKvArgs& args, T* v_block) {
  const size_t stride = value_stride(args.head_dim);
  for (size_t token = 0; token < args.n_tokens; ++token) {
    T* row = v_block + (args.slot + token) * stride;
    const float* v = args.v + token * args.v_stride;
    for (size_t d = 0; d < args.head_dim; ++d) convert(v[d], row + d);
    for (size_t d = args.head_dim; d < stride; ++d) row[d] = T{0};
  }
}

template <class V>
void store_kv(const StoreKvArgs& args) noexcept {
  if (args.kv_type == Element::BF16) {
    store_keys<V>(args, static_cast<uint16_t*>(args.k_block));
    store_values<V>(args, static_cast<uint16_t*>(args.v_block));
  } else {
    store_keys<V>(args, static_cast<float*>(args.k_block));
    store_values<V>(args, static_cast<float*>(args.v_block));
  }
}

}  // namespace
}  // namespace kvfork::kernels
