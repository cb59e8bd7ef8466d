// What `kvfork run` found, and how it is shown.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cli/numbers.h"
#include "cli/session.h"
#include "kvfork/generate.h"

namespace kvfork::cli {

struct RunAnswer {
  std::string prompt;
  Request request;
  size_t n_read = 0;  ///< tokens of it that were read from the context; the others were run
  Generation generation;
  std::string text;
  Times fork;
  Times first_cached;  ///< from before the fork to the first token
  Times first_uncached;
  Times decode;  ///< per token after the first; empty where there is one new token only

  /// Over the weights: one for the request, where it adds anything, and those of the answer.
  size_t passes() const { return generation.n_passes + (request.n_new() > 0 ? 1 : 0); }
};

struct RunReport {
  std::string name;  // as --model has it
  std::vector<RunAnswer> answers;
};

void print_run_json(Session& session, const RunReport& report);
/// On standard error: what ran, and that parity was proven.
void print_run_header(Session& session, const RunReport& report);
/// The prompt on standard error (unless quiet), the answer on standard output.
void print_run_answer(const RunAnswer& answer, bool with_prompt);
/// On standard error: what the rounds of the benchmark found.
void print_run_timings(const Session& session, const RunReport& report);

}  // namespace kvfork::cli
