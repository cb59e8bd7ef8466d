// Decoding allocates nothing once it has begun.

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <numeric>
#include <vector>

#include "kvfork/batch.h"
#include "kvfork/context.h"
#include "kvfork/fork.h"
#include "kvfork/generate.h"
#include "kvfork/model.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_model.h"

namespace {

std::atomic<bool> is_counting{false};
std::atomic<size_t> n_allocations{0};

void* try_allocate(size_t n_bytes) noexcept {
  if (is_counting) ++n_allocations;
  return std::malloc(n_bytes == 0 ? 1 : n_bytes);
}

void* allocate(size_t n_bytes) {
  if (void* memory = try_allocate(n_bytes)) return memory;
  throw std::bad_alloc();
}

}  // namespace

void* operator new(size_t n_bytes) {
  return allocate(n_bytes);
}
void* operator new[](size_t n_bytes) {
  return allocate(n_bytes);
}
void* operator new(size_t n_bytes, const std::nothrow_t&) noexcept {
  return try_allocate(n_bytes);
}
void* operator new[](size_t n_bytes, const std::nothrow_t&) noexcept {
  return try_allocate(n_bytes);
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete[](void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, size_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, size_t) noexcept {
  std::free(memory);
}

namespace kvfork {
namespace {

class Allocation : public testing::Test {
 protected:
  void SetUp() override { test::write_tiny_model(dir_.path(), {.vocab_size = 61}); }

  // Counts from the third token of a generation to its last but one.
  class Count {
   public:
    explicit Count(size_t n_last) : n_last_(n_last) { n_allocations = 0; }
    ~Count() { is_counting = false; }
    bool operator()() {
      ++n_tokens_;
      is_counting = n_tokens_ >= 3 && n_tokens_ < n_last_;
      return true;
    }

   private:
    size_t n_last_;
    size_t n_tokens_ = 0;
  };

  test::TempDir dir_;
};

TEST_F(Allocation, TheCounterCounts) {
  n_allocations = 0;
  is_counting = true;
  auto* value = new std::vector<int>(3);
  is_counting = false;
  delete value;
  EXPECT_EQ(n_allocations, 2u);
}

TEST_F(Allocation, NoneWhileDecoding) {
  std::vector<int32_t> request(500);
  std::iota(request.begin(), request.end(), 0);
  for (auto& id : request) id %= 50;
  for (const size_t n_threads : {1u, 2u, 3u}) {
    const auto model = Model::open(dir_.path(), {.n_threads = n_threads});
    const auto context = model->prefill(std::span(request).first(400));
    constexpr size_t kNewTokens = 600;  // over several blocks and chunks of keys
    std::vector<GenerateOptions> cases(5, {.max_new_tokens = kNewTokens});
    cases[1].sampling = {.temperature = 0.8, .top_k = 20, .top_p = 0.9, .min_p = 0.01};
    cases[2].repetition_penalty = 1.2;
    cases[3].logprobs = cases[3].fingerprint_logits = true;
    cases[4].speculation = Speculation::Lookup;
    for (const GenerateOptions& options : cases) {
      Fork fork = context->fork_unchecked();
      fork.append(std::span(request).subspan(400));
      Count count(kNewTokens);
      EXPECT_EQ(generate(fork, options, [&](int32_t) { return count(); }).ids.size(), kNewTokens);
      EXPECT_EQ(n_allocations, 0u) << "case " << &options - cases.data() << ", " << n_threads << " threads";
    }
  }
}

TEST_F(Allocation, NoneWhileDecodingTogether) {
  const auto model = Model::open(dir_.path(), {.n_threads = 2});
  const auto context = model->prefill(std::vector<int32_t>(300, 5));
  constexpr size_t kNewTokens = 300;
  std::vector<BatchRequest> requests;
  for (int32_t i = 0; i < 6; ++i) {
    std::vector<int32_t> ids(300, 5);
    ids.push_back(i);
    requests.push_back(
        {.request = Request::unchecked(std::move(ids), 300), .options = {.max_new_tokens = kNewTokens}});
  }
  // All six start and end together; tokens come in turns.
  Count count(requests.size() * (kNewTokens - 1));
  answer_all(*context, requests, {}, {.on_token = [&](size_t, int32_t) { return count(); }});
  EXPECT_EQ(n_allocations, 0u);
}

}  // namespace
}  // namespace kvfork
