// Tokens per second by the number of requests decoded together over one context.
//
//     batch_width_bench MODEL [N_CONTEXT [ROUNDS [NEW_TOKENS [float32|bfloat16]]]]
// Widths take turns in every round; the best round is shown. Where other programs share the machine, tokens per
// second of processor time say more than those of the clock.

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "kvfork/batch.h"
#include "kvfork/context.h"
#include "kvfork/error.h"
#include "kvfork/model.h"

namespace kvfork {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kOwnTokens = 12;  // of a request, beside the context's
constexpr size_t kWidths[] = {1, 2, 4, 8, 12, 16, 24, 32, 48, 64};

// New tokens per second.
struct Rates {
  double by_clock = 0;
  double by_processor = 0;
};

// Of all threads.
double processor_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) / 1e9;
}

class WidthBench {
 public:
  WidthBench(std::shared_ptr<const Model> model, size_t n_context, size_t n_new)
      : model_(std::move(model)), n_new_(n_new) {
    std::vector<int32_t> ids(n_context);
    for (auto& id : ids) id = any_id();
    context_ = model_->prefill(ids);
  }

  void run(size_t n_rounds) {
    const ModelInfo& info = model_->info();
    fmt::print("{} {}, {} threads, context of {} tokens, {} new\n", info.kernel_set, compute_mode_name(info.mode),
               info.n_threads, context_->size(), n_new_);
    for (size_t round = 0; round < n_rounds; ++round) {
      for (const size_t width : kWidths) {
        const Rates found = rates(width);
        best_[width].by_clock = std::max(best_[width].by_clock, found.by_clock);
        best_[width].by_processor = std::max(best_[width].by_processor, found.by_processor);
        fmt::print("round {}: width {:2}: {:.2f} tokens/s, {:.2f} per second of processor time\n", round + 1, width,
                   found.by_clock, found.by_processor);
        std::fflush(stdout);
      }
    }
    fmt::print("width   tokens/s   per processor second   of width 1   bytes of a request\n");
    for (const auto& [width, rates] : best_) {
      const auto plan = plan_batch(*model_, requests(width), {.max_width = width});
      fmt::print("{:5}   {:8.2f}   {:20.2f}   {:9.2f}x   {}\n", width, rates.by_clock, rates.by_processor,
                 rates.by_processor / best_.begin()->second.by_processor, plan.largest_request_bytes);
    }
  }

 private:
  int32_t any_id() { return static_cast<int32_t>(random_() % model_->info().vocab_size); }

  std::vector<BatchRequest> requests(size_t width) {
    std::vector<BatchRequest> requests;
    for (size_t i = 0; i < width; ++i) {
      std::vector<int32_t> ids(context_->ids().begin(), context_->ids().end());
      for (size_t own = 0; own < kOwnTokens; ++own) ids.push_back(any_id());
      requests.push_back(
          {.request = Request::unchecked(std::move(ids), context_->size()), .options = {.max_new_tokens = n_new_}});
    }
    return requests;
  }

  Rates rates(size_t width) {
    const auto all = requests(width);
    const auto start = Clock::now();
    const double processor_start = processor_seconds();
    answer_all(*context_, all, {.max_width = width}, {});
    const auto n_tokens = static_cast<double>(width * n_new_);
    return {n_tokens / std::chrono::duration<double>(Clock::now() - start).count(),
            n_tokens / (processor_seconds() - processor_start)};
  }

  std::shared_ptr<const Model> model_;
  std::shared_ptr<const Context> context_;
  size_t n_new_;
  std::mt19937 random_{1};
  std::map<size_t, Rates> best_;
};

}  // namespace
}  // namespace kvfork

int main(int argc, char** argv) {
  if (argc < 2) {
    fmt::print(stderr, "usage: {} MODEL [N_CONTEXT [ROUNDS [NEW_TOKENS [float32|bfloat16]]]]\n", argv[0]);
    return 2;
  }
  const auto number = [&](int at, size_t otherwise) {
    return argc > at ? std::strtoull(argv[at], nullptr, 10) : otherwise;
  };
  try {
    const bool is_bfloat16 = argc > 5 && std::string(argv[5]) == "bfloat16";
    const auto model = kvfork::Model::open(
        argv[1], {.mode = is_bfloat16 ? kvfork::ComputeMode::BFloat16 : kvfork::ComputeMode::Float32});
    kvfork::WidthBench(model, number(2, 1024), number(4, 12)).run(number(3, 3));
    return 0;
  } catch (const kvfork::Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
