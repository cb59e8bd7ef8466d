// The one formatter of times, sizes, rates and counts.
#include "cli/numbers.h"

#include <fmt/format.h>

#include <algorithm>

namespace kvfork::cli {

std::string show_digits(double value) {
  return fmt::format("{:.{}f}", value, value < 9.995 ? 2 : value < 99.95 ? 1 : 0);
}

std::string show_time(double milliseconds) {
  if (milliseconds < 0.9995) return show_digits(milliseconds * 1000) + " us";
  if (milliseconds < 999.5) return show_digits(milliseconds) + " ms";
  const double seconds = milliseconds / 1000;
  if (seconds < 119.5) return show_digits(seconds) + " s";
  const auto whole = static_cast<uint64_t>(seconds + 0.5);
  if (whole < 7200) return fmt::format("{} min {} s", whole / 60, whole % 60);
  return fmt::format("{} h {} min", whole / 3600, whole / 60 % 60);
}

std::string show_bytes(uint64_t n_bytes) {
  auto value = static_cast<double>(n_bytes);
  if (value < 1023.5) return fmt::format("{} B", n_bytes);
  const char* unit = "B";
  for (const char* next : {"KiB", "MiB", "GiB", "TiB"}) {
    if (value < 1023.5) break;
    value /= 1024;
    unit = next;
  }
  return fmt::format("{} {}", show_digits(value), unit);
}

std::string show_rate(size_t n_tokens, double milliseconds) {
  if (milliseconds <= 0) return "-";
  const double rate = static_cast<double>(n_tokens) * 1000 / milliseconds;
  return fmt::format("{:.{}f} tokens/s", rate, rate < 9.95 ? 1 : 0);
}

std::string show_count(size_t n, const char* noun) {
  return fmt::format("{} {}{}", n, noun, n == 1 ? "" : "s");
}

double Times::median() const {
  if (values_.empty()) return 0;
  std::vector<double> sorted = values_;
  std::sort(sorted.begin(), sorted.end());
  const size_t middle = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

double Times::least() const {
  return values_.empty() ? 0 : *std::min_element(values_.begin(), values_.end());
}

double Times::most() const {
  return values_.empty() ? 0 : *std::max_element(values_.begin(), values_.end());
}

std::string show_times(const Times& times) {
  if (times.empty()) return "-";
  if (times.least() == times.most()) return show_time(times.median());
  return fmt::format("{} ({} to {})", show_time(times.median()), show_time(times.least()), show_time(times.most()));
}

}  // namespace kvfork::cli
