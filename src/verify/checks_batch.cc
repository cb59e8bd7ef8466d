// The checks named batch and sampling: company and seeds change nothing.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "kvfork/error.h"
#include "verify/checks.h"

namespace kvfork::checks {
namespace {

constexpr size_t kMaxWidth = 16;

BatchRequest to_batch(const CheckedRequest& request, const GenerateOptions& options) {
  return {.request = Request::unchecked(request.ids, request.n_cached), .options = options};
}

}  // namespace

Outcome Checks::check_batch() {
  // Requests of different lengths that end at different times, so that others join; one more than the width.
  constexpr size_t kManyTokens = 64;
  std::vector<CheckedRequest> short_ones;
  for (const CheckedRequest& request : served_) {
    if (request.ids.size() - request.n_cached <= kManyTokens) short_ones.push_back(request);
  }
  const auto& pool = short_ones.empty() ? served_ : short_ones;
  std::vector<BatchRequest> requests;
  std::vector<Generation> alone;
  for (size_t i = 0; i <= kMaxWidth; ++i) {
    GenerateOptions options = greedy_;
    options.max_new_tokens = 1 + i % std::min<size_t>(4, greedy_.max_new_tokens);
    requests.push_back(to_batch(pool[i % pool.size()], options));
    alone.push_back(
        subject_.answer(*context_, requests.back().request.n_cached(), requests.back().request.ids(), options));
  }
  for (size_t width = 1; width <= kMaxWidth; ++width) {
    const auto part = std::span(requests).first(width + 1);
    const auto answers = subject_.answer_all(*context_, part, width);
    for (size_t i = 0; i < part.size(); ++i) {
      const CheckedRequest& request = pool[i % pool.size()];
      std::string problem =
          answers[i].error
              ? fmt::format("prompt {}: {}", quote(request.text), answers[i].error->what())
              : find_difference(request, answers[i].generation, "in the batch", alone[i], "alone", Compare::Bits);
      if (!problem.empty())
        return {.pass = false, .detail = fmt::format("batch of width {}, request {}: {}", width, i, problem)};
    }
  }
  return {.pass = true,
          .detail = fmt::format(
              "every width from 1 to {}, with requests of different lengths that join and leave: each answer has "
              "the ids and logit bits that it has alone",
              kMaxWidth)};
}

// A temperature at which draws can differ: the likeliest id has less than half of the mass.
GenerateOptions Checks::sampling_options(const CheckedRequest& request) {
  Fork fork = context_->fork_unchecked(request.n_cached);
  fork.append(Ids(request.ids).subspan(request.n_cached));
  const auto logits = fork.logits();
  const double best = *std::max_element(logits.begin(), logits.end());
  GenerateOptions options = greedy_;
  options.eos_token_ids.clear();  // as many draws as there are new tokens
  double mass = 0;
  for (options.sampling.temperature = 0.5; options.sampling.temperature < 1000 && mass < 2;) {
    options.sampling.temperature *= 2;
    mass = 0;
    for (const float logit : logits) mass += std::exp((logit - best) / options.sampling.temperature);
  }
  return options;
}

Outcome Checks::check_sampling() {
  constexpr size_t kRequests = 2;
  constexpr uint64_t kSeeds = 16;
  const auto fail = [](const std::string& detail) { return Outcome{.pass = false, .detail = detail}; };
  std::vector<BatchRequest> batch;
  std::vector<Generation> cached;
  for (size_t i = 0; i < std::min(kRequests, served_.size()); ++i) {
    const CheckedRequest& request = served_[i];
    GenerateOptions options = sampling_options(request);
    for (const uint64_t seed : {uint64_t{1}, uint64_t{0x9E3779B97F4A7C15}}) {
      options.sampling.seed = seed;
      cached.push_back(subject_.answer(*context_, request.n_cached, request.ids, options));
      const Generation again = subject_.answer(*context_, request.n_cached, request.ids, options);
      std::string problem =
          find_difference(request, again, "drawn again", cached.back(), "drawn first", Compare::Tokens);
      if (problem.empty())
        problem = find_difference(request, cached.back(), "cached", subject_.answer_uncached(request.ids, options),
                                  "uncached", Compare::Tokens);
      if (!problem.empty()) return fail(fmt::format("seed {}: {}", seed, problem));
      batch.push_back(to_batch(request, options));
    }
  }
  const auto answers = subject_.answer_all(*context_, batch, batch.size());
  for (size_t i = 0; i < batch.size(); ++i) {
    if (answers[i].error) throw Error(*answers[i].error);
    const std::string problem =
        find_difference(served_[i / 2], answers[i].generation, "in a batch", cached[i], "alone", Compare::Tokens);
    if (!problem.empty()) return fail(fmt::format("seed {}: {}", batch[i].options.sampling.seed, problem));
  }
  const CheckedRequest& request = served_.front();
  GenerateOptions options = batch.front().options;
  bool differs = false;
  for (uint64_t seed = 2; seed < kSeeds && !differs; ++seed) {
    options.sampling.seed = seed;
    differs = subject_.answer(*context_, request.n_cached, request.ids, options).ids != cached.front().ids;
  }
  if (!differs)
    return fail(fmt::format(
        "prompt {}: {} seeds draw the same ids at temperature {}, where the likeliest id has less than half "
        "of the probability",
        quote(request.text), kSeeds - 1, options.sampling.temperature));
  return {.pass = true,
          .detail = fmt::format(
              "temperature {}: the same seed draws the same ids with the cache, again, without it and in a batch; "
              "other seeds draw others",
              options.sampling.temperature)};
}

}  // namespace kvfork::checks
