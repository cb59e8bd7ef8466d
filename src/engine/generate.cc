// Checks the options of a generation and runs one fork to the end of its answer.

#include "kvfork/generate.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/float_environment.h"
#include "engine/answer_builder.h"
#include "engine/lookup.h"
#include "engine/rows_on_trial.h"
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

namespace {

// Every pass runs the id picked last and a guess of those after it. The rows up to the first wrong guess are those
// that plain decoding runs; the rest is taken back.
class LookupDecoding {
 public:
  LookupDecoding(Fork& fork, engine::AnswerBuilder& answer, const std::function<bool(int32_t)>& on_token)
      : fork_(fork),
        answer_(answer),
        on_token_(on_token),
        lookup_(fork.shared_ids(), fork.own_ids(), answer.n_left()),
        ids_(1 + std::min(engine::Lookup::kMaxDraft, answer.n_left())),
        logits_(ids_.size() * fork.model()->info().vocab_size) {}

  /// Returns the number of passes.
  size_t run() {
    size_t n_passes = 0;
    for (bool goes_on = take(fork_.logits()); goes_on; ++n_passes) goes_on = run_pass();
    return n_passes;
  }

 private:
  bool run_pass() {
    ids_[0] = answer_.last_id();
    lookup_.add(ids_[0]);
    const auto draft = lookup_.draft(answer_.n_left() - 1);
    std::copy(draft.begin(), draft.end(), ids_.begin() + 1);
    const size_t n_drafted = draft.size();
    engine::RowsOnTrial rows(engine::state_of(fork_), std::span(ids_).first(1 + n_drafted), logits_);
    bool goes_on = true;
    for (bool is_right = true; goes_on && is_right;) {
      goes_on = take(rows.keep_next());
      is_right = rows.n_kept() <= n_drafted && answer_.last_id() == ids_[rows.n_kept()];
      if (goes_on && is_right) lookup_.add(answer_.last_id());
    }
    if (n_drafted > 0) lookup_.learn(n_drafted, rows.n_kept() - 1);
    return goes_on;
  }

  bool take(std::span<const float> logits) { return answer_.take(logits, fork_.size(), on_token_); }

  Fork& fork_;
  engine::AnswerBuilder& answer_;
  const std::function<bool(int32_t)>& on_token_;
  engine::Lookup lookup_;
  std::vector<int32_t> ids_;   // of a pass
  std::vector<float> logits_;  // [rows of a pass, vocab]
};

// One row per pass.
size_t decode_plainly(Fork& fork, engine::AnswerBuilder& answer, const std::function<bool(int32_t)>& on_token) {
  size_t n_passes = 0;
  for (; answer.take(fork.logits(), fork.size(), on_token); ++n_passes) fork.append({&answer.last_id(), 1});
  return n_passes;
}

}  // namespace

Generation generate(Fork& fork, const GenerateOptions& options, const std::function<bool(int32_t)>& on_token) {
  return base::only_errors([&]() -> Generation {
    const base::FloatEnvironment environment;
    check_options(options);
    engine::check_room(fork.size(), options, fork.model()->info());
    fork.reserve(fork.size() + options.max_new_tokens);
    engine::AnswerBuilder answer(*fork.model(), fork.shared_ids(), fork.own_ids(), options);
    const size_t n_passes = options.speculation == Speculation::Lookup
                                ? LookupDecoding(fork, answer, on_token).run()
                                : decode_plainly(fork, answer, on_token);
    Generation result = answer.finish();
    result.n_passes = n_passes;
    return result;
  });
}

}  // namespace kvfork
