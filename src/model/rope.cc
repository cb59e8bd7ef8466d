#include "model/rope.h"

#include <cmath>
#include <numbers>

namespace kvfork::model {
namespace {

// Long wavelengths are divided by `factor`, short ones kept, those between blended (Llama 3.1). Computed in float32
// in the reference's order, so that the same frequencies come out.
float scale_llama3(float frequency, const checkpoint::RopeScaling& scaling) {
  const auto factor = static_cast<float>(scaling.factor);
  const auto low = static_cast<float>(scaling.low_freq_factor);
  const auto high = static_cast<float>(scaling.high_freq_factor);
  const auto original = static_cast<float>(scaling.original_max_position_embeddings);
  const float wavelength = static_cast<float>(2 * std::numbers::pi) / frequency;
  if (wavelength > original / low) return frequency / factor;
  if (wavelength < original / high) return frequency;
  const float smooth = (original / wavelength - low) / (high - low);
  return (1 - smooth) * (frequency / factor) + smooth * frequency;
}

}  // namespace

std::vector<float> make_inverse_frequencies(const checkpoint::ModelConfig& config) {
  const size_t half = config.head_dim / 2;
  std::vector<float> frequencies(half);
  for (size_t i = 0; i < half; ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(config.head_dim);
    const auto power = static_cast<float>(std::pow(config.rope_theta, static_cast<double>(exponent)));
    frequencies[i] = 1.0f / power;
    if (config.rope_scaling.kind == checkpoint::RopeScaling::Kind::Llama3)
      frequencies[i] = scale_llama3(frequencies[i], config.rope_scaling);
  }
  return frequencies;
}

void rotate_position(const std::vector<float>& inverse_frequencies, size_t position, float* cos, float* sin) noexcept {
  for (size_t i = 0; i < inverse_frequencies.size(); ++i) {
    // The angle is float32 in the reference; its cosine is taken here in double and rounded once.
    const double angle = static_cast<float>(position) * inverse_frequencies[i];
    cos[i] = static_cast<float>(std::cos(angle));
    sin[i] = static_cast<float>(std::sin(angle));
  }
}

}  // namespace kvfork::model
