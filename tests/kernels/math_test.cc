// The hyperbolic tangent and the error function, in double precision's eyes: seen through the kernels in every set,
// and by themselves in plain lanes.
#include <algorithm>

#include "kernels/generic/exp.h"
#include "kernels/portable/vec.h"
#include "tests/kernels/kernel_test.h"

namespace kvfork::kernels {
namespace {

/// Numbers of either sign: a grid over [-12, 12], all magnitudes down to 2^-60, and the edges.
std::vector<float> arguments() {
  std::vector<float> xs = {0.0f, 0x1p-149f, 0x1p-126f, 3e38f, 11.0f, 50.0f, INFINITY};
  for (float x = 0x1p-12f; x < 12; x += 0x1p-11f) xs.push_back(x + 0x1p-14f * static_cast<float>(xs.size() % 7));
  Random random(1);
  for (int i = 0; i < 50000; ++i) {
    const float significand = 1.0f + 0x1p-23f * static_cast<float>(random.below(1 << 23));
    xs.push_back(std::ldexp(significand, 3 - static_cast<int>(random.below(64))));
  }
  for (size_t i = 0, n = xs.size(); i < n; ++i) xs.push_back(-xs[i]);
  while (xs.size() % 16 != 5) xs.push_back(0.25f);
  return xs;
}

class Math : public EachSet {
 protected:
  std::vector<float> tanh_of(std::vector<float> xs) const {
    table().cap(xs.data(), 1.0f, xs.size());
    return xs;
  }
};

TEST_P(Math, TanhIsWithinFourRoundings) {
  const std::vector<float> xs = arguments(), found = tanh_of(xs);
  for (size_t i = 0; i < xs.size(); ++i) {
    const double expected = std::tanh(static_cast<double>(xs[i]));
    // Twice that: a rounding is up to one part in 2^24 where a significand is small, half of it where it is large.
    ASSERT_TRUE(close_to(found[i], expected, 8 * kEpsilon * std::fabs(expected) + 0x1p-148)) << xs[i];
    ASSERT_LE(std::fabs(found[i]), 1.0f) << xs[i];
    ASSERT_EQ(std::signbit(found[i]), std::signbit(xs[i])) << xs[i];
  }
}

TEST_P(Math, TanhAtTheEdges) {
  const auto found = tanh_of({0.0f, -0.0f, 9.1f, -9.1f, INFINITY, -INFINITY, 3e38f, NAN, -NAN});
  EXPECT_EQ(float_bits(found[0]), float_bits(0.0f));
  EXPECT_EQ(float_bits(found[1]), float_bits(-0.0f));
  for (size_t i : {2, 4, 6}) EXPECT_EQ(found[i], 1.0f) << i;
  for (size_t i : {3, 5}) EXPECT_EQ(found[i], -1.0f) << i;
  EXPECT_TRUE(std::isnan(found[7]) && std::isnan(found[8]));
}

TEST_P(Math, TanhIsOdd) {
  std::vector<float> xs = arguments();
  const std::vector<float> found = tanh_of(xs);
  for (float& x : xs) x = -x;
  const std::vector<float> of_opposites = tanh_of(xs);
  for (size_t i = 0; i < xs.size(); ++i) ASSERT_EQ(found[i], -of_opposites[i]) << xs[i];
}

/// x / 2 * (1 + erf(x / sqrt(2))): its error is that of erf, at most 1e-7, times x / 2, and two roundings.
TEST_P(Math, ErfIsWithinOneInTenMillionInsideGelu) {
  const std::vector<float> xs = arguments();
  std::vector<float> found(xs.size());
  table().activate(Activation::Gelu, xs.data(), xs.size(), found.data());
  for (size_t i = 0; i < xs.size(); ++i) {
    if (xs[i] == -INFINITY)
      continue;  // infinitely far from zero, and zero times: not a number, as in the reference
    const double x = xs[i], expected = x / 2 * std::erfc(-x / std::sqrt(2.0));
    if (std::isinf(expected)) {
      ASSERT_EQ(found[i], expected);
      continue;
    }
    ASSERT_TRUE(
        close_to(found[i], expected, std::fabs(x) / 2 * 2e-7 + 3 * kEpsilon * std::fabs(expected) + 0x1p-148))
        << x;
  }
}

/// Four at a time.
float plain_erf(float x) {
  return erf<Portable>(Portable::broadcast(x))[2];
}

TEST(PlainErf, IsWithinFourRoundings) {
  double worst = 0;
  for (float x : arguments()) {
    const double expected = std::erf(static_cast<double>(x));
    const float found = plain_erf(x);
    ASSERT_TRUE(close_to(found, expected, 8 * kEpsilon * std::fabs(expected) + 0x1p-148)) << x;
    ASSERT_LE(std::fabs(found), 1.0f) << x;
    ASSERT_EQ(found, -plain_erf(-x)) << x;
    worst = std::max(worst, std::fabs(found - expected));
  }
  EXPECT_LE(worst, 1.2e-7);
}

TEST(PlainErf, IsExactAtTheEdges) {
  EXPECT_EQ(float_bits(plain_erf(0.0f)), float_bits(0.0f));
  EXPECT_EQ(float_bits(plain_erf(-0.0f)), float_bits(-0.0f));
  for (float x : {4.0f, 5.0f, 3e38f, INFINITY}) {
    EXPECT_EQ(plain_erf(x), 1.0f) << x;
    EXPECT_EQ(plain_erf(-x), -1.0f) << x;
  }
  EXPECT_TRUE(std::isnan(plain_erf(NAN)));
}

INSTANTIATE_TEST_SUITE_P(Sets, Math, all_sets(), set_name);

}  // namespace
}  // namespace kvfork::kernels
