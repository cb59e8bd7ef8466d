// Activations, scaling, capping and bounds: their values, at every size of tail, in place, in any split, and what
// becomes of infinities and of what is not a number.
#include <algorithm>
#include <functional>

#include "tests/kernels/kernel_test.h"
#include "tests/reference/kernels.h"

namespace kvfork::kernels {
namespace {

constexpr size_t kSizes[] = {0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 101, 1021};
constexpr Activation kActivations[] = {Activation::Silu,        Activation::Gelu,        Activation::GeluTanh,
                                       Activation::Relu,        Activation::ReluSquared, Activation::Sigmoid,
                                       Activation::SwishClamped};

/// Of an activation times `factor`. 1 + erf and 1 + tanh cancel where x is negative: their error is one of x
/// itself. The exponent of the clamped swish has two roundings of its own. Where an exponential overflows the
/// result is 0 and the exact one tiny.
double tolerance_of(Activation activation, double x, double expected, double factor = 1) {
  const double magnitude = std::fabs(expected);
  const bool cancels = activation == Activation::Gelu || activation == Activation::GeluTanh;
  const bool scales = activation == Activation::SwishClamped;
  return kEpsilon * (cancels  ? 12 * std::fabs(x * factor)
                     : scales ? (12 + 2 * 1.702 * std::fabs(x)) * magnitude
                              : 12 * magnitude) +
         1e-35;
}

class Elementwise : public EachSet {
 protected:
  using Function = std::function<void(float* x, const float* other, size_t n)>;

  /// Checks that f, which works on x in place, gives the same bits in random parts, and returns what it gives.
  static EdgeArray<float>& apply(const Function& f, EdgeArray<float>& x, const EdgeArray<float>& other) {
    EdgeArray<float> split(x.size());
    std::memcpy(split.data(), x.data(), x.size() * sizeof(float));
    f(x.data(), other.data(), x.size());
    Random random(x.size());
    for (size_t i = 0; i < x.size();) {
      const size_t count = std::min(random.below(22), x.size() - i);
      f(split.data() + i, other.data() + i, count);
      i += count;
    }
    EXPECT_TRUE(same_bits(split, x, x.size())) << x.size();
    return x;
  }

  /// f over numbers with every kind of tail; check(found, x, other) for each.
  template <class Check>
  static void for_sizes(const Function& f, const Check& check) {
    for (size_t n : kSizes) {
      EdgeArray<float> x(n), before(n), other(n);
      Random random(n);
      random.fill(x);
      random.fill(other);
      std::memcpy(before.data(), x.data(), n * sizeof(float));
      apply(f, x, other);
      for (size_t i = 0; i < n; ++i) ASSERT_TRUE(check(x[i], before[i], other[i])) << i << " of " << n;
    }
  }

