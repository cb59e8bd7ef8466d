// After a throw a fork is as it was before the call: its tokens, its logits, and everything that follows.
#include <gtest/gtest.h>

#include <cfenv>
#include <stdexcept>
#include <vector>

#include "kvfork/batch.h"
#include "kvfork/context.h"
#include "kvfork/error.h"
#include "kvfork/fork.h"
#include "kvfork/generate.h"
#include "kvfork/model.h"

namespace kvfork {
namespace {

const std::string kCheckpoint = std::string(KVFORK_SOURCE_DIR) + "/tests/golden/checkpoints/qwen2-bf16-tied";

std::vector<int32_t> make_ids(size_t n) {
  std::vector<int32_t> ids(n);
  for (size_t i = 0; i < n; ++i) ids[i] = static_cast<int32_t>(i * 37 % 300);
  return ids;
}

std::vector<float> copy_of(std::span<const float> values) {
  return {values.begin(), values.end()};
}

template <class F>
void expect_refused(const F& call) {
  try {
    call();
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::InvalidArgument) << error.what();
  }
}

class ThrowTest : public testing::Test {
 protected:
  std::shared_ptr<const Model> model_ = Model::open(kCheckpoint, {.n_threads = 2});
  std::vector<int32_t> ids_ = make_ids(1270);
  std::span<const int32_t> ids() const { return ids_; }
};

TEST_F(ThrowTest, AnAppendThatIsLeftTakesBackWhatItAdded) {
  const auto context = model_->prefill(ids().first(70));
  Fork whole = context->fork_unchecked();
  whole.append(ids().subspan(70));
  for (const size_t stop : {512, 1024, 1200}) {
    Fork fork = context->fork_unchecked();
    EXPECT_THROW(fork.append(ids().subspan(70),
                             [&](size_t done) {
                               if (done >= stop) throw std::runtime_error("stop");
                             }),
                 std::runtime_error);
    EXPECT_EQ(fork.size(), 70u);
    EXPECT_EQ(copy_of(fork.logits()), copy_of(context->logits()));
    fork.append(ids().subspan(70));
    EXPECT_EQ(copy_of(fork.logits()), copy_of(whole.logits())) << stop;
  }
}

TEST_F(ThrowTest, LogitsOfItsOwnComeBackToo) {
  Fork fork = model_->start();
  fork.append(ids().first(33));
  const std::vector<float> before = copy_of(fork.logits());
  EXPECT_THROW(fork.append(ids().subspan(33, 5), [](size_t) { throw 1; }), int);
  EXPECT_EQ(copy_of(fork.logits()), before);
  EXPECT_EQ(fork.own_ids().size(), 33u);
  fork.append(ids().subspan(33, 5));
  EXPECT_EQ(copy_of(fork.logits()), copy_of(model_->prefill(ids().first(38))->logits()));
}

TEST_F(ThrowTest, AnEmptyTimelineStaysEmpty) {
  Fork fork = model_->start();
  EXPECT_THROW(fork.append(ids().first(600), [](size_t) { throw 1; }), int);
  EXPECT_EQ(fork.size(), 0u);
  expect_refused([&] { fork.logits(); });
  expect_refused([&] { std::move(fork).seal(); });
}

TEST_F(ThrowTest, ScoredPartsThatWereHandedOutStay) {
  Fork fork = model_->start();
  EXPECT_THROW(fork.append_scored(ids().first(200),
                                  [](size_t first, std::span<const float>) {
                                    if (first > 0) throw 1;
                                  }),
               int);
  EXPECT_EQ(fork.size(), 128u);
  EXPECT_EQ(copy_of(fork.logits()), copy_of(model_->prefill(ids().first(128))->logits()));
}

TEST_F(ThrowTest, OwnIdsMayBeAppended) {
  for (const size_t n : {1, 7, 20, 64, 300}) {
    Fork fork = model_->start();
    fork.append(ids().first(n));
    fork.append(fork.own_ids());
    std::vector<int32_t> twice(ids_.begin(), ids_.begin() + static_cast<ptrdiff_t>(n));
    twice.insert(twice.end(), ids_.begin(), ids_.begin() + static_cast<ptrdiff_t>(n));
    ASSERT_EQ(std::vector<int32_t>(fork.own_ids().begin(), fork.own_ids().end()), twice);
    EXPECT_EQ(copy_of(fork.logits()), copy_of(model_->prefill(twice)->logits()));
  }
}

TEST_F(ThrowTest, MisuseIsRefused) {
  Fork fork = model_->start();
  fork.append(ids().first(5));
  expect_refused([&] { fork.append(ids().first(600), [&](size_t) { fork.append(ids().first(1)); }); });
  EXPECT_EQ(fork.size(), 5u);
  expect_refused([&] { fork.append_scored(ids().first(2), {}); });
  EXPECT_EQ(fork.size(), 5u);
  const auto context = std::move(fork).seal();
  expect_refused([&] { fork.append(ids().first(1)); });
  expect_refused([&] { fork.logits(); });
  expect_refused([&] { std::move(fork).seal(); });
  EXPECT_EQ(context->size(), 5u);
}

TEST_F(ThrowTest, TheCallersRoundingModeMovesNoBitAndComesBack) {
  const auto expected = model_->prefill(ids().first(300));
  for (const int mode : {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO}) {
    std::fesetround(mode);
    const auto model = Model::open(kCheckpoint, {.n_threads = 2});
    const auto found = model->prefill(ids().first(300));
    const int after = std::fegetround();
    std::fesetround(FE_TONEAREST);
    EXPECT_EQ(after, mode);
    EXPECT_EQ(copy_of(found->logits()), copy_of(expected->logits()));
    EXPECT_EQ(found->hash(), expected->hash());
  }
}

TEST_F(ThrowTest, TheCallersRoundingModeMovesNoAnswerOfABatch) {
  const auto context = model_->prefill(ids().first(70));
  GenerateOptions options{.max_new_tokens = 8, .logprobs = true};
  options.repetition_penalty = 1.3;
  options.sampling = {.temperature = 0.9, .seed = 5};
  const std::vector<BatchRequest> requests(
      2, {.request = Request::unchecked({ids_.begin(), ids_.begin() + 80}, 70), .options = options});
  const auto answers = [&] {
    std::vector<Generation> all(requests.size());
    answer_all(*context, requests, {},
               {.on_answer = [&](size_t index, const BatchAnswer& answer) { all[index] = answer.generation; }});
    return all;
  };
  const auto expected = answers();
  const double of_first = log_probability(context->logits(), 3);
  for (const int mode : {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO}) {
    std::fesetround(mode);
    const auto found = answers();
    const double of_first_found = log_probability(context->logits(), 3);
    std::fesetround(FE_TONEAREST);
    for (size_t i = 0; i < found.size(); ++i) {
      EXPECT_EQ(found[i].ids, expected[i].ids);
      EXPECT_EQ(found[i].logprobs, expected[i].logprobs);
    }
    EXPECT_EQ(of_first_found, of_first);
  }
}

}  // namespace
}  // namespace kvfork
