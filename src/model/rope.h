// Rotary position embedding: frequencies from the config, and the cosine and sine of each position.
//
// Must match Transformers' ROPE_INIT_FUNCTIONS ("default", "llama3", modeling_rope_utils.py) in float32.
#pragma once

#include <cstddef>
#include <vector>

#include "checkpoint/config.h"

namespace kvfork::model {

/// [head_dim / 2] angles per position, float32 as the reference computes them.
std::vector<float> make_inverse_frequencies(const checkpoint::ModelConfig& config);

struct SineCosine {
  double sine, cosine;
};

/// Of an angle from 0 to about 1.6 million, within 2e-16; the same bits on every machine.
SineCosine sine_cosine(double angle) noexcept;

/// cos and sin [head_dim / 2] of one position. A pure function of its arguments.
void rotate_position(const std::vector<float>& inverse_frequencies, size_t position, float* cos,
                     float* sin) noexcept;

}  // namespace kvfork::model
