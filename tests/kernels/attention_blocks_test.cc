// Attention over several blocks in one call: the bits of block after block, whatever the rows see of each.
#include "tests/kernels/attention_block.h"

namespace kvfork::kernels {
namespace {

constexpr size_t kBlocks = 4, kHeadDim = 40;

class AttentionBlocks : public EachSet {
 protected:
  /// Ranges that begin and end anywhere; most rows see what the row before sees, as heads of a group do.
  static std::vector<KeyRange> draw_ranges(size_t n_rows, Random& random) {
    std::vector<KeyRange> seen(n_rows);
    for (size_t r = 0; r < n_rows; ++r) {
      const size_t first = random.below(3) == 0 ? random.below(kBlocks * kBlockTokens) : 0;
      const size_t last = first + 1 + random.below(kBlocks * kBlockTokens - first);
      seen[r] = {static_cast<uint32_t>(first), static_cast<uint32_t>(last)};
      if (r % 7 != 0 && random.below(4) != 0) seen[r] = seen[r - 1];
    }
    return seen;
  }

  /// A row's result from calls for one block each, merged.
  void attend_one_by_one(const AttentionArgs& args, size_t row, const AttentionResult& result) {
    const size_t stride = value_stride(args.head_dim);
    Result part(1, stride);
    bool begins = true;
    for (size_t i = 0; i < args.n_blocks; ++i) {
      const size_t begin = i * kBlockTokens, end = begin + kBlockTokens;
      const KeyRange& seen = args.seen[row];
      if (seen.first >= end || seen.last <= begin) continue;
      const KeyRange range{static_cast<uint32_t>(std::max<size_t>(seen.first, begin) - begin),
                           static_cast<uint32_t>(std::min<size_t>(seen.last, end) - begin)};
      AttentionArgs one = args;
      one.q += row;
      one.seen = &range;
      one.n_rows = 1;
      one.blocks += i;
      one.n_blocks = 1;
      one.result = begins ? result : part.all();
      table().attention(one);
      if (!begins) table().attention_merge(result, part.all(), 1, args.head_dim);
      begins = false;
    }
  }
};

TEST_P(AttentionBlocks, AreMergedInOrder) {
  Random random(7);
  for (Element type : kKvTypes) {
    for (size_t n_rows : {1, 7, 33, 126, 150}) {
      SCOPED_TRACE(testing::Message() << (type == Element::F32 ? "f32" : "bf16") << " rows " << n_rows);
      std::vector<std::unique_ptr<Block>> blocks;
      std::vector<KvBlockData> data;
      for (size_t i = 0; i < kBlocks; ++i) {
        blocks.push_back(std::make_unique<Block>(table(), type, kHeadDim, n_rows + i));
        data.push_back(blocks[i]->data());
      }
      const size_t stride = blocks[0]->stride();
      Result together(n_rows, stride), spare(n_rows, stride), expected(n_rows, stride), two(n_rows, stride);
      std::vector<KeyRange> seen = draw_ranges(n_rows, random);
      AttentionArgs args = blocks[0]->args(together.max.data(), together.sum.data(), together.out.data());
      args.seen = seen.data();
      args.blocks = data.data();
      args.n_blocks = kBlocks;
      args.spare = spare.all();
      table().attention(args);
      for (size_t r = 0; r < n_rows; ++r) attend_one_by_one(args, r, expected.from_row(r, stride));
      EXPECT_TRUE(together.has_bits_of(expected));

      // In two calls, where every row sees keys of the second one's first block.
      for (KeyRange& range : seen)
        range = {std::min<uint32_t>(range.first, 2 * kBlockTokens - 1), kBlocks * kBlockTokens};
      table().attention(args);
      args.result = two.all();
      args.n_blocks = 2;
      table().attention(args);
      const std::vector<KeyRange> rest(n_rows, {0, 2 * kBlockTokens});
      args.seen = rest.data();
      args.blocks += 2;
      args.continues = true;
      table().attention(args);
      EXPECT_TRUE(together.has_bits_of(two));
    }
  }
}

/// Values that are not finite, seen by some rows and not by others.
TEST_P(AttentionBlocks, InfiniteValuesReachNoRowThatDoesNotSeeThem) {
  constexpr size_t kRows = 40, kPlace = 20;
  for (Element type : kKvTypes) {
    Block sound(table(), type, kHeadDim, kRows), spoilt(table(), type, kHeadDim, kRows);
    spoilt.spoil_value(kPlace);
    for (size_t r = 0; r < kRows; ++r) {
      for (Block* block : {&sound, &spoilt})
        block->set_seen(r, r % 3 == 0 ? kPlace + 1 : 0, r % 3 == 1 ? kPlace : 50);
    }
    Result expected(kRows, sound.stride()), result(kRows, sound.stride());
    table().attention(sound.args(expected.max.data(), expected.sum.data(), expected.out.data()));
    table().attention(spoilt.args(result.max.data(), result.sum.data(), result.out.data()));
    for (size_t r = 0; r < kRows; ++r) {
      const float* out = result.out.data() + r * sound.stride();
      EXPECT_EQ(result.max[r], expected.max[r]);
      EXPECT_EQ(result.sum[r], expected.sum[r]);
      if (r % 3 == 2)
        for (size_t d = 0; d < kHeadDim; ++d) EXPECT_FALSE(std::isfinite(out[d])) << "row " << r;
      else
        EXPECT_TRUE(same_bits(out, expected.out.data() + r * sound.stride(), sound.stride())) << "row " << r;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Sets, AttentionBlocks, all_sets(), set_name);

}  // namespace
}  // namespace kvfork::kernels
