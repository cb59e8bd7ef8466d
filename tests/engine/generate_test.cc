// The sampler's distributions, and the ends of a generation.

#include "kvfork/generate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <vector>

#include "engine/sampler.h"
#include "kvfork/boundary.h"
#include "kvfork/context.h"
#include "kvfork/error.h"
#include "kvfork/fork.h"
#include "kvfork/model.h"
#include "kvfork/verify.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_model.h"

namespace kvfork {
namespace {

ErrorCode code_of(const auto& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.code();
  }
  ADD_FAILURE() << "expected an error";
  return ErrorCode::Network;
}

int32_t pick(const GenerateOptions& options, const std::vector<int32_t>& request,
             const std::vector<float>& logits) {
  engine::Sampler sampler(options, {}, request, logits.size());
  return sampler.pick(logits, request.size());
}

TEST(Sampler, GreedyTakesTheFirstOfEqualBests) {
  EXPECT_EQ(pick({}, {0}, {1.0f, 3.0f, -2.0f, 3.0f}), 1);
  EXPECT_EQ(pick({}, {0}, {-5.0f, -3.0f, -std::numeric_limits<float>::infinity()}), 1);
}

TEST(Sampler, RefusesLogitsThatAreNotNumbers) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(code_of([&] { pick({}, {0}, {1.0f, nan}); }), ErrorCode::Corrupt);
  EXPECT_EQ(code_of([&] { pick({}, {0}, {nan, nan}); }), ErrorCode::Corrupt);
  EXPECT_EQ(code_of([&] { pick({}, {0}, {-inf, -inf}); }), ErrorCode::Corrupt);
}

TEST(Sampler, RepetitionPenaltyActsOnPromptAndGeneratedIds) {
  GenerateOptions options;
  options.repetition_penalty = 2.0;
  // Id 1 was in the prompt: 3.0 becomes 1.5, below id 2.
  EXPECT_EQ(pick(options, {1}, {0.0f, 3.0f, 2.0f}), 2);
  // A negative score is multiplied: -1 becomes -2, below id 0.
  EXPECT_EQ(pick(options, {1}, {-1.5f, -1.0f}), 0);
  engine::Sampler sampler(options, {}, std::vector<int32_t>{0}, 3);
  EXPECT_EQ(sampler.pick(std::vector<float>{0, 3, 2}, 1), 1);
  EXPECT_EQ(sampler.pick(std::vector<float>{0, 3, 2}, 2), 2) << "id 1 was generated and is penalized now";
}

TEST(Sampler, DrawDependsOnSeedRequestAndPositionAlone) {
  const uint64_t key = engine::make_draw_key(7, std::vector<int32_t>{1, 2}, std::vector<int32_t>{3});
  EXPECT_EQ(key, engine::make_draw_key(7, {}, std::vector<int32_t>{1, 2, 3}))
      << "where the context ends plays no part";
  EXPECT_NE(key, engine::make_draw_key(8, {}, std::vector<int32_t>{1, 2, 3}));
  EXPECT_NE(key, engine::make_draw_key(7, {}, std::vector<int32_t>{1, 3, 2}));
  EXPECT_EQ(engine::uniform_draw(key, 5), engine::uniform_draw(key, 5));
  EXPECT_NE(engine::uniform_draw(key, 5), engine::uniform_draw(key, 6));
}

// Frequencies of 20,000 draws against the model's own distribution; the bound is six standard deviations, and a few
// more where next to nothing is expected.
void expect_distribution(const GenerateOptions& base, const std::vector<float>& logits,
                         const std::vector<double>& expected) {
  constexpr size_t kDraws = 20000;
  std::vector<size_t> counts(logits.size());
  for (size_t i = 0; i < kDraws; ++i) {
    GenerateOptions options = base;
    options.sampling.seed = i;
    ++counts[static_cast<size_t>(pick(options, {1}, logits))];
  }
  for (size_t id = 0; id < logits.size(); ++id) {
    const double p = expected[id];
    const double deviation = std::sqrt(kDraws * p * (1 - p));
    EXPECT_LE(std::abs(static_cast<double>(counts[id]) - kDraws * p), 6 * deviation + 5) << "id " << id;
    if (p == 0) {
      EXPECT_EQ(counts[id], 0u);
    }
  }
}

