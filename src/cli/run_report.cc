// The text and the JSON of `kvfork run`.
#include "cli/run_report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "cli/json_parts.h"
#include "cli/output.h"
#include "kvfork/version.h"

namespace kvfork::cli {
namespace {

using Json = nlohmann::ordered_json;

Json to_json(const RunAnswer& answer) {
  const Generation& generation = answer.generation;
  Json json = {{"prompt", answer.prompt},
               {"ids", generation.ids},
               {"text", answer.text},
               {"stop", stop_reason_name(generation.stop)},
               {"parity", true},
               {"tokens", generation.ids.size()},
               {"passes", answer.passes()},
               {"cached_tokens", answer.n_read},
               {"request_tokens", answer.request.size() - answer.n_read}};
  if (!generation.logprobs.empty()) json["logprobs"] = generation.logprobs;
  json["timings"] = {{"fork_ms", times_json(answer.fork)},
                     {"ttft_cached_ms", times_json(answer.first_cached)},
                     {"ttft_uncached_ms", times_json(answer.first_uncached)},
                     {"decode_ms_per_token", times_json(answer.decode)}};
  return json;
}

}  // namespace

void print_run_json(Session& session, const RunReport& report) {
  Json answers = Json::array();
  for (const RunAnswer& answer : report.answers) answers.push_back(to_json(answer));
  Json json = {{"model", report.name}, {"revision", or_null(session.revision())}};
  json.update(what_ran_json(session.model()));
  json["context"] = {{"tokens", session.context()->size()}, {"bytes", session.context()->kv_bytes()}};
  json["timings"] = {{"open_ms", session.open_ms()},
                     {"prefill_ms", or_null(session.prefill_ms())},
                     {"load_ms", or_null(session.load_ms())}};
  json["answers"] = std::move(answers);
  write_json(json);
}

void print_run_header(Session& session, const RunReport& report) {
  const ModelInfo& info = session.model().info();
  const size_t n = report.answers.size();
  print_note("model    {} ({}){}", report.name, info.architecture,
             session.revision().empty() ? "" : ", revision " + session.revision());
  print_note("mode     {}, kernel set {}, {}, kvfork {}", compute_mode_name(info.mode), info.kernel_set,
             show_count(info.n_threads, "thread"), version());
  const auto& context = *session.context();
  print_note("context  {}, {}; {}", show_count(context.size(), "token"), show_bytes(context.kv_bytes()),
             session.load_ms() ? fmt::format("opened in {}", show_time(*session.load_ms()))
                               : fmt::format("prefilled in {} ({})", show_time(*session.prefill_ms()),
                                             show_rate(context.size(), *session.prefill_ms())));
  print_note("parity   {} of {}: every id and every logit bit is equal with and without the cache", n,
             show_count(n, "prompt"));
}

void print_run_answer(const RunAnswer& answer, bool with_prompt) {
  if (with_prompt) print_note("\n> {}", answer.prompt);
  write_text(answer.text + "\n");
  flush_output();
}

void print_run_timings(const Session& session, const RunReport& report) {
  const size_t n_rounds = report.answers.front().first_cached.size();
  print_note("\n{} per prompt: medians{}", show_count(n_rounds, "round"),
             n_rounds > 1 ? " (and the least to the most)" : "");
  double saved = 0;
  size_t number = 0;
  for (const RunAnswer& answer : report.answers) {
    const double cached = answer.first_cached.median();
    const double uncached = answer.first_uncached.median();
    saved += uncached - cached;
    print_note("prompt {}: {} from the cache, {} of the request, {} new ({})", ++number, answer.n_read,
               answer.request.size() - answer.n_read, answer.generation.ids.size(),
               stop_reason_name(answer.generation.stop));
    print_note("  fork                       {}", show_times(answer.fork));
    print_note("  first token with cache     {}", show_times(answer.first_cached));
    print_note("  first token without cache  {}, {} times later", show_times(answer.first_uncached),
               show_digits(cached > 0 ? uncached / cached : 0));
    if (!answer.decode.empty())
      print_note("  decode                     {} per token, {}", show_times(answer.decode),
                 show_rate(1, answer.decode.median()));
  }
  const double paid = session.prefill_ms().value_or(session.load_ms().value_or(0));
  print_note("The cache saves {} for {}; {} took {}.", show_time(std::max(saved, 0.0)),
             number == 1 ? "this request" : fmt::format("these {} requests", number),
             session.load_ms() ? "opening it" : "making it", show_time(paid));
}

}  // namespace kvfork::cli
