// What `kvfork bench` found, and how it is shown on a terminal and as JSON; report_html.h shows it in a browser.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "cli/machine.h"
#include "cli/numbers.h"
#include "kvfork/model.h"

namespace kvfork::cli {

/// Everything about one prefix length. Times in milliseconds.
struct BenchRow {
  size_t prefix_tokens = 0;
  bool is_context = false;  ///< the fixed part itself, not a part or a repetition of it
  size_t kv_bytes = 0;
  Times prefill;
  Times fork;
  Times copy;          ///< the deep copy that a fork saves
  Times first_cached;  ///< from before the fork to the first token
  Times first_uncached;
  Times decode;        ///< per token after the first; empty for one new token
  Times total_cached;  ///< from before the fork to the last token
  Times total_uncached;

  /// Of the time to the first token.
  double speedup() const;
  /// From this many requests on, prefill and forks together take less time than working without a cache; nothing:
  /// never.
  std::optional<size_t> break_even() const;
};

struct BenchReport {
  ModelInfo model;
  Machine machine;
  std::string started;  ///< local time
  Load load_before;
  Load load_after;
  std::string prompt;
  size_t request_tokens = 0;
  size_t new_tokens = 0;
  size_t repeats = 0;
  std::vector<BenchRow> rows;  ///< by prefix_tokens

  /// The fixed part's row, else the longest.
  const BenchRow& headline() const;
};

void print_table(const BenchReport& report);
void print_bench_json(const BenchReport& report);

}  // namespace kvfork::cli
