// The orders of operations of docs/numerics.md in plain scalar code: a set has its bits, not only its value.
#include "tests/kernels/product.h"

namespace kvfork::kernels {
namespace {

class Order : public EachSet {
 protected:
  float multiply_add(float a, float b, float sum) const {
    if (lanes() > 4) return std::fma(a, b, sum);
    const float product = a * b;
    return product + sum;
  }

  static float quad(const float* x) { return (x[0] + x[2]) + (x[1] + x[3]); }
  float sum_lanes(const std::vector<float>& x) const {
    if (lanes() == 4) return quad(&x[0]);
    if (lanes() == 8) return quad(&x[0]) + quad(&x[4]);
    return (quad(&x[0]) + quad(&x[4])) + (quad(&x[8]) + quad(&x[12]));
  }

  /// As few panels of at most 2048 inputs as it takes, of equal length, a multiple of 32, but for the last.
  static size_t panel_inputs(size_t k) {
    const size_t n_panels = (k + 2047) / 2048;
    return ((k + n_panels - 1) / n_panels + 31) / 32 * 32;
  }

  /// Inputs [begin, end) of one row and feature. In bfloat16 weights two neighbours go to one lane, the even place
  /// first; of pairs that are multiplied at once, the odd one. The tail's zeros add nothing.
  float panel_sum(const Product& product, size_t row, size_t feature, size_t begin, size_t end, Element type,
                  bool in_pairs) const {
    std::vector<float> lane(lanes());
    for (size_t n = 0; n < round_up(end - begin, 2); ++n) {
      const size_t i = begin + (in_pairs ? n ^ 1 : n);
      float& sum = lane[(type == Element::BF16 ? n / 2 : n) % lanes()];
      if (i < end) sum = multiply_add(product.x(row, i), product.weight(feature, i), sum);
    }
    return sum_lanes(lane);
  }
};

TEST_P(Order, OfAProduct) {
  const std::string name = table().name;
  for (Element type : kEveryType) {
    if (name.starts_with("amx") && type != Element::F32) continue;  // on tiles: amx_test.cc
    for (Rounding rounding : kEveryRounding) {
      const bool in_pairs = name == "avx512_bf16" && type == Element::BF16 && rounding == Rounding::ToBF16;
      for (size_t n_rows : {1, 3, 29}) {
        for (size_t k : {70, 4099}) {
          constexpr size_t kFeatures = 19;
          Product product(table(), type, rounding, {n_rows, k, kFeatures});
          SCOPED_TRACE(product.name());
          EdgeArray<float> y(n_rows * kFeatures);
          table().matmul(product.args(y.data()));
          for (size_t r = 0; r < n_rows; ++r) {
            for (size_t f = 0; f < kFeatures; ++f) {
              const size_t length = panel_inputs(k);
              float sum = panel_sum(product, r, f, 0, std::min(length, k), type, in_pairs);
              for (size_t begin = length; begin < k; begin += length)
                sum += panel_sum(product, r, f, begin, std::min(begin + length, k), type, in_pairs);
              ASSERT_EQ(float_bits(y[r * kFeatures + f]), float_bits(sum + product.bias(f))) << r << " " << f;
            }
          }
        }
      }
    }
  }
}

/// One sum over the whole row, however long.
TEST_P(Order, OfRmsNorm) {
  constexpr float kEps = 1e-6f;
  for (size_t n : {70, 2304, 4099}) {
    EdgeArray<float> x(n), weight(n), y(n);
    Random random(n);
    random.fill(x);
    random.fill(weight);
    table().norm({.x = x.data(),
                  .weight = weight.data(),
                  .bias = nullptr,
                  .eps = kEps,
                  .subtracts_mean = false,
                  .n = n,
                  .y = y.data()});
    std::vector<float> lane(lanes());
    for (size_t i = 0; i < n; ++i) lane[i % lanes()] = multiply_add(x[i], x[i], lane[i % lanes()]);
    const float scale = 1 / std::sqrt(sum_lanes(lane) / static_cast<float>(n) + kEps);
    for (size_t i = 0; i < n; ++i) {
      const float scaled = x[i] * scale;
      ASSERT_EQ(float_bits(y[i]), float_bits(weight[i] * scaled)) << i << " of " << n;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Sets, Order, all_sets(), set_name);

}  // namespace
}  // namespace kvfork::kernels
