// Every allocation, mmap, mprotect, pread and pwritev of an operation fails once, the first, the second, and so on
// to the last. Only kvfork::Error comes out; what exists stays as it was; and the same operation then gives what it
// gives undisturbed.
//
// KVFORK_FAULT_STRIDE (default 1) tries every n-th call only, for slow builds.

#include "tests/faults/failing_calls.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <semaphore>
#include <string>
#include <thread>
#include <vector>

#include "kvfork/batch.h"
#include "kvfork/context.h"
#include "kvfork/error.h"
#include "kvfork/fork.h"
#include "kvfork/generate.h"
#include "kvfork/identity.h"
#include "kvfork/model.h"
#include "kvfork/text.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_model.h"

namespace kvfork {
namespace {

using test::Failing;
using test::Fault;
using test::lib;

/// What an operation gave, as numbers that differ where any bit does.
using Result = std::vector<std::string>;

std::string bits_of(std::span<const float> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size_bytes()};
}

void add(Result& result, const Generation& generation) {
  for (const uint64_t fingerprint : generation.logit_fingerprints) result.push_back(std::to_string(fingerprint));
  for (const int32_t id : generation.ids) result.push_back(std::to_string(id));
}

size_t stride() {
  const char* text = std::getenv("KVFORK_FAULT_STRIDE");
  return text == nullptr ? 1 : std::max<size_t>(1, std::strtoull(text, nullptr, 10));
}

class FailingCalls : public testing::TestWithParam<Failing> {
 protected:
  void SetUp() override {
    ::setenv("XDG_CACHE_HOME", (dir_.path() / "cache").c_str(), 1);
    test::write_tiny_model(model_dir_.path(), {.max_position_embeddings = 2000});
    for (int32_t i = 0; i < 1400; ++i) ids_.push_back(i * i % 90);
    model_path_ = model_dir_.path();
    file_ = (dir_.path() / "context").string();
    open();
  }

  void open() {
    model_ = Model::open(model_path_, {.n_threads = 2});
    context_ = model_->prefill(part(0, 70));
    context_->save(file_);
  }

  std::span<const int32_t> part(size_t first, size_t n) const { return std::span(ids_).subspan(first, n); }

  /// Runs the operation with each of its calls failing once. `unchanged` says, after a failure, that nothing that
  /// existed before has changed.
  void sweep(const std::function<Result()>& operation, const std::function<void()>& unchanged = {}) {
    const Result expected = operation();
    size_t n_struck = 0;
    for (size_t n = 0;; n += stride()) {
      bool has_struck = false;
      {
        std::optional<Fault> fault;
        try {
          fault.emplace(GetParam(), n);
          const Result found = operation();
          has_struck = fault->has_struck();
          fault.reset();
          EXPECT_TRUE(found == expected) << n << ": another result, without an error";
        } catch (const Error&) {
          has_struck = true;
          fault.reset();
        } catch (const std::exception& other) {
          has_struck = true;
          fault.reset();
          ADD_FAILURE() << n << ": not kvfork::Error: " << other.what();
        }
      }
      if (!has_struck) break;
      ++n_struck;
      if (unchanged) unchanged();
      EXPECT_TRUE(operation() == expected) << n << ": another result afterwards";
      if (HasFailure()) return;
    }
    RecordProperty("struck", static_cast<int>(n_struck));
  }

  void expect_context_unchanged() {
    if (hash_.empty()) hash_ = context_->hash();
    EXPECT_EQ(context_->hash(), hash_);
  }

