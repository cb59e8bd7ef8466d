// Sizes of what layers remember, and where it lies in memory and in files.

#include "model/state_layout.h"

#include <utility>

namespace kvfork::model {

StateLayout::StateLayout(std::vector<LayerState> layers, kernels::Element type)
    : layers_(std::move(layers)), type_(type) {
  constexpr size_t kAlignedFloats = 16;
  for (size_t i = 0; i < n_layers(); ++i) {
    block_bytes_ += keys_bytes(i) + values_bytes(i);
    state_offsets_.push_back(n_state_floats_);
    n_state_floats_ += (layers_[i].n_floats + kAlignedFloats - 1) / kAlignedFloats * kAlignedFloats;
  }
}

StateLayout StateLayout::of(const checkpoint::ModelSpec& spec, kernels::Element type) {
  std::vector<LayerState> layers;
  for (const checkpoint::LayerSpec& layer : spec.layers)
    layers.push_back({.n_kv_heads = layer.attention.n_kv_heads,
                      .head_dim = layer.attention.head_dim,
                      .n_floats = layer.recurrent ? layer.recurrent->n_floats() : 0});
  return {std::move(layers), type};
}

size_t StateLayout::token_bytes() const noexcept {
  size_t n_numbers = 0;
  for (const LayerState& layer : layers_) n_numbers += 2 * layer.n_kv_heads * layer.head_dim;
  return n_numbers * element_bytes();
}

BlockPlaces BlockPlaces::by_block(const StateLayout& layout) {
  BlockPlaces places;
  size_t offset = 0;
  const auto next = [&](size_t n_bytes) {
    offset += n_bytes;
    return Place{offset - n_bytes, layout.block_bytes()};
  };
  for (size_t i = 0; i < layout.n_layers(); ++i) {
    places.keys.push_back(next(layout.keys_bytes(i)));
    places.values.push_back(next(layout.values_bytes(i)));
  }
  return places;
}

BlockPlaces BlockPlaces::by_layer(const StateLayout& layout, size_t n_blocks) {
  BlockPlaces places;
  size_t offset = 0;
  const auto next = [&](size_t n_bytes) {
    offset += n_blocks * n_bytes;
    return Place{offset - n_blocks * n_bytes, n_bytes};
  };
  for (size_t i = 0; i < layout.n_layers(); ++i) {
    places.keys.push_back(next(layout.keys_bytes(i)));
    places.values.push_back(next(layout.values_bytes(i)));
  }
  return places;
}

}  // namespace kvfork::model
