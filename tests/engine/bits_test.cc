// Promise 3: the logits at a position are the same bits however the tokens before it got there.

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "kvfork/context.h"
#include "kvfork/fork.h"
#include "kvfork/model.h"
#include "tests/support/each_setup.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_model.h"

namespace kvfork {
namespace {

using Rows = std::vector<float>;  // [n_tokens, vocab]

std::vector<int32_t> random_ids(std::mt19937& random, size_t n, size_t vocab) {
  std::uniform_int_distribution<int32_t> id(0, static_cast<int32_t>(vocab) - 1);
  std::vector<int32_t> ids(n);
  for (auto& value : ids) value = id(random);
  return ids;
}

size_t between(std::mt19937& random, size_t low, size_t high) {
  return std::uniform_int_distribution<size_t>(low, high)(random);
}

void feed(Fork& fork, std::span<const int32_t> ids, Rows& rows) {
  fork.append_scored(
      ids, [&](size_t, std::span<const float> logits) { rows.insert(rows.end(), logits.begin(), logits.end()); });
}

Rows all_at_once(const Model& model, std::span<const int32_t> ids) {
  Rows rows;
  Fork fork = model.start();
  feed(fork, ids, rows);
  return rows;
}

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

// A timeline that goes on in random calls; scored calls give logits of every position, others of the last only.
class RandomWalker {
 public:
  RandomWalker(const Model& model, std::span<const int32_t> ids, const Rows& expected)
      : ids_(ids), expected_(expected), vocab_(model.info().vocab_size), fork_(model.start()) {}

  bool done() const { return fork_.size() == ids_.size(); }

  void step(std::mt19937& random) {
    const size_t n = between(random, 1, std::min<size_t>(ids_.size() - fork_.size(), between(random, 1, 90)));
    const auto part = ids_.subspan(fork_.size(), n);
    const auto wanted = expected_.subspan(fork_.size() * vocab_, n * vocab_);
    if (between(random, 0, 1) == 0) {
      Rows rows;
      feed(fork_, part, rows);
      EXPECT_TRUE(same_bits(rows, wanted)) << "scored call of " << n << " up to " << fork_.size();
    } else {
      fork_.append(part);
    }
    EXPECT_TRUE(same_bits(fork_.logits(), wanted.last(vocab_))) << "call of " << n << " up to " << fork_.size();
    if (between(random, 0, 3) == 0) {
      context_ = std::move(fork_).seal();
      fork_ = context_->fork_unchecked();
      EXPECT_TRUE(same_bits(fork_.logits(), wanted.last(vocab_))) << "after a seal at " << fork_.size();
    }
  }