TEST(Sampler, DrawsFollowTheDistribution) {
  const std::vector<float> logits = {std::log(0.1f), std::log(0.4f), std::log(0.3f), std::log(0.2f)};
  GenerateOptions options;
  options.sampling.temperature = 1;
  expect_distribution(options, logits, {0.1, 0.4, 0.3, 0.2});
  options.sampling.temperature = 0.5;  // squares, normalized
  expect_distribution(options, logits, {0.01 / 0.30, 0.16 / 0.30, 0.09 / 0.30, 0.04 / 0.30});
  options.sampling.temperature = 1;
  options.sampling.top_k = 2;
  expect_distribution(options, logits, {0, 4.0 / 7, 3.0 / 7, 0});
  options.sampling.top_k = 0;
  options.sampling.top_p = 0.65;
  expect_distribution(options, logits, {0, 4.0 / 7, 3.0 / 7, 0});
  options.sampling.top_p = 0.75;
  expect_distribution(options, logits, {0, 4.0 / 9, 3.0 / 9, 2.0 / 9});
  options.sampling.top_p = 1;
  options.sampling.min_p = 0.45;
  expect_distribution(options, logits, {0, 4.0 / 9, 3.0 / 9, 2.0 / 9});
}

// The probabilities that the options leave, the slow way: everything sorted.
std::vector<double> filtered_slowly(const SamplingOptions& sampling, const std::vector<float>& logits) {
  std::vector<std::pair<double, size_t>> sorted;
  for (size_t id = 0; id < logits.size(); ++id)
    sorted.emplace_back(-std::exp(logits[id] / sampling.temperature), id);
  std::sort(sorted.begin(), sorted.end());
  double total = 0;
  size_t n_kept = 0;
  for (; n_kept < sorted.size(); ++n_kept) {
    const bool is_tied = n_kept > 0 && sorted[n_kept].first == sorted[n_kept - 1].first;
    if (sampling.top_k > 0 && n_kept >= sampling.top_k && !is_tied) break;
    total -= sorted[n_kept].first;
  }
  sorted.resize(n_kept);
  double mass = 0;
  for (n_kept = 0; n_kept < sorted.size() && (sampling.top_p == 1 || mass < sampling.top_p * total); ++n_kept)
    mass -= sorted[n_kept].first;
  sorted.resize(n_kept);
  while (sorted.back().first > sampling.min_p * sorted.front().first) sorted.pop_back();
  std::vector<double> probabilities(logits.size());
  mass = 0;
  for (const auto& [weight, id] : sorted) mass -= weight;
  for (const auto& [weight, id] : sorted) probabilities[id] = -weight / mass;
  return probabilities;
}

TEST(Sampler, FiltersOfManyTokensAreThoseOfASort) {
  std::mt19937 random(17);
  std::normal_distribution<float> normal(0, 2);
  std::vector<float> logits(120);
  for (auto& logit : logits) logit = normal(random);
  logits[7] = logits[8] = logits[9];
  for (const SamplingOptions& sampling :
       std::vector<SamplingOptions>{{.temperature = 1},
                                    {.temperature = 1, .top_k = 40},
                                    {.temperature = 0.7, .top_p = 0.9},
                                    {.temperature = 1.3, .top_p = 0.5},
                                    {.temperature = 1, .top_p = 0.01},
                                    {.temperature = 2, .top_k = 100, .top_p = 0.8},
                                    {.temperature = 1, .min_p = 0.1},
                                    {.temperature = 1, .top_k = 60, .top_p = 0.95, .min_p = 0.02}}) {
    GenerateOptions options;
    options.sampling = sampling;
    expect_distribution(options, logits, filtered_slowly(sampling, logits));
  }
}

TEST(Sampler, LogProbabilityIsThatOfTheModel) {
  const std::vector<float> logits = {std::log(0.1f), std::log(0.4f), std::log(0.3f), std::log(0.2f)};
  for (int32_t id = 0; id < 4; ++id)
    EXPECT_NEAR(log_probability(logits, id), logits[static_cast<size_t>(id)], 1e-7);
  EXPECT_NEAR(log_probability(std::vector<float>{1000, 1000}, 0), std::log(0.5), 1e-12);
}

class Generate : public testing::Test {
 protected:
  void SetUp() override {
    test::write_tiny_model(dir_.path(), shape_);
    model_ = Model::open(dir_.path(), {.n_threads = 2});
  }

  test::TinyModel shape_{.max_position_embeddings = 100};
  test::TempDir dir_;
  std::shared_ptr<const Model> model_;
};

