// The checks named parity, logit_bits, empty and whitespace: a fork of the context against the whole request from
// position 0.

#include <fmt/format.h>

#include <algorithm>

#include "verify/checks.h"

namespace kvfork::checks {
namespace {

std::string show_lengths(const std::vector<CheckedRequest>& requests) {
  size_t least = SIZE_MAX;
  size_t most = 0;
  for (const CheckedRequest& request : requests) {
    least = std::min(least, request.ids.size() - request.n_cached);
    most = std::max(most, request.ids.size() - request.n_cached);
  }
  return least == most ? fmt::format("{}", most) : fmt::format("{} to {}", least, most);
}

size_t count_new_tokens(const std::vector<Comparison>& comparisons) {
  size_t n = 0;
  for (const Comparison& comparison : comparisons) n += comparison.uncached.ids.size();
  return n;
}

}  // namespace

const std::vector<Comparison>& Checks::comparisons() {
  if (comparisons_.empty()) {
    for (const CheckedRequest& request : served_)
      comparisons_.push_back({.cached = subject_.answer(*context_, request.n_cached, request.ids, greedy_),
                              .uncached = subject_.answer_uncached(request.ids, greedy_)});
  }
  return comparisons_;
}

Outcome Checks::check_parity() {
  Outcome outcome{.pass = true};
  for (size_t i = 0; i < served_.size(); ++i) {
    const Comparison& comparison = comparisons()[i];
    const std::string difference =
        find_difference(served_[i], comparison.cached, "cached", comparison.uncached, "uncached", Compare::Tokens);
    if (difference.empty()) continue;
    if (*outcome.pass) outcome.detail = difference;
    outcome.pass = false;
    outcome.lines.push_back(difference);
  }
  if (*outcome.pass)
    outcome.detail =
        fmt::format("{} prompts of {} request tokens: all {} new greedy ids are equal with and without the cache",
                    served_.size(), show_lengths(served_), count_new_tokens(comparisons()));
  return outcome;
}

Outcome Checks::check_logit_bits() {
  Outcome outcome{.pass = true};
  for (size_t i = 0; i < served_.size(); ++i) {
    const Comparison& comparison = comparisons()[i];
    std::string difference =
        find_difference(served_[i], comparison.cached, "cached", comparison.uncached, "uncached", Compare::Logits);
    if (difference.empty()) continue;
    if (*outcome.pass) outcome.detail = difference;
    outcome.pass = false;
    outcome.lines.push_back(std::move(difference));
  }
  if (*outcome.pass)
    outcome.detail = fmt::format(
        "{} prompts: the logits that each of the {} new ids was picked from have the same bits with and "
        "without the cache",
        served_.size(), count_new_tokens(comparisons()));
  return outcome;
}

// Blank requests that the context serves must come out as they do without it.
void Checks::compare_blank(const std::vector<std::string>& texts, Outcome& outcome) {
  size_t n_equal = 0;
  std::string refused;
  for (const std::string& text : texts) {
    const CheckedRequest request = make_request(text);
    if (!request.problem.empty()) {
      refused = fmt::format("{}: {}", quote(text), request.problem);
      outcome.lines.push_back(refused);
      continue;
    }
    if (!has_room(request)) {
      outcome.lines.push_back(fmt::format("{}: no room below the context limit", quote(text)));
      continue;
    }
    const Generation cached = subject_.answer(*context_, request.n_cached, request.ids, greedy_);
    const Generation uncached = subject_.answer_uncached(request.ids, greedy_);
    const std::string difference = find_difference(request, cached, "cached", uncached, "uncached", Compare::Bits);
    if (!difference.empty()) {
      outcome.pass = false;
      outcome.detail = difference;
      return;
    }
    ++n_equal;
    outcome.lines.push_back(fmt::format("{}: {} request tokens, {} new ids, every bit equal", quote(text),
                                        request.ids.size() - request.n_cached, cached.ids.size()));
  }
  if (n_equal > 0) {
    outcome.pass = true;
    outcome.detail =
        fmt::format("{} of {} answered, every id and logit bit equal with and without the cache{}", n_equal,
                    texts.size(), refused.empty() ? "" : "; refused, not answered wrongly: " + refused);
  } else {
    outcome.detail =
        "not run: " + (refused.empty() ? std::string("no room below the context limit") : "refused: " + refused);
  }
}

Outcome Checks::check_empty() {
  Outcome outcome;
  compare_blank({""}, outcome);
  return outcome;
}

Outcome Checks::check_whitespace() {
  Outcome outcome;
  compare_blank({" ", "\n", " \t\n  \n"}, outcome);
  return outcome;
}

}  // namespace kvfork::checks
