// The amx set on the processor's tiles against the same set on emulated ones: every bit, whatever the numbers.
#include "tests/kernels/kernel_test.h"

#if defined(KVFORK_HAVE_AMX)

namespace kvfork::kernels {
namespace {

/// What the numbers of a product are: everyday ones, ones whose products and sums lie about the smallest normal
/// number, any finite ones, and any at all.
enum class Numbers { Plain, Tiny, Finite, Any };

const char* numbers_name(Numbers numbers) {
  const char* names[] = {"plain", "tiny", "finite", "any"};
  return names[static_cast<int>(numbers)];
}

float draw(Random& random, Numbers numbers) {
  const auto bits = [&] { return static_cast<uint32_t>(random.below(uint64_t{1} << 32)); };
  if (numbers == Numbers::Plain) return random.next();
  if (numbers == Numbers::Tiny) return std::ldexp(random.next(), -58 - static_cast<int>(random.below(12)));
  const float x = bits_float(bits());
  if (numbers == Numbers::Any || std::isfinite(x)) return x;
  return bits_float(bits() & 0x007fffffu);  // instead of an infinity or NaN, a denormal number
}

/// NaN has many encodings, of which the manual promises none.
testing::AssertionResult same_bits_or_nan(const EdgeArray<float>& a, const EdgeArray<float>& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) && std::isnan(b[i])) continue;
    if (float_bits(a[i]) != float_bits(b[i]))
      return testing::AssertionFailure() << "at " << i << ": " << std::hexfloat << a[i] << ", " << b[i];
  }
  return testing::AssertionSuccess();
}

struct Shape {
  size_t n_rows, k, n_features;
};

class Amx : public testing::Test {
 protected:
  void SetUp() override {
    if (!tiles_) GTEST_SKIP() << "this machine has no AMX";
  }

  void product(const KernelTable& table, Shape shape, Rounding rounding, const EdgeArray<float>& x,
               const EdgeArray<uint16_t>& weight, EdgeArray<float>& y) {
    EdgeArray<char> packed(table.packed_bytes(shape.n_rows, shape.k, Element::BF16));
    table.pack({.x = x.data(),
                .x_stride = shape.k,
                .row_begin = 0,
                .row_end = shape.n_rows,
                .n_rows = shape.n_rows,
                .k = shape.k,
                .weight_type = Element::BF16,
                .rounding = rounding,
                .packed = packed.data()});
    table.matmul({.weight = weight.data(),
                  .weight_type = Element::BF16,
                  .rounding = rounding,
                  .packed = packed.data(),
                  .n_rows = shape.n_rows,
                  .k = shape.k,
                  .feature_begin = 0,
                  .feature_end = shape.n_features,
                  .bias = nullptr,
                  .y = y.data(),
                  .y_stride = shape.n_features});
  }

  void expect_same(Shape shape, Rounding rounding, const EdgeArray<float>& x, const EdgeArray<uint16_t>& weight) {
    const size_t n = shape.n_rows * shape.n_features;
    EdgeArray<float> y(n), twin(n);
    product(*tiles_, shape, rounding, x, weight, y);
    product(emulated_amx_table(), shape, rounding, x, weight, twin);
    EXPECT_TRUE(same_bits_or_nan(y, twin));
  }

  const KernelTable* tiles_ = find_kernel_set("amx");
};

TEST_F(Amx, ProductsHaveTheBitsOfTheTwin) {
  const Shape shapes[] = {{1, 1, 1},    {1, 33, 17},   {3, 64, 40},   {5, 100, 33}, {6, 31, 16},
                          {16, 96, 32}, {17, 257, 50}, {37, 130, 70}, {115, 50, 35}};
  for (Numbers numbers : {Numbers::Plain, Numbers::Tiny, Numbers::Finite, Numbers::Any}) {
    for (Rounding rounding : {Rounding::None, Rounding::ToBF16}) {
      for (Shape shape : shapes) {
        SCOPED_TRACE(testing::Message()
                     << numbers_name(numbers) << (rounding == Rounding::None ? "" : " rounded") << ", rows "
                     << shape.n_rows << " k " << shape.k << " features " << shape.n_features);
        Random random(shape.k * 31 + shape.n_rows);
        EdgeArray<float> x(shape.n_rows * shape.k);
        EdgeArray<uint16_t> weight(shape.n_features * shape.k);
        for (size_t i = 0; i < x.size(); ++i) x.set(i, draw(random, numbers));
        for (size_t i = 0; i < weight.size(); ++i)
          weight.set(i, static_cast<uint16_t>(float_bits(draw(random, numbers)) >> 16));
        expect_same(shape, rounding, x, weight);
      }
    }
  }
}