TEST_F(Generate, StopsAtTheContextLimitBeforeAnyWork) {
  Fork fork = model_->start();
  fork.append(std::vector<int32_t>(90, 5));
  EXPECT_EQ(code_of([&] { generate(fork, {.max_new_tokens = 11}); }), ErrorCode::Limit);
  EXPECT_EQ(fork.size(), 90u);
  EXPECT_EQ(generate(fork, {.max_new_tokens = 10}).ids.size(), 10u);
  EXPECT_EQ(code_of([&] { generate(fork, {.max_new_tokens = SIZE_MAX}); }), ErrorCode::Limit);
}

TEST_F(Generate, EosEndsAndIsReturned) {
  Fork first = model_->start();
  first.append(std::vector<int32_t>{1, 2, 3});
  const Generation free = generate(first, {.max_new_tokens = 8});
  ASSERT_EQ(free.ids.size(), 8u);
  EXPECT_EQ(free.stop, StopReason::Length);
  Fork second = model_->start();
  second.append(std::vector<int32_t>{1, 2, 3});
  const Generation ended = generate(second, {.max_new_tokens = 8, .eos_token_ids = {99, free.ids[3]}});
  EXPECT_EQ(ended.stop, StopReason::Eos);
  EXPECT_EQ(ended.ids.back(), free.ids[3]);
  EXPECT_LE(ended.ids.size(), 4u);
}

TEST_F(Generate, CallbackCanStop) {
  Fork fork = model_->start();
  fork.append(std::vector<int32_t>{1});
  size_t n = 0;
  const Generation result = generate(fork, {.max_new_tokens = 8}, [&](int32_t) { return ++n < 3; });
  EXPECT_EQ(result.ids.size(), 3u);
  EXPECT_EQ(result.stop, StopReason::Stop);
}

TEST_F(Generate, ARequestThatAddsNothingUsesTheContextsLogits) {
  const std::vector<int32_t> ids = {4, 5, 6, 7};
  const auto context = model_->prefill(ids);
  Fork cached = context->fork_unchecked();
  Fork uncached = model_->start();
  uncached.append(ids);
  const GenerateOptions options{.max_new_tokens = 10, .fingerprint_logits = true};
  const Generation a = generate(cached, options);
  const Generation b = generate(uncached, options);
  EXPECT_EQ(a.ids, b.ids);
  EXPECT_EQ(a.logit_fingerprints, b.logit_fingerprints);
}

TEST_F(Generate, SampledTokensAreEqualCachedAndUncached) {
  std::vector<int32_t> request(50);
  for (size_t i = 0; i < request.size(); ++i) request[i] = static_cast<int32_t>(i * 7 % 200);
  const auto context = model_->prefill(std::span(request).first(41));
  std::map<std::vector<int32_t>, int> distinct;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    GenerateOptions options{.max_new_tokens = 12};
    options.sampling = {.temperature = 1.5, .top_k = 50, .top_p = 0.95, .seed = seed};
    Fork cached = context->fork_unchecked();
    cached.append(std::span(request).subspan(41));
    Fork uncached = model_->start();
    uncached.append(request);
    const auto ids = generate(cached, options).ids;
    EXPECT_EQ(ids, generate(uncached, options).ids);
    ++distinct[ids];
  }
  EXPECT_GT(distinct.size(), 10u) << "seeds must matter";
}

TEST_F(Generate, OptionsOutOfRangeAreNamed) {
  const auto message_of = [](GenerateOptions options) {
    try {
      check_options(options);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::InvalidArgument);
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(message_of({}), "");
  EXPECT_NE(message_of({.max_new_tokens = 0}).find("max_new_tokens"), std::string::npos);
  EXPECT_NE(message_of({.repetition_penalty = 0}).find("repetition_penalty"), std::string::npos);
  EXPECT_NE(message_of({.sampling = {.temperature = -1}}).find("temperature"), std::string::npos);
  EXPECT_NE(message_of({.sampling = {.temperature = std::nan("")}}).find("temperature"), std::string::npos);
  EXPECT_NE(message_of({.sampling = {.top_p = 0}}).find("top_p"), std::string::npos);
  EXPECT_NE(message_of({.sampling = {.min_p = 2}}).find("min_p"), std::string::npos);
  EXPECT_NE(message_of({.stop = {"a", ""}}).find("stop"), std::string::npos);
}

TEST_F(Generate, PrefillNeedsIds) {
  EXPECT_EQ(code_of([&] { model_->prefill({}); }), ErrorCode::InvalidArgument);
  EXPECT_EQ(code_of([&] { model_->start().logits(); }), ErrorCode::InvalidArgument);
}

}  // namespace
}  // namespace kvfork
