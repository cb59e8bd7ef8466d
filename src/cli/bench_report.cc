// The table and the JSON of `kvfork bench`.
#include "cli/bench_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "cli/json_parts.h"
#include "cli/output.h"
#include "kvfork/version.h"

namespace kvfork::cli {
namespace {

using Json = nlohmann::ordered_json;

Json to_json(const Load& load) {
  return {load.one_minute, load.five_minutes};
}

Json to_json(const BenchRow& row) {
  const auto break_even = row.break_even();
  return {{"prefix_tokens", row.prefix_tokens},
          {"is_context", row.is_context},
          {"kv_bytes", row.kv_bytes},
          {"prefill_ms", times_json(row.prefill)},
          {"fork_ms", times_json(row.fork)},
          {"copy_ms", times_json(row.copy)},
          {"ttft_cached_ms", times_json(row.first_cached)},
          {"ttft_uncached_ms", times_json(row.first_uncached)},
          {"decode_ms_per_token", times_json(row.decode)},
          {"total_cached_ms", times_json(row.total_cached)},
          {"total_uncached_ms", times_json(row.total_uncached)},
          {"speedup", row.speedup()},
          {"break_even_requests", break_even ? Json(*break_even) : Json(nullptr)}};
}

}  // namespace

double BenchRow::speedup() const {
  return first_cached.median() > 0 ? first_uncached.median() / first_cached.median() : 0;
}

std::optional<size_t> BenchRow::break_even() const {
  const double saved = total_uncached.median() - total_cached.median();
  if (saved <= 0) return std::nullopt;
  return static_cast<size_t>(std::floor(prefill.median() / saved)) + 1;
}

const BenchRow& BenchReport::headline() const {
  const auto found = std::ranges::find_if(rows, [](const BenchRow& row) { return row.is_context; });
  return found == rows.end() ? rows.back() : *found;
}

void print_table(const BenchReport& report) {
  const ModelInfo& info = report.model;
  print_line("{} ({}), {}, kernel set {}, {} thread{}, kvfork {}", info.path, info.architecture,
             compute_mode_name(info.mode), info.kernel_set, info.n_threads, info.n_threads == 1 ? "" : "s",
             version());
  print_line("{}, {} cores, load {:.1f} before and {:.1f} after", report.machine.cpu, report.machine.n_cores,
             report.load_before.one_minute, report.load_after.one_minute);
  print_line("{} request tokens, {} new; medians of {} interleaved rounds (least .. most)", report.request_tokens,
             report.new_tokens, report.repeats);
  print_line("parity: every id and every logit bit equal with and without the cache, at every length\n");
  print_line("{:>8}  {:>10}  {:>10}  {:>10}  {:<32}  {:<32}  {:>7}  {}", "prefix", "prefill", "fork", "copy",
             "first token, cached", "first token, uncached", "speedup", "break-even");
  const auto spread = [](const Times& times) {
    return fmt::format("{} ({} .. {})", show_time(times.median()), show_time(times.least()),
                       show_time(times.most()));
  };
  for (const BenchRow& row : report.rows) {
    const auto break_even = row.break_even();
    print_line("{:>7}{}  {:>10}  {:>10}  {:>10}  {:<32}  {:<32}  {:>6.1f}x  {}", row.prefix_tokens,
               row.is_context ? "*" : " ", show_time(row.prefill.median()), show_time(row.fork.median()),
               show_time(row.copy.median()), spread(row.first_cached), spread(row.first_uncached), row.speedup(),
               break_even ? fmt::format("{} request{}", *break_even, *break_even == 1 ? "" : "s") : "never");
  }
  write_output(
      "\n* the fixed part as given; other lengths are parts or repetitions of it.\n"
      "break-even: from this many requests on, the prefill is repaid.\n");
}

void print_bench_json(const BenchReport& report) {
  const ModelInfo& info = report.model;
  const Machine& machine = report.machine;
  Json rows = Json::array();
  for (const BenchRow& row : report.rows) rows.push_back(to_json(row));
  write_json({{"model", info.path},
              {"architecture", info.architecture},
              {"dtype", compute_mode_name(info.mode)},
              {"kernel_set", info.kernel_set},
              {"threads", info.n_threads},
              {"versions", {{"kvfork", version()}, {"compiler", __VERSION__}}},
              {"environment",
               {{"cpu", machine.cpu},
                {"cores", machine.n_cores},
                {"memory_bytes", machine.memory_bytes},
                {"system", machine.system},
                {"governor", machine.governor.empty() ? Json(nullptr) : Json(machine.governor)},
                {"started", report.started},
                {"load_before", to_json(report.load_before)},
                {"load_after", to_json(report.load_after)}}},
              {"parity", true},
              {"prompt", report.prompt},
              {"request_tokens", report.request_tokens},
              {"new_tokens", report.new_tokens},
              {"repeats", report.repeats},
              {"rows", std::move(rows)}});
}

}  // namespace kvfork::cli
