// Ends a pull that makes no progress: growing waits between attempts, and one clock for the whole pull.
//
// The clock restarts whenever something useful arrived. It keeps a server that stalls, trickles or keeps asking to
// come back from holding a pull for more than its bound. Thread rule: safe from any thread.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <random>
#include <string>

namespace kvfork::hub {

using Milliseconds = std::chrono::milliseconds;

class StallTimer {
 public:
  /// `bound`: the longest time without progress.
  explicit StallTimer(Milliseconds bound);

  void progress();
  /// Time left until the bound; zero or less when it has passed.
  Milliseconds left() const;

  /// Sleeps before attempt number `attempt` (1 for the first repetition): half a second, doubled each time up to
  /// 8 s, cut at random to between half and all of that; or `at_least`, if that is longer. False when that would
  /// pass the bound (then it has not slept), or when `stop` was called.
  bool wait(int attempt, Milliseconds at_least);

  /// Ends all waits, now and later.
  void stop();
  const std::atomic<bool>& stopped() const { return stopped_; }

 private:
  const Milliseconds bound_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::chrono::steady_clock::time_point last_progress_;
  std::minstd_rand random_;
  std::atomic<bool> stopped_ = false;
};

/// Retry-After: seconds or an HTTP date. Empty for text that is neither.
std::optional<Milliseconds> parse_retry_after(const std::string& text);

}  // namespace kvfork::hub
