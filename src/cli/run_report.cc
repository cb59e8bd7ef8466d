#include "cli/run_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <nlohmann/json.hpp>

#include "cli/output.h"
#include "kvfork/version.h"

namespace kvfork::cli {
namespace {

using Json = nlohmann::ordered_json;

double median(std::vector<double> times) {
  if (times.empty()) return 0;
  std::sort(times.begin(), times.end());
  const size_t middle = times.size() / 2;
  return times.size() % 2 == 1 ? times[middle] : (times[middle - 1] + times[middle]) / 2;
}

Json summary(const std::vector<double>& times) {
  if (times.empty()) return nullptr;
  const auto [least, most] = std::minmax_element(times.begin(), times.end());
  return {{"median", median(times)}, {"min", *least}, {"max", *most}};
}

Json or_null(const std::optional<double>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json versions() {
  return {{"kvfork", version()}, {"compiler", __VERSION__}};
}

// "12.3 ms (11.9 .. 13.0)"
std::string shown(const std::vector<double>& times) {
  if (times.empty()) return "-";
  const auto [least, most] = std::minmax_element(times.begin(), times.end());
  return fmt::format("{:.4g} ms ({:.4g} .. {:.4g})", median(times), *least, *most);
}

}  // namespace

void print_json(const RunReport& report) {
  const ModelInfo& info = report.model->info();
  Json answers = Json::array();
  for (const RunAnswer& answer : report.answers) {
    const Generation& generation = answer.generation;
    Json shown_answer = {{"prompt", answer.prompt},
                         {"ids", generation.ids},
                         {"text", answer.text},
                         {"stop", stop_reason_name(generation.stop)},
                         {"parity", true},
                         {"tokens", generation.ids.size()},
                         {"passes", answer.passes()},
                         {"cached_tokens", answer.cached_tokens},
                         {"request_tokens", answer.request_tokens()}};
    if (!generation.logprobs.empty()) shown_answer["logprobs"] = generation.logprobs;
    shown_answer["timings"] = {{"fork_ms", summary(answer.fork_ms)},
                               {"ttft_cached_ms", summary(answer.ttft_cached_ms)},
                               {"ttft_uncached_ms", summary(answer.ttft_uncached_ms)},
                               {"decode_ms_per_token", summary(answer.decode_ms_per_token)}};
    answers.push_back(std::move(shown_answer));
  }
  write_json({{"model", report.name},
              {"revision", report.revision.empty() ? Json(nullptr) : Json(report.revision)},
              {"dtype", compute_mode_name(info.mode)},
              {"kernel_set", info.kernel_set},
              {"threads", info.n_threads},
              {"versions", versions()},
              {"context", {{"tokens", report.context->size()}, {"bytes", report.context->kv_bytes()}}},
              {"timings",
               {{"open_ms", report.open_ms},
                {"prefill_ms", or_null(report.prefill_ms)},
                {"load_ms", or_null(report.load_ms)}}},
              {"answers", std::move(answers)}});
}

void print_header(const RunReport& report) {
  const ModelInfo& info = report.model->info();
  write_output(fmt::format("model       {} ({})\n", report.name, info.architecture));
  if (!report.revision.empty()) write_output(fmt::format("revision    {}\n", report.revision));
  write_output(fmt::format("mode        {}, kernel set {}, {} thread{}\n", compute_mode_name(info.mode),
                           info.kernel_set, info.n_threads, info.n_threads == 1 ? "" : "s"));
  write_output(fmt::format("version     kvfork {}\n", version()));
  write_output(fmt::format("context     {} tokens, {} bytes of keys and values\n", report.context->size(),
                           report.context->kv_bytes()));
  write_output(
      fmt::format("parity      {} of {} prompts: every id and every logit bit equal with and without the cache\n",
                  report.answers.size(), report.answers.size()));
}

void print_prompt(const RunAnswer& answer) {
  write_output(fmt::format("\n> {}\n", answer.prompt));
}

void print_timings(const RunReport& report) {
  write_output(fmt::format("\nopen {:.1f} ms, {} {:.1f} ms\n", report.open_ms,
                           report.load_ms ? "load and check the context" : "prefill",
                           report.load_ms ? *report.load_ms : report.prefill_ms.value_or(0)));
  size_t number = 0;
  for (const RunAnswer& answer : report.answers) {
    const double cached = median(answer.ttft_cached_ms);
    const double decode = median(answer.decode_ms_per_token);
    write_output(fmt::format("prompt {}: {} cached + {} request tokens, {} new ({})\n", ++number,
                             answer.cached_tokens, answer.request_tokens(), answer.generation.ids.size(),
                             stop_reason_name(answer.generation.stop)));
    write_output(fmt::format("  fork                   {}\n", shown(answer.fork_ms)));
    write_output(fmt::format("  first token, cached    {}\n", shown(answer.ttft_cached_ms)));
    write_output(fmt::format("  first token, uncached  {}   {:.1f}x\n", shown(answer.ttft_uncached_ms),
                             cached > 0 ? median(answer.ttft_uncached_ms) / cached : 0));
    write_output(fmt::format("  decode per token       {}{}\n", shown(answer.decode_ms_per_token),
                             decode > 0 ? fmt::format("   {:.1f} tokens/s", 1000 / decode) : ""));
  }
}

}  // namespace kvfork::cli