 private:
  std::span<const int32_t> ids_;
  std::span<const float> expected_;
  size_t vocab_;
  std::shared_ptr<const Context> context_;
  Fork fork_;
};

void check_random_splits(const test::TinyModel& shape, uint32_t seed, size_t n_cases) {
  const test::TempDir dir;
  test::write_tiny_model(dir.path(), shape);
  for (const auto& setup : test::each_setup()) {
    SCOPED_TRACE(setup.name());
    std::mt19937 random(seed);
    std::vector<std::shared_ptr<const Model>> models;
    for (size_t n_threads = 1; n_threads <= 4; ++n_threads)
      models.push_back(Model::open(dir.path(), setup.options(n_threads)));
    for (size_t i = 0; i < n_cases; ++i) {
      SCOPED_TRACE("case " + std::to_string(i));
      const auto ids = random_ids(random, between(random, 1, i == 0 ? 700 : 330), shape.vocab_size);
      const Rows expected = all_at_once(*models[0], ids);
      // Several walkers at once, each on its own number of threads, in random turns.
      std::vector<RandomWalker> walkers;
      for (const auto& model : models) walkers.emplace_back(*model, ids, expected);
      while (!walkers.empty()) {
        const size_t turn = between(random, 0, walkers.size() - 1);
        if (!walkers[turn].done()) walkers[turn].step(random);
        if (walkers[turn].done()) walkers.erase(walkers.begin() + static_cast<ptrdiff_t>(turn));
        if (testing::Test::HasFailure()) return;
      }
    }
  }
}

TEST(Bits, Qwen2RandomSplitsForksAndThreads) {
  check_random_splits({}, 11, 4);
}

TEST(Bits, LlamaOddSizes) {
  check_random_splits({.family = "llama",
                       .dtype = "F32",
                       .hidden_size = 50,
                       .intermediate_size = 77,
                       .num_attention_heads = 6,
                       .num_key_value_heads = 1,
                       .head_dim = 18,
                       .vocab_size = 101,
                       .tie_word_embeddings = false},
                      12, 3);
}

TEST(Bits, HalfWeightsManyHeads) {
  check_random_splits({.family = "llama",
                       .dtype = "F16",
                       .hidden_size = 96,
                       .intermediate_size = 130,
                       .num_attention_heads = 3,
                       .num_key_value_heads = 3,
                       .head_dim = 32,
                       .vocab_size = 67},
                      13, 3);
}

// Products of more inputs than one panel has.
TEST(Bits, WideFeedForward) {
  check_random_splits({.family = "llama", .hidden_size = 32, .intermediate_size = 2100, .num_hidden_layers = 1}, 15,
                      2);
}

// The narrower product's packed rows take more bytes: 2560 inputs are two panels with a line more each.
TEST(Bits, NarrowerRowsThatPackLonger) {
  const test::TempDir dir;
  test::write_tiny_model(dir.path(), {.family = "llama",
                                      .dtype = "F32",
                                      .hidden_size = 2560,
                                      .intermediate_size = 2561,
                                      .num_hidden_layers = 1,
                                      .num_attention_heads = 2,
                                      .num_key_value_heads = 1,
                                      .head_dim = 16,
                                      .vocab_size = 50});
  std::mt19937 random(16);
  const auto ids = random_ids(random, 32, 50);
  for (const auto& setup : test::each_setup()) {
    const auto model = Model::open(dir.path(), setup.options(1));
    Fork whole = model->start(), parts = model->start();
    whole.append(ids);
    for (size_t i = 0; i < ids.size(); ++i) parts.append(std::span(ids).subspan(i, 1));
    EXPECT_TRUE(same_bits(whole.logits(), parts.logits())) << setup.name();
  }
}

TEST(Bits, ForksOfOneContextInRandomTurnsEqualEachAlone) {
  const test::TempDir dir;
  const test::TinyModel shape;
  test::write_tiny_model(dir.path(), shape);
  for (const auto& setup : test::each_setup()) {
    SCOPED_TRACE(setup.name());
    std::mt19937 random(14);
    const auto model = Model::open(dir.path(), setup.options(2));
    const auto context_ids = random_ids(random, 100, shape.vocab_size);
    const auto context = model->prefill(context_ids);
    const std::string hash = context->hash();
    constexpr size_t kForks = 6;
    std::vector<std::vector<int32_t>> tails;
    std::vector<Rows> alone;
    for (size_t i = 0; i < kForks; ++i) {
      tails.push_back(random_ids(random, between(random, 1, 80), shape.vocab_size));
      std::vector<int32_t> whole = context_ids;
      whole.insert(whole.end(), tails[i].begin(), tails[i].end());
      const Rows rows = all_at_once(*model, whole);
      alone.emplace_back(rows.begin() + static_cast<ptrdiff_t>(context_ids.size() * shape.vocab_size), rows.end());
    }
    std::vector<Fork> forks;
    std::vector<Rows> rows(kForks);
    for (size_t i = 0; i < kForks; ++i) forks.push_back(context->fork_unchecked());
    std::vector<size_t> unfinished = {0, 1, 2, 3, 4, 5};
    while (!unfinished.empty()) {
      const size_t pick = between(random, 0, unfinished.size() - 1);
      const size_t i = unfinished[pick];
      const size_t done = forks[i].own_ids().size();
      feed(forks[i], std::span(tails[i]).subspan(done, between(random, 1, tails[i].size() - done)), rows[i]);
      if (forks[i].own_ids().size() == tails[i].size())
        unfinished.erase(unfinished.begin() + static_cast<ptrdiff_t>(pick));
    }
    for (size_t i = 0; i < kForks; ++i) EXPECT_TRUE(same_bits(rows[i], alone[i])) << "fork " << i;
    EXPECT_EQ(context->hash(), hash);
  }
}

}  // namespace
}  // namespace kvfork
