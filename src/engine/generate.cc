#include "kvfork/generate.h"

#include <cmath>

#include "base/error.h"
#include "engine/answering.h"
#include "kvfork/fork.h"
#include "kvfork/model.h"

namespace kvfork {
namespace {

void expect(bool holds, const char* name, const char* range, double found) {
  if (!holds) base::fail(ErrorCode::InvalidArgument, "{}: expected {}, found {}", name, range, found);
}

}  // namespace

const char* stop_reason_name(StopReason reason) noexcept {
  switch (reason) {
    case StopReason::Eos:
      return "eos";
    case StopReason::Length:
      return "length";
    case StopReason::Stop:
      return "stop";
  }
  return "";
}

GenerateOptions GenerateOptions::from_defaults(const GenerationDefaults& defaults, size_t max_new_tokens) {
  GenerateOptions options;
  options.max_new_tokens = max_new_tokens;
  options.eos_token_ids = defaults.eos_token_ids;
  options.repetition_penalty = defaults.repetition_penalty;
  return options;
}

void check_options(const GenerateOptions& options) {
  const SamplingOptions& sampling = options.sampling;
  expect(options.max_new_tokens > 0, "max_new_tokens", "at least 1", static_cast<double>(options.max_new_tokens));
  expect(std::isfinite(options.repetition_penalty) && options.repetition_penalty > 0, "repetition_penalty",
         "a number above 0", options.repetition_penalty);
  expect(std::isfinite(sampling.temperature) && sampling.temperature >= 0, "temperature", "a number of at least 0",
         sampling.temperature);
  expect(sampling.top_p > 0 && sampling.top_p <= 1, "top_p", "a number above 0 and up to 1", sampling.top_p);
  expect(sampling.min_p >= 0 && sampling.min_p <= 1, "min_p", "a number from 0 to 1", sampling.min_p);
  for (const std::string& stop : options.stop) {
    if (stop.empty()) base::fail(ErrorCode::InvalidArgument, "stop: expected text, found an empty string");
  }
}

Generation generate(Fork& fork, const GenerateOptions& options, const std::function<bool(int32_t)>& on_token) {
  check_options(options);
  engine::check_room(fork.size(), options, fork.model()->info());
  fork.reserve(fork.size() + options.max_new_tokens);
  engine::Answering answering(*fork.model(), fork.shared_ids(), fork.own_ids(), options);
  while (answering.take(fork.logits(), fork.size(), on_token)) fork.append({&answering.last_id(), 1});
  return answering.finish();
}

}  // namespace kvfork
