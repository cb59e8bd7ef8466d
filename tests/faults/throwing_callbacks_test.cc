// Every callback throws once, at its first call, its second, and so on to the last. What it throws comes out, and
// what exists gives the bits that it gives undisturbed.

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kvfork/batch.h"
#include "kvfork/context.h"
#include "kvfork/fork.h"
#include "kvfork/generate.h"
#include "kvfork/model.h"
#include "tests/support/each_setup.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_model.h"

namespace kvfork {
namespace {

struct Thrown {};

std::vector<float> copy_of(std::span<const float> values) {
  return {values.begin(), values.end()};
}

class ThrowingCallbacks : public testing::Test {
 protected:
  void SetUp() override {
    ::setenv("XDG_CACHE_HOME", (dir_.path() / "cache").c_str(), 1);
    test::write_tiny_model(model_dir_.path(), {.max_position_embeddings = 2000});
    for (int32_t i = 0; i < 1400; ++i) ids_.push_back(i * i % 90);
    model_ = Model::open(model_dir_.path(), {.n_threads = 2});
    context_ = model_->prefill(part(0, 70));
    hash_ = context_->hash();
  }

  std::span<const int32_t> part(size_t first, size_t n) const { return std::span(ids_).subspan(first, n); }

  /// Calls `run` with something for its callback to call, which throws at the n-th time, for every n. `after` sees
  /// what was left.
  void sweep(const std::function<void(const std::function<void()>&)>& run, const std::function<void()>& after) {
    size_t n = 0;
    for (bool has_thrown = true; has_thrown; ++n) {
      size_t n_calls = 0;
      has_thrown = false;
      try {
        run([&] {
          if (n_calls++ == n) throw Thrown();
        });
      } catch (const Thrown&) {
        has_thrown = true;
      }
      ASSERT_EQ(context_->hash(), hash_) << n;
      after();
      if (HasFailure()) return;
    }
    EXPECT_GT(n, 1u) << "the callback was never called";
  }

  test::TempDir model_dir_, dir_;
  std::vector<int32_t> ids_;
  std::shared_ptr<const Model> model_;
  std::shared_ptr<const Context> context_;
  std::string hash_;
};

TEST_F(ThrowingCallbacks, OfPrefill) {
  const std::string expected = model_->prefill(part(0, 1300))->hash();
  sweep([&](const auto& step) { model_->prefill(part(0, 1300), [&](size_t) { step(); }); },
        [&] { EXPECT_EQ(model_->prefill(part(0, 1300))->hash(), expected); });
}

TEST_F(ThrowingCallbacks, OfAppend) {
  const auto expected = copy_of(model_->prefill(part(0, 1300))->logits());
  Fork fork = context_->fork_unchecked();
  fork.append(part(70, 10));
  const auto before = copy_of(fork.logits());
  sweep(
      [&](const auto& step) {
        Fork other = context_->fork_unchecked();
        other.append(part(70, 1230), [&](size_t) { step(); });
        fork.append(part(80, 1220), [&](size_t) { step(); });
      },
      [&] {
        if (fork.size() == 80) {
          EXPECT_EQ(copy_of(fork.logits()), before);
          Fork whole = context_->fork_unchecked();
          whole.append(part(70, 1230));
          EXPECT_EQ(copy_of(whole.logits()), expected);
        } else {
          EXPECT_EQ(fork.size(), 1300u);
          EXPECT_EQ(copy_of(fork.logits()), expected);
        }
      });
}

TEST_F(ThrowingCallbacks, OfScoring) {
  Fork fork = context_->fork_unchecked();
  sweep(
      [&](const auto& step) {
        fork = context_->fork_unchecked();
        fork.append_scored(part(70, 300), [&](size_t, std::span<const float>) { step(); });
      },
      [&] {
        ASSERT_GT(fork.size(), 70u);
        EXPECT_EQ(copy_of(fork.logits()), copy_of(model_->prefill(part(0, fork.size()))->logits()));
      });
}

TEST_F(ThrowingCallbacks, OfGenerate) {
  for (const Speculation speculation : {Speculation::Off, Speculation::Lookup}) {
    GenerateOptions options{.max_new_tokens = 9, .fingerprint_logits = true};
    options.speculation = speculation;
    Fork undisturbed = context_->fork_unchecked();
    const Generation expected = generate(undisturbed, options);
    Fork fork = context_->fork_unchecked();
    sweep(
        [&](const auto& step) {
          fork = context_->fork_unchecked();
          generate(fork, options, [&](int32_t) { return step(), true; });
        },
        [&] {
          // What joined the timeline is the beginning of the answer, and goes on as the answer does.
          const auto own = fork.own_ids();
          ASSERT_LE(own.size(), expected.ids.size());
          EXPECT_TRUE(std::equal(own.begin(), own.end(), expected.ids.begin()));
          if (own.size() == expected.ids.size()) return;
          GenerateOptions rest = options;
          rest.max_new_tokens = options.max_new_tokens - own.size();
          const size_t n_before = own.size();
          const Generation more = generate(fork, rest);
          EXPECT_TRUE(std::equal(more.ids.begin(), more.ids.end(),
                                 expected.ids.begin() + static_cast<ptrdiff_t>(n_before)));
        });
  }
}

TEST_F(ThrowingCallbacks, OfBatch) {
  std::vector<BatchRequest> requests;
  for (size_t i = 0; i < 5; ++i) {
    std::vector<int32_t> ids(ids_.begin(), ids_.begin() + 70);
    ids.push_back(static_cast<int32_t>(i));
    requests.push_back({.request = Request::unchecked(std::move(ids), 70),
                        .options = {.max_new_tokens = 3 + i, .fingerprint_logits = true}});
  }
  std::vector<std::vector<uint64_t>> expected(requests.size());
  const auto run = [&](const std::function<void()>& on_token, const std::function<void()>& on_answer,
                       std::vector<std::vector<uint64_t>>& found) {
    answer_all(*context_, requests, {.max_width = 3},
               {.on_answer =
                    [&](size_t index, const BatchAnswer& answer) {
                      on_answer();
                      ASSERT_FALSE(answer.error) << answer.error->what();
                      found[index] = answer.generation.logit_fingerprints;
                    },
                .on_token = [&](size_t, int32_t) { return on_token(), true; }});
  };
  run([] {}, [] {}, expected);
  const auto expect_same = [&] {
    std::vector<std::vector<uint64_t>> again(requests.size());
    run([] {}, [] {}, again);
    EXPECT_EQ(again, expected);
  };
  std::vector<std::vector<uint64_t>> found(requests.size());
  sweep(
      [&](const auto& step) {
        run(
            step, [] {}, found);
      },
      expect_same);
  sweep([&](const auto& step) { run([] {}, step, found); }, expect_same);
}

TEST_F(ThrowingCallbacks, OfSave) {
  const std::string file = (dir_.path() / "context").string();
  context_->save(file);
  sweep([&](const auto& step) { context_->save(file, {.on_progress = [&](uint64_t, uint64_t) { step(); }}); },
        [&] { EXPECT_EQ(model_->open_context(file)->hash(), hash_); });
}

}  // namespace
}  // namespace kvfork
