// What a fork and an opened context cost. Times have room for a busy machine: what they rule out is a cost that
// grows with the context, which is thousands of times more.

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>

#include "engine/fork_state.h"
#include "kvfork/context.h"
#include "kvfork/fork.h"
#include "kvfork/model.h"
#include "tests/support/random_context.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_model.h"

namespace kvfork {
namespace {

std::vector<double> sorted_ms(int n_times, const std::function<void()>& body) {
  std::vector<double> times;
  for (int i = 0; i < n_times; ++i) {
    const auto start = std::chrono::steady_clock::now();
    body();
    times.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
  }
  std::sort(times.begin(), times.end());
  return times;
}

class Cost : public testing::Test {
 protected:
  Cost() {
    ::setenv("XDG_CACHE_HOME", (dir_.path() / "cache").c_str(), 1);
    const auto folder = dir_.path() / "model";
    std::filesystem::create_directory(folder);
    // As many layers and as large a vocabulary as a real model of half a billion weights.
    test::write_tiny_model(folder, {.hidden_size = 16,
                                    .intermediate_size = 16,
                                    .num_hidden_layers = 24,
                                    .num_attention_heads = 2,
                                    .num_key_value_heads = 1,
                                    .vocab_size = 151936,
                                    .max_position_embeddings = 40000});
    model_ = Model::open(folder, {.n_threads = 1});
  }

  test::TempDir dir_;
  std::shared_ptr<const Model> model_;
};

TEST_F(Cost, AForkTakesNoMoreTimeOrMemoryForALongContext) {
  const std::vector<int32_t> more = {5, 6, 7};
  std::vector<size_t> own_bytes;
  for (const size_t n_tokens : {100u, 4096u, 32768u}) {
    const auto context = test::make_random_context(model_, n_tokens);
    std::vector<Fork> forks;
    forks.reserve(200);
    const auto times = sorted_ms(200, [&] { forks.push_back(context->fork_unchecked()); });
    EXPECT_LE(times[times.size() / 2], 0.1) << n_tokens;
    forks[0].append(more);
    own_bytes.push_back(engine::state_of(forks[0]).kv.own_bytes());
    EXPECT_EQ(engine::state_of(forks[1]).kv.own_bytes(), 0u);
  }
  EXPECT_GT(own_bytes[0], 0u);
  EXPECT_EQ(own_bytes[1], own_bytes[0]);
  EXPECT_EQ(own_bytes[2], own_bytes[0]);
}

TEST_F(Cost, ASavedContextOpensWithinAMillisecondAndAnswersInTheSameBits) {
  const std::vector<int32_t> more = {5, 6, 7};
  const auto answer = [&](const Context& context) {
    Fork fork = context.fork_unchecked();
    fork.append(more);
    return std::vector<float>(fork.logits().begin(), fork.logits().end());
  };
  const auto context = test::make_random_context(model_, 4096);
  const std::string file = (dir_.path() / "context").string();
  context->save(file);
  EXPECT_LE(sorted_ms(50, [&] { model_->open_context(file); }).front(), 1.0);
  const auto expected = answer(*context);
  const auto found = answer(*model_->open_context(file));
  EXPECT_EQ(std::memcmp(expected.data(), found.data(), expected.size() * sizeof(float)), 0);
}

}  // namespace
}  // namespace kvfork
