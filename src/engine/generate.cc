#include "kvfork/generate.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "engine/fork_impl.h"
#include "engine/sampler.h"
#include "kvfork/fork.h"
#include "kvfork/model.h"

namespace kvfork {
namespace {

// A 64-bit digest of the bits of one position's logits.
uint64_t fingerprint(std::span<const float> logits) {
  uint64_t hash = 0xCBF29CE484222325u;
  for (const float value : logits) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof(bits));
    hash = (hash ^ bits) * 0x100000001B3u;
  }
  return hash;
}

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
}

Generation generate(Fork& fork, const GenerateOptions& options, const std::function<bool(int32_t)>& on_token) {
  check_options(options);
  const ModelInfo& info = fork.model()->info();
  const size_t limit = info.max_position_embeddings;
  if (fork.size() > limit || options.max_new_tokens > limit - fork.size())
    base::fail(ErrorCode::Limit,
               "context limit: expected at most {} tokens (max_position_embeddings), found {} of context and request and "
               "{} new; ask for fewer new tokens or shorten the text",
               limit, fork.size(), options.max_new_tokens);
  fork.reserve(fork.size() + options.max_new_tokens);
  engine::Sampler sampler(options, fork.shared_ids(), fork.own_ids(), info.vocab_size);
  Generation result;
  result.ids.reserve(options.max_new_tokens);
  while (true) {
    const int32_t id = sampler.pick(fork.logits(), fork.size());
    if (options.fingerprint_logits) result.logit_fingerprints.push_back(fingerprint(fork.logits()));
    result.ids.push_back(id);
    const bool goes_on = !on_token || on_token(id);
    const auto& eos = options.eos_token_ids;
    if (std::find(eos.begin(), eos.end(), id) != eos.end()) {
      result.stop = StopReason::Eos;
      break;
    }
    if (!goes_on) {
      result.stop = StopReason::Stop;
      break;
    }
    if (result.ids.size() == options.max_new_tokens) break;
    fork.append({&id, 1});
  }
  return result;
}

}  // namespace kvfork
