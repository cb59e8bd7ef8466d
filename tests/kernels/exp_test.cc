// The exponential inside attention and silu, seen through the kernels: with one key p is exp(0); with two, whose
// scores differ by x, the sum is 1 + exp(x) and the second value's weight is exp(x) itself.
#include <algorithm>

#include "tests/kernels/kernel_test.h"

namespace kvfork::kernels {
namespace {

class Exp : public EachSet {
 protected:
  /// exp(x) for every x <= 0 of a list, 63 at a time: keys are numbers, the query is 1, key 0 is the maximum 0, and
  /// component t of value t is 1.
  std::vector<float> exponentials(const std::vector<float>& xs) const {
    constexpr size_t kAtOnce = kBlockTokens - 1;
    std::vector<float> results;
    const float* query[1];
    std::vector<float> q(64, 0.0f), k(64 * 64, 0.0f), v(64 * 64, 0.0f), k_block(64 * 64), v_block(64 * 64), out(64);
    q[0] = 1.0f;
    query[0] = q.data();
    for (size_t t = 0; t < 64; ++t) v[t * 64 + t] = 1.0f;
    for (size_t first = 0; first < xs.size(); first += kAtOnce) {
      const size_t n = std::min(kAtOnce, xs.size() - first);
      for (size_t t = 0; t < n; ++t) k[(t + 1) * 64] = xs[first + t];
      table().store_kv({.k = k.data(),
                        .k_stride = 64,
                        .v = v.data(),
                        .v_stride = 64,
                        .n_tokens = 64,
                        .head_dim = 64,
                        .slot = 0,
                        .kv_type = Element::F32,
                        .k_block = k_block.data(),
                        .v_block = v_block.data()});
      const KeyRange seen{0, static_cast<uint32_t>(n + 1)};
      float max, sum;
      const KvBlockData block{k_block.data(), v_block.data()};
      table().attention({.q = query,
                         .seen = &seen,
                         .n_rows = 1,
                         .head_dim = 64,
                         .scale = 1.0f,
                         .kv_type = Element::F32,
                         .blocks = &block,
                         .n_blocks = 1,
                         .result = {&max, &sum, out.data()},
                         .spare = {},
                         .workspace = make_workspace(table())});
      EXPECT_EQ(max, 0.0f);
      EXPECT_EQ(out[0], 1.0f) << "exp(0)";
      results.insert(results.end(), out.begin() + 1, out.begin() + 1 + static_cast<ptrdiff_t>(n));
    }
    return results;
  }
};

/// Distance in units in the last place of the exact result; a subnormal's unit is 2^-149.
double ulps(float actual, double exact) {
  int exponent;
  std::frexp(exact, &exponent);
  return std::fabs(actual - exact) / std::ldexp(1.0, std::max(exponent - 24, -149));
}

TEST_P(Exp, WithinTwoUlpsFromMinus104ToZero) {
  std::vector<float> xs;
  for (float x = -104.0f; x < 0; x += 0x1p-10f) xs.push_back(x + 0x1p-13f * static_cast<float>(xs.size() % 7));
  Random random(1);
  for (int i = 0; i < 100000; ++i) {
    const float magnitude = std::ldexp(1.0f + 0x1p-23f * static_cast<float>(random.below(1 << 23)),
                                       -static_cast<int>(random.below(30)) + 6);
    xs.push_back(-std::min(magnitude, 104.0f));
  }
  const auto results = exponentials(xs);
  double worst = 0;
  for (size_t i = 0; i < xs.size(); ++i) {
    const double error = ulps(results[i], std::exp(static_cast<double>(xs[i])));
    ASSERT_LE(error, 2.0) << xs[i];
    worst = std::max(worst, error);
  }
  RecordProperty("worst_ulps", std::to_string(worst));
}

TEST_P(Exp, ExactAtTheEdges) {
  const auto results = exponentials({0.0f, -0.0f, -1e-30f, -104.0f, -105.0f, -1000.0f, -3e38f, -INFINITY, -103.9f});
  EXPECT_EQ(results[0], 1.0f);
  EXPECT_EQ(results[1], 1.0f);
  EXPECT_EQ(results[2], 1.0f);
  for (size_t i = 3; i < 8; ++i) {
    EXPECT_EQ(float_bits(results[i]), 0u) << i << ": positive zero";
  }
  EXPECT_EQ(results[8], 0x1p-149f) << "gradual underflow";
}

/// Through silu: gate / (1 + exp(-gate)) for gates of either sign, also where exp(-gate) exceeds one.
TEST_P(Exp, SiluKeepsItsAccuracyOverTheWholeRange) {
  std::vector<float> gate, up, y;
  for (float x = -88.5f; x < 100; x += 0x1p-8f) gate.push_back(x);
  up.assign(gate.size(), 1.0f);
  y.resize(gate.size());
  table().activate_mul(Activation::Silu, 0, gate.data(), up.data(), gate.size(), y.data());
  for (size_t i = 0; i < gate.size(); ++i) {
    const double x = gate[i], exact = x / (1 + std::exp(-x));
    ASSERT_TRUE(close_to(y[i], exact, 8 * kEpsilon * std::fabs(exact) + 1e-44)) << x;
  }
}

INSTANTIATE_TEST_SUITE_P(Sets, Exp, all_sets(), set_name);

}  // namespace
}  // namespace kvfork::kernels
