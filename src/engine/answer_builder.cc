// Picks the ids of one answer, one after the other, until something ends it.

#include "engine/answer_builder.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/float_environment.h"
#include "kvfork/model.h"
#include "kvfork/text.h"

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

}  // namespace

double log_probability(std::span<const float> logits, int32_t id) {
  const base::FloatEnvironment environment;
  if (id < 0 || static_cast<size_t>(id) >= logits.size())
    base::fail(ErrorCode::InvalidArgument, "log_probability: expected an id below {}, found {}", logits.size(), id);
  const double best = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - best);
  double result = logits[static_cast<size_t>(id)] - (best + std::log(sum));
  asm volatile("" : "+x"(result));  // computed here: not after the caller's environment is back
  return result;
}

namespace engine {

void check_room(size_t n_tokens, const GenerateOptions& options, const ModelInfo& info) {
  const size_t limit = info.max_position_embeddings;
  if (n_tokens > limit || options.max_new_tokens > limit - n_tokens)
    base::fail(
        ErrorCode::Limit,
        "context limit: expected at most {} tokens (max_position_embeddings), found {} of context and request and "
        "{} new; ask for fewer new tokens or shorten the text",
        limit, n_tokens, options.max_new_tokens);
}

AnswerBuilder::AnswerBuilder(const Model& model, std::span<const int32_t> shared_ids,
                             std::span<const int32_t> own_ids, const GenerateOptions& options)
    : options_(options), sampler_(options, shared_ids, own_ids, model.info().vocab_size) {
  if (!options.stop.empty()) text_.emplace(model.text().tokenizer(), options.stop);
  result_.ids.reserve(options.max_new_tokens);
  if (options.fingerprint_logits) result_.logit_fingerprints.reserve(options.max_new_tokens);
  if (options.logprobs) result_.logprobs.reserve(options.max_new_tokens);
}

bool AnswerBuilder::take(std::span<const float> logits, size_t position,
                         const std::function<bool(int32_t)>& on_token) {
  const int32_t id = sampler_.pick(logits, position);
  if (options_.fingerprint_logits) result_.logit_fingerprints.push_back(fingerprint(logits));
  if (options_.logprobs) result_.logprobs.push_back(log_probability(logits, id));
  result_.ids.push_back(id);
  if (text_) text_->push(id);
  const bool goes_on = !on_token || on_token(id);
  const auto& eos = options_.eos_token_ids;
  if (std::find(eos.begin(), eos.end(), id) != eos.end()) {
    result_.stop = StopReason::Eos;
    return false;
  }
  if (!goes_on || (text_ && text_->stopped())) {
    result_.stop = StopReason::Stop;
    return false;
  }
  return result_.ids.size() < options_.max_new_tokens;
}

Generation AnswerBuilder::finish() {
  // Text that was held back until the end may hold a stop string too.
  if (text_ && result_.stop == StopReason::Length) {
    text_->finish();
    if (text_->stopped()) result_.stop = StopReason::Stop;
  }
  return std::exchange(result_, {});
}

}  // namespace engine
}  // namespace kvfork
