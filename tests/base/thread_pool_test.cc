// The thread pool: each item runs once, shares are taken over, and threads wake up.

#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <numeric>
#include <thread>
#include <vector>

namespace kvfork::base {
namespace {

TEST(ThreadPool, EveryItemRunsOnce) {
  for (const size_t n_threads : {1, 2, 3, 8}) {
    const ThreadPool pool(n_threads);
    EXPECT_EQ(pool.n_threads(), n_threads);
    for (const size_t n_items : {0, 1, 2, 7, 1000}) {
      std::vector<std::atomic<int>> counts(n_items);
      std::atomic<bool> thread_in_range{true};
      pool.run(n_items, [&](size_t item, size_t thread) noexcept {
        ++counts[item];
        if (thread >= n_threads) thread_in_range = false;
      });
      for (size_t i = 0; i < n_items; ++i) EXPECT_EQ(counts[i], 1) << "item " << i << " of " << n_items;
      EXPECT_TRUE(thread_in_range);
    }
  }
}

TEST(ThreadPool, ManyShortRegionsFollowEachOther) {
  const ThreadPool pool(4);
  size_t total = 0;
  for (size_t region = 0; region < 20000; ++region) {
    std::atomic<size_t> sum{0};
    pool.run(5, [&](size_t item, size_t) noexcept { sum += item + region; });
    ASSERT_EQ(sum, 10 + 5 * region);
    total += sum;
  }
  EXPECT_GT(total, 0u);
}

TEST(ThreadPool, ShortRegionsOfVariedSizeRunEveryItemOnce) {
  for (const size_t n_threads : {2, 3, 4}) {
    const ThreadPool pool(n_threads);
    std::array<std::atomic<int>, 9> counts;
    for (size_t region = 0; region < 20000; ++region) {
      const size_t n_items = 2 + region % 8;
      for (auto& count : counts) count = 0;
      pool.run(n_items, [&](size_t item, size_t) noexcept { ++counts[item]; });
      for (size_t i = 0; i < counts.size(); ++i)
        ASSERT_EQ(counts[i], i < n_items ? 1 : 0) << "item " << i << " of " << n_items << ", region " << region;
    }
  }
}

// True once `condition` holds; false after a time no healthy machine takes.
template <typename Condition>
bool holds_in_time(const Condition& condition) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

TEST(ThreadPool, OthersTakeWhatABlockedThreadCannot) {
  constexpr size_t kItems = 9;
  for (const size_t n_threads : {2, 3, 4}) {
    const ThreadPool pool(n_threads);
    for (size_t blocked = 0; blocked < kItems; ++blocked) {
      std::atomic<size_t> n_done{0};
      std::atomic<bool> in_time{true};
      pool.run(kItems, [&](size_t item, size_t) noexcept {
        if (item == blocked && !holds_in_time([&] { return n_done == kItems - 1; })) in_time = false;
        ++n_done;
      });
      ASSERT_TRUE(in_time) << n_threads << " threads, item " << blocked;
    }
  }
}

// All threads take their items at the same time, so that none has time for another's share.
TEST(ThreadPool, AThreadTakesItsOwnShareInOrder) {
  constexpr size_t kShare = 4;
  for (const size_t n_threads : {2, 3}) {
    const ThreadPool pool(n_threads);
    std::vector<std::vector<size_t>> taken(n_threads);
    std::atomic<size_t> n_taken{0};
    std::atomic<bool> in_time{true};
    pool.run(n_threads * kShare, [&](size_t item, size_t thread) noexcept {
      taken[thread].push_back(item);
      ++n_taken;
      const size_t all = taken[thread].size() * n_threads;
      if (!holds_in_time([&] { return n_taken >= all; })) in_time = false;
    });
    EXPECT_TRUE(in_time) << "a thread never took an item";
    for (size_t thread = 0; thread < n_threads; ++thread) {
      std::vector<size_t> share(kShare);
      std::iota(share.begin(), share.end(), thread * kShare);
      EXPECT_EQ(taken[thread], share) << "thread " << thread << " of " << n_threads;
    }
  }
}

TEST(ThreadPool, WakesThreadsThatSleep) {
  const ThreadPool pool(2);
  for (int round = 0; round < 5; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    std::atomic<int> n_inside{0};
    std::atomic<bool> both{false};
    pool.run(2, [&](size_t, size_t) noexcept {
      ++n_inside;
      const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
      while (n_inside < 2 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
      if (n_inside == 2) both = true;
    });
    EXPECT_TRUE(both) << "the second thread never took an item";
  }
}

TEST(ThreadPool, CallsFromManyThreadsAreSerialized) {
  const ThreadPool pool(3);
  std::atomic<int> n_active_callers{0};
  std::atomic<bool> overlapped{false};
  std::vector<std::thread> callers;
  std::atomic<size_t> total{0};
  for (size_t caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&, caller] {
      for (int i = 0; i < 500; ++i) {
        std::atomic<size_t> mine{0};
        pool.run(4, [&](size_t item, size_t) noexcept {
          if (item == 0 && n_active_callers.fetch_add(1) != 0) overlapped = true;
          mine += caller + 1;
          if (item == 0) --n_active_callers;
        });
        total += mine;
      }
    });
  }
  for (auto& caller : callers) caller.join();
  EXPECT_EQ(total, 500u * 4u * (1 + 2 + 3 + 4));
  EXPECT_FALSE(overlapped);
}

TEST(ThreadPool, AvailableCoresIsPositive) {
  EXPECT_GE(available_cores(), 1u);
}

}  // namespace
}  // namespace kvfork::base
