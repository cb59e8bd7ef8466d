// The checks named limit and fork_cost.

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <fstream>
#include <string>

#include "kvfork/error.h"
#include "verify/checks.h"

namespace kvfork::checks {
namespace {

using Clock = std::chrono::steady_clock;

double microseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Memory of this process that is no file's. smaps_rollup counts exactly, statm to a few dozen pages.
double anonymous_bytes() {
  std::ifstream rollup("/proc/self/smaps_rollup");
  std::string line;
  while (std::getline(rollup, line)) {
    if (!line.starts_with("Anonymous:")) continue;
    const size_t first = std::min(line.find_first_of("0123456789"), line.size());
    uint64_t n_kibibytes = 0;
    std::from_chars(line.data() + first, line.data() + line.size(), n_kibibytes);
    return 1024 * static_cast<double>(n_kibibytes);
  }
  std::ifstream statm("/proc/self/statm");
  double size = 0;
  double resident = 0;
  double shared = 0;
  statm >> size >> resident >> shared;
  return (resident - shared) * static_cast<double>(::sysconf(_SC_PAGESIZE));
}

std::string show_bytes(double bytes) {
  return bytes < 1 << 20 ? fmt::format("{:.0f} KiB", bytes / 1024) : fmt::format("{:.1f} MiB", bytes / (1 << 20));
}

struct Cost {
  size_t n_tokens = 0;
  double kv_bytes = 0;
  double least_fork_us = 0;
  double fork_us = 0;  // median
  double copy_us = 0;
  double fork_bytes = 0;  // with one token of its own
  double copy_bytes = 0;
};

Cost measure_cost(VerifySubject& subject, const Context& context) {
  constexpr size_t kForks = 200;
  constexpr size_t kCopies = 3;
  constexpr size_t kHeld = 8;  // forks alive at once, so that single pages do not count
  Cost cost{.n_tokens = context.size(), .kv_bytes = static_cast<double>(context.kv_bytes())};
  std::vector<double> times;
  for (size_t i = 0; i < kForks; ++i) {
    const auto start = Clock::now();
    const Fork fork = subject.fork(context, context.size());
    times.push_back(microseconds_since(start));
  }
  cost.fork_us = median(times);
  cost.least_fork_us = *std::min_element(times.begin(), times.end());

  const int32_t id = context.ids().back();
  std::vector<Fork> forks;
  forks.reserve(kHeld + 1);
  const auto add_fork = [&] {
    forks.push_back(subject.fork(context, context.size()));
    subject.append(forks.back(), {&id, 1});
  };
  add_fork();  // scratch buffers are allocated once
  const double before = anonymous_bytes();
  for (size_t i = 0; i < kHeld; ++i) add_fork();
  cost.fork_bytes = std::max(0.0, anonymous_bytes() - before) / kHeld;
  forks.clear();

  times.clear();
  for (size_t i = 0; i < kCopies; ++i) {
    const double free_before = anonymous_bytes();
    const auto start = Clock::now();
    const auto copy = copy_context(context);
    times.push_back(microseconds_since(start));
    cost.copy_bytes = std::max(0.0, anonymous_bytes() - free_before);
  }
  cost.copy_us = median(times);
  return cost;
}

bool is_context_limit(const Error& error) {
  return error.code() == ErrorCode::Limit && std::string_view(error.what()).starts_with("context limit");
}

}  // namespace

Outcome Checks::check_limit() {
  const size_t limit = subject_.model().info().max_position_embeddings;
  const CheckedRequest& request = *std::min_element(
      served_.begin(), served_.end(), [](const auto& a, const auto& b) { return a.ids.size() < b.ids.size(); });
  const size_t n_most = limit - request.ids.size();
  for (const size_t n_new : {n_most - 1, n_most, n_most + 1}) {
    if (n_new == 0) continue;
    GenerateOptions options = greedy_;
    options.max_new_tokens = n_new;
    Fork fork = subject_.fork(*context_, request.n_cached);
    subject_.append(fork, Ids(request.ids).subspan(request.n_cached));
    const size_t n_total = request.ids.size() + n_new;
    const size_t n_before = fork.size();
    try {
      subject_.generate(fork, options, [](int32_t) { return false; });
    } catch (const Error& error) {
      if (!is_context_limit(error)) {
        if (error.code() == ErrorCode::Limit) return {.detail = fmt::format("not run: {}", error.what())};
        throw;
      }
      if (n_total <= limit)
        return {.pass = false,
                .detail = fmt::format("{} tokens of context, request and output were refused, {} are allowed: {}",
                                      n_total, limit, error.what())};
      if (fork.size() != n_before)
        return {.pass = false, .detail = fmt::format("{} tokens were refused only after work was done", n_total)};
      continue;
    }
    if (n_total > limit)
      return {.pass = false,
              .detail = fmt::format("{} tokens of context, request and output were accepted, {} are allowed",
                                    n_total, limit)};
  }
  Outcome outcome{
      .pass = true,
      .detail = fmt::format(
          "context, request and output of {} and {} tokens are accepted, {} are refused before any work", limit - 1,
          limit, limit + 1)};
  fill_limit(outcome);
  return outcome;
}

// Runs the positions up to the last for real, where that does not take too long.
void Checks::fill_limit(Outcome& outcome) {
  const size_t limit = subject_.model().info().max_position_embeddings;
  const size_t n_fill = limit - context_->size();
  const double expected = seconds_of_fill(n_fill);
  if (expected > options_.limit_seconds) {
    outcome.detail += fmt::format("; not filled for real, which would take about {:.0f} s", expected);
    return;
  }
  if (n_fill < 2) return;
  Fork fork = subject_.fork(*context_, context_->size());
  const std::vector<int32_t> filler = make_filler(n_fill);
  subject_.append(fork, Ids(filler).first(n_fill - 1));
  subject_.append(fork, Ids(filler).last(1));
  const auto logits = fork.logits();
  const bool is_sound =
      fork.size() == limit && std::all_of(logits.begin(), logits.end(), [](float x) { return std::isfinite(x); });
  bool is_refused = false;
  try {
    subject_.append(fork, Ids(filler).first(1));
  } catch (const Error& error) {
    if (!is_context_limit(error)) throw;
    is_refused = true;
  }
  if (is_sound && is_refused && fork.size() == limit) {
    outcome.detail += "; filled to the last position for real, and one more token was refused";
    return;
  }
  outcome.pass = false;
  outcome.detail = fmt::format("a timeline filled to {} tokens {}", limit,
                               !is_sound ? "has no finite logits" : "took one token more than the model allows");
}

Outcome Checks::check_fork_cost() {
  constexpr size_t kSizes[] = {64, 256, 1024, 4096};
  constexpr double kMaxSeconds = 10;  // of prefill for a size
  const size_t limit = subject_.model().info().max_position_embeddings;
  std::vector<Cost> costs;
  std::shared_ptr<const Context> grown;
  for (const size_t size : kSizes) {
    if (size + 1 > limit || (size > 256 && seconds_of_fill(size) > kMaxSeconds)) continue;
    const std::vector<int32_t> ids = make_filler(size);
    Fork fork = grown == nullptr ? subject_.model().start() : grown->fork_unchecked();
    fork.append(Ids(ids).subspan(fork.size()));
    grown = std::move(fork).seal();
    costs.push_back(measure_cost(subject_, *grown));
  }
  if (context_->size() + 1 <= limit) costs.push_back(measure_cost(subject_, *context_));
  std::sort(costs.begin(), costs.end(), [](const Cost& a, const Cost& b) { return a.n_tokens < b.n_tokens; });
  Outcome outcome;
  for (const Cost& cost : costs)
    outcome.lines.push_back(fmt::format("{} tokens: fork {:.2f} us, {} of its own; copy {:.3f} ms, {}",
                                        cost.n_tokens, cost.fork_us, show_bytes(cost.fork_bytes),
                                        cost.copy_us / 1000, show_bytes(cost.copy_bytes)));
  const Cost& small = costs.front();
  const Cost& large = costs.back();
  if (large.n_tokens < 4 * small.n_tokens) {
    outcome.detail = fmt::format("not run: the model's limit of {} tokens leaves no two sizes to compare", limit);
    return outcome;
  }
  // The least of many times does not see what else the machine does. A fork may grow by a small part of what a copy
  // grows.
  constexpr double kSlackBytes = 64 << 10;
  const bool is_fast = large.least_fork_us <= 4 * small.least_fork_us + 20;
  const bool is_small =
      large.fork_bytes - small.fork_bytes <= 0.25 * (large.kv_bytes - small.kv_bytes) + kSlackBytes;
  outcome.pass = is_fast && is_small;
  if (!is_fast) {
    outcome.detail = fmt::format(
        "a fork of {} tokens takes at least {:.1f} us, one of {} tokens {:.1f} us: its time grows with the context",
        small.n_tokens, small.least_fork_us, large.n_tokens, large.least_fork_us);
  } else if (!is_small) {
    outcome.detail =
        fmt::format("a fork of {} tokens takes {}, one of {} tokens {}: its memory grows with the context",
                    small.n_tokens, show_bytes(small.fork_bytes), large.n_tokens, show_bytes(large.fork_bytes));
  } else {
    outcome.detail = fmt::format(
        "a fork costs the same at {} and at {} tokens: {:.2f} and {:.2f} us, {} and {} of its own; a copy takes "
        "{:.3f} and {:.3f} ms, {} and {}",
        small.n_tokens, large.n_tokens, small.fork_us, large.fork_us, show_bytes(small.fork_bytes),
        show_bytes(large.fork_bytes), small.copy_us / 1000, large.copy_us / 1000, show_bytes(small.copy_bytes),
        show_bytes(large.copy_bytes));
  }
  return outcome;
}

}  // namespace kvfork::checks
