// Promise 2: a context never changes, and a fork writes only to memory of its own.

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <thread>
#include <type_traits>
#include <vector>

#include "engine/context_state.h"
#include "kvfork/context.h"
#include "kvfork/error.h"
#include "kvfork/fork.h"
#include "kvfork/generate.h"
#include "kvfork/model.h"
#include "tests/support/each_setup.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_model.h"

namespace kvfork {
namespace {

static_assert(!std::is_copy_constructible_v<Fork> && !std::is_copy_assignable_v<Fork>, "a fork has one owner");
static_assert(!std::is_copy_constructible_v<Context> && !std::is_move_constructible_v<Context>);
static_assert(std::is_same_v<decltype(std::declval<Fork>().seal()), std::shared_ptr<const Context>>);

class Isolation : public testing::Test {
 protected:
  void SetUp() override { test::write_tiny_model(dir_.path(), shape_); }

  std::vector<int32_t> ids(size_t n, uint32_t seed) const {
    std::mt19937 random(seed);
    std::vector<int32_t> result(n);
    for (auto& id : result) id = static_cast<int32_t>(random() % shape_.vocab_size);
    return result;
  }

  test::TinyModel shape_;
  test::TempDir dir_;
};

TEST_F(Isolation, ContextHashesTheSameAfterManyForks) {
  for (const auto& setup : test::each_setup()) {
    SCOPED_TRACE(setup.name());
    const auto model = Model::open(dir_.path(), setup.options(2));
    for (const size_t size : {1, 63, 64, 65, 130}) {
      const auto context = model->prefill(ids(size, 1));
      const std::string hash = context->hash();
      for (uint32_t i = 0; i < 5; ++i) {
        Fork fork = context->fork_unchecked();
        fork.append(ids(1 + 40 * i, i));
        generate(fork, {.max_new_tokens = 5});
        EXPECT_EQ(context->hash(), hash) << "after fork " << i << " of a context of " << size;
      }
    }
  }
}

TEST_F(Isolation, AWriteThroughASealedPageFaults) {
  const auto model = Model::open(dir_.path(), {.n_threads = 1});
  const auto context = model->prefill(ids(100, 2));
  const model::KvPrefix& kv = *engine::state_of(*context).kv;
  for (size_t block = 0; block < kv.n_blocks(); ++block) {
    const model::StateLayout& layout = kv.layout();
    auto* first = const_cast<std::byte*>(kv.block(block).key(layout, 0, 0));
    auto* last =
        const_cast<std::byte*>(kv.block(block).value(layout, layout.n_layers() - 1, layout.layer(0).n_kv_heads)) -
        1;
    EXPECT_DEATH(*first = std::byte{1}, "") << "block " << block;
    EXPECT_DEATH(*last = std::byte{1}, "") << "block " << block;
  }
}

TEST_F(Isolation, AMarkerLeavesNoTraceInLaterRequests) {
  for (const auto& setup : test::each_setup()) {
    SCOPED_TRACE(setup.name());
    const auto model = Model::open(dir_.path(), setup.options(2));
    const auto context = model->prefill(ids(90, 3));
    const auto request = ids(20, 4);
    const auto logits_of_request = [&] {
      Fork fork = context->fork_unchecked();
      fork.append(request);
      return std::vector<float>(fork.logits().begin(), fork.logits().end());
    };
    const auto before = logits_of_request();
    {
      Fork marked = context->fork_unchecked();
      marked.append(std::vector<int32_t>(33, 7));
      generate(marked, {.max_new_tokens = 20});
      const auto during = logits_of_request();
      EXPECT_EQ(std::memcmp(before.data(), during.data(), before.size() * sizeof(float)), 0);
    }
    const auto after = logits_of_request();
    EXPECT_EQ(std::memcmp(before.data(), after.data(), before.size() * sizeof(float)), 0);
  }
}

TEST_F(Isolation, ConcurrentForksEqualEachAlone) {
  const auto model = Model::open(dir_.path(), {.n_threads = 2});
  const auto context = model->prefill(ids(70, 5));
  const auto answer = [&](uint32_t seed) {
    Fork fork = context->fork_unchecked();
    fork.append(ids(10 + seed, seed));
    return generate(fork, {.max_new_tokens = 12, .fingerprint_logits = true}).logit_fingerprints;
  };
  constexpr uint32_t kThreads = 4;
  std::vector<std::vector<uint64_t>> alone;
  for (uint32_t i = 0; i < kThreads; ++i) alone.push_back(answer(i));
  std::vector<std::vector<uint64_t>> together(kThreads);
  std::vector<std::thread> threads;
  for (uint32_t i = 0; i < kThreads; ++i) threads.emplace_back([&, i] { together[i] = answer(i); });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(together, alone);
}

TEST_F(Isolation, ChildContextsOutliveTheirParents) {
  const auto model = Model::open(dir_.path(), {.n_threads = 1});
  const auto whole = ids(200, 6);
  const std::span<const int32_t> all(whole);
  Fork reference = model->start();
  reference.append(all);
  std::shared_ptr<const Context> context = model->prefill(all.first(70));
  for (const size_t end : {71, 127, 128, 190}) {
    Fork fork = context->fork_unchecked();
    fork.append(all.subspan(context->size(), end - context->size()));
    context = std::move(fork).seal();
    EXPECT_EQ(context->size(), end);
  }
  Fork fork = context->fork_unchecked();
  fork.append(all.subspan(190));
  EXPECT_EQ(std::memcmp(fork.logits().data(), reference.logits().data(), reference.logits().size_bytes()), 0);
}

TEST_F(Isolation, ForksInsideAContextHaveTheSameBits) {
  for (const auto& setup : test::each_setup()) {
    SCOPED_TRACE(setup.name());
    const auto model = Model::open(dir_.path(), setup.options(2));
    const auto whole = ids(150, 11);
    const std::span<const int32_t> all(whole);
    const auto context = model->prefill(all.first(140));
    Fork reference = model->start();
    reference.append(all);
    for (const size_t start : {1, 63, 64, 65, 100, 128, 139, 140}) {
      Fork fork = context->fork_unchecked(start);
      EXPECT_EQ(fork.shared_ids().size(), start);
      fork.append(all.subspan(start));
      EXPECT_EQ(std::memcmp(fork.logits().data(), reference.logits().data(), reference.logits().size_bytes()), 0)
          << "fork at " << start;
    }
    EXPECT_THROW(context->fork_unchecked(0), Error);
    EXPECT_THROW(context->fork_unchecked(141), Error);
    EXPECT_THROW(context->fork_unchecked(7).logits(), Error);
    EXPECT_THROW(context->fork_unchecked(7).seal(), Error);
  }
}

TEST_F(Isolation, ForkCostsTheSameMemoryAtAnyContextLength) {
  const auto model = Model::open(dir_.path(), {.n_threads = 1});
  for (const size_t size : {1, 64, 1500}) {
    const auto context = model->prefill(ids(size, 7));
    Fork fork = context->fork_unchecked();
    fork.append(ids(3, 8));
    const auto child = std::move(fork).seal();
    EXPECT_LE(engine::state_of(*child).kv->own_bytes(), engine::state_of(*child).kv->layout().block_bytes() + 8192)
        << "context of " << size;
  }
}

TEST_F(Isolation, ARefusedCallLeavesTheTimelineAlone) {
  const auto model = Model::open(dir_.path(), {.n_threads = 1});
  const auto context = model->prefill(ids(60, 9));
  Fork fork = context->fork_unchecked();
  fork.append(ids(4, 10));
  const std::vector<float> before(fork.logits().begin(), fork.logits().end());
  EXPECT_THROW(fork.append(std::vector<int32_t>{1, 2, static_cast<int32_t>(shape_.vocab_size)}), Error);
  EXPECT_THROW(fork.append(std::vector<int32_t>{-1}), Error);
  EXPECT_THROW(fork.append(ids(shape_.max_position_embeddings, 1)), Error);
  EXPECT_EQ(fork.size(), 64u);
  EXPECT_EQ(std::memcmp(before.data(), fork.logits().data(), before.size() * sizeof(float)), 0);
}

}  // namespace
}  // namespace kvfork
