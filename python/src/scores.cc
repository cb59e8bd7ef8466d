// Scores of continuations.
#include "handles.h"
#include "kvfork/score.h"

namespace kvfork::python {
namespace {

using Given = std::tuple<std::vector<int32_t>, size_t>;

// (for each request (logprobs, is_greedy) or an exception; tokens that were run; tokens without sharing)
nb::tuple score(const ModelHandle& model, std::optional<ContextHandle> context, const std::vector<Given>& given,
                bool share, nb::object on_progress) {
  std::vector<Score> scores(given.size());
  ScoreReport report;
  {
    const nb::gil_scoped_release released;
    std::vector<ScoreRequest> requests;
    for (const auto& [ids, n_given] : given) requests.push_back({ids, n_given});
    const ScoreOptions options{.share = share, .on_progress = [&](size_t n) { notify(on_progress, n); }};
    const auto on_score = [&](size_t index, Score found) { scores[index] = std::move(found); };
    report = context ? score_all(context->get(), requests, options, on_score)
                     : score_all(*model.get(), requests, options, on_score);
  }
  nb::list result;
  for (Score& found : scores) {
    if (found.error) {
      result.append(make_exception(*found.error));
    } else {
      result.append(nb::make_tuple(std::move(found.logprobs), found.is_greedy));
    }
  }
  return nb::make_tuple(result, report.n_rows, report.n_tokens);
}

}  // namespace

void bind_scores(nb::module_& module) {
  module.def("score", score, nb::arg("model"), nb::arg("context").none(), nb::arg("requests"), nb::arg("share"),
             nb::arg("on_progress").none());
}

}  // namespace kvfork::python
