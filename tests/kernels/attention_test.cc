// Attention kernels against a twin in double precision, and a row's bits in any company.

#include "tests/kernels/attention_block.h"

namespace kvfork::kernels {
namespace {

class Attention : public EachSet {
 protected:
  void run(Block& block, Result& result) {
    table().attention(block.args(result.max.data(), result.sum.data(), result.out.data()));
  }
  void expect_agrees(Block& block, const Result& result, size_t row, size_t head_dim) {
    const auto exact = block.exact(row);
    // A score is off by the roundings of head_dim products; so is the maximum; exp turns that into relative error.
    // On tiles the query is rounded to bfloat16 first, and so is p.
    const double rounding = block.is_bf16() && std::string(table().name).starts_with("amx") ? 0x1p-8 : 0;
    const double score_error =
        ((2.0 * static_cast<double>(head_dim) + 2) * kEpsilon + rounding) * block.score_magnitude(row) +
        block.cap_error() + 1e-30;
    const double p_error = std::expm1(2 * score_error) + 4 * kEpsilon + rounding;
    const double n = block.seen(row).last - block.seen(row).first;
    EXPECT_TRUE(close_to(result.max[row], exact.max, score_error)) << "max of row " << row;
    const double sum_tolerance = (p_error + 80 * kEpsilon) * exact.sum;
    ASSERT_TRUE(close_to(result.sum[row], exact.sum, sum_tolerance)) << "sum of row " << row;
    const double tolerance = (p_error + 2 * n * kEpsilon) * exact.sum * block.largest_value();
    for (size_t d = 0; d < head_dim; ++d) {
      ASSERT_TRUE(close_to(result.out[row * block.stride() + d], exact.out[d], tolerance)) << row << " " << d;
    }
    for (size_t d = head_dim; d < block.stride(); ++d) ASSERT_EQ(result.out[row * block.stride() + d], 0.0f);
  }
};

TEST_P(Attention, AgreesWithTwin) {
  for (Element type : kKvTypes) {
    for (size_t head_dim : {1, 2, 3, 8, 15, 16, 17, 33, 47, 64, 80, 96, 111, 128, 256, 257}) {
      for (size_t n_rows : {1, 2, 3, 4, 5, 6, 7, 14, 33}) {
        SCOPED_TRACE(testing::Message()
                     << (type == Element::F32 ? "f32" : "bf16") << " head_dim " << head_dim << " rows " << n_rows);
        Block block(table(), type, head_dim, n_rows);
        Result result(n_rows, block.stride());
        run(block, result);
        for (size_t r = 0; r < n_rows; ++r) expect_agrees(block, result, r, head_dim);
      }
    }
  }
}

TEST_P(Attention, EveryCountOfKeys) {
  for (Element type : kKvTypes) {
    Block block(table(), type, 24, 64);
    for (size_t r = 0; r < 64; ++r) block.set_n_valid(r, r + 1);
    Result result(64, block.stride());
    run(block, result);
    for (size_t r = 0; r < 64; ++r) expect_agrees(block, result, r, 24);
  }
}

TEST_P(Attention, RangesAgreeWithTwin) {
  for (Element type : kKvTypes) {
    for (size_t head_dim : {1, 17, 64, 96, 257}) {
      for (size_t n_rows : {1, 2, 5, 14, 33}) {
        SCOPED_TRACE(testing::Message() << "head_dim " << head_dim << " rows " << n_rows);
        Block block(table(), type, head_dim, n_rows);
        block.draw_ranges(head_dim + n_rows);
        Result result(n_rows, block.stride());
        run(block, result);
        for (size_t r = 0; r < n_rows; ++r) expect_agrees(block, result, r, head_dim);
      }
    }
  }
}

TEST_P(Attention, EveryRange) {
  for (Element type : kKvTypes) {
    for (size_t first = 0; first < kBlockTokens; ++first) {
      const size_t n = kBlockTokens - first;
      Block block(table(), type, 24, n);
      for (size_t r = 0; r < n; ++r) block.set_seen(r, first, first + r + 1);
      Result result(n, block.stride());
      run(block, result);
      for (size_t r = 0; r < n; ++r) expect_agrees(block, result, r, 24);
    }
  }
}

/// With caps that bend most scores, and such as bend none.
TEST_P(Attention, CappedScoresAgreeWithTwin) {
  for (Element type : kKvTypes) {
    for (float cap : {0.5f, 5.0f, 50.0f}) {
      for (size_t head_dim : {17, 64}) {
        SCOPED_TRACE(testing::Message() << "cap " << cap << " head_dim " << head_dim);
        Block block(table(), type, head_dim, 33);
        block.draw_ranges(head_dim);
        block.set_cap(cap);
        Result result(33, block.stride());
        run(block, result);
        for (size_t r = 0; r < 33; ++r) expect_agrees(block, result, r, head_dim);
      }
    }
  }
}

/// A row with a range alone, and in the company of others, whatever lies outside the range.
TEST_P(Attention, BitsOfARangeDependOnTheRowAlone) {
  for (Element type : kKvTypes) {
    for (size_t head_dim : {5, 64, 80}) {
      constexpr size_t kRows = 23;
      Block block(table(), type, head_dim, kRows);
      block.draw_ranges(head_dim);
      block.set_cap(3);
      Result together(kRows, block.stride());
      run(block, together);
      for (size_t r = 0; r < kRows; ++r) {
        Block spoilt(table(), type, head_dim, kRows);
        const KeyRange seen = block.seen(r);
        spoilt.set_seen(r, seen.first, seen.last);
        spoilt.set_cap(3);
        spoilt.spoil(0, seen.first);
        spoilt.spoil(seen.last, kBlockTokens);
        Result alone(1, block.stride());
        AttentionArgs args = spoilt.args(alone.max.data(), alone.sum.data(), alone.out.data());
        args.q += r;
        args.seen += r;
        args.n_rows = 1;
        table().attention(args);
        EXPECT_TRUE(same_bits(alone.max, together.max.data() + r, 1));
        EXPECT_TRUE(same_bits(alone.sum, together.sum.data() + r, 1));
        EXPECT_TRUE(same_bits(alone.out, together.out.data() + r * block.stride(), block.stride())) << "row " << r;
      }
    }
  }
}

/// A sink is a score more that has no value: merged as a block of its own.
TEST_P(Attention, ASinkIsMergedAsABlock) {
  constexpr size_t kRows = 5, kHeadDim = 40;
  for (float sink : {-3.0f, 0.5f, 40.0f}) {
    Block block(table(), Element::F32, kHeadDim, kRows);
    Result result(kRows, block.stride()), none(kRows, block.stride());
    run(block, result);
    EdgeArray<float> sinks(kRows), ones(kRows);
    for (size_t r = 0; r < kRows; ++r) {
      sinks.set(r, sink);
      ones.set(r, 1);
    }
    table().attention_merge(result.all(), {sinks.data(), ones.data(), none.out.data()}, kRows, kHeadDim);
    for (size_t r = 0; r < kRows; ++r) {
      EdgeArray<float> y(kHeadDim);
      table().attention_finish(result.out.data() + r * block.stride(), result.sum[r], kHeadDim, y.data());
      const auto exact = block.exact(r);
      const double sum = exact.sum + std::exp(sink - exact.max);
      for (size_t d = 0; d < kHeadDim; ++d)
        ASSERT_TRUE(close_to(y[d], exact.out[d] / sum, 1e-4 * block.largest_value())) << sink << " row " << r;
    }
  }
}

/// A row alone, in any company, and with anything in the slots beyond its keys.
TEST_P(Attention, BitsDependOnTheRowAlone) {
  for (Element type : kKvTypes) {
    for (size_t head_dim : {5, 64, 80, 128}) {
      constexpr size_t kRows = 23;
      SCOPED_TRACE(head_dim);
      Block block(table(), type, head_dim, kRows);
      Result together(kRows, block.stride());
      run(block, together);
      for (size_t r = 0; r < kRows; ++r) {
        Block spoilt(table(), type, head_dim, kRows);
        spoilt.spoil_from(block.n_valid(r));
        Result alone(1, block.stride());
        AttentionArgs args = spoilt.args(alone.max.data(), alone.sum.data(), alone.out.data());
        args.q += r;
        args.seen += r;
        args.n_rows = 1;
        table().attention(args);
        EXPECT_TRUE(same_bits(alone.max, together.max.data() + r, 1));
        EXPECT_TRUE(same_bits(alone.sum, together.sum.data() + r, 1));
        EXPECT_TRUE(same_bits(alone.out, together.out.data() + r * block.stride(), block.stride())) << "row " << r;
      }
      for (size_t first = 0; first < kRows; first += 5) {
        const size_t n = std::min<size_t>(5, kRows - first);
        Result part(n, block.stride());
        AttentionArgs args = block.args(part.max.data(), part.sum.data(), part.out.data());
        args.q += first;
        args.seen += first;
        args.n_rows = n;
        table().attention(args);
        EXPECT_TRUE(same_bits(part.out, together.out.data() + first * block.stride(), n * block.stride()));
      }
    }
  }
}

TEST_P(Attention, SlotsNeverStoredDoNotMatter) {
  for (Element type : kKvTypes) {
    Block partly(table(), type, 64, 7, 19), full(table(), type, 64, 7, 19);
    full.spoil_from(19);
    for (size_t r = 0; r < 7; ++r) EXPECT_LE(partly.n_valid(r), 19u);
    Result result(7, partly.stride());
    run(partly, result);
    for (size_t r = 0; r < 7; ++r) expect_agrees(partly, result, r, 64);
  }
}

TEST_P(Attention, PrefetchingTheNextBlockChangesNothing) {
  for (Element type : kKvTypes) {
    Block block(table(), type, 96, 15);
    Result without(15, block.stride()), with(15, block.stride());
    run(block, without);
    AttentionArgs args = block.args(with.max.data(), with.sum.data(), with.out.data());
    EdgeArray<char> last(64);  // a prefetch may run off its end without harm
    args.next_k = last.data();
    table().attention(args);
    EXPECT_TRUE(same_bits(without.max, with.max, 15));
    EXPECT_TRUE(same_bits(without.sum, with.sum, 15));
    EXPECT_TRUE(same_bits(without.out, with.out, 15 * block.stride()));
  }
}

TEST_P(Attention, MergeAgreesWithTwin) {
  for (size_t head_dim : {1, 17, 64, 100}) {
    constexpr size_t kRows = 5;
    Block a(table(), Element::F32, head_dim, kRows, 64), b(table(), Element::F32, head_dim, kRows, 40);
    Result left(kRows, a.stride()), right(kRows, a.stride());
    run(a, left);
    run(b, right);
    std::vector<double> sums(kRows), outs(kRows * a.stride()), maxima(kRows), sizes(kRows * a.stride());
    for (size_t r = 0; r < kRows; ++r) {
      maxima[r] = std::max(left.max[r], right.max[r]);
      const double ca = std::exp(left.max[r] - maxima[r]), cb = std::exp(right.max[r] - maxima[r]);
      sums[r] = ca * left.sum[r] + cb * right.sum[r];
      for (size_t i = r * a.stride(); i < (r + 1) * a.stride(); ++i) {
        outs[i] = ca * left.out[i] + cb * right.out[i];
        sizes[i] = std::fabs(ca * left.out[i]) + std::fabs(cb * right.out[i]);
      }
    }
    table().attention_merge(left.all(), right.all(), kRows, head_dim);
    for (size_t r = 0; r < kRows; ++r) {
      // exp of a rounded difference: half an ulp of the larger maximum, then 2 ulp, two products and a sum.
      const double error = kEpsilon * (std::fabs(maxima[r]) * 2 + 40 + 8);
      EXPECT_EQ(left.max[r], maxima[r]);
      EXPECT_TRUE(close_to(left.sum[r], sums[r], error * sums[r]));
      for (size_t i = r * a.stride(); i < (r + 1) * a.stride(); ++i)
        ASSERT_TRUE(close_to(left.out[i], outs[i], error * sizes[i] + 1e-30));
    }
  }
}

TEST_P(Attention, MergeOfRowsIsRowByRow) {
  constexpr size_t kRows = 9, kHeadDim = 40;
  Block a(table(), Element::F32, kHeadDim, kRows, 64), b(table(), Element::F32, kHeadDim, kRows, 30);
  Result together(kRows, a.stride()), single(kRows, a.stride()), later(kRows, a.stride());
  run(a, together);
  run(a, single);
  run(b, later);
  table().attention_merge(together.all(), later.all(), kRows, kHeadDim);
  for (size_t r = 0; r < kRows; ++r)
    table().attention_merge(single.from_row(r, a.stride()), later.from_row(r, a.stride()), 1, kHeadDim);
  EXPECT_TRUE(same_bits(together.max, single.max, kRows));
  EXPECT_TRUE(same_bits(together.sum, single.sum, kRows));
  EXPECT_TRUE(same_bits(together.out, single.out, kRows * a.stride()));
}

TEST_P(Attention, FinishDivides) {
  for (size_t head_dim : {1, 3, 16, 31, 64, 257}) {
    EdgeArray<float> out(value_stride(head_dim)), y(head_dim);
    Random(head_dim).fill(out);
    table().attention_finish(out.data(), 3.7f, head_dim, y.data());
    for (size_t d = 0; d < head_dim; ++d) EXPECT_EQ(y[d], out[d] / 3.7f);
  }
}

TEST_P(Attention, StoreKvPutsEveryNumberInItsPlace) {
  for (Element type : kKvTypes) {
    for (size_t head_dim : {1, 7, 16, 64, 81}) {
      const size_t bytes = element_bytes(type), stride = value_stride(head_dim);
      EdgeArray<float> k(kBlockTokens * (head_dim + 3)), v(kBlockTokens * (head_dim + 5));
      Random random(head_dim);
      random.fill(k);
      random.fill(v);
      k.set(1, bits_float(0x7fffffffu));
      k.set(2, bits_float(0x3f808000u));
      EdgeArray<char> k_block(kBlockTokens * head_dim * bytes), v_block(kBlockTokens * stride * bytes);
      std::memset(v_block.data(), 0xff, v_block.size());
      for (size_t slot = 0; slot < kBlockTokens;) {
        const size_t n = std::min(1 + random.below(20), kBlockTokens - slot);
        table().store_kv({.k = k.data() + slot * (head_dim + 3),
                          .k_stride = head_dim + 3,
                          .v = v.data() + slot * (head_dim + 5),
                          .v_stride = head_dim + 5,
                          .n_tokens = n,
                          .head_dim = head_dim,
                          .slot = slot,
                          .kv_type = type,
                          .k_block = k_block.data(),
                          .v_block = v_block.data()});
        slot += n;
      }
      const auto expect = [&](const char* at, float x) {
        char stored[4];
        store_element(stored, type, x);
        EXPECT_EQ(std::memcmp(at, stored, bytes), 0) << x;
      };
      for (size_t t = 0; t < kBlockTokens; ++t) {
        for (size_t d = 0; d < stride; ++d) {
          expect(v_block.data() + (t * stride + d) * bytes, d < head_dim ? v[t * (head_dim + 5) + d] : 0.0f);
          if (d >= head_dim) continue;
          expect(k_block.data() + ((t / 16 * head_dim + d) * 16 + t % 16) * bytes, k[t * (head_dim + 3) + d]);
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Sets, Attention, all_sets(), set_name);

}  // namespace
}  // namespace kvfork::kernels
