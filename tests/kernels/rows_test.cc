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

/// What a norm multiplies by, but for the weight.
double scale_of(const EdgeArray<float>& x, double eps, bool subtracts_mean) {
  const double n = static_cast<double>(x.size());
  double mean = 0, squares = 0;
  for (double v : exact(x)) mean += subtracts_mean ? v / n : 0;
  for (double v : exact(x)) squares += (v - mean) * (v - mean);
  return 1 / std::sqrt(squares / n + eps);
}

class Rows : public EachSet {
 protected:
  void check_rope(size_t n_pairs, size_t stride, size_t n_heads, bool neighbours) const {
    SCOPED_TRACE(std::to_string(n_heads) + " heads of " + std::to_string(stride) + ", pairs " +
                 std::to_string(n_pairs));
    EdgeArray<float> x(n_heads * stride), before(n_heads * stride), cos(n_pairs), sin(n_pairs);
    Random random(stride);
    random.fill(x);
    random.fill(cos);
    random.fill(sin);
    std::memcpy(before.data(), x.data(), x.size() * sizeof(float));
    table().rope({.x = x.data(),
                  .n_heads = n_heads,
                  .head_stride = stride,
                  .n_pairs = n_pairs,
                  .neighbours = neighbours,
                  .cos = cos.data(),
                  .sin = sin.data()});
    for (size_t start = 0; start < n_heads * stride; start += stride) {
      reference::Row values;
      for (size_t i = 0; i < stride; ++i) values.push_back(before[start + i]);
      const auto expected = reference::rope(values, exact(cos), exact(sin), neighbours);
      for (size_t i = 0; i < n_pairs; ++i) {
        const size_t low = neighbours ? 2 * i : i, high = neighbours ? 2 * i + 1 : i + n_pairs;
        const float a = before[start + low], b = before[start + high], c = cos[i], s = sin[i];
        const float ac = a * c, bs = b * s, bc = b * c, as = a * s;
        EXPECT_EQ(x[start + low], ac - bs);
        EXPECT_EQ(x[start + high], bc + as);
        EXPECT_TRUE(close_to(x[start + low], expected[low], 3 * kEpsilon * (std::fabs(ac) + std::fabs(bs))));
        EXPECT_TRUE(close_to(x[start + high], expected[high], 3 * kEpsilon * (std::fabs(bc) + std::fabs(as))));
      }
      for (size_t i = 2 * n_pairs; i < stride; ++i) EXPECT_EQ(x[start + i], before[start + i]) << "not rotated";
    }
  }
};

TEST_P(Rows, RmsNormAgreesWithTwin) {
  for (size_t n : kSizes) {
    EdgeArray<float> x(n), weight(n), y(n);
    Random random(n);
    random.fill(x);
    random.fill(weight);
    const auto expected = reference::norm(exact(x), exact(weight), {}, 1e-6f, false);
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

/// Every form of norm. Numbers far from 0 against the differences between them tell two passes from one.
TEST_P(Rows, NormsAgreeWithTheirTwin) {
  for (size_t n : kSizes) {
    for (int form = 0; form < 8; ++form) {
      const bool has_weight = form & 1, has_bias = form & 2, subtracts_mean = form & 4;
      for (float offset : {0.0f, 1000.0f}) {
        EdgeArray<float> x(n), weight(n), bias(n), y(n);
        Random random(n);
        double magnitude = 0;
        for (size_t i = 0; i < n; ++i) {
          x.set(i, offset + random.next());
          magnitude += std::fabs(x[i]) / static_cast<double>(n);
        }
        random.fill(weight);
        random.fill(bias);
        NormArgs args = rms(x, has_weight ? &weight : nullptr, y);
        args.bias = has_bias ? bias.data() : nullptr;
        args.subtracts_mean = subtracts_mean;
        const reference::Row weights = has_weight ? exact(weight) : reference::Row();
        const reference::Row biases = has_bias ? exact(bias) : reference::Row();
        const auto expected = reference::norm(exact(x), weights, biases, args.eps, subtracts_mean);
        const auto plain = reference::norm(exact(x), {}, {}, args.eps, subtracts_mean);
        const double scale = scale_of(x, args.eps, subtracts_mean);
        table().norm(args);
        // Each sum has n / lanes + 5 roundings. What the mean is off by is small against the numbers, not against
        // their differences from it.
        const double roundings = static_cast<double>(n / lanes() + 5) + 5;
        for (size_t i = 0; i < n; ++i) {
          const double of_mean = subtracts_mean ? scale * (magnitude + std::fabs(x[i])) : 0;
          const double factor = has_weight ? std::fabs(weight[i]) : 1;
          const double tolerance =
              kEpsilon * (roundings * factor * (of_mean + std::fabs(plain[i])) + std::fabs(expected[i]));
          ASSERT_TRUE(close_to(y[i], expected[i], tolerance)) << n << " " << i << " form " << form;
        }
        args.y = x.data();
        table().norm(args);
        EXPECT_TRUE(same_bits(x, y, n)) << "in place";
      }
    }
  }
}

TEST_P(Rows, LayerNormOfEqualNumbersIsTheBias) {
  EdgeArray<float> x(21), weight(21), bias(21), y(21);
  Random(1).fill(weight);
  Random(2).fill(bias);
  for (size_t i = 0; i < 21; ++i) x.set(i, 3.0f);
  NormArgs args = rms(x, &weight, y);
  args.bias = bias.data();
  args.subtracts_mean = true;
  table().norm(args);
  EXPECT_TRUE(same_bits(y, bias, 21));
}

TEST_P(Rows, RopeRoundsProductsAndSumsLikeTheReference) {
  for (size_t n_pairs : {0, 1, 2, 3, 8, 15, 16, 17, 20, 32, 40, 48, 64, 128}) {
    for (size_t rest : {0, 5}) {
      for (size_t n_heads : {0, 1, 3}) {
        for (bool neighbours : {false, true}) check_rope(n_pairs, 2 * n_pairs + rest, n_heads, neighbours);
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
      const double expected = reference::gated(Activation::Silu, 0, gate[i], up[i]);
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
