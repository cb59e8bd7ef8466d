// What `kvfork run` found, and how it is shown.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kvfork/context.h"
#include "kvfork/generate.h"
#include "kvfork/model.h"

namespace kvfork::cli {

/// Times in milliseconds, one per round of the benchmark.
struct RunAnswer {
  std::string prompt;
  std::vector<int32_t> request;  // the whole request's ids, the context's included
  size_t cached_tokens = 0;      // of those, read from the context
  Generation generation;
  std::string text;
  std::vector<double> fork_ms;
  std::vector<double> ttft_cached_ms;  // from before the fork to the first token
  std::vector<double> ttft_uncached_ms;
  std::vector<double> decode_ms_per_token;  // empty where there is one new token only

  size_t request_tokens() const { return request.size() - cached_tokens; }
  /// Over the weights: one for the request, where it adds anything, and those of the answer.
  size_t passes() const { return generation.n_passes + (request_tokens() > 0 ? 1 : 0); }
};

struct RunReport {
  std::string name;      // as --model has it
  std::string revision;  // the Hub's commit; empty where none is known
  std::shared_ptr<const Model> model;
  std::shared_ptr<const Context> context;
  double open_ms = 0;
  std::optional<double> prefill_ms;  // a context is prefilled
  std::optional<double> load_ms;     // or opened from a file
  std::vector<RunAnswer> answers;
};

void print_json(const RunReport& report);
void print_header(const RunReport& report);
void print_prompt(const RunAnswer& answer);
void print_timings(const RunReport& report);

}  // namespace kvfork::cli
