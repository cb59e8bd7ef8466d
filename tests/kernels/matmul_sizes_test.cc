// What a set says of sizes: features of an item of work, bytes of packed rows.
#include "tests/kernels/product.h"

namespace kvfork::kernels {
namespace {

constexpr size_t kWidths[] = {0, 1, 31, 100, 512, 1024, 2048, 2049, 4096, 4100, 4864};

class Sizes : public EachSet {};

TEST_P(Sizes, ItemsAreWholeLinesOfOutputs) {
  for (Element type : kEveryType) {
    for (size_t n_rows : {1, 4, 64}) {
      for (size_t k : kWidths) {
        const size_t n = table().item_features(n_rows, k, type);
        EXPECT_GT(n, 0u) << n_rows << " rows of " << k;
        EXPECT_EQ(n % 16, 0u) << n_rows << " rows of " << k;
      }
    }
  }
}

TEST_P(Sizes, AnItemOfOneRowReadsAsManyBytesAsFit) {
  for (Element type : kEveryType) {
    const bool is_on_tiles = std::string(table().name).starts_with("amx") && type != Element::F32;
    const size_t least = is_on_tiles ? 32 : 16, most_bytes = (is_on_tiles ? 256 : 128) * 1024;
    for (size_t k : kWidths) {
      const size_t n = table().item_features(1, k, type), bytes = k * element_bytes(type);
      EXPECT_TRUE(n * bytes <= most_bytes || n == least) << n << " of " << k;
      EXPECT_TRUE((n + least) * bytes > most_bytes || k == 0) << n << " of " << k;
    }
  }
}

TEST_P(Sizes, PackedBytesGrowWithRows) {
  for (Element type : kEveryType) {
    for (size_t k : kWidths) {
      for (size_t n_rows = 1; n_rows <= 70; ++n_rows) {
        const size_t bytes = table().packed_bytes(n_rows, k, type);
        EXPECT_EQ(bytes % 64, 0u) << n_rows << " rows of " << k;
        EXPECT_GE(bytes, table().packed_bytes(n_rows - 1, k, type)) << n_rows << " rows of " << k;
      }
    }
  }
}

/// By and large: in panels that are multiples of 256 inputs a row has a line more, so 4100 inputs take less than
/// 4096.
TEST_P(Sizes, PackedBytesGrowWithInputs) {
  for (Element type : kEveryType) {
    for (size_t n_rows : {1, 5, 6, 37}) {
      size_t before = 0;
      for (size_t k : {0, 1, 31, 100, 512, 1024, 2048, 4096, 4864}) {
        const size_t bytes = table().packed_bytes(n_rows, k, type);
        EXPECT_GE(bytes, before) << n_rows << " rows of " << k;
        before = bytes;
      }
    }
  }
}

/// The array ends at an unmapped page.
TEST_P(Sizes, PackedBytesSuffice) {
  for (Element type : kEveryType) {
    for (Rounding rounding : kEveryRounding) {
      for (size_t n_rows : {1, 5, 6, 17, 37}) {
        for (size_t k : kWidths) {
          EdgeArray<float> x(n_rows * k);
          EdgeArray<char> packed(table().packed_bytes(n_rows, k, type));
          table().pack({.x = x.data(),
                        .x_stride = k,
                        .row_begin = 0,
                        .row_end = n_rows,
                        .n_rows = n_rows,
                        .k = k,
                        .weight_type = type,
                        .rounding = rounding,
                        .packed = packed.data()});
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Sets, Sizes, all_sets(), set_name);

}  // namespace
}  // namespace kvfork::kernels
