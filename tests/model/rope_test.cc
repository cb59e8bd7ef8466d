// Sine and cosine against the C library in extended precision.

#include "model/rope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace kvfork::model {
namespace {

// Against the C library in extended precision.
void expect_close(double angle) {
  const SineCosine found = sine_cosine(angle);
  const long double sine = std::sin(static_cast<long double>(angle));
  const long double cosine = std::cos(static_cast<long double>(angle));
  EXPECT_TRUE(std::abs(found.sine - sine) <= 3e-16L) << angle;
  EXPECT_TRUE(std::abs(found.cosine - cosine) <= 3e-16L) << angle;
}

TEST(SineCosine, IsCloseEverywhere) {
  std::mt19937_64 random(3);
  for (int i = 0; i < 200000; ++i) {
    const double scale = std::exp2(std::uniform_real_distribution<double>(-30, 20)(random));
    expect_close(static_cast<float>(scale));
    if (testing::Test::HasFailure()) return;
  }
  for (int i = 0; i < 300000; ++i) expect_close(i);  // frequency 1: the angle is the position
}

TEST(SineCosine, IsExactAtZero) {
  EXPECT_EQ(sine_cosine(0).sine, 0.0);
  EXPECT_EQ(sine_cosine(0).cosine, 1.0);
}

}  // namespace
}  // namespace kvfork::model
