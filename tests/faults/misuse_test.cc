// Calls and files that once gave wrong results, crashed or let other exceptions out, and their neighbours.

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/resource.h>

#include <cfenv>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "kvfork/batch.h"
#include "kvfork/context.h"
#include "kvfork/error.h"
#include "kvfork/fork.h"
#include "kvfork/generate.h"
#include "kvfork/identity.h"
#include "kvfork/model.h"
#include "tests/support/each_setup.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_model.h"

namespace kvfork {
namespace {

namespace fs = std::filesystem;

template <class Call>
ErrorCode code_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.code();
  }
  ADD_FAILURE() << "no error";
  return ErrorCode::Parity;
}

std::vector<float> copy_of(std::span<const float> values) {
  return {values.begin(), values.end()};
}

class Misuse : public testing::Test {
 protected:
  void SetUp() override {
    ::setenv("XDG_CACHE_HOME", (dir_.path() / "cache").c_str(), 1);
    test::write_tiny_model(folder(), {.max_position_embeddings = 30000});
    for (int32_t i = 0; i < 1300; ++i) ids_.push_back(i * i % 90);
  }

  fs::path folder() const { return model_dir_.path(); }
  fs::path weights() const { return folder() / "model.safetensors"; }
  std::shared_ptr<const Model> open() const { return Model::open(folder(), {.n_threads = 2}); }
  std::span<const int32_t> part(size_t first, size_t n) const { return std::span(ids_).subspan(first, n); }
  std::string file(const std::string& name) const { return (dir_.path() / name).string(); }

  /// Other bytes at the end of the weights' file, in place, and its time moved on.
  void change_weights() const {
    {
      std::fstream out(weights(), std::ios::in | std::ios::out | std::ios::binary);
      out.seekp(-64, std::ios::end);
      out << std::string(64, '\x3c');
    }
    fs::last_write_time(weights(), fs::file_time_type::clock::now() + std::chrono::seconds(5));
  }

  test::TempDir model_dir_, dir_;
  std::vector<int32_t> ids_;
};

TEST_F(Misuse, WeightsChangedInPlaceAreAnErrorAtTheNextStep) {
  const auto model = open();
  const auto context = model->prefill(part(0, 70));
  Fork fork = context->fork_unchecked();
  fork.append(part(70, 3));
  change_weights();
  EXPECT_EQ(code_of([&] { context->save(file("a")); }), ErrorCode::Corrupt);
  EXPECT_FALSE(fs::exists(file("a")));
  EXPECT_EQ(code_of([&] { (void)context->id(); }), ErrorCode::Corrupt);
  EXPECT_EQ(code_of([&] { (void)model->identity(); }), ErrorCode::Corrupt);
  EXPECT_EQ(code_of([&] { fork.append(part(73, 3)); }), ErrorCode::Corrupt);
  EXPECT_EQ(code_of([&] { generate(fork, {.max_new_tokens = 2}); }), ErrorCode::Corrupt);
  EXPECT_EQ(code_of([&] { (void)std::move(fork).seal(); }), ErrorCode::Corrupt);
  EXPECT_EQ(code_of([&] { model->prefill(part(0, 5)); }), ErrorCode::Corrupt);
  const std::vector<BatchRequest> one = {
      {.request = Request::unchecked({ids_.begin(), ids_.begin() + 72}, 70), .options = {.max_new_tokens = 1}}};
  EXPECT_EQ(code_of([&] { answer_all(*context, one, {}, {}); }), ErrorCode::Corrupt);
  EXPECT_EQ(open()->prefill(part(0, 5))->size(), 5u) << "the new weights open";
}

TEST_F(Misuse, WeightsChangedAfterTheIdentityWasTakenAreFoundToo) {
  const auto model = open();
  const auto context = model->prefill(part(0, 70));
  context->save(file("a"));
  change_weights();
  EXPECT_EQ(code_of([&] { context->save(file("b")); }), ErrorCode::Corrupt);
  EXPECT_EQ(code_of([&] { model->prefill(part(0, 5)); }), ErrorCode::Corrupt);
}

TEST_F(Misuse, WeightsThatAreCutAreFound) {
  const auto model = open();
  fs::resize_file(weights(), fs::file_size(weights()) + 8);  // grown: cutting would end the process
  EXPECT_EQ(code_of([&] { model->prefill(part(0, 5)); }), ErrorCode::Corrupt);
}

TEST_F(Misuse, WeightsReplacedByRenamingChangeNothing) {
  const auto model = open();
  const auto expected = copy_of(model->prefill(part(0, 70))->logits());
  fs::copy_file(weights(), folder() / "other");
  fs::rename(folder() / "other", weights());
  const auto context = model->prefill(part(0, 70));
  EXPECT_EQ(copy_of(context->logits()), expected);
  context->save(file("a"));
  fs::remove(weights());
  EXPECT_EQ(copy_of(model->prefill(part(0, 70))->logits()), expected);
}

TEST_F(Misuse, NamesThatCannotBeFilesAreErrorsOfTheLibrary) {
  const auto context = open()->prefill(part(0, 5));
  fs::create_symlink("loop", file("loop"));
  const std::string names[] = {std::string(300, 'a'),       file(std::string(300, 'a')),
                               file("none/context"),        file("loop"),
                               std::string(5000, 'b'),      "",
                               file(std::string("a\0b", 3))};
  for (const std::string& name : names) {
    try {
      context->save(name);
      fs::remove(name);
    } catch (const Error&) {
    } catch (const std::exception& other) {
      ADD_FAILURE() << name.substr(0, 20) << ": " << other.what();
    }
    try {
      open()->open_context(name);
      if (!name.empty()) ADD_FAILURE() << name.substr(0, 20);
    } catch (const Error&) {
    }
    EXPECT_THROW(Model::open(name), Error) << name.substr(0, 20);
  }
}

