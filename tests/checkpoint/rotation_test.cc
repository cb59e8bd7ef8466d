// The rotary frequencies of each kind of scaling.
#include "checkpoint/rotation.h"

#include <gtest/gtest.h>

#include <cmath>

namespace kvfork::checkpoint {
namespace {

std::vector<float> make_inverse_frequencies(const ModelConfig& config) {
  return make_rotation(config.rope_theta, config.rope_scaling, config.head_dim).inverse_frequencies;
}

ModelConfig config_of(size_t head_dim, double theta) {
  ModelConfig config;
  config.head_dim = head_dim;
  config.rope_theta = theta;
  return config;
}

TEST(InverseFrequencies, DefaultIsAGeometricSeries) {
  const auto frequencies = make_inverse_frequencies(config_of(64, 10000));
  ASSERT_EQ(frequencies.size(), 32u);
  EXPECT_EQ(frequencies[0], 1.0f);
  for (size_t i = 0; i < 32; ++i)
    EXPECT_NEAR(frequencies[i], std::pow(10000.0, -2.0 * static_cast<double>(i) / 64), 1e-7 * frequencies[i]);
}

TEST(InverseFrequencies, LinearDividesAll) {
  ModelConfig config = config_of(32, 10000);
  const auto plain = make_inverse_frequencies(config);
  config.rope_scaling = {.kind = RopeScaling::Kind::Linear, .factor = 4};
  const auto scaled = make_inverse_frequencies(config);
  for (size_t i = 0; i < plain.size(); ++i) EXPECT_EQ(scaled[i], plain[i] / 4);
}

TEST(InverseFrequencies, Llama3KeepsShortAndDividesLongWavelengths) {
  ModelConfig config = config_of(64, 500000);
  const auto plain = make_inverse_frequencies(config);
  config.rope_scaling = {.kind = RopeScaling::Kind::Llama3,
                         .factor = 32,
                         .low_freq_factor = 1,
                         .high_freq_factor = 4,
                         .original_max_position_embeddings = 8192};
  const auto scaled = make_inverse_frequencies(config);
  size_t n_kept = 0, n_divided = 0, n_between = 0;
  for (size_t i = 0; i < plain.size(); ++i) {
    const double wavelength = 2 * 3.141592653589793 / plain[i];
    if (wavelength < 8192.0 / 4) {
      ++n_kept;
      EXPECT_EQ(scaled[i], plain[i]);
    } else if (wavelength > 8192.0) {
      ++n_divided;
      EXPECT_EQ(scaled[i], plain[i] / 32);
    } else {
      ++n_between;
      EXPECT_LT(scaled[i], plain[i]);
      EXPECT_GT(scaled[i], plain[i] / 32);
    }
  }
  EXPECT_GT(n_kept, 0u);
  EXPECT_GT(n_divided, 0u);
  EXPECT_GT(n_between, 0u);
}

}  // namespace
}  // namespace kvfork::checkpoint
