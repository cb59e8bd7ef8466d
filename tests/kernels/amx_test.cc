// The amx set on the processor's tiles against the same set on emulated ones: every bit, whatever the numbers.
#include "tests/kernels/kernel_test.h"

#if defined(KVFORK_HAVE_AMX)

namespace kvfork::kernels {
namespace {

/// Neither of a float16 weight's terms is a denormal number, which tiles would take for zero.
TEST(AmxWeights, EveryF16IsTheSumOfTwoBf16Numbers) {
  if (!find_kernel_set("avx512")) GTEST_SKIP() << "this machine has no AVX-512";
  const auto denormal = [](uint16_t bf16) { return (bf16 & 0x7f80) == 0 && (bf16 & 0x7f) != 0; };
  for (uint32_t first = 0; first < 65536; first += 32) {
    uint16_t weights[32], high[32], rest[32];
    for (uint32_t i = 0; i < 32; ++i) weights[i] = static_cast<uint16_t>(first + i);
    split_f16_weights(weights, high, rest);
    for (size_t i = 0; i < 32; ++i) {
      const float weight = f16_to_f32(weights[i]);
      const double a = bf16_to_f32(high[i]), b = bf16_to_f32(rest[i]);
      ASSERT_FALSE(denormal(high[i]) || denormal(rest[i])) << weights[i];
      if (std::isfinite(weight)) {
        ASSERT_EQ(a + b, static_cast<double>(weight)) << weights[i];
        ASSERT_LE(std::fabs(b), std::fabs(a) * 0x1p-7) << weights[i];
      } else {
        ASSERT_TRUE(std::isnan(weight) ? std::isnan(a) : a == static_cast<double>(weight)) << weights[i];
      }
    }
  }
}

/// Activations are packed in the way of the weights: as terms for those on tiles, as float32 numbers for others.
TEST(AmxWeights, TilesTakeEveryTypeButF32) {
  if (!find_kernel_set("avx512")) GTEST_SKIP() << "this machine has no AVX-512";
  constexpr size_t kRows = 7, kInputs = 70;
  const KernelTable& table = emulated_amx_table();
  EdgeArray<float> x(kRows * kInputs);
  Random(1).fill(x);
  const auto packed = [&](const KernelTable& set, Element type) {
    std::vector<char> bytes(set.packed_bytes(kRows, kInputs, type) + 64);
    char* aligned = bytes.data() + 64 - reinterpret_cast<uintptr_t>(bytes.data()) % 64;
    set.pack({.x = x.data(),
              .x_stride = kInputs,
              .row_begin = 0,
              .row_end = kRows,
              .n_rows = kRows,
              .k = kInputs,
              .weight_type = type,
              .rounding = Rounding::None,
              .packed = aligned});
    return std::string(aligned, set.packed_bytes(kRows, kInputs, type));
  };
  EXPECT_EQ(packed(table, Element::F16), packed(table, Element::BF16));
  EXPECT_NE(packed(table, Element::F16), packed(*find_kernel_set("avx512"), Element::F16));
  EXPECT_EQ(packed(table, Element::F32), packed(*find_kernel_set("avx512"), Element::F32));
}

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

/// Of float16 the tiny ones are denormal; what they meet is then smaller still.
constexpr int kTinyF16Scale = -46;

uint16_t draw_weight(Random& random, Numbers numbers, Element type) {
  if (type == Element::BF16) return static_cast<uint16_t>(float_bits(draw(random, numbers)) >> 16);
  if (numbers == Numbers::Plain) return f32_to_f16(draw(random, numbers));
  const auto bits = static_cast<uint16_t>(random.below(65536));
  if (numbers == Numbers::Any || (numbers == Numbers::Finite && std::isfinite(f16_to_f32(bits)))) return bits;
  return bits & 0x83ff;
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

  void product(const KernelTable& table, Shape shape, Element type, Rounding rounding, const EdgeArray<float>& x,
               const EdgeArray<uint16_t>& weight, EdgeArray<float>& y) {
    EdgeArray<char> packed(table.packed_bytes(shape.n_rows, shape.k, type));
    table.pack({.x = x.data(),
                .x_stride = shape.k,
                .row_begin = 0,
                .row_end = shape.n_rows,
                .n_rows = shape.n_rows,
                .k = shape.k,
                .weight_type = type,
                .rounding = rounding,
                .packed = packed.data()});
    table.matmul({.weight = weight.data(),
                  .weight_type = type,
                  .rounding = rounding,
                  .packed = packed.data(),
                  .n_rows = shape.n_rows,
                  .row_begin = 0,
                  .row_end = shape.n_rows,
                  .k = shape.k,
                  .feature_begin = 0,
                  .feature_end = shape.n_features,
                  .bias = nullptr,
                  .y = y.data(),
                  .y_stride = shape.n_features,
                  .workspace = make_workspace(table)});
  }

  void expect_same(Shape shape, Element type, Rounding rounding, const EdgeArray<float>& x,
                   const EdgeArray<uint16_t>& weight) {
    const size_t n = shape.n_rows * shape.n_features;
    EdgeArray<float> y(n), twin(n);
    product(*tiles_, shape, type, rounding, x, weight, y);
    product(emulated_amx_table(), shape, type, rounding, x, weight, twin);
    EXPECT_TRUE(same_bits_or_nan(y, twin));
  }

  const KernelTable* tiles_ = find_kernel_set("amx");
};

TEST_F(Amx, ProductsHaveTheBitsOfTheTwin) {
  const Shape shapes[] = {{1, 1, 1},    {1, 33, 17},   {3, 64, 40},   {5, 100, 33},  {6, 31, 16},
                          {16, 96, 32}, {17, 257, 50}, {37, 130, 70}, {115, 50, 35}, {131, 1030, 35}};
  for (Element type : {Element::F16, Element::BF16}) {
    for (Numbers numbers : {Numbers::Plain, Numbers::Tiny, Numbers::Finite, Numbers::Any}) {
      for (Rounding rounding : {Rounding::None, Rounding::ToBF16}) {
        for (Shape shape : shapes) {
          SCOPED_TRACE(testing::Message() << numbers_name(numbers) << (type == Element::F16 ? " f16" : " bf16")
                                          << (rounding == Rounding::None ? "" : " rounded") << ", rows "
                                          << shape.n_rows << " k " << shape.k << " features " << shape.n_features);
          Random random(shape.k * 31 + shape.n_rows);
          EdgeArray<float> x(shape.n_rows * shape.k);
          EdgeArray<uint16_t> weight(shape.n_features * shape.k);
          const int scale = type == Element::F16 && numbers == Numbers::Tiny ? kTinyF16Scale : 0;
          for (size_t i = 0; i < x.size(); ++i) x.set(i, std::ldexp(draw(random, numbers), scale));
          for (size_t i = 0; i < weight.size(); ++i) weight.set(i, draw_weight(random, numbers, type));
          expect_same(shape, type, rounding, x, weight);
        }
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
    product(*tiles_, {1, 4, 1}, Element::BF16, Rounding::ToBF16, x, weight, y);
    EXPECT_EQ(y[0], little == 0x1p-76f ? 0x1p-126f : 0.0f);
    expect_same({1, 4, 1}, Element::BF16, Rounding::ToBF16, x, weight);
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
      std::vector<KeyRange> seen(n_rows, {0, kBlockTokens});
      const KvBlockData block{k.data(), v.data()};
      if (n_rows > 3) seen[3] = {0, 40};
      if (n_rows > 4) seen[4] = {7, kBlockTokens};
      EdgeArray<float> results[2] = {EdgeArray<float>(n_rows * (stride + 2)),
                                     EdgeArray<float>(n_rows * (stride + 2))};
      for (int twin = 0; twin < 2; ++twin) {
        float* out = results[twin].data();
        const KernelTable& table = twin ? emulated_amx_table() : *tiles_;
        table.attention({.q = rows.data(),
                         .seen = seen.data(),
                         .n_rows = n_rows,
                         .head_dim = head_dim,
                         .scale = 1 / std::sqrt(static_cast<float>(head_dim)),
                         .kv_type = Element::BF16,
                         .blocks = &block,
                         .n_blocks = 1,
                         .result = {out + n_rows * stride, out + n_rows * (stride + 1), out},
                         .spare = {},
                         .workspace = make_workspace(table)});
      }
      EXPECT_TRUE(same_bits_or_nan(results[0], results[1]));
    }
  }
}

}  // namespace
}  // namespace kvfork::kernels

#endif
