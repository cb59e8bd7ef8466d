// Threads that share out the items of one call.
#include "base/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <limits>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "base/float_environment.h"
#include "base/check.h"
#include "base/error.h"
#include "base/number.h"

namespace kvfork::base {
namespace {

// Long enough to bridge the serial steps between two regions of one token, short enough that a waiting thread
// soon leaves its core to whoever else needs it.
constexpr auto kSpinTime = std::chrono::microseconds(40);

void relax_cpu() noexcept {
  __builtin_ia32_pause();
}

// Waits until `done(value)`: spins for kSpinTime, then sleeps on the atomic.
template <typename Value, typename Done>
Value wait_until(const std::atomic<Value>& atomic, const Done& done) noexcept {
  Value value = atomic.load(std::memory_order_acquire);
  if (done(value)) return value;
  const auto deadline = std::chrono::steady_clock::now() + kSpinTime;
  do {
    for (int i = 0; i < 32; ++i) {
      relax_cpu();
      value = atomic.load(std::memory_order_acquire);
      if (done(value)) return value;
    }
  } while (std::chrono::steady_clock::now() < deadline);
  while (!done(value)) {
    atomic.wait(value, std::memory_order_acquire);
    value = atomic.load(std::memory_order_acquire);
  }
  return value;
}

// CPUs granted by the cgroup quota, or a large number when there is none.
double cgroup_cpu_limit() {
  std::ifstream v2("/sys/fs/cgroup/cpu.max");
  std::string quota;
  double period = 0;
  if (v2 >> quota >> period && quota != "max" && period > 0) return parse_double(quota).value_or(0) / period;
  std::ifstream v1_quota("/sys/fs/cgroup/cpu/cpu.cfs_quota_us");
  std::ifstream v1_period("/sys/fs/cgroup/cpu/cpu.cfs_period_us");
  double microseconds = 0;
  if (v1_quota >> microseconds && v1_period >> period && microseconds > 0 && period > 0)
    return microseconds / period;
  return std::numeric_limits<double>::infinity();
}

}  // namespace

size_t available_cores() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  size_t n_cores = ::sched_getaffinity(0, sizeof(mask), &mask) == 0 ? static_cast<size_t>(CPU_COUNT(&mask))
                                                                    : std::thread::hardware_concurrency();
  const double limit = cgroup_cpu_limit();
  if (limit < static_cast<double>(n_cores)) n_cores = static_cast<size_t>(std::ceil(limit));
  return std::max<size_t>(n_cores, 1);
}

// A region is published as a ticket for each thread: generation in the high half, items of the thread's share not
// yet taken in the low half. Taking an item is a compare-and-swap on a whole ticket, so a thread that wakes late
// can neither take an item of a finished region nor read its description; and the caller need not wait for threads
// that took nothing.
struct ThreadPool::State {
  size_t n_threads = 1;
  std::mutex region_mutex;  // one region at a time

  // Written before the tickets are published, read only by holders of an item.
  Function function = nullptr;
  const void* body = nullptr;
  uint32_t n_items = 0;

  struct alignas(64) Ticket {
    std::atomic<uint64_t> value{0};
  };
  std::vector<Ticket> tickets;
  alignas(64) std::atomic<uint32_t> n_done{0};
  alignas(64) std::atomic<uint32_t> wake{0};  // changes with every region and at shutdown
  std::atomic<bool> stopping{false};
  std::vector<std::thread> workers;

  // Where the items of a share begin: shares are consecutive and differ by one item at most.
  size_t share_begin(size_t share, size_t total) const noexcept { return share * total / n_threads; }

  // Its own share first, then what others have left of theirs: from the front too, which costs little, since shares
  // end at about the same time.
  void take_items(size_t thread) noexcept {
    for (size_t i = 0; i < n_threads; ++i) take_share((thread + i) % n_threads, thread);
  }

  void take_share(size_t share, size_t thread) noexcept {
    std::atomic<uint64_t>& ticket = tickets[share].value;
    for (;;) {
      uint64_t current = ticket.load(std::memory_order_acquire);
      do {
        if (static_cast<uint32_t>(current) == 0) return;
      } while (!ticket.compare_exchange_weak(current, current - 1, std::memory_order_acq_rel,
                                             std::memory_order_acquire));
      const uint32_t total = n_items;
      function(body, share_begin(share + 1, total) - static_cast<uint32_t>(current), thread);
      if (n_done.fetch_add(1, std::memory_order_acq_rel) + 1 == total) n_done.notify_one();
    }
  }

  void work(size_t thread) noexcept {
    uint32_t seen = 0;
    for (;;) {
      seen = wait_until(wake, [seen](uint32_t now) { return now != seen; });
      if (stopping.load(std::memory_order_acquire)) return;
      take_items(thread);
    }
  }
};

ThreadPool::ThreadPool(size_t n_threads) : state_(std::make_unique<State>()) {
  state_->n_threads = n_threads == 0 ? available_cores() : n_threads;
  state_->tickets = std::vector<State::Ticket>(state_->n_threads);
  state_->workers.reserve(state_->n_threads - 1);
  try {
    for (size_t thread = 1; thread < state_->n_threads; ++thread)
      state_->workers.emplace_back([state = state_.get(), thread] {
        const FloatEnvironment environment;
        state->work(thread);
      });
  } catch (const std::exception& error) {
    stop();
    fail(ErrorCode::Limit, "threads: cannot start {}: {}; ask for fewer", state_->n_threads, error.what());
  }
}

ThreadPool::~ThreadPool() {
  stop();
}

void ThreadPool::stop() noexcept {
  state_->stopping.store(true, std::memory_order_release);
  state_->wake.fetch_add(1, std::memory_order_acq_rel);
  state_->wake.notify_all();
  for (auto& worker : state_->workers) worker.join();
}

size_t ThreadPool::n_threads() const noexcept {
  return state_->n_threads;
}

void ThreadPool::run_erased(size_t n_items, Function function, const void* body) const noexcept {
  const FloatEnvironment environment;
  State& state = *state_;
  if (state.n_threads == 1 || n_items <= 1) {
    for (size_t item = 0; item < n_items; ++item) function(body, item, 0);
    return;
  }
  KVFORK_CHECK(n_items < std::numeric_limits<uint32_t>::max());
  const std::lock_guard lock(state.region_mutex);
  state.function = function;
  state.body = body;
  state.n_items = static_cast<uint32_t>(n_items);
  state.n_done.store(0, std::memory_order_relaxed);
  for (size_t share = 0; share < state.n_threads; ++share) {
    std::atomic<uint64_t>& ticket = state.tickets[share].value;
    const uint64_t generation = (ticket.load(std::memory_order_relaxed) >> 32) + 1;
    const size_t n = state.share_begin(share + 1, n_items) - state.share_begin(share, n_items);
    ticket.store(generation << 32 | n, std::memory_order_release);
  }
  state.wake.fetch_add(1, std::memory_order_acq_rel);
  state.wake.notify_all();
  state.take_items(0);
  wait_until(state.n_done, [n_items](uint32_t n) { return n == n_items; });
}

}  // namespace kvfork::base
