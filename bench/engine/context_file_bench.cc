// Times of saved contexts: save against what dd writes with fsync, open, check, and the first fork.
//
//     context_file_bench MODEL N_TOKENS FILE [ROUNDS]
// Keys and values are random numbers, so that no prefill is needed; they are saved and opened like any others.

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "kvfork/context.h"
#include "kvfork/error.h"
#include "kvfork/fork.h"
#include "kvfork/model.h"
#include "tests/support/random_context.h"

namespace kvfork {
namespace {

using Clock = std::chrono::steady_clock;

// Of all threads: what the work costs where other programs share the machine.
double cpu_ms(const std::function<void()>& body) {
  const auto now = [] {
    timespec time{};
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_nsec) / 1e6;
  };
  const double start = now();
  body();
  return now() - start;
}

double median_ms(int rounds, const std::function<void()>& body) {
  std::vector<double> times;
  for (int i = 0; i < rounds; ++i) {
    const auto start = Clock::now();
    body();
    times.push_back(std::chrono::duration<double, std::milli>(Clock::now() - start).count());
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

int run(int argc, char** argv) {
  if (argc < 4) {
    std::fprintf(stderr, "usage: %s MODEL N_TOKENS FILE [ROUNDS]\n", argv[0]);
    return 2;
  }
  const std::string path = argv[3];
  const int rounds = argc > 4 ? std::atoi(argv[4]) : 5;
  const auto model = Model::open(argv[1]);
  const double identity_ms = median_ms(1, [&] { model->identity(); });
  const auto context = test::make_random_context(model, static_cast<size_t>(std::atol(argv[2])));
  uint64_t n_bytes = context->save(path);
  std::vector<double> ratios;
  double save_ms = 0;
  for (int i = 0; i < rounds; ++i) {  // in turns, on the same disk
    save_ms = median_ms(1, [&] { context->save(path); });
    const std::string dd = fmt::format("dd if={0} of={0}.dd bs=1M conv=fsync status=none && rm {0}.dd", path);
    const double dd_ms = median_ms(1, [&] {
      if (std::system(dd.c_str()) != 0) std::exit(1);
    });
    fmt::print("save {:.0f} MB/s, dd {:.0f} MB/s\n", static_cast<double>(n_bytes) / save_ms / 1e3,
               static_cast<double>(n_bytes) / dd_ms / 1e3);
    ratios.push_back(dd_ms / save_ms);
  }
  std::sort(ratios.begin(), ratios.end());
  const double open_ms = median_ms(20, [&] { model->open_context(path); });
  const double check_ms = median_ms(rounds, [&] { model->open_context(path)->check(); }) - open_ms;
  const double open_cpu_ms = cpu_ms([&] {
                               for (int i = 0; i < 20; ++i) model->open_context(path);
                             }) /
                             20;
  const double check_cpu_ms = cpu_ms([&] { model->open_context(path)->check(); });
  const auto opened = model->open_context(path);
  const double first_fork_ms = median_ms(1, [&] { opened->fork_unchecked(); });
  const double fork_ms = median_ms(100, [&] { opened->fork_unchecked(); });
  fmt::print("{:.1f} MB, {} tokens\n", static_cast<double>(n_bytes) / 1e6, context->size());
  fmt::print(
      "identity {:.1f} ms, save {:.2f} of dd (median), open {:.3f} ms, check {:.2f} ms, first fork {:.2f} ms, fork "
      "{:.4f} ms\n",
      identity_ms, ratios[ratios.size() / 2], open_ms, check_ms, first_fork_ms, fork_ms);
  fmt::print("CPU time: open {:.3f} ms, open and check {:.2f} ms\n", open_cpu_ms, check_cpu_ms);
  return 0;
}

}  // namespace
}  // namespace kvfork

int main(int argc, char** argv) {
  try {
    return kvfork::run(argc, argv);
  } catch (const kvfork::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
