// How likely a model finds given continuations: many requests, whose shared beginnings are run once.
//
// Requests are laid out as a tree of shared token prefixes: what several of them begin with is run once and forked.
// Each score has the bits that its request has alone, whatever the order and the company. Any number of threads may
// score at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "kvfork/error.h"

namespace kvfork {

class Context;
class Model;

struct ScoreRequest {
  std::vector<int32_t> ids;  ///< what is given, and what is scored after it
  size_t n_given = 1;        ///< ids that are given; at least 1, since nothing predicts the first
};

struct Score {
  std::vector<double> logprobs;  ///< [ids.size() - n_given] log_probability() of each scored id
  bool is_greedy = true;         ///< each scored id is the most likely one; of equals the lowest
  std::optional<Error> error;    ///< why there is no score: ids out of range, beyond the context limit, boundary
};

struct ScoreOptions {
  bool share = true;  ///< false: each request is run by itself, for comparison
  /// Called while requests run, with the tokens that were run so far. What it throws ends the call and comes out.
  std::function<void(size_t n_rows)> on_progress;
};

struct ScoreReport {
  size_t n_rows = 0;    ///< tokens that were run
  size_t n_tokens = 0;  ///< tokens that the requests have in all, but for their last, which is only predicted
};

/// Scores all requests from position 0. `on_score` is called once for each, `index` is its place in the span. An
/// error of one request does not touch the others. Throws Error{Corrupt} when logits are not numbers, Error{Limit}
/// when memory is refused, and what a callback throws.
ScoreReport score_all(const Model& model, std::span<const ScoreRequest> requests, const ScoreOptions& options,
                      const std::function<void(size_t index, Score score)>& on_score);

/// The same for requests that begin with the ids of a context, which are read from it and are all given.
ScoreReport score_all(const Context& context, std::span<const ScoreRequest> requests, const ScoreOptions& options,
                      const std::function<void(size_t index, Score score)>& on_score);

}  // namespace kvfork
