// The keys and values of a context as plain arrays, for programs that hand them to others.
//
// Thread rule: safe from any thread.
#pragma once

#include <cstddef>
#include <span>

namespace kvfork {

class Context;

/// What one layer of a context keeps: rows of keys and values for each position, a state, both, or nothing.
struct LayerShape {
  size_t n_kv_heads = 0;      ///< of rows; 0: it keeps none
  size_t head_dim = 0;        ///< of a key, and of a value
  size_t n_state_floats = 0;  ///< of its state; 0: it has none
};

/// Throws Error{InvalidArgument} for a layer that the model does not have.
LayerShape layer_shape(const Context& context, size_t layer);

/// Copies the keys and values of a layer, [n_kv_heads, context.size(), head_dim] each, as float32 whatever the
/// mode; keys are rotated by their positions. Throws Error{InvalidArgument} for a layer that the model does not
/// have or that keeps no rows, and for spans of another size; Error{Corrupt} for a damaged file.
void copy_rows(const Context& context, size_t layer, std::span<float> keys, std::span<float> values);

}  // namespace kvfork