  static bool same(float found, float expected) { return float_bits(found) == float_bits(expected); }
};

TEST_P(Elementwise, ActivationsAgreeWithTheirTwins) {
  for (Activation activation : kActivations) {
    SCOPED_TRACE(static_cast<int>(activation));
    for_sizes([&](float* x, const float*, size_t n) { table().activate(activation, x, n, x); },
              [&](float found, float x, float) {
                const double expected = reference::activation(activation, x);
                return close_to(found, expected, tolerance_of(activation, x, expected));
              });
  }
}

TEST_P(Elementwise, GatedActivationsAgreeWithTheirTwins) {
  constexpr float kClamp = 2.5f;
  for (Activation activation : kActivations) {
    SCOPED_TRACE(static_cast<int>(activation));
    for_sizes([&](float* x, const float* up, size_t n) { table().activate_mul(activation, kClamp, x, up, n, x); },
              [&](float found, float gate, float up) {
                const double expected = reference::gated(activation, kClamp, gate, up);
                return close_to(found, expected, tolerance_of(activation, gate, expected, up));
              });
  }
}

TEST_P(Elementwise, ActivationsWriteElsewhereAndOverEitherInput) {
  for (Activation activation : kActivations) {
    EdgeArray<float> gate(37), up(37), y(37), one(37), over_gate(37), over_up(37);
    Random random(1);
    random.fill(gate);
    random.fill(up);
    for (size_t i = 0; i < gate.size(); ++i) {
      over_gate.set(i, gate[i]);
      over_up.set(i, up[i]);
      one.set(i, gate[i]);
    }
    table().activate_mul(activation, 1.5f, gate.data(), up.data(), 37, y.data());
    table().activate_mul(activation, 1.5f, over_gate.data(), up.data(), 37, over_gate.data());
    table().activate_mul(activation, 1.5f, gate.data(), over_up.data(), 37, over_up.data());
    EXPECT_TRUE(same_bits(over_gate, y, 37));
    EXPECT_TRUE(same_bits(over_up, y, 37));
    table().activate(activation, gate.data(), 37, y.data());
    table().activate(activation, one.data(), 37, one.data());
    EXPECT_TRUE(same_bits(one, y, 37));
  }
}

TEST_P(Elementwise, ActivationsAtTheEdges) {
  for (Activation activation : kActivations) {
    SCOPED_TRACE(static_cast<int>(activation));
    const float xs[] = {0.0f, INFINITY, 1e30f, NAN, -200.0f};
    float y[5];
    table().activate(activation, xs, 5, y);
    const bool is_sigmoid = activation == Activation::Sigmoid;
    EXPECT_EQ(y[0], is_sigmoid ? 0.5f : 0.0f);
    EXPECT_EQ(y[1], is_sigmoid ? 1.0f : INFINITY);
    EXPECT_EQ(y[2], is_sigmoid ? 1.0f : activation == Activation::ReluSquared ? INFINITY : 1e30f);
    EXPECT_TRUE(std::isnan(y[3]));
    EXPECT_EQ(y[4], 0.0f);
  }
}

TEST_P(Elementwise, GatedActivationsKeepWhatIsNotANumber) {
  const float gate[] = {NAN, 1.0f, 2.0f}, up[] = {1.0f, NAN, 3.0f};
  for (Activation activation : kActivations) {
    float y[3];
    table().activate_mul(activation, 7.0f, gate, up, 3, y);
    EXPECT_TRUE(std::isnan(y[0]) && std::isnan(y[1])) << static_cast<int>(activation);
    EXPECT_GT(y[2], 0.0f);
  }
}

/// Gates have a bound above alone, so that -100 is one; the other numbers have two.
TEST_P(Elementwise, ClampedSwishBoundsItsInputs) {
  const float gate[] = {100.0f, 7.0f, INFINITY, 7.0f, -100.0f}, up[] = {100.0f, 7.0f, INFINITY, -7.0f, -100.0f};
  float y[5];
  table().activate_mul(Activation::SwishClamped, 7.0f, gate, up, 5, y);
  EXPECT_EQ(y[0], y[1]);
  EXPECT_EQ(y[2], y[1]);
  EXPECT_TRUE(close_to(y[1], 8 * 7 / (1 + std::exp(-1.702 * 7)), 1e-5));
  EXPECT_TRUE(close_to(y[3], -6 * 7 / (1 + std::exp(-1.702 * 7)), 1e-5));
  EXPECT_EQ(y[4], 0.0f) << "the gate is closed";
}

/// The clamp is that of one activation: to the others it is nothing.
TEST_P(Elementwise, OtherActivationsIgnoreTheClamp) {
  EdgeArray<float> gate(37), up(37), y(37), other(37);
  Random random(1);
  random.fill(gate);
  random.fill(up);
  for (Activation activation : kActivations) {
    table().activate_mul(activation, 0.0f, gate.data(), up.data(), 37, y.data());
    table().activate_mul(activation, 0.5f, gate.data(), up.data(), 37, other.data());
    EXPECT_EQ(static_cast<bool>(same_bits(y, other, 37)), activation != Activation::SwishClamped);
  }
}

TEST_P(Elementwise, ScalingRoundsOnceAndAScaledSumTwice) {
  constexpr float kFactor = 0.7f;
  for_sizes([&](float* x, const float*, size_t n) { table().scale(x, kFactor, n); },
            [](float found, float x, float) { return same(found, x * kFactor); });
  for_sizes([&](float* x, const float* y, size_t n) { table().add_scaled(x, y, kFactor, n); },
            [](float found, float x, float y) {
              const float product = kFactor * y;
              return same(found, x + product);
            });
}

TEST_P(Elementwise, ACapIsSoft) {
  constexpr float kCap = 30.0f;
  for_sizes([&](float* x, const float*, size_t n) { table().cap(x, kCap, n); },
            [](float found, float x, float) {
              const double expected = std::tanh(static_cast<double>(x) / kCap) * kCap;
              return close_to(found, expected, 11 * kEpsilon * std::fabs(expected));
            });
  float edges[] = {INFINITY, -INFINITY, 1e30f, NAN};
  table().cap(edges, kCap, 4);
  EXPECT_EQ(edges[0], kCap);
  EXPECT_EQ(edges[1], -kCap);
  EXPECT_EQ(edges[2], kCap);
  EXPECT_TRUE(std::isnan(edges[3]));
}

TEST_P(Elementwise, BoundsAreExact) {
  constexpr float kLimit = 1.25f;
  for_sizes([&](float* x, const float*, size_t n) { table().clip(x, kLimit, n); },
            [=](float found, float x, float) { return same(found, std::clamp(x, -kLimit, kLimit)); });
  float edges[] = {INFINITY, -INFINITY, kLimit, -0.0f, NAN};
  table().clip(edges, kLimit, 5);
  EXPECT_EQ(edges[0], kLimit);
  EXPECT_EQ(edges[1], -kLimit);
  EXPECT_EQ(edges[2], kLimit);
  EXPECT_TRUE(same(edges[3], -0.0f));
  EXPECT_TRUE(std::isnan(edges[4]));
}

INSTANTIATE_TEST_SUITE_P(Sets, Elementwise, all_sets(), set_name);

}  // namespace
}  // namespace kvfork::kernels
