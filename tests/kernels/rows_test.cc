// Kernels over rows (norm, rotation, gate, sum, widening) against twins.

#include "tests/kernels/kernel_test.h"
#include "tests/reference/kernels.h"

namespace kvfork::kernels {
namespace {

constexpr size_t kSizes[] = {1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 101, 896, 1021};

template <class Array>
reference::Row exact(const Array& x) {
  reference::Row values;
  for (size_t i = 0; i < x.size(); ++i) values.push_back(x[i]);
  return values;
}

/// x normalized into y, RMS.
NormArgs rms(const EdgeArray<float>& x, const EdgeArray<float>* weight, EdgeArray<float>& y) {
  return {.x = x.data(),
          .weight = weight ? weight->data() : nullptr,
          .bias = nullptr,
          .eps = 1e-6f,
          .subtracts_mean = false,
          .n = x.size(),
          .y = y.data()};
}

class Rows : public EachSet {};

TEST_P(Rows, RmsNormAgreesWithTwin) {
  for (size_t n : kSizes) {
    EdgeArray<float> x(n), weight(n), y(n);
    Random random(n);
    random.fill(x);
    random.fill(weight);
    const auto expected = reference::rms_norm(exact(x), exact(weight), 1e-6f);
    table().norm(rms(x, &weight, y));
    // The sum of squares has n / lanes + 4 roundings (twice without FMA), halved by the root; then five more.
    const double relative = (2.0 * static_cast<double>(n / lanes() + 5) / 2 + 5) * kEpsilon;
    for (size_t i = 0; i < n; ++i)
      ASSERT_TRUE(close_to(y[i], expected[i], relative * std::fabs(expected[i]))) << n << " " << i;
    table().norm(rms(x, &weight, x));
    EXPECT_TRUE(same_bits(x, y, n)) << "in place";
  }
}

TEST_P(Rows, RmsNormOfZerosIsZero) {
  EdgeArray<float> x(20), weight(20), y(20);
  Random(1).fill(weight);
  table().norm(rms(x, &weight, y));
  for (size_t i = 0; i < 20; ++i) EXPECT_EQ(y[i], 0.0f);
}

TEST_P(Rows, RopeRoundsProductsAndSumsLikeTheReference) {
  for (size_t head_dim : {2, 4, 6, 16, 30, 32, 34, 64, 80, 96, 128, 256}) {
    for (size_t n_heads : {0, 1, 3}) {
      EdgeArray<float> x(n_heads * head_dim), before(n_heads * head_dim), cos(head_dim / 2), sin(head_dim / 2);
      Random random(head_dim);
      random.fill(x);
      random.fill(cos);
      random.fill(sin);
      std::memcpy(before.data(), x.data(), x.size() * sizeof(float));
      table().rope({.x = x.data(),
                    .n_heads = n_heads,
                    .head_stride = head_dim,
                    .n_pairs = head_dim / 2,
                    .neighbours = false,
                    .cos = cos.data(),
                    .sin = sin.data()});
      const size_t half = head_dim / 2;
      for (size_t head = 0; head < n_heads; ++head) {
        reference::Row values;
        for (size_t i = 0; i < head_dim; ++i) values.push_back(before[head * head_dim + i]);
        const auto expected = reference::rope(values, exact(cos), exact(sin));
        for (size_t i = 0; i < half; ++i) {
          const size_t at = head * head_dim + i;
          const float a = before[at], b = before[at + half], c = cos[i], s = sin[i];
          const float ac = a * c, bs = b * s, bc = b * c, as = a * s;
          EXPECT_EQ(x[at], ac - bs);
          EXPECT_EQ(x[at + half], bc + as);
          EXPECT_TRUE(close_to(x[at], expected[i], 3 * kEpsilon * (std::fabs(ac) + std::fabs(bs))));
          EXPECT_TRUE(close_to(x[at + half], expected[i + half], 3 * kEpsilon * (std::fabs(bc) + std::fabs(as))));
        }
      }
    }
  }
}

TEST_P(Rows, SiluMulAgreesWithTwinInAnySplit) {
  for (size_t n : kSizes) {
    EdgeArray<float> gate(n), up(n), y(n), split(n);
    Random random(n);
    random.fill(gate);
    random.fill(up);
    table().activate_mul(Activation::Silu, 0, gate.data(), up.data(), n, y.data());
    for (size_t i = 0; i < n; ++i) {
      const double expected = reference::silu_mul(gate[i], up[i]);
      // exp to 2 ulp, a sum, a quotient, a product; where exp overflows the quotient is 0 and the exact value tiny.
      ASSERT_TRUE(close_to(y[i], expected, 8 * kEpsilon * std::fabs(expected) + 1e-35)) << gate[i] << " " << up[i];
    }
    for (size_t i = 0; i < n;) {
      const size_t count = std::min(1 + random.below(21), n - i);
      table().activate_mul(Activation::Silu, 0, gate.data() + i, up.data() + i, count, split.data() + i);
      i += count;
    }
    EXPECT_TRUE(same_bits(split, y, n)) << n;
    EdgeArray<float> in_place(n);
    std::memcpy(in_place.data(), gate.data(), n * sizeof(float));
    table().activate_mul(Activation::Silu, 0, in_place.data(), up.data(), n, in_place.data());
    EXPECT_TRUE(same_bits(in_place, y, n));
    std::memcpy(in_place.data(), up.data(), n * sizeof(float));
    table().activate_mul(Activation::Silu, 0, gate.data(), in_place.data(), n, in_place.data());
    EXPECT_TRUE(same_bits(in_place, y, n));
  }
}

TEST_P(Rows, SiluMulAtTheEdges) {
  EdgeArray<float> gate(6), up(6), y(6);
  const float gates[] = {0.0f, -0.0f, INFINITY, 1e30f, -200.0f, NAN};
  for (size_t i = 0; i < 6; ++i) {
    gate.set(i, gates[i]);
    up.set(i, 2.0f);
  }
  table().activate_mul(Activation::Silu, 0, gate.data(), up.data(), 6, y.data());
  EXPECT_EQ(y[0], 0.0f);
  EXPECT_EQ(y[1], 0.0f);
  EXPECT_EQ(y[2], INFINITY);
  EXPECT_EQ(y[3], 2e30f);
  EXPECT_EQ(y[4], 0.0f);
  EXPECT_TRUE(std::isnan(y[5]));
}

TEST_P(Rows, AddIsExactlyTheSum) {
  for (size_t n : kSizes) {
    EdgeArray<float> x(n), y(n), before(n);
    Random random(n);
    random.fill(x);
    random.fill(y);
    std::memcpy(before.data(), x.data(), n * sizeof(float));
    table().add(x.data(), y.data(), n);
    for (size_t i = 0; i < n; ++i) ASSERT_EQ(x[i], before[i] + y[i]);
  }
}

TEST_P(Rows, WidenIsExactForEveryPattern) {
  for (Element type : {Element::F16, Element::BF16}) {
    constexpr size_t kPatterns = 65536 + 5;
    EdgeArray<char> x(kPatterns * 2, 1);
    EdgeArray<float> y(kPatterns);
    for (size_t i = 0; i < kPatterns; ++i) {
      const uint16_t bits = static_cast<uint16_t>(i);
      std::memcpy(x.data() + 2 * i, &bits, 2);
    }
    table().widen(x.data(), type, kPatterns, y.data());
    for (size_t i = 0; i < kPatterns; ++i) {
      const uint16_t bits = static_cast<uint16_t>(i);
      double expected;
      if (type == Element::BF16) {
        expected = bits_float(static_cast<uint32_t>(bits) << 16);
      } else {
        const int exponent = bits >> 10 & 31, fraction = bits & 1023;
        expected = exponent == 31 ? (fraction ? NAN : INFINITY)
                   : exponent     ? std::ldexp(1024 + fraction, exponent - 25)
                                  : std::ldexp(fraction, -24);
        if (bits & 0x8000) expected = -expected;
      }
      if (std::isnan(expected)) {
        ASSERT_TRUE(std::isnan(y[i])) << i;
      } else {
        ASSERT_EQ(y[i], expected) << i;
        ASSERT_EQ(std::signbit(y[i]), std::signbit(expected)) << i;
      }
    }
  }
  for (size_t n : kSizes) {
    EdgeArray<float> x(n), y(n);
    Random(n).fill(x);
    table().widen(x.data(), Element::F32, n, y.data());
    EXPECT_TRUE(same_bits(x, y, n));
    EdgeArray<uint16_t> halves(n);
    table().widen(halves.data(), Element::F16, n, y.data());
  }
}

INSTANTIATE_TEST_SUITE_P(Sets, Rows, all_sets(), set_name);

}  // namespace
}  // namespace kvfork::kernels
