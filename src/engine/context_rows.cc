// A context's keys and values as plain arrays, out of the blocks that kernels read.
#include <cstring>

#include "base/error.h"
#include "engine/context_state.h"
#include "kvfork/context.h"
#include "kvfork/rows.h"

namespace kvfork {
namespace {

float element_at(const std::byte* data, size_t index, kernels::Element type) {
  if (type == kernels::Element::F32) return reinterpret_cast<const float*>(data)[index];
  const uint32_t bits = uint32_t{reinterpret_cast<const uint16_t*>(data)[index]} << 16;
  float value = 0;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

const model::LayerState& layer_of(const model::StateLayout& layout, size_t layer) {
  if (layer >= layout.n_layers())
    base::fail(ErrorCode::InvalidArgument, "layer: expected one below {}, found {}", layout.n_layers(), layer);
  return layout.layer(layer);
}

}  // namespace

LayerShape layer_shape(const Context& context, size_t layer) {
  const model::LayerState& state = layer_of(engine::state_of(context).kv->layout(), layer);
  return {.n_kv_heads = state.n_kv_heads, .head_dim = state.head_dim, .n_state_floats = state.n_floats};
}

void copy_rows(const Context& context, size_t layer, std::span<float> keys, std::span<float> values) {
  using kernels::kBlockTokens;
  using kernels::kGroupTokens;
  const model::StateLayout& layout = engine::state_of(context).kv->layout();
  const model::LayerState& shape = layer_of(layout, layer);
  const size_t n = context.size();
  const size_t dim = shape.head_dim;
  const size_t count = shape.n_kv_heads * n * dim;
  if (!shape.has_rows()) base::fail(ErrorCode::InvalidArgument, "layer {}: expected one that keeps rows", layer);
  if (keys.size() != count || values.size() != count)
    base::fail(ErrorCode::InvalidArgument, "layer {}: expected room for {} keys and values, found {} and {}", layer,
               count, keys.size(), values.size());
  engine::state_of(context).expect_sound();
  for (size_t head = 0; head < shape.n_kv_heads; ++head) {
    for (size_t position = 0; position < n; ++position) {
      const model::KvBlock& block = engine::state_of(context).kv->block(position / kBlockTokens);
      const size_t slot = position % kBlockTokens;
      const std::byte* k = block.key(layout, layer, head);
      const std::byte* v = block.value(layout, layer, head);
      for (size_t i = 0; i < dim; ++i) {
        const size_t out = (head * n + position) * dim + i;
        keys[out] =
            element_at(k, (slot / kGroupTokens * dim + i) * kGroupTokens + slot % kGroupTokens, layout.type());
        values[out] = element_at(v, slot * kernels::value_stride(dim) + i, layout.type());
      }
    }
  }
}

}  // namespace kvfork
