// Rotary position embedding: the cosine and sine of each position.
#pragma once

#include <cstddef>
#include <vector>

namespace kvfork::model {

struct SineCosine {
  double sine, cosine;
};

/// Of an angle from 0 to about 1.6 million, within 2e-16; the same bits on every machine.
SineCosine sine_cosine(double angle) noexcept;

/// cos and sin of each frequency at one position, times `factor`. A pure function of its arguments.
void rotate_position(const std::vector<float>& inverse_frequencies, float factor, size_t position, float* cos,
                     float* sin) noexcept;

}  // namespace kvfork::model
