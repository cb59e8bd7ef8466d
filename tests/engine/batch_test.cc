// Requests decoded together have the ids and the logit bits that each has alone.

#include "kvfork/batch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <random>
#include <stdexcept>
#include <vector>

#include "base/available_memory.h"
#include "kvfork/context.h"
#include "kvfork/fork.h"
#include "kvfork/model.h"
#include "tests/support/each_setup.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_model.h"

namespace kvfork {
namespace {

size_t between(std::mt19937& random, size_t low, size_t high) {
  return std::uniform_int_distribution<size_t>(low, high)(random);
}

std::vector<int32_t> random_ids(std::mt19937& random, size_t n, size_t vocab) {
  std::vector<int32_t> ids(n);
  for (auto& id : ids) id = static_cast<int32_t>(between(random, 0, vocab - 1));
  return ids;
}

GenerateOptions random_options(std::mt19937& random) {
  GenerateOptions options;
  options.max_new_tokens = between(random, 1, 24);
  options.eos_token_ids = {static_cast<int32_t>(between(random, 0, 200)), 7, 8, 9};
  options.fingerprint_logits = true;
  options.logprobs = true;
  if (between(random, 0, 2) == 0) options.repetition_penalty = 1.3;
  if (between(random, 0, 1) == 0) {
    options.sampling.temperature = 0.2 + 0.3 * static_cast<double>(between(random, 0, 5));
    options.sampling.seed = random();
    if (between(random, 0, 1) == 0) options.sampling.top_k = between(random, 1, 60);
    if (between(random, 0, 1) == 0) options.sampling.top_p = 0.9;
    if (between(random, 0, 3) == 0) options.sampling.min_p = 0.05;
  }
  return options;
}

// A request that goes on from the context's first n_cached tokens, possibly with nothing of its own.
BatchRequest random_request(std::mt19937& random, const Context& context, size_t max_own) {
  const bool whole = between(random, 0, 3) != 0;
  const size_t n_cached = whole ? context.size() : between(random, 1, context.size() - 1);
  std::vector<int32_t> ids(context.ids().begin(), context.ids().begin() + static_cast<ptrdiff_t>(n_cached));
  const size_t n_own = between(random, whole ? 0 : 1, max_own);
  const auto own = random_ids(random, n_own, context.model()->info().vocab_size);
  ids.insert(ids.end(), own.begin(), own.end());
  return {.request = Request::unchecked(std::move(ids), n_cached), .options = random_options(random)};
}

Generation alone(const Model& model, const BatchRequest& request) {
  Fork fork = model.start();
  fork.append(request.request.ids());
  return generate(fork, request.options);
}

std::vector<BatchAnswer> run_batch(const Context& context, std::span<const BatchRequest> requests,
                                   const BatchOptions& options, BatchReport* report = nullptr) {
  std::vector<BatchAnswer> answers(requests.size());
  std::vector<int> n_answers(requests.size());
  const BatchReport found =
      answer_all(context, requests, options, {.on_answer = [&](size_t index, BatchAnswer answer) {
                   answers.at(index) = std::move(answer);
                   ++n_answers.at(index);
                 }});
  EXPECT_TRUE(std::all_of(n_answers.begin(), n_answers.end(), [](int n) { return n == 1; })) << "each request once";
  if (report != nullptr) *report = found;
  return answers;
}

void expect_equal(const BatchAnswer& answer, const Generation& expected, size_t index) {
  ASSERT_FALSE(answer.error) << "request " << index << ": " << answer.error->what();
  EXPECT_EQ(answer.generation.ids, expected.ids) << "request " << index;
  EXPECT_EQ(answer.generation.stop, expected.stop) << "request " << index;
  EXPECT_EQ(answer.generation.logit_fingerprints, expected.logit_fingerprints) << "request " << index;
  EXPECT_EQ(answer.generation.logprobs, expected.logprobs) << "request " << index;
  EXPECT_EQ(answer.generation.logit_fingerprints.size(), expected.ids.size());
  EXPECT_EQ(answer.generation.logprobs.size(), expected.ids.size());
}

void check_widths(const test::TinyModel& shape, uint32_t seed, size_t n_requests) {
  const test::TempDir dir;
  test::write_tiny_model(dir.path(), shape);
  for (const auto& setup : test::each_setup()) {
    SCOPED_TRACE(setup.name());
    std::mt19937 random(seed);
    const auto model = Model::open(dir.path(), setup.options(2));
    const auto context = model->prefill(random_ids(random, between(random, 40, 150), shape.vocab_size));
    const std::string hash = context->hash();
    std::vector<BatchRequest> requests;
    std::vector<Generation> expected;
    for (size_t i = 0; i < n_requests; ++i) {
      requests.push_back(random_request(random, *context, i % 8 == 0 ? 90 : 12));
      expected.push_back(alone(*model, requests.back()));
    }
    for (size_t width = 1; width <= 17; ++width) {
      SCOPED_TRACE("width " + std::to_string(width));
      BatchReport report;
      const auto answers = run_batch(*context, requests, {.max_width = width}, &report);
      for (size_t i = 0; i < n_requests; ++i) expect_equal(answers[i], expected[i], i);
      EXPECT_EQ(report.n_widest, std::min(width, n_requests));
      if (testing::Test::HasFailure()) return;
    }
    EXPECT_EQ(context->hash(), hash);
  }
}

TEST(Batch, EqualsAloneAtEveryWidthQwen2) {
  check_widths({}, 21, 30);
}

TEST(Batch, EqualsAloneAtEveryWidthLlama) {
  check_widths({.family = "llama",
                .dtype = "F16",
                .hidden_size = 50,
                .intermediate_size = 77,
                .num_attention_heads = 6,
                .num_key_value_heads = 2,
                .head_dim = 18,
                .vocab_size = 101,
                .tie_word_embeddings = false},
               22, 24);
}

class BatchOfTinyModel : public testing::Test {
 protected:
  void SetUp() override {
    test::write_tiny_model(dir_.path(), shape_);
    model_ = Model::open(dir_.path(), {.n_threads = 2});
    context_ = model_->prefill(random_ids(random_, 60, shape_.vocab_size));
  }

