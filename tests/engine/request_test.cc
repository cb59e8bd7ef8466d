// A request becomes a fork through its ids and the boundary mode; nothing else leads there without saying so.

#include "kvfork/request.h"

#include <gtest/gtest.h>

#include <type_traits>
#include <vector>

#include "kvfork/context.h"
#include "kvfork/error.h"
#include "kvfork/fork.h"
#include "kvfork/generate.h"
#include "kvfork/model.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_model.h"

namespace kvfork {
namespace {

using Ids = std::vector<int32_t>;

static_assert(!std::is_constructible_v<Request, Ids>, "a request without a context is no request");
static_assert(!std::is_constructible_v<Request, Ids, size_t>,
              "a number of cached tokens is a claim, no comparison");

template <class Type>
concept ShowsWhatItHolds = requires(Type& object) {
  object.impl();
}
|| requires {
  typename Type::Impl;
};
static_assert(!ShowsWhatItHolds<Fork> && !ShowsWhatItHolds<Context> && !ShowsWhatItHolds<Model>);

class RequestOfTinyModel : public testing::Test {
 protected:
  void SetUp() override {
    test::write_tiny_model(dir_.path(), {});
    model_ = Model::open(dir_.path(), {.n_threads = 1});
    context_ = model_->prefill(Ids{1, 2, 3, 4});
  }

  Generation uncached(const Ids& ids) const {
    Fork fork = model_->start();
    fork.append(ids);
    return generate(fork, options_);
  }

  template <class Call>
  static std::string boundary_error(Call call) {
    try {
      call();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::Boundary) << error.what();
      return error.what();
    }
    ADD_FAILURE() << "not refused";
    return {};
  }

  test::TempDir dir_;
  std::shared_ptr<const Model> model_;
  std::shared_ptr<const Context> context_;
  GenerateOptions options_{.max_new_tokens = 5, .fingerprint_logits = true};
};

TEST_F(RequestOfTinyModel, AForkOfARequestHoldsAllOfItAndAnswersAsWithoutTheCache) {
  for (const Ids& ids : {Ids{1, 2, 3, 4, 9, 8}, Ids{1, 2, 3, 4}}) {
    size_t done = 0;
    Fork fork = context_->fork(ids, BoundaryMode::Message, [&](size_t n) { done = n; });
    EXPECT_EQ(fork.size(), ids.size());
    EXPECT_EQ(fork.request_size(), ids.size());
    EXPECT_EQ(done, ids.size() - 4);
    const Generation answer = generate(fork, options_);
    const Generation expected = uncached(ids);
    EXPECT_EQ(answer.ids, expected.ids);
    EXPECT_EQ(answer.logit_fingerprints, expected.logit_fingerprints);
    EXPECT_EQ(fork.request_size(), ids.size()) << "the answer is no part of the request";
  }
}

TEST_F(RequestOfTinyModel, OtherIdsAreRefusedNamingThePosition) {
  EXPECT_NE(boundary_error([&] { context_->fork(Ids{1, 2, 7, 4, 9}); }).find("position 2"), std::string::npos);
  EXPECT_NE(boundary_error([&] { context_->fork(Ids{1, 2}); }).find("position 2"), std::string::npos);
  boundary_error([&] { context_->fork(Ids{}); });
  boundary_error([&] { context_->fork(Ids{7, 2}, BoundaryMode::Longest); });
}

TEST_F(RequestOfTinyModel, LongestReadsWhatIsShared) {
  const Ids ids = {1, 2, 7, 4, 9};
  Fork fork = context_->fork(ids, BoundaryMode::Longest);
  EXPECT_EQ(fork.shared_ids().size(), 2u);
  EXPECT_EQ(generate(fork, options_).ids, uncached(ids).ids);
  // One that ends inside of the context runs its last token again.
  EXPECT_EQ(context_->fork(Ids{1, 2, 3}, BoundaryMode::Longest).shared_ids().size(), 2u);
}

TEST_F(RequestOfTinyModel, ARequestComparedWithAnotherContextIsRefused) {
  const Request request(Ids{1, 2, 3, 4, 5}, context_->ids(), BoundaryMode::Message);
  EXPECT_EQ(request.n_cached(), 4u);
  EXPECT_EQ(request.n_new(), 1u);
  const auto other = model_->prefill(Ids{1, 2, 3, 9});
  const auto shorter = model_->prefill(Ids{1, 2, 3});
  EXPECT_NE(boundary_error([&] { other->fork(request); }).find("position 3"), std::string::npos);
  boundary_error([&] { shorter->fork(request); });
  boundary_error([&] { context_->fork(Request::unchecked({1, 2, 9, 4, 5}, 4)); });
}

TEST_F(RequestOfTinyModel, AConversationGoesOnWhileItsIdsAreTheBeginning) {
  Fork fork = context_->fork(Ids{1, 2, 3, 4, 9});
  const Generation first = generate(fork, options_);
  Ids ids = {1, 2, 3, 4, 9};
  ids.insert(ids.end(), first.ids.begin(), first.ids.end());
  ids.insert(ids.end(), {11, 12});
  ASSERT_TRUE(fork.is_prefix_of(ids));
  const size_t size = fork.size();
  Ids changed = ids;
  changed[4] = 10;
  EXPECT_FALSE(fork.is_prefix_of(changed));
  EXPECT_NE(boundary_error([&] { fork.extend_to(changed); }).find("position 4"), std::string::npos);
  boundary_error([&] { fork.extend_to(Ids{1, 2}); });
  EXPECT_EQ(fork.size(), size);
  fork.extend_to(ids);
  EXPECT_EQ(fork.request_size(), ids.size());
  EXPECT_EQ(generate(fork, options_).logit_fingerprints, uncached(ids).logit_fingerprints);
}

}  // namespace
}  // namespace kvfork
