// Products against a twin in double precision, and a row's bits in any tile, chunk and range.

#include <tuple>

#include "tests/kernels/kernel_test.h"
#include "tests/kernels/product.h"
#include "tests/reference/kernels.h"

namespace kvfork::kernels {
namespace {

const char* type_name(Element type) {
  return type == Element::F32 ? "f32" : type == Element::F16 ? "f16" : "bf16";
}

class Matmul : public EachSet {
 protected:
  bool is_on_tiles() const { return std::string(table().name).starts_with("amx"); }

  /// Each accumulator takes k / lanes + 1 products (two roundings where not fused), then the reduction and the
  /// bias.
  double tolerance(size_t k, double magnitude) const {
    // On tiles two chains of 16 products, their sum, one addition for each 32 inputs, then those of the terms' sums
    // (of float16 weights too) and the bias. The first of a chain does not round.
    if (is_on_tiles()) return (16 + 4 + static_cast<double>(k) / 32) * kEpsilon * magnitude + 1e-30;
    return (2.0 * static_cast<double>(k / lanes() + 1) + 6) * kEpsilon * magnitude + 1e-30;
  }
};

TEST_P(Matmul, AgreesWithTwin) {
  const size_t ks[] = {0, 1, 2, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 257, 896, 1021, 2048, 4871};
  const std::pair<size_t, size_t> shapes[] = {{1, 1}, {1, 5}, {2, 3}, {3, 4}, {5, 7}, {6, 8}, {7, 9}, {13, 66}};
  for (Element type : kEveryType) {
    for (size_t k : ks) {
      for (auto [n_rows, n_features] : shapes) {
        SCOPED_TRACE(testing::Message()
                     << type_name(type) << " k " << k << " rows " << n_rows << " features " << n_features);
        const size_t shift = k % 3 == 0 ? 1 : 0;  // odd addresses
        Product problem(table(), type, Rounding::None, {n_rows, k, n_features}, shift);
        EdgeArray<float> y(n_rows * n_features);
        table().matmul(problem.args(y));
        for (size_t r = 0; r < n_rows; ++r) {
          for (size_t f = 0; f < n_features; ++f) {
            const auto exact = reference::dot(problem.row(r), problem.weights(f), problem.bias(f));
            ASSERT_TRUE(close_to(y[r * n_features + f], exact.value, tolerance(k, exact.magnitude)))
                << r << " " << f;
          }
        }
      }
    }
  }
}

TEST_P(Matmul, NoBiasIsNoAddition) {
  Product problem(table(), Element::BF16, Rounding::None, {3, 100, 6});
  EdgeArray<float> y(18), without(18);
  MatmulArgs args = problem.args(without);
  args.bias = nullptr;
  table().matmul(args);
  table().matmul(problem.args(y));
  for (size_t i = 0; i < 18; ++i) EXPECT_EQ(y[i], without[i] + problem.bias(i % 6));
}

TEST_P(Matmul, RoundsActivationsToBf16) {
  for (Element type : kEveryType) {
    for (size_t k : {7, 31, 133, 896}) {
      Product problem(table(), type, Rounding::None, {7, k, 6});
      problem.set_x(0, 0, bits_float(0x3f808000u));  // halfway: to even, down
      problem.set_x(0, 1, bits_float(0x3f818000u));  // halfway: to even, up
      problem.set_x(0, 2, bits_float(0x3f808001u));
      problem.set_x(0, 3, 1e-40f);
      problem.pack(Rounding::ToBF16);
      EdgeArray<float> y(42), again(42);
      table().matmul(problem.args(y));
      for (size_t r = 0; r < 7; ++r) {
        for (size_t i = 0; i < k; ++i) problem.set_x(r, i, bf16_to_f32(f32_to_bf16(problem.x(r, i))));
      }
      for (size_t r = 0; r < 7; ++r) {
        for (size_t f = 0; f < 6; ++f) {
          const auto exact = reference::dot(problem.row(r), problem.weights(f), problem.bias(f));
          ASSERT_TRUE(close_to(y[r * 6 + f], exact.value, tolerance(k, exact.magnitude))) << type_name(type) << k;
        }
      }
      problem.pack(Rounding::ToBF16);
      table().matmul(problem.args(again));
      EXPECT_TRUE(same_bits(y, again, 42)) << type_name(type) << k;
    }
  }
}

/// Numbers that a split into shorter ones could lose: the largest and the smallest, and infinities, with every
/// type.
TEST_P(Matmul, KeepsExtremeActivations) {
  for (Element type : kEveryType) {
    for (float x : {3.4028235e38f, -3.4028235e38f, 1.1754944e-38f, bits_float(0x3f7fffffu), INFINITY, -INFINITY}) {
      for (size_t n_rows : {1, 7}) {
        Product problem(table(), type, Rounding::None, {n_rows, 40, 1});
        for (size_t i = 0; i < 40; ++i) problem.set_weight(0, i, i == 17 ? 1.0f : 0.5f);
        for (size_t r = 0; r < n_rows; ++r) {
          for (size_t i = 0; i < 40; ++i) problem.set_x(r, i, i == 17 ? x : 0.0f);
        }
        problem.pack(Rounding::None);
        EdgeArray<float> y(n_rows);
        MatmulArgs args = problem.args(y);
        args.bias = nullptr;
        table().matmul(args);
        for (size_t r = 0; r < n_rows; ++r) EXPECT_EQ(y[r], x) << type_name(type) << " of " << n_rows << " rows";
      }
    }
  }
}

TEST_P(Matmul, KeepsInfiniteWeights) {
  for (Element type : kEveryType) {
    for (Rounding rounding : {Rounding::None, Rounding::ToBF16}) {
      for (float infinity : {INFINITY, -INFINITY}) {
        Product problem(table(), type, Rounding::None, {7, 40, 3});
        const uint32_t bits = type == Element::F16 ? 0x7c00u | (infinity < 0 ? 0x8000u : 0u)
                                                   : float_bits(infinity) >> (type == Element::BF16 ? 16 : 0);
        problem.set_weight_bits(1, 17, bits);
        for (size_t r = 0; r < 7; ++r) problem.set_x(r, 17, 2.0f);  // a number whose other terms are zero
        problem.pack(rounding);
        EdgeArray<float> y(21);
        table().matmul(problem.args(y));
        for (size_t r = 0; r < 7; ++r) {
          EXPECT_EQ(y[r * 3 + 1], infinity) << type_name(type);
          EXPECT_TRUE(std::isfinite(y[r * 3]) && std::isfinite(y[r * 3 + 2])) << type_name(type);
        }
      }
    }
  }
}

/// Weights are exact in every mode, denormal ones too, whatever terms a set takes them in.
TEST_P(Matmul, EveryF16WeightIsExact) {
  constexpr size_t kPatterns = 65536;
  Product problem(table(), Element::F16, Rounding::None, {1, 1, kPatterns});
  for (uint32_t bits = 0; bits < kPatterns; ++bits) problem.set_weight_bits(bits, 0, bits);
  for (Rounding rounding : {Rounding::None, Rounding::ToBF16}) {
    for (float x : {1.0f, -0x1p-60f}) {
      problem.set_x(0, 0, x);
      problem.pack(rounding);
      EdgeArray<float> y(kPatterns);
      MatmulArgs args = problem.args(y);
      args.bias = nullptr;
      table().matmul(args);
      for (uint32_t bits = 0; bits < kPatterns; ++bits) {
        const float expected = x * f16_to_f32(static_cast<uint16_t>(bits));
        ASSERT_TRUE(std::isnan(expected) ? std::isnan(y[bits]) : y[bits] == expected) << bits << ": " << y[bits];
      }
    }
  }
}

TEST_P(Matmul, RoundingKeepsNanAndInfinity) {
  Product problem(table(), Element::F32, Rounding::None, {2, 40, 1});
  problem.set_x(0, 39, bits_float(0x7fffffffu));  // adding to these bits would carry into the sign
  problem.set_x(1, 17, INFINITY);
  problem.set_weight(0, 17, 1.0f);
  problem.pack(Rounding::ToBF16);
  EdgeArray<float> y(2);
  table().matmul(problem.args(y));
  EXPECT_TRUE(std::isnan(y[0]));
  EXPECT_EQ(y[1], INFINITY);
}

/// The contract of kernels.h: a row's bits are those it has alone, whatever the tile, the chunk and the range.
TEST_P(Matmul, BitsDoNotDependOnRowsOrRanges) {
  struct Shape {
    size_t k, n_rows, n_features;
  };
  const Shape shapes[] = {{1, 29, 141},    {50, 115, 70},  {896, 37, 141},
                          {1030, 131, 35}, {2053, 15, 37}, {4864, 15, 37}};
  for (Element type : kEveryType) {
    for (Rounding rounding : {Rounding::None, Rounding::ToBF16}) {
      for (auto [k, n_rows, n_features] : shapes) {
        SCOPED_TRACE(testing::Message()
                     << type_name(type) << " k " << k << (rounding == Rounding::None ? "" : " rounded"));
        Product problem(table(), type, Rounding::None, {n_rows, k, n_features});
        problem.pack(rounding);
        EdgeArray<float> together(n_rows * n_features), alone(n_features), part(n_rows * n_features);
        table().matmul(problem.args(together));
        for (size_t r = 0; r < n_rows; ++r) {
          table().matmul(problem.rows(r, r + 1, alone.data()));
          ASSERT_TRUE(same_bits(alone, together.data() + r * n_features, n_features)) << "row " << r;
        }
        Random random(k);
        for (size_t begin = 0; begin < n_features;) {
          MatmulArgs args = problem.args(part);
          args.feature_begin = begin;
          args.feature_end = begin += std::min(1 + random.below(30), n_features - begin);
          table().matmul(args);
        }
        ASSERT_TRUE(same_bits(part, together, n_rows * n_features)) << "split over features";
        for (size_t first = 0; first < n_rows;) {
          const size_t end = first + std::min(1 + random.below(9), n_rows - first);
          MatmulArgs args = problem.rows(first, end, part.data() + first * n_features);
          first = end;
          table().matmul(args);
        }
        ASSERT_TRUE(same_bits(part, together, n_rows * n_features)) << "split over rows";
      }
    }
  }
}

TEST_P(Matmul, ARowDoesNotSeeAnotherRowsNan) {
  Product problem(table(), Element::BF16, Rounding::None, {9, 70, 11});
  EdgeArray<float> clean(99), dirty(99);
  table().matmul(problem.args(clean));
  for (size_t i = 0; i < 70; ++i) problem.set_x(4, i, std::nanf(""));
  problem.pack(Rounding::None);
  table().matmul(problem.args(dirty));
  for (size_t r = 0; r < 9; ++r) {
    if (r == 4) continue;
    EXPECT_TRUE(same_bits(dirty.data() + r * 11, clean.data() + r * 11, 11)) << r;
  }
  EXPECT_TRUE(std::isnan(dirty[4 * 11]));
}

TEST_P(Matmul, WritesOnlyItsRange) {
  Product problem(table(), Element::F16, Rounding::None, {7, 33, 20});
  EdgeArray<float> y(7 * 20);
  for (size_t i = 0; i < y.size(); ++i) y.set(i, -7.0f);
  MatmulArgs args = problem.args(y);
  args.feature_begin = 5;
  args.feature_end = 12;
  table().matmul(args);
  for (size_t i = 0; i < y.size(); ++i) {
    if (i % 20 < 5 || i % 20 >= 12) {
      EXPECT_EQ(y[i], -7.0f) << i;
    }
  }
  args.feature_end = 5;
  table().matmul(args);
  args.n_rows = args.row_end = 0;
  args.feature_end = 20;
  table().matmul(args);
  EXPECT_EQ(y[12], -7.0f);
}

TEST_P(Matmul, PacksTheSameInRunsOfItsOwnSize) {
  for (Element type : kEveryType) {
    for (size_t n_rows : {1, 3, 5, 6, 16, 37}) {
      for (size_t k : {1, 31, 32, 33, 100, 1024, 2048}) {
        const size_t bytes = table().packed_bytes(n_rows, k, type);
        ASSERT_EQ(bytes % 64, 0u);
        EdgeArray<float> x(n_rows * k);
        Random(k).fill(x);
        EdgeArray<char> all(bytes), runs(bytes);
        PackArgs args{.x = x.data(),
                      .x_stride = k,
                      .row_begin = 0,
                      .row_end = n_rows,
                      .n_rows = n_rows,
                      .k = k,
                      .weight_type = type,
                      .rounding = Rounding::None,
                      .packed = all.data()};
        table().pack(args);
        args.packed = runs.data();
        for (args.row_begin = 0; args.row_begin < n_rows; args.row_begin = args.row_end) {
          args.x = x.data() + args.row_begin * k;
          args.row_end = std::min(n_rows, args.row_begin + table().pack_rows);
          table().pack(args);
        }
        EXPECT_EQ(std::memcmp(all.data(), runs.data(), bytes), 0) << type_name(type) << " " << n_rows << " " << k;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Sets, Matmul, all_sets(), set_name);

}  // namespace
}  // namespace kvfork::kernels
