// Kernels keep what they work in where the caller says, so that a thread with a small stack may call them.
#include <pthread.h>

#include "tests/kernels/product.h"

namespace kvfork::kernels {
namespace {

/// Runs `body` on a thread with 64 KiB of stack, below which lies an unmapped page.
template <class Body>
void on_small_stack(Body body) {
  pthread_attr_t attributes;
  ASSERT_EQ(pthread_attr_init(&attributes), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&attributes, 64 * 1024), 0);
  pthread_t thread;
  const auto start = [](void* p) -> void* {
    (*static_cast<Body*>(p))();
    return nullptr;
  };
  ASSERT_EQ(pthread_create(&thread, &attributes, start, &body), 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
}

class SmallStack : public EachSet {};

TEST_P(SmallStack, SufficesForProducts) {
  for (Element type : kEveryType) {
    for (Rounding rounding : kEveryRounding) {
      for (size_t n_rows : {1, 20, 600}) {
        constexpr size_t kFeatures = 64;
        Product product(table(), type, rounding, {n_rows, 1100, kFeatures});
        SCOPED_TRACE(product.name());
        EdgeArray<float> y(n_rows * kFeatures), expected(n_rows * kFeatures);
        EdgeArray<char> packed(table().packed_bytes(n_rows, kFeatures, type));
        table().matmul(product.args(expected.data()));
        MatmulArgs args = product.args(y.data());
        on_small_stack([&] {
          table().matmul(args);
          table().gated(
              {.gate = args, .up = args, .n_features = kFeatures, .out_type = type, .packed = packed.data()});
        });
        EXPECT_TRUE(same_bits(y, expected, y.size()));
      }
    }
  }
}

TEST_P(SmallStack, SufficesForAttention) {
  constexpr size_t kRows = 40, kHeadDim = 256;
  for (Element type : {Element::F32, Element::BF16}) {
    EdgeArray<float> q(kHeadDim), out(kRows * kHeadDim), max(kRows), sum(kRows);
    EdgeArray<char> k(kBlockTokens * kHeadDim * element_bytes(type)), v(k.size());
    const std::vector<const float*> rows(kRows, q.data());
    const std::vector<KeyRange> seen(kRows, {0, kBlockTokens});
    const KvBlockData block{k.data(), v.data()};
    const AttentionArgs args{.q = rows.data(),
                             .seen = seen.data(),
                             .n_rows = kRows,
                             .head_dim = kHeadDim,
                             .scale = 1,
                             .kv_type = type,
                             .blocks = &block,
                             .n_blocks = 1,
                             .result = {max.data(), sum.data(), out.data()},
                             .spare = {},
                             .workspace = make_workspace(table())};
    on_small_stack([&] { table().attention(args); });
    for (size_t r = 0; r < kRows; ++r) EXPECT_EQ(sum[r], kBlockTokens);
  }
}

INSTANTIATE_TEST_SUITE_P(Sets, SmallStack, all_sets(), set_name);

}  // namespace
}  // namespace kvfork::kernels
