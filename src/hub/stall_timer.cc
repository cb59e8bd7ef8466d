// Waits between attempts, and the time since the last progress.
#include "hub/stall_timer.h"

#include <curl/curl.h>

#include <algorithm>
#include <charconv>
#include <ctime>

namespace kvfork::hub {

namespace {
constexpr Milliseconds kFirstWait{500};
constexpr Milliseconds kLongestWait{8000};
}  // namespace

StallTimer::StallTimer(Milliseconds bound)
    : bound_(bound), last_progress_(std::chrono::steady_clock::now()), random_(std::random_device{}()) {}

void StallTimer::progress() {
  const std::lock_guard lock(mutex_);
  last_progress_ = std::chrono::steady_clock::now();
}

Milliseconds StallTimer::left() const {
  const std::lock_guard lock(mutex_);
  return bound_ - std::chrono::duration_cast<Milliseconds>(std::chrono::steady_clock::now() - last_progress_);
}

bool StallTimer::wait(int attempt, Milliseconds at_least) {
  Milliseconds full = kFirstWait * (1 << std::clamp(attempt - 1, 0, 10));
  full = std::min(full, kLongestWait);
  std::unique_lock lock(mutex_);
  const Milliseconds drawn = full / 2 + Milliseconds(random_() % static_cast<unsigned>(full.count() / 2 + 1));
  const Milliseconds pause = std::max(drawn, at_least);
  const auto until = std::chrono::steady_clock::now() + pause;
  if (until - last_progress_ > bound_) return false;
  wake_.wait_until(lock, until, [&] { return stopped_.load(); });
  return !stopped_;
}

void StallTimer::stop() {
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  wake_.notify_all();
}

std::optional<Milliseconds> parse_retry_after(const std::string& text) {
  constexpr int64_t kMaxSeconds = 365 * 24 * 3600;
  int64_t seconds = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, seconds);
  if (error == std::errc::result_out_of_range) return std::chrono::seconds(kMaxSeconds);
  if (error != std::errc{} || stop != end) {
    const time_t date = curl_getdate(text.c_str(), nullptr);
    if (date < 0) return std::nullopt;
    seconds = date - std::time(nullptr);
  }
  return std::chrono::seconds(std::clamp<int64_t>(seconds, 0, kMaxSeconds));
}

}  // namespace kvfork::hub
