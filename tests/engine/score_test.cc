// Scores have the bits that each request has alone, and what requests share is run once.

#include "kvfork/score.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <set>
#include <vector>

#include "kvfork/context.h"
#include "kvfork/fork.h"
#include "kvfork/generate.h"
#include "kvfork/model.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_model.h"

namespace kvfork {
namespace {

class ScoreTest : public ::testing::Test {
 protected:
  ScoreTest() {
    test::write_tiny_model(directory_.path(), {});
    model_ = Model::open(directory_.path().string(), {.n_threads = 2});
  }

  // Few ids and few lengths, so that many requests share beginnings, and some are equal or end inside of others.
  std::vector<ScoreRequest> random_requests(std::mt19937& random, std::vector<int32_t> start, size_t n) {
    std::vector<ScoreRequest> requests(n);
    for (ScoreRequest& request : requests) {
      request.ids = start;
      const size_t n_more = 1 + random() % 9;
      for (size_t i = 0; i < n_more; ++i) request.ids.push_back(static_cast<int32_t>(random() % 2));
      const size_t least = std::max<size_t>(start.size(), 1);
      request.n_given = least + random() % (request.ids.size() - least + 1);
    }
    return requests;
  }

  // The plain way: every position of every request.
  Score alone(const ScoreRequest& request) {
    Score score;
    size_t position = 0;
    Fork fork = model_->start();
    const size_t vocab_size = model_->info().vocab_size;
    fork.append_scored(request.ids, [&](size_t, std::span<const float> rows) {
      for (size_t row = 0; row < rows.size() / vocab_size; ++row, ++position) {
        if (position + 1 < request.n_given || position + 1 >= request.ids.size()) continue;
        const auto logits = rows.subspan(row * vocab_size, vocab_size);
        const int32_t id = request.ids[position + 1];
        score.logprobs.push_back(log_probability(logits, id));
        for (size_t other = 0; other < vocab_size; ++other) {
          const float own = logits[static_cast<size_t>(id)];
          if (logits[other] > own || (logits[other] == own && other < static_cast<size_t>(id)))
            score.is_greedy = false;
        }
      }
    });
    return score;
  }

  void expect_scores(const std::vector<ScoreRequest>& requests, const std::vector<Score>& scores) {
    for (size_t i = 0; i < requests.size(); ++i) {
      const Score expected = alone(requests[i]);
      ASSERT_FALSE(scores[i].error.has_value());
      ASSERT_EQ(scores[i].logprobs.size(), expected.logprobs.size());
      EXPECT_TRUE(expected.logprobs.empty() || std::memcmp(scores[i].logprobs.data(), expected.logprobs.data(),
                                                           expected.logprobs.size() * sizeof(double)) == 0);
      EXPECT_EQ(scores[i].is_greedy, expected.is_greedy);
    }
  }

  test::TempDir directory_;
  std::shared_ptr<const Model> model_;
};

TEST_F(ScoreTest, ScoresAreThoseOfEachRequestAlone) {
  std::mt19937 random(5);
  for (size_t round = 0; round < 6; ++round) {
    const auto requests =
        random_requests(random, round % 2 == 0 ? std::vector<int32_t>{} : std::vector<int32_t>{3, 4, 5}, 30);
    for (const bool share : {true, false}) {
      std::vector<Score> scores(requests.size());
      std::multiset<size_t> seen;
      score_all(*model_, requests, {.share = share}, [&](size_t i, Score score) {
        scores[i] = std::move(score);
        seen.insert(i);
      });
      EXPECT_EQ(seen.size(), requests.size());
      EXPECT_EQ(std::set<size_t>(seen.begin(), seen.end()).size(), requests.size());
      expect_scores(requests, scores);
    }
  }
}

TEST_F(ScoreTest, WhatRequestsShareIsRunOnce) {
  std::vector<int32_t> shared(40, 1);
  std::vector<ScoreRequest> requests;
  for (int32_t last = 0; last < 10; ++last) {
    requests.push_back({shared, shared.size()});
    requests.back().ids.insert(requests.back().ids.end(), {last, 2, 3});
  }
  size_t n_shown = 0;
  const ScoreReport report =
      score_all(*model_, requests, {.on_progress = [&](size_t n) { n_shown = n; }}, [](size_t, Score) {});
  EXPECT_EQ(report.n_tokens, 10 * 42u);
  EXPECT_EQ(report.n_rows, 40 + 10 * 2u);  // the last id of each is only predicted
  EXPECT_EQ(n_shown, report.n_rows);
  EXPECT_EQ(score_all(*model_, requests, {.share = false}, [](size_t, Score) {}).n_rows, report.n_tokens);
}

TEST_F(ScoreTest, AContextIsNotRunAgain) {
  std::mt19937 random(6);
  const std::vector<int32_t> ids = {3, 4, 5, 6, 7};
  const auto context = model_->prefill(ids);
  auto requests = random_requests(random, ids, 20);
  requests.push_back({{ids[0], ids[1], 9, 9, 9, 9}, 5});  // not the context's
  std::vector<Score> scores(requests.size());
  score_all(*context, requests, {}, [&](size_t i, Score score) { scores[i] = std::move(score); });
  ASSERT_TRUE(scores.back().error.has_value());
  EXPECT_EQ(scores.back().error->code(), ErrorCode::Boundary);
  requests.pop_back();
  expect_scores(requests, scores);
}

TEST_F(ScoreTest, BadRequestsTouchNoOthers) {
  const auto vocab = static_cast<int32_t>(model_->info().vocab_size);
  const std::vector<ScoreRequest> requests = {{{1, 2, 3}, 1}, {{1, 2, 3}, 0},
                                              {{1, 2, 3}, 4}, {{1, vocab}, 1},
                                              {{}, 1},        {std::vector<int32_t>(1 << 20, 1), 1},
                                              {{1, 2}, 1}};
  std::vector<Score> scores(requests.size());
  score_all(*model_, requests, {}, [&](size_t i, Score score) { scores[i] = std::move(score); });
  for (size_t i = 1; i < 6; ++i) EXPECT_TRUE(scores[i].error.has_value()) << i;
  EXPECT_EQ(scores[0].logprobs, alone(requests[0]).logprobs);
  EXPECT_EQ(scores[6].logprobs, alone(requests[6]).logprobs);
}

}  // namespace
}  // namespace kvfork