  BatchRequest request(size_t n_own, size_t max_new_tokens) {
    std::vector<int32_t> ids(context_->ids().begin(), context_->ids().end());
    const auto own = random_ids(random_, n_own, shape_.vocab_size);
    ids.insert(ids.end(), own.begin(), own.end());
    BatchRequest made{.request = Request::unchecked(std::move(ids), context_->size()), .options = {}};
    made.options.max_new_tokens = max_new_tokens;
    made.options.fingerprint_logits = true;
    made.options.logprobs = true;
    return made;
  }

  test::TinyModel shape_{.max_position_embeddings = 1500};
  test::TempDir dir_;
  std::mt19937 random_{23};
  std::shared_ptr<const Model> model_;
  std::shared_ptr<const Context> context_;
};

TEST_F(BatchOfTinyModel, RequestsLongerThanAPassJoinAndDecodeAmongOthers) {
  std::vector<BatchRequest> requests;
  for (const size_t n_own : {3u, 1200u, 5u, 600u, 1u, 511u, 0u, 513u}) requests.push_back(request(n_own, 20));
  const auto answers = run_batch(*context_, requests, {.max_width = 5});
  for (size_t i = 0; i < requests.size(); ++i) expect_equal(answers[i], alone(*model_, requests[i]), i);
}

TEST_F(BatchOfTinyModel, SharesPassesAndLetsNewRequestsJoin) {
  std::vector<BatchRequest> requests;
  for (size_t i = 0; i < 8; ++i) requests.push_back(request(4, i % 2 == 0 ? 30 : 3));
  BatchReport report;
  run_batch(*context_, requests, {.max_width = 4}, &report);
  // 132 tokens: four long answers of 30 passes and four short ones beside them.
  EXPECT_LE(report.n_passes, 66u);
  EXPECT_GE(report.n_passes, 33u);
  EXPECT_EQ(report.n_rows, 8 * 4 + 4 * 29 + 4 * 2u);
  EXPECT_EQ(report.n_widest, 4u);
}

TEST_F(BatchOfTinyModel, AnswersComeAsTheyEnd) {
  const std::vector<BatchRequest> requests = {request(2, 40), request(2, 5), request(2, 10)};
  std::vector<size_t> order;
  std::map<size_t, size_t> n_tokens;
  answer_all(*context_, requests, {.max_width = 3},
             {.on_answer = [&](size_t index, const BatchAnswer&) { order.push_back(index); },
              .on_token = [&](size_t index, int32_t) { return ++n_tokens[index], true; }});
  EXPECT_EQ(order, (std::vector<size_t>{1, 2, 0}));
  EXPECT_EQ(n_tokens, (std::map<size_t, size_t>{{0, 40}, {1, 5}, {2, 10}}));
}

TEST_F(BatchOfTinyModel, AnErrorOfOneRequestLeavesTheOthersAlone) {
  std::vector<BatchRequest> requests;
  for (size_t i = 0; i < 9; ++i) requests.push_back(request(6, 12));
  requests[0].options.sampling.temperature = -1;
  requests[2].options.max_new_tokens = 1500;
  auto ids = requests[4].request.ids();
  ids[10] = (ids[10] + 1) % 200;
  requests[4].request = Request::unchecked(ids, context_->size());
  ids = requests[5].request.ids();
  ids.back() = 211;
  requests[5].request = Request::unchecked(ids, context_->size());
  requests[8].request = Request::unchecked(requests[8].request.ids(), 61);
  const std::map<size_t, ErrorCode> bad = {{0, ErrorCode::InvalidArgument},
                                           {2, ErrorCode::Limit},
                                           {4, ErrorCode::Boundary},
                                           {5, ErrorCode::InvalidArgument},
                                           {8, ErrorCode::Boundary}};
  for (const size_t width : {1u, 2u, 9u}) {
    const auto answers = run_batch(*context_, requests, {.max_width = width});
    for (size_t i = 0; i < requests.size(); ++i) {
      if (!bad.contains(i)) {
        expect_equal(answers[i], alone(*model_, requests[i]), i);
        continue;
      }
      ASSERT_TRUE(answers[i].error) << i;
      EXPECT_EQ(answers[i].error->code(), bad.at(i)) << i << ": " << answers[i].error->what();
      EXPECT_TRUE(answers[i].generation.ids.empty());
    }
  }
}

TEST_F(BatchOfTinyModel, ARequestReadsAtLeastOneTokenFromItsContextAndNoMoreThanItHas) {
  for (const size_t n_cached : {0u, 4u}) {
    try {
      Request::unchecked({1, 2, 3}, n_cached);
      ADD_FAILURE() << n_cached;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::InvalidArgument);
    }
  }
}

TEST_F(BatchOfTinyModel, AShorterForkNeedsSomethingToRun) {
  BatchRequest cut = request(0, 4);
  const std::vector<int32_t> ids(context_->ids().begin(), context_->ids().begin() + 30);
  cut.request = Request::unchecked(ids, 30);
  const auto answers = run_batch(*context_, {&cut, 1}, {});
  ASSERT_TRUE(answers[0].error);
  cut.request = Request::unchecked(ids, 29);
  expect_equal(run_batch(*context_, {&cut, 1}, {})[0], alone(*model_, cut), 0);
}

TEST_F(BatchOfTinyModel, MemoryBoundsTheWidthAndTooLittleIsAnErrorBeforeWork) {
  std::vector<BatchRequest> requests;
  for (size_t i = 0; i < 10; ++i) requests.push_back(request(5, 30));
  const BatchPlan plan = plan_batch(*model_, requests, {});
  EXPECT_EQ(plan.width, 10u);
  EXPECT_GT(plan.largest_request_bytes, 60u * 100);
  EXPECT_GT(plan.memory_bytes, plan.largest_request_bytes);

  BatchReport report;
  const BatchOptions three{.memory_bytes = 3 * plan.largest_request_bytes + 1};
  EXPECT_EQ(plan_batch(*model_, requests, three).width, 3u);
  const auto answers = run_batch(*context_, requests, three, &report);
  EXPECT_EQ(report.n_widest, 3u);
  for (size_t i = 0; i < requests.size(); ++i) expect_equal(answers[i], alone(*model_, requests[i]), i);

  requests[7] = request(5, 600);
  size_t n_answers = 0;
  try {
    answer_all(*context_, requests, {.memory_bytes = plan.largest_request_bytes},
               {.on_answer = [&](size_t, const BatchAnswer&) { ++n_answers; }});
    ADD_FAILURE() << "expected an error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::Limit);
    EXPECT_NE(std::string(error.what()).find("memory"), std::string::npos);
  }
  EXPECT_EQ(n_answers, 0u);
}

TEST_F(BatchOfTinyModel, OnTokenEndsOneRequest) {
  const std::vector<BatchRequest> requests = {request(2, 10), request(2, 10)};
  std::vector<BatchAnswer> answers(2);
  answer_all(*context_, requests, {},
             {.on_answer = [&](size_t index, BatchAnswer answer) { answers[index] = std::move(answer); },
              .on_token = [&, n = 0](size_t index, int32_t) mutable { return index == 0 || ++n < 4; }});
  expect_equal(answers[0], alone(*model_, requests[0]), 0);
  EXPECT_EQ(answers[1].generation.ids.size(), 4u);
  EXPECT_EQ(answers[1].generation.stop, StopReason::Stop);
}

TEST_F(BatchOfTinyModel, AnExceptionOfACallbackEndsTheBatch) {
  const std::vector<BatchRequest> requests = {request(2, 10), request(2, 10)};
  EXPECT_THROW(answer_all(*context_, requests, {},
                          {.on_answer = [](size_t, BatchAnswer) { throw std::runtime_error("stop"); }}),
               std::runtime_error);
  const auto fails = [](size_t, int32_t) -> bool { throw Error(ErrorCode::Io, "disk: full"); };
  EXPECT_THROW(answer_all(*context_, requests, {}, {.on_token = fails}), Error);
}

TEST_F(BatchOfTinyModel, NoRequestsAreNoWork) {
  const BatchReport report = answer_all(*context_, {}, {}, {});
  EXPECT_EQ(report.n_passes, 0u);
  EXPECT_THROW(answer_all(*context_, {}, {.max_width = 0}, {}), Error);
}

TEST(AvailableMemory, IsPartOfTheMachine) {
  const size_t n_bytes = base::available_memory();
  EXPECT_GT(n_bytes, size_t{1} << 20);
  EXPECT_LT(n_bytes, size_t{1} << 50);
}

}  // namespace
}  // namespace kvfork
