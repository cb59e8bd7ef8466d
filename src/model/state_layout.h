// What every layer of a model remembers of a timeline, and how much memory that takes.
//
// A layer says by its LayerState what it keeps; contexts, forks, saved files and hashes ask the layout and assume
// nothing. Rows of keys and values lie in blocks of kernels::kBlockTokens positions, counted from absolute position
// 0. In every block of a layer the keys of all KV heads lie together, and so do the values:
//   K [n_kv_heads][groups][head_dim][kGroupTokens], V [n_kv_heads][kBlockTokens][value_stride]
// Immutable once made; any thread may read it.
#pragma once

#include <cstddef>
#include <vector>

#include "checkpoint/model_spec.h"
#include "kernels/kernels.h"

namespace kvfork::model {

/// What one layer keeps. Rows: keys and values of each position. A state: so many floats that stand for the whole
/// timeline and exist at one position only, as a recurrent matrix and the tail of a convolution do. A layer may
/// have both, or neither.
struct LayerState {
  size_t n_kv_heads = 0;  ///< of rows; 0: it keeps none
  size_t head_dim = 0;
  size_t n_floats = 0;  ///< of its state; 0: it has none

  bool has_rows() const noexcept { return n_kv_heads != 0; }
  bool has_state() const noexcept { return n_floats != 0; }
  friend bool operator==(const LayerState&, const LayerState&) = default;
};

class StateLayout {
 public:
  StateLayout() = default;
  StateLayout(std::vector<LayerState> layers, kernels::Element type);
  static StateLayout of(const checkpoint::ModelSpec& spec, kernels::Element type);

  size_t n_layers() const noexcept { return layers_.size(); }
  const LayerState& layer(size_t index) const noexcept { return layers_[index]; }
  kernels::Element type() const noexcept { return type_; }
  size_t element_bytes() const noexcept { return kernels::element_bytes(type_); }

  /// Keys, or values, of one KV head of a block.
  size_t key_bytes(size_t layer) const noexcept {
    return kernels::kBlockTokens * layers_[layer].head_dim * element_bytes();
  }
  size_t value_bytes(size_t layer) const noexcept { return kernels::kBlockTokens * value_row_bytes(layer); }
  /// One position's values of one KV head, with their padding.
  size_t value_row_bytes(size_t layer) const noexcept {
    return kernels::value_stride(layers_[layer].head_dim) * element_bytes();
  }
  /// Keys, or values, of all KV heads of a block.
  size_t keys_bytes(size_t layer) const noexcept { return layers_[layer].n_kv_heads * key_bytes(layer); }
  size_t values_bytes(size_t layer) const noexcept { return layers_[layer].n_kv_heads * value_bytes(layer); }

  /// One block of all layers.
  size_t block_bytes() const noexcept { return block_bytes_; }
  /// What one position adds, without padding.
  size_t token_bytes() const noexcept;

  /// The states of all layers at one position: floats, and where a layer's begin. A layer's are aligned for
  /// vectors.
  bool has_states() const noexcept { return n_state_floats_ != 0; }
  size_t n_state_floats() const noexcept { return n_state_floats_; }
  size_t state_offset(size_t layer) const noexcept { return state_offsets_[layer]; }

  friend bool operator==(const StateLayout& a, const StateLayout& b) noexcept {
    return a.layers_ == b.layers_ && a.type_ == b.type_;
  }

 private:
  std::vector<LayerState> layers_;
  kernels::Element type_ = kernels::Element::F32;
  size_t block_bytes_ = 0;
  size_t n_state_floats_ = 0;
  std::vector<size_t> state_offsets_;  // [n_layers]
};

/// Where the blocks of a region or a file lie: block `index` of a layer's keys begins at keys[layer].offset +
/// index * keys[layer].step bytes from the base, its values likewise.
struct BlockPlaces {
  struct Place {
    size_t offset = 0;
    size_t step = 0;
  };
  std::vector<Place> keys, values;  // [n_layers]

  /// Block after block: layer -> K, V.
  static BlockPlaces by_block(const StateLayout& layout);
  /// Layer after layer, as a saved file has them: K of all n_blocks blocks, V of all blocks.
  static BlockPlaces by_layer(const StateLayout& layout, size_t n_blocks);
};

}  // namespace kvfork::model
