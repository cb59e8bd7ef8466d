// A persistent pool that runs one parallel region at a time.
//
// Work is divided into items. A thread takes those of its own share in order, so that it reads on in memory, then
// what others have left; which thread takes an item never changes what it computes, so results do not depend on the
// number of threads. Waits spin briefly and then sleep, so that another busy process costs its share and no more.
// Thread rule: `run` may be called from any thread; calls that other threads take part in are serialized. Items
// must not call `run`.
#pragma once

#include <cstddef>
#include <exception>
#include <memory>
#include <mutex>

namespace kvfork::base {

/// Cores this process may use: the CPU affinity mask cut by the cgroup's CPU quota; at least 1.
size_t available_cores();

class ThreadPool {
 public:
  /// `n_threads` in all, the caller included; 0 means available_cores(). Throws Error{Limit} when the system
  /// refuses them.
  explicit ThreadPool(size_t n_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  size_t n_threads() const noexcept;

  /// Calls body(item, thread) for every item in [0, n_items), with thread in [0, n_threads). Returns when all are
  /// done. `body` must not throw. Allocates nothing.
  template <typename Body>
  void run(size_t n_items, const Body& body) const noexcept {
    run_erased(
        n_items,
        [](const void* b, size_t item, size_t thread) noexcept { (*static_cast<const Body*>(b))(item, thread); },
        &body);
  }

  /// The same for a body that may throw: the first exception comes out once all items are done.
  template <typename Body>
  void run_throwing(size_t n_items, const Body& body) const {
    std::exception_ptr first;
    std::mutex mutex;
    run(n_items, [&](size_t item, size_t thread) noexcept {
      try {
        body(item, thread);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (first == nullptr) first = std::current_exception();
      }
    });
    if (first != nullptr) std::rethrow_exception(first);
  }

 private:
  using Function = void (*)(const void* body, size_t item, size_t thread) noexcept;
  void run_erased(size_t n_items, Function function, const void* body) const noexcept;
  void stop() noexcept;
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace kvfork::base
