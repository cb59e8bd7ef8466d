// Scores of continuations: requests as a tree of shared token prefixes, each of which is run once.
#include "kvfork/score.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "kvfork/boundary.h"
#include "kvfork/context.h"
#include "kvfork/fork.h"
#include "kvfork/generate.h"
#include "kvfork/model.h"

namespace kvfork {
namespace {

// What the model said of the id at one position.
struct Predicted {
  double logprob = 0;
  bool is_best = false;
};

Predicted predict(std::span<const float> logits, int32_t id) {
  const Predicted predicted{log_probability(logits, id), std::ranges::max_element(logits) - logits.begin() == id};
  if (!std::isfinite(predicted.logprob))
    base::fail(ErrorCode::Corrupt, "logits: expected numbers, found {} for id {}; are the weights intact?",
               predicted.logprob, id);
  return predicted;
}

class ScoreTree {
 public:
  using OnScore = std::function<void(size_t, Score)>;

  ScoreTree(const Model& model, const Context* context, std::span<const ScoreRequest> requests,
            const ScoreOptions& options, const OnScore& on_score)
      : model_(model), context_(context), requests_(requests), options_(options), on_score_(on_score) {}

  ScoreReport run() {
    for (size_t i = 0; i < requests_.size(); ++i) {
      try {
        check(requests_[i]);
        order_.push_back(i);
        report_.n_tokens += requests_[i].ids.size() - 1;
      } catch (const Error& error) {
        on_score_(i, {.is_greedy = false, .error = error});
      }
    }
    if (options_.share) {
      std::ranges::stable_sort(order_, [&](size_t a, size_t b) { return ids(a) < ids(b); });
      if (!order_.empty()) run_group({0, order_.size()}, start());
    } else {
      for (size_t i = 0; i < order_.size(); ++i) run_group({i, i + 1}, start());
    }
    return report_;
  }

 private:
  // Neighbours in order_.
  struct Group {
    size_t begin, end;
  };

  const std::vector<int32_t>& ids(size_t request) const { return requests_[request].ids; }
  const std::vector<int32_t>& ids_at(size_t place) const { return ids(order_[place]); }

  Fork start() const { return context_ != nullptr ? context_->fork_unchecked() : model_.start(); }

  void check(const ScoreRequest& request) const {
    const ModelInfo& info = model_.info();
    const size_t least = context_ != nullptr ? context_->size() : 1;
    if (context_ != nullptr) count_cached_tokens(context_->ids(), request.ids, BoundaryMode::Message);
    if (request.n_given < least || request.n_given > request.ids.size())
      base::fail(ErrorCode::InvalidArgument, "score: expected from {} to {} given ids, found {}", least,
                 request.ids.size(), request.n_given);
    for (const int32_t id : request.ids) {
      if (id < 0 || static_cast<size_t>(id) >= info.vocab_size)
        base::fail(ErrorCode::InvalidArgument, "score: expected ids below {}, found {}", info.vocab_size, id);
    }
    if (request.ids.size() - 1 > info.max_position_embeddings)
      base::fail(ErrorCode::Limit, "context limit: expected at most {} tokens (max_position_embeddings), found {}",
                 info.max_position_embeddings, request.ids.size() - 1);
  }

  // All requests of the group begin with what `fork` holds.
  void run_group(Group group, Fork fork) {
    const std::vector<int32_t>& first = ids_at(group.begin);
    const std::vector<int32_t>& last = ids_at(group.end - 1);
    size_t longest = 0;
    size_t least_given = first.size();
    for (size_t i = group.begin; i < group.end; ++i) {
      longest = std::max(longest, ids_at(i).size());
      least_given = std::min(least_given, requests_[order_[i]].n_given);
    }
    // Sorted, so what the first and the last share is shared by all.
    const size_t shared = static_cast<size_t>(std::ranges::mismatch(first, last).in1 - first.begin());
    const size_t end = std::max(fork.size(), std::min(shared, longest - 1));
    feed(fork, std::span(first).first(end), least_given);

    size_t i = group.begin;
    for (; i < group.end && ids_at(i).size() <= end; ++i) finish(order_[i]);
    run_branches({i, group.end}, std::move(fork), least_given);
  }