/// 2^-126 less a little: 24 bits keep three quarters of 2^-150 as a number that is too small, and flushed to zero;
/// a half rounds back to 2^-126. Denormal numbers, with fewer bits, would round both so.
TEST_F(Amx, WhatIsTooSmallIsFlushedAfterRounding) {
  for (float little : {0x1.8p-76f, 0x1p-76f}) {
    EdgeArray<float> x(4), y(1);
    EdgeArray<uint16_t> weight(4);
    const float values[] = {0x1p-63f, 0, -little, 0}, weights[] = {0x1p-63f, 0, 0x1p-75f, 0};
    for (size_t i = 0; i < 4; ++i) {
      x.set(i, values[i]);
      weight.set(i, f32_to_bf16(weights[i]));
    }
    product(*tiles_, {1, 4, 1}, Rounding::ToBF16, x, weight, y);
    EXPECT_EQ(y[0], little == 0x1p-76f ? 0x1p-126f : 0.0f);
    expect_same({1, 4, 1}, Rounding::ToBF16, x, weight);
  }
}

/// Rows that see the whole block take the tiles.
TEST_F(Amx, AttentionHasTheBitsOfTheTwin) {
  for (size_t head_dim : {16, 33, 64, 80, 128, 256}) {
    for (size_t n_rows : {1, 5, 16, 35}) {
      SCOPED_TRACE(testing::Message() << "head_dim " << head_dim << " rows " << n_rows);
      Random random(head_dim + n_rows);
      const size_t stride = value_stride(head_dim);
      EdgeArray<float> q(n_rows * head_dim), kv(2 * kBlockTokens * head_dim);
      random.fill(q);
      random.fill(kv);
      EdgeArray<uint16_t> k(kBlockTokens * head_dim), v(kBlockTokens * stride);
      tiles_->store_kv({.k = kv.data(),
                        .k_stride = head_dim,
                        .v = kv.data() + kBlockTokens * head_dim,
                        .v_stride = head_dim,
                        .n_tokens = kBlockTokens,
                        .head_dim = head_dim,
                        .slot = 0,
                        .kv_type = Element::BF16,
                        .k_block = k.data(),
                        .v_block = v.data()});
      std::vector<const float*> rows;
      for (size_t r = 0; r < n_rows; ++r) rows.push_back(q.data() + r * head_dim);
      std::vector<uint32_t> n_valid(n_rows, kBlockTokens);
      if (n_rows > 3) n_valid[3] = 40;
      EdgeArray<float> results[2] = {EdgeArray<float>(n_rows * (stride + 2)),
                                     EdgeArray<float>(n_rows * (stride + 2))};
      for (int twin = 0; twin < 2; ++twin) {
        float* out = results[twin].data();
        (twin ? emulated_amx_table() : *tiles_)
            .attention_block({.q = rows.data(),
                              .n_valid = n_valid.data(),
                              .n_rows = n_rows,
                              .head_dim = head_dim,
                              .scale = 1 / std::sqrt(static_cast<float>(head_dim)),
                              .kv_type = Element::BF16,
                              .k_block = k.data(),
                              .v_block = v.data(),
                              .max = out + n_rows * stride,
                              .sum = out + n_rows * (stride + 1),
                              .out = out});
      }
      EXPECT_TRUE(same_bits_or_nan(results[0], results[1]));
    }
  }
}

}  // namespace
}  // namespace kvfork::kernels

#endif
