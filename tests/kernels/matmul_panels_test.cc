// Products whose inputs are cut into several panels (docs/numerics.md): partial sums wait in y meanwhile.
#include "tests/kernels/product.h"
#include "tests/reference/kernels.h"

namespace kvfork::kernels {
namespace {

class Panels : public EachSet {
 protected:
  /// Calls check(product) for every type, rounding and shape, until one fails.
  template <class Check>
  void for_products(std::initializer_list<Product::Shape> shapes, const Check& check) {
    for (Element type : kEveryType) {
      for (Rounding rounding : kEveryRounding) {
        for (const Product::Shape& shape : shapes) {
          Product product(table(), type, rounding, shape);
          SCOPED_TRACE(product.name());
          check(product, shape);
          if (HasFailure()) return;
        }
      }
    }
  }
};

TEST_P(Panels, WhatYHeldBeforeMeansNothing) {
  for (size_t k : {0, 100, 2048, 2049, 4099}) {
    for_products({{1, k, 77}, {1, k, 5}, {3, k, 35}, {6, k, 7}, {29, k, 77}},
                 [&](Product& product, Product::Shape shape) {
                   const size_t n = shape.n_rows * shape.n_features;
                   EdgeArray<float> zeros(n), nans(n);
                   for (size_t i = 0; i < n; ++i) nans.set(i, std::nanf(""));
                   table().matmul(product.args(zeros.data()));
                   table().matmul(product.args(nans.data()));
                   EXPECT_TRUE(same_bits(nans, zeros, n));
                 });
  }
}

/// Several chunks of features too.
TEST_P(Panels, BitsDoNotDependOnRowsOrRanges) {
  for_products({{14, 2049, 141}, {13, 4096, 70}, {19, 4099, 141}}, [&](Product& product, Product::Shape shape) {
    const auto [n_rows, k, n_features] = shape;
    EdgeArray<float> together(n_rows * n_features), part(n_rows * n_features);
    table().matmul(product.args(together.data()));
    for (size_t r = 0; r < n_rows; ++r) table().matmul(product.rows(r, r + 1, part.data() + r * n_features));
    EXPECT_TRUE(same_bits(part, together, n_rows * n_features)) << "each row alone";

    Random random(k);
    for (size_t begin = 0; begin < n_features;) {
      MatmulArgs args = product.args(part.data());
      args.feature_begin = begin;
      args.feature_end = begin += std::min(1 + random.below(90), n_features - begin);
      table().matmul(args);
    }
    EXPECT_TRUE(same_bits(part, together, n_rows * n_features)) << "split over features";

    for (size_t begin = 0; begin < n_rows;) {
      const size_t end = begin + std::min(1 + random.below(9), n_rows - begin);
      table().matmul(product.rows(begin, end, part.data() + begin * n_features));
      begin = end;
    }
    EXPECT_TRUE(same_bits(part, together, n_rows * n_features)) << "split over rows";
  });
}

/// Rows of what was packed together, from a multiple of 16 on.
TEST_P(Panels, BitsDoNotDependOnRangesOfPackedRows) {
  for_products({{5, 70, 35}, {47, 1100, 70}, {131, 2049, 35}, {640, 33, 35}},
               [&](Product& product, Product::Shape shape) {
                 const size_t n = shape.n_rows * shape.n_features;
                 EdgeArray<float> together(n), part(n);
                 table().matmul(product.args(together.data()));
                 Random random(n);
                 for (size_t begin = 0; begin < shape.n_rows;) {
                   MatmulArgs args = product.args(part.data());
                   args.row_begin = begin;
                   args.row_end = begin = std::min(begin + 16 * (1 + random.below(4)), shape.n_rows);
                   table().matmul(args);
                 }
                 EXPECT_TRUE(same_bits(part, together, n));
               });
}

TEST_P(Panels, RoundedActivationsAgreeWithTwin) {
  const bool is_on_tiles = std::string(table().name).starts_with("amx");
  for_products(
      {{1, 2049, 5}, {7, 2049, 6}, {1, 4097, 5}, {7, 4097, 6}}, [&](Product& product, Product::Shape shape) {
        // The longest chain: a lane's share of a panel, rounded twice where not fused, the lanes, the panels, the
        // bias. On tiles as in matmul_test.cc.
        const double chain =
            is_on_tiles ? 20 + static_cast<double>(shape.k) / 32 : 2.0 * 2048 / static_cast<double>(lanes()) + 10;
        EdgeArray<float> y(shape.n_rows * shape.n_features);
        table().matmul(product.args(y.data()));
        for (size_t r = 0; r < shape.n_rows; ++r) {
          for (size_t f = 0; f < shape.n_features; ++f) {
            reference::Row x(shape.k), weight(shape.k);
            for (size_t i = 0; i < shape.k; ++i) x[i] = product.x(r, i), weight[i] = product.weight(f, i);
            const auto exact = reference::dot(x, weight, product.bias(f));
            EXPECT_TRUE(close_to(y[r * shape.n_features + f], exact.value, chain * kEpsilon * exact.magnitude))
                << r << " " << f;
          }
        }
      });
}

/// The last run first: none writes what another has.
TEST_P(Panels, PacksTheSameInRunsOfItsOwnSize) {
  for (Element type : kEveryType) {
    for (Rounding rounding : kEveryRounding) {
      for (size_t n_rows : {1, 5, 6, 37}) {
        for (size_t k : {2049, 4100}) {
          const size_t bytes = table().packed_bytes(n_rows, k, type);
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
                        .rounding = rounding,
                        .packed = all.data()};
          table().pack(args);
          args.packed = runs.data();
          for (args.row_end = n_rows; args.row_end > 0; args.row_end = args.row_begin) {
            args.row_begin = (args.row_end - 1) / table().pack_rows * table().pack_rows;
            args.x = x.data() + args.row_begin * k;
            table().pack(args);
          }
          EXPECT_EQ(std::memcmp(all.data(), runs.data(), bytes), 0)
              << element_bytes(type) << " bytes, " << n_rows << " rows of " << k;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Sets, Panels, all_sets(), set_name);

}  // namespace
}  // namespace kvfork::kernels