TEST_F(Misuse, LogProbabilitiesAreOfIdsThatHaveLogits) {
  const std::vector<float> logits = {0, 1, 2};
  EXPECT_NEAR(log_probability(logits, 2), -0.4076, 1e-4);
  for (const int32_t id : {-1, 3, std::numeric_limits<int32_t>::max(), std::numeric_limits<int32_t>::min()})
    EXPECT_EQ(code_of([&] { log_probability(logits, id); }), ErrorCode::InvalidArgument) << id;
  EXPECT_EQ(code_of([&] { log_probability({}, 0); }), ErrorCode::InvalidArgument);
}

TEST_F(Misuse, RefusedMemoryIsALimit) {
  const auto model = open();
  EXPECT_EQ(code_of([&] { model->start().reserve(std::numeric_limits<size_t>::max()); }), ErrorCode::Limit);
  EXPECT_EQ(code_of([&] { model->start().reserve(30001); }), ErrorCode::Limit);
}

TEST_F(Misuse, ALongChainOfContextsCostsWhatOneCosts) {
  constexpr size_t kDepth = 20000;
  const auto model = open();
  std::shared_ptr<const Context> context = model->prefill(part(0, 1));
  const auto start = std::chrono::steady_clock::now();
  for (size_t i = 1; i < kDepth; ++i) {
    Fork fork = context->fork_unchecked();
    const int32_t id = ids_[i % ids_.size()];
    fork.append({&id, 1});
    context = std::move(fork).seal();
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  std::printf("%zu contexts in %.1f s\n", kDepth, seconds);
  EXPECT_EQ(context->size(), kDepth);
  const auto shallow = model->prefill(std::vector<int32_t>(context->ids().begin(), context->ids().end()));
  EXPECT_EQ(copy_of(context->logits()), copy_of(shallow->logits()));
  const auto time_of = [&](const Context& from) {
    std::vector<double> times;
    for (int round = 0; round < 21; ++round) {
      const auto begin = std::chrono::steady_clock::now();
      for (int i = 0; i < 10; ++i) (void)from.fork_unchecked();
      times.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    }
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
  };
  EXPECT_LT(time_of(*context), 5 * time_of(*shallow) + 1e-4);
  const std::vector<BatchRequest> one = {
      {.request = Request::unchecked({context->ids().begin(), context->ids().end()}, kDepth),
       .options = {.max_new_tokens = 2}}};
  EXPECT_EQ(answer_all(*context, one, {}, {}).n_passes, 1u);
}

// Of a thread whose stack has 64 KiB.
struct OnSmallStack {
  template <class Body>
  explicit OnSmallStack(Body body) {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 64 * 1024);
    pthread_t thread;
    const auto run = [](void* p) -> void* { return (*static_cast<Body*>(p))(), nullptr; };
    EXPECT_EQ(pthread_create(&thread, &attributes, run, &body), 0);
    pthread_join(thread, nullptr);
    pthread_attr_destroy(&attributes);
  }
};

TEST_F(Misuse, SmallStacksSuffice) {
  for (const auto& setup : test::each_setup()) {
    SCOPED_TRACE(setup.name());
    const auto model = Model::open(folder(), setup.options(2));
    const auto expected = model->prefill(part(0, 600));
    Fork plain = expected->fork_unchecked();
    const Generation answer = generate(plain, {.max_new_tokens = 4, .fingerprint_logits = true});
    expected->save(file("context"));
    OnSmallStack([&] {
      const auto context = model->prefill(part(0, 600));
      EXPECT_EQ(copy_of(context->logits()), copy_of(expected->logits()));
      Fork fork = context->fork_unchecked();
      EXPECT_EQ(generate(fork, {.max_new_tokens = 4, .fingerprint_logits = true}).logit_fingerprints,
                answer.logit_fingerprints);
      EXPECT_EQ(model->open_context(file("context"))->hash(), expected->hash());
    });
  }
}

// Each level of recursion would take some hundred bytes.
TEST_F(Misuse, ALongChainOfFilesOpensOnASmallStack) {
  constexpr size_t kDepth = 300;
  const auto model = open();
  auto context = model->prefill(part(0, 70));
  for (size_t i = 0; i < kDepth; ++i) {
    if (i > 0) {
      Fork fork = context->fork_unchecked();
      fork.append(part(i, 1));
      context = std::move(fork).seal();
    }
    context->save(file("chain" + std::to_string(i)));
    context = model->open_context(file("chain" + std::to_string(i)), {.check_parents = false});
  }
  // The parent of the last one is found by its id alone, and so is that of the one in the middle.
  fs::rename(file("chain" + std::to_string(kDepth - 2)), file("renamed"));
  fs::rename(file("chain" + std::to_string(kDepth / 2)), file("renamed too"));
  OnSmallStack([&] {
    EXPECT_EQ(model->open_context(file("chain" + std::to_string(kDepth - 1)))->hash(), context->hash());
    fs::remove(file("chain3"));
    EXPECT_EQ(code_of([&] { (void)model->open_context(file("chain" + std::to_string(kDepth - 1))); }),
              ErrorCode::InvalidArgument);
  });
}

}  // namespace
}  // namespace kvfork