  test::TempDir model_dir_, dir_;
  std::string model_path_, file_;
  std::vector<int32_t> ids_;
  std::shared_ptr<const Model> model_;
  std::shared_ptr<const Context> context_;
  std::string hash_;
};

TEST_P(FailingCalls, Open) {
  sweep([&]() -> Result {
    const auto model = lib([&] { return Model::open(model_path_, {.n_threads = 4}); });
    const auto context = lib([&] { return model->prefill(part(0, 9)); });
    return {bits_of(context->logits())};
  });
}

TEST_P(FailingCalls, Prefill) {
  sweep([&]() -> Result {
    const auto context = lib([&] { return model_->prefill(part(0, 1300)); });
    return {lib([&] { return context->hash(); }), bits_of(context->logits())};
  });
}

TEST_P(FailingCalls, AppendLeavesTheForkAsItWas) {
  Fork fork = context_->fork_unchecked();
  fork.append(part(70, 30));
  const std::string before = bits_of(fork.logits());
  sweep(
      [&]() -> Result {
        Fork other = lib([&] { return context_->fork_unchecked(); });
        lib([&] { other.append(part(70, 30)); });
        lib([&] { other.append(part(100, 1200)); });
        return {bits_of(other.logits())};
      },
      [&] { expect_context_unchanged(); });
  const Result whole = {bits_of(model_->prefill(part(0, 1300))->logits())};
  for (size_t n = 0;; ++n) {
    bool has_struck = false;
    try {
      const Fault fault(GetParam(), n);
      lib([&] { fork.append(part(100, 1200)); });
      has_struck = fault.has_struck();
    } catch (const Error&) {
      has_struck = true;
      ASSERT_EQ(fork.size(), 100u) << n;
      ASSERT_EQ(bits_of(fork.logits()), before) << n;
      continue;
    }
    EXPECT_EQ(bits_of(fork.logits()), whole[0]) << n;
    if (!has_struck) break;
    fork = context_->fork_unchecked();
    fork.append(part(70, 30));
  }
}

TEST_P(FailingCalls, ForkAndSeal) {
  sweep(
      [&]() -> Result {
        Fork fork = lib([&] { return context_->fork_unchecked(50); });
        lib([&] { fork.append(part(50, 100)); });
        const auto child = lib([&] { return std::move(fork).seal(); });
        Fork again = lib([&] { return child->fork_unchecked(); });
        lib([&] { again.append(part(150, 3)); });
        return {child->hash(), bits_of(again.logits())};
      },
      [&] { expect_context_unchanged(); });
}

TEST_P(FailingCalls, Generate) {
  for (const Speculation speculation : {Speculation::Off, Speculation::Lookup}) {
    sweep(
        [&]() -> Result {
          Fork fork = lib([&] { return context_->fork_unchecked(); });
          lib([&] { fork.append(part(70, 3)); });
          GenerateOptions options{.max_new_tokens = 6, .repetition_penalty = 1.2, .fingerprint_logits = true};
          options.speculation = speculation;
          options.sampling = {.temperature = 0.8, .top_k = 20, .top_p = 0.9, .seed = 5};
          Result result;
          add(result, lib([&] { return generate(fork, options); }));
          return result;
        },
        [&] { expect_context_unchanged(); });
  }
}

TEST_P(FailingCalls, Batch) {
  sweep(
      [&]() -> Result {
        std::vector<BatchRequest> requests;
        for (size_t i = 0; i < 5; ++i) {
          std::vector<int32_t> ids(ids_.begin(), ids_.begin() + 70);
          ids.insert(ids.end(), ids_.begin() + 100, ids_.begin() + 101 + static_cast<ptrdiff_t>(7 * i));
          requests.push_back({.request = Request::unchecked(std::move(ids), 70),
                              .options = {.max_new_tokens = 4 + i, .fingerprint_logits = true}});
        }
        std::vector<std::optional<Generation>> answers(requests.size());
        std::optional<Error> refused;
        const BatchCallbacks callbacks{
            .on_answer =
                [&](size_t index, const BatchAnswer& answer) {
                  const test::InLibrary outside(false);
                  if (answer.error) {
                    refused = *answer.error;  // of one request, which does not touch the others
                  } else {
                    answers[index] = answer.generation;
                  }
                },
            .on_token = {}};
        lib([&] {
          return answer_all(*context_, requests, {.max_width = 3, .memory_bytes = size_t{1} << 30}, callbacks);
        });
        if (refused) throw Error(*refused);
        Result result;
        for (const auto& answer : answers) add(result, answer.value());
        return result;
      },
      [&] { expect_context_unchanged(); });
}

TEST_P(FailingCalls, SaveLeavesTheOldFileOrTheNewOne) {
  sweep(
      [&]() -> Result {
        lib([&] { return context_->save(file_); });
        return {std::to_string(std::filesystem::file_size(file_))};
      },
      [&] {
        model_->open_context(file_)->check();
        size_t n_files = 0;
        for (const auto& entry : std::filesystem::directory_iterator(dir_.path()))
          n_files += entry.is_regular_file();
        EXPECT_EQ(n_files, 1u) << "something was left behind";
      });
}

TEST_P(FailingCalls, Load) {
  sweep([&]() -> Result {
    const auto opened = lib([&] { return model_->open_context(file_); });
    lib([&] { opened->check(); });
    Fork fork = lib([&] { return opened->fork_unchecked(); });
    lib([&] { fork.append(part(70, 3)); });
    return {lib([&] { return opened->hash(); }), bits_of(fork.logits()), lib([&] { return opened->id(); })};
  });
}

TEST_P(FailingCalls, Identity) {
  sweep([&]() -> Result {
    const auto model = lib([&] { return Model::open(model_path_, {.n_threads = 2}); });
    const Identity identity = lib([&]() -> const Identity& { return model->identity(); });
    return {identity.weights, identity.kernel_bits};
  });
}

// The caller of a generation leaves in the middle of a guess while another thread has the only scratch.
TEST_P(FailingCalls, AGuessIsTakenBackWithoutMemory) {
  const auto model =
      Model::open(std::string(KVFORK_SOURCE_DIR) + "/tests/golden/families/qwen3_5-5", {.n_threads = 1});
  const std::vector<int32_t> ids(60, 7);
  struct Left {};
  for (size_t n_last = 2; n_last < 40; ++n_last) {
    std::binary_semaphore has_scratch{0}, may_end{0};
    std::jthread other;
    Fork fork = model->start();
    fork.append(ids);
    std::optional<Fault> fault;
    size_t n_tokens = 0;
    const auto leave = [&](int32_t) -> bool {
      if (++n_tokens < n_last) return true;
      const test::InLibrary outside(false);
      other = std::jthread([&] {
        model->prefill(ids, [&](size_t) {
          has_scratch.release();
          may_end.acquire();
        });
      });
      has_scratch.acquire();
      fault.emplace(GetParam(), 0);
      throw Left();
    };
    EXPECT_THROW(lib([&] { generate(fork, {.max_new_tokens = 50, .speculation = Speculation::Lookup}, leave); }),
                 Left);
    EXPECT_FALSE(fault->has_struck());
    fault.reset();
    may_end.release();
    other.join();
    EXPECT_EQ(bits_of(fork.logits()), bits_of(model->prefill(fork.own_ids())->logits()));
  }
}

TEST_P(FailingCalls, Tokenizing) {
  const std::string folder = std::string(KVFORK_SOURCE_DIR) + "/tests/golden/checkpoints/qwen2-bf16-tied";
  const auto text = Text::open(folder);
  sweep([&]() -> Result {
    const auto ids = lib([&] { return text->tokenizer().encode("Some text of words, twice: text"); });
    DecodeStream stream = lib([&] { return DecodeStream(text->tokenizer(), SpecialTokens::Skip); });
    Result result = {lib([&] { return text->tokenizer().decode(ids, SpecialTokens::Keep); }), ""};
    for (const int32_t id : ids) result.back() += lib([&] { return stream.push(id); });
    return result;
  });
}

INSTANTIATE_TEST_SUITE_P(Each, FailingCalls, testing::ValuesIn(test::kEveryFailing),
                         [](const auto& parameter) { return test::name_of(parameter.param); });

}  // namespace
}  // namespace kvfork
