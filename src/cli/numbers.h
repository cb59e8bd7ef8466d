// How numbers are shown to people: one unit each, two or three digits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace kvfork::cli {

/// "1.05 us", "12.3 ms", "2.10 s", "3 min 20 s".
std::string show_time(double milliseconds);
/// "512 B", "13.5 MiB", "1.20 GiB".
std::string show_bytes(uint64_t n_bytes);
/// "41 tokens/s", "9.6 tokens/s"; "-" without time.
std::string show_rate(size_t n_tokens, double milliseconds);
/// "1 token", "18 tokens".
std::string show_count(size_t n, const char* noun);
/// Two or three digits: "9.63", "41.0", "1280".
std::string show_digits(double value);

/// One measurement, once per round; in milliseconds.
class Times {
 public:
  void add(double value) { values_.push_back(value); }
  bool empty() const noexcept { return values_.empty(); }
  size_t size() const noexcept { return values_.size(); }
  double median() const;  ///< 0 where there are none
  double least() const;
  double most() const;

 private:
  std::vector<double> values_;
};

/// "12.3 ms (11.9 to 13.0)"; without the spread for one round, "-" for none.
std::string show_times(const Times& times);

}  // namespace kvfork::cli
