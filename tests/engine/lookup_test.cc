// Lookup speculation answers in every bit what plain decoding answers.
//
// KVFORK_LOOKUP_CASES sets the number of random cases per kernel set and mode (default 60).

#include "engine/lookup.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

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

using Ids = std::vector<int32_t>;

Ids draft_of(engine::Lookup& lookup, size_t at_most) {
  const auto draft = lookup.draft(at_most);
  return {draft.begin(), draft.end()};
}

TEST(Lookup, DraftsWhatFollowedTheSameTokens) {
  engine::Lookup lookup(Ids{1, 2, 3, 4, 5, 6}, Ids{9, 2, 3}, 10);
  EXPECT_EQ(draft_of(lookup, 7), (Ids{4, 5}));
  EXPECT_EQ(draft_of(lookup, 1), (Ids{4}));
  EXPECT_EQ(draft_of(lookup, 0), Ids{});
  lookup.add(8);
  EXPECT_EQ(draft_of(lookup, 7), Ids{});
}

TEST(Lookup, ThreeTokensCountMoreThanTwoAndTheLatestPlaceCounts) {
  engine::Lookup lookup(Ids{1, 2, 3, 40, 7, 2, 3, 50, 1, 2, 3}, {}, 10);
  EXPECT_EQ(draft_of(lookup, 1), (Ids{40}));
  engine::Lookup latest(Ids{1, 2, 3, 40, 1, 2, 3, 50, 1, 2, 3}, {}, 10);
  EXPECT_EQ(draft_of(latest, 1), (Ids{50}));
}

TEST(Lookup, LengthFollowsSuccessAndFailuresPause) {
  Ids ids;
  for (int i = 0; i < 20; ++i) ids.push_back(i);
  ids.push_back(0);
  ids.push_back(1);
  engine::Lookup lookup(ids, {}, 100);
  EXPECT_EQ(draft_of(lookup, 100).size(), 2u);
  lookup.learn(2, 2);
  EXPECT_EQ(draft_of(lookup, 100).size(), 5u);
  lookup.learn(5, 5);
  EXPECT_EQ(draft_of(lookup, 100).size(), engine::Lookup::kMaxDraft);
  lookup.learn(7, 3);
  EXPECT_EQ(draft_of(lookup, 100).size(), 3u);
  size_t n_drafts = 0;
  for (int i = 0; i < 300; ++i) {
    const size_t n = draft_of(lookup, 100).size();
    n_drafts += n > 0;
    if (n > 0) lookup.learn(n, 0);
  }
  EXPECT_LE(n_drafts, 12u);
  EXPECT_GE(n_drafts, 6u);
}

struct Outcome {
  Generation generation;
  Ids own_ids;
  std::vector<float> logits;
  std::string hash;
};

Outcome run(const Context& context, std::span<const int32_t> own, const GenerateOptions& options) {
  Fork fork = context.fork_unchecked();
  fork.append(own);
  Outcome outcome;
  outcome.generation = generate(fork, options);
  outcome.own_ids.assign(fork.own_ids().begin(), fork.own_ids().end());
  outcome.logits.assign(fork.logits().begin(), fork.logits().end());
  outcome.hash = std::move(fork).seal()->hash();
  return outcome;
}

void expect_equal(const Outcome& plain, const Outcome& guessed) {
  EXPECT_EQ(plain.generation.ids, guessed.generation.ids);
  EXPECT_EQ(plain.generation.stop, guessed.generation.stop);
  EXPECT_EQ(plain.generation.logit_fingerprints, guessed.generation.logit_fingerprints);
  EXPECT_EQ(plain.generation.logprobs, guessed.generation.logprobs);
  EXPECT_EQ(plain.own_ids, guessed.own_ids);
  ASSERT_EQ(plain.logits.size(), guessed.logits.size());
  EXPECT_EQ(std::memcmp(plain.logits.data(), guessed.logits.data(), plain.logits.size() * sizeof(float)), 0);
  EXPECT_EQ(plain.hash, guessed.hash) << "what was taken back leaves no trace";
}

TEST(LookupSpeculation, EqualsPlainDecodingOnRandomCases) {
  const char* asked = std::getenv("KVFORK_LOOKUP_CASES");
  const size_t n_cases = asked == nullptr ? 60 : std::strtoul(asked, nullptr, 10);
  const test::TempDir dir;
  const test::TinyModel shape{.vocab_size = 61};
  test::write_tiny_model(dir.path(), shape);
  for (const auto& setup : test::each_setup()) {
    SCOPED_TRACE(setup.name());
    std::mt19937 random(41);
    const auto between = [&](size_t low, size_t high) {
      return std::uniform_int_distribution<size_t>(low, high)(random);
    };
    const auto model = Model::open(dir.path(), setup.options(2));
    size_t n_tokens = 0;
    size_t n_passes = 0;
    for (size_t i = 0; i < n_cases; ++i) {
      SCOPED_TRACE("case " + std::to_string(i));
      // Few distinct ids, so that the same few tokens come again.
      Ids ids(between(2, 150));
      for (auto& id : ids) id = static_cast<int32_t>(between(0, i % 2 == 0 ? 3 : 60));
      const size_t n_context = between(1, ids.size() - 1);
      const auto context = model->prefill(std::span(ids).first(n_context));
      GenerateOptions options{.max_new_tokens = between(1, 60), .fingerprint_logits = true, .logprobs = true};
      options.eos_token_ids = {static_cast<int32_t>(between(0, 200))};
      if (i % 3 == 1)
        options.sampling = {
            .temperature = 0.05 * static_cast<double>(between(1, 12)), .top_k = between(0, 9), .seed = i};
      if (i % 5 == 1) options.repetition_penalty = 1.1;
      const Outcome plain = run(*context, std::span(ids).subspan(n_context), options);
      options.speculation = Speculation::Lookup;
      const Outcome guessed = run(*context, std::span(ids).subspan(n_context), options);
      expect_equal(plain, guessed);
      EXPECT_LE(guessed.generation.n_passes, plain.generation.n_passes);
      EXPECT_EQ(plain.generation.n_passes + 1, plain.generation.ids.size());
      if (testing::Test::HasFailure()) return;
      n_tokens += plain.generation.n_passes;
      n_passes += guessed.generation.n_passes;
    }
    EXPECT_LT(n_passes, n_tokens) << "some guesses must be right, or nothing was tested";
  }
}

TEST(LookupSpeculation, AFailingCallbackLeavesWhatWasAnswered) {
  const test::TempDir dir;
  test::write_tiny_model(dir.path(), {.vocab_size = 61});
  const auto model = Model::open(dir.path());
  for (size_t n_good = 0; n_good < 40; n_good += 3) {
    Ids seen[2];
    std::vector<float> logits[2];
    for (const Speculation speculation : {Speculation::Off, Speculation::Lookup}) {
      const size_t i = speculation == Speculation::Lookup;
      Fork fork = model->start();
      fork.append(Ids{1, 2, 1, 2, 1, 2, 1, 2});
      size_t n = 0;
      const auto fails = [&](int32_t) {
        if (n++ == n_good) throw Error(ErrorCode::Io, "pipe: closed");
        return true;
      };
      EXPECT_THROW(generate(fork, {.max_new_tokens = 60, .speculation = speculation}, fails), Error);
      seen[i].assign(fork.own_ids().begin(), fork.own_ids().end());
      logits[i].assign(fork.logits().begin(), fork.logits().end());
    }
    EXPECT_EQ(seen[0], seen[1]);
    EXPECT_EQ(logits[0], logits[1]);
  }
}

}  // namespace
}  // namespace kvfork