  // The requests that go on after what `fork` holds, by their next id.
  void run_branches(Group group, Fork fork, size_t least_given) {
    const size_t depth = fork.size();
    bool goes_on = false;  // beyond the next id, which needs no pass to be predicted
    for (size_t i = group.begin; i < group.end; ++i) goes_on = goes_on || ids_at(i).size() > depth + 1;
    std::shared_ptr<const Context> sealed;
    std::span<const float> logits;
    if (goes_on && depth > 0) {
      sealed = std::move(fork).seal();
      logits = sealed->logits();
    } else if (depth > 0) {
      logits = fork.logits();
    }
    for (size_t begin = group.begin, end; begin < group.end; begin = end) {
      const int32_t next = ids_at(begin)[depth];
      for (end = begin; end < group.end && ids_at(end)[depth] == next;) ++end;
      if (depth >= least_given) take(depth, logits, next);
      size_t first = begin;
      for (; first < end && ids_at(first).size() == depth + 1; ++first) finish(order_[first]);
      if (first < end) run_group({first, end}, sealed != nullptr ? sealed->fork_unchecked() : start());
    }
  }

  // Runs what `fork` lacks of these ids; of those from `least_given` on the predictions are taken.
  void feed(Fork& fork, std::span<const int32_t> path, size_t least_given) {
    const size_t start = fork.size();
    if (path.size() == start) return;
    if (start >= least_given) take(start, fork.logits(), path[start]);
    const size_t middle = std::clamp(least_given - 1, start, path.size());
    const size_t before = report_.n_rows;
    fork.append(path.subspan(start, middle - start), [&](size_t done) { progress(before + done); });
    report_.n_rows = before + middle - start;
    if (middle == path.size()) return;
    const size_t vocab_size = model_.info().vocab_size;
    fork.append_scored(path.subspan(middle), [&](size_t first, std::span<const float> rows) {
      const size_t n = rows.size() / vocab_size;
      for (size_t row = 0; row < n; ++row) {
        const size_t position = middle + first + row + 1;
        if (position < path.size()) take(position, rows.subspan(row * vocab_size, vocab_size), path[position]);
      }
      progress(report_.n_rows + n);
    });
  }

  void progress(size_t n_rows) {
    report_.n_rows = n_rows;
    if (options_.on_progress) options_.on_progress(n_rows);
  }

  void take(size_t position, std::span<const float> logits, int32_t id) {
    if (predicted_.size() <= position) predicted_.resize(position + 1);
    predicted_[position] = predict(logits, id);
  }

  void finish(size_t request) {
    Score score;
    for (size_t i = requests_[request].n_given; i < ids(request).size(); ++i) {
      score.logprobs.push_back(predicted_[i].logprob);
      score.is_greedy = score.is_greedy && predicted_[i].is_best;
    }
    on_score_(request, std::move(score));
  }

  const Model& model_;
  const Context* context_;  // may be null
  std::span<const ScoreRequest> requests_;
  const ScoreOptions& options_;
  const OnScore& on_score_;
  std::vector<size_t> order_;         // requests that run
  std::vector<Predicted> predicted_;  // of the ids on the way to the group at hand
  ScoreReport report_;
};

}  // namespace

ScoreReport score_all(const Model& model, std::span<const ScoreRequest> requests, const ScoreOptions& options,
                      const std::function<void(size_t, Score)>& on_score) {
  return base::only_errors([&] { return ScoreTree(model, nullptr, requests, options, on_score).run(); });
}

ScoreReport score_all(const Context& context, std::span<const ScoreRequest> requests, const ScoreOptions& options,
                      const std::function<void(size_t, Score)>& on_score) {
  return base::only_errors(
      [&] { return ScoreTree(*context.model(), &context, requests, options, on_score).run(); });
}

}  // namespace kvfork
