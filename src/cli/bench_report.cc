#include "cli/bench_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "cli/output.h"
#include "kvfork/version.h"

namespace kvfork::cli {
namespace {

using Json = nlohmann::ordered_json;

Json summary(const Times& times) {
  if (times.empty()) return nullptr;
  return {{"median", times.median()}, {"min", times.least()}, {"max", times.most()}};
}

Json to_json(const Load& load) {
  return {load.one_minute, load.five_minutes};
}

Json to_json(const BenchRow& row) {
  const auto break_even = row.break_even();
  return {{"prefix_tokens", row.prefix_tokens},
          {"is_context", row.is_context},
          {"kv_bytes", row.kv_bytes},
          {"prefill_ms", summary(row.prefill)},
          {"fork_ms", summary(row.fork)},
          {"copy_ms", summary(row.copy)},
          {"ttft_cached_ms", summary(row.first_cached)},
          {"ttft_uncached_ms", summary(row.first_uncached)},
          {"decode_ms_per_token", summary(row.decode)},
          {"total_cached_ms", summary(row.total_cached)},
          {"total_uncached_ms", summary(row.total_uncached)},
          {"speedup", row.speedup()},
          {"break_even_requests", break_even ? Json(*break_even) : Json(nullptr)}};
}

}  // namespace

double Times::median() const {
  if (values_.empty()) return 0;
  std::vector<double> sorted = values_;
  std::sort(sorted.begin(), sorted.end());
  const size_t middle = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

double Times::least() const {
  return values_.empty() ? 0 : *std::min_element(values_.begin(), values_.end());
}
double Times::most() const {
  return values_.empty() ? 0 : *std::max_element(values_.begin(), values_.end());
}

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

std::string show_milliseconds(double milliseconds) {
  if (milliseconds < 0.1) return fmt::format("{:.2f} us", milliseconds * 1000);
  if (milliseconds < 10) return fmt::format("{:.2f} ms", milliseconds);
  if (milliseconds < 1000) return fmt::format("{:.1f} ms", milliseconds);
  return fmt::format("{:.2f} s", milliseconds / 1000);
}

std::string show_bytes(size_t bytes) {
  if (bytes < size_t{1} << 20) return fmt::format("{:.1f} KiB", static_cast<double>(bytes) / 1024);
  return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20));
}

void print_table(const BenchReport& report) {
  const ModelInfo& info = report.model;
  write_output(fmt::format("{} ({}), {}, kernel set {}, {} thread{}, kvfork {}\n", info.path, info.architecture,
                           compute_mode_name(info.mode), info.kernel_set, info.n_threads,
                           info.n_threads == 1 ? "" : "s", version()));
  write_output(fmt::format("{}, {} cores, load {:.1f} before and {:.1f} after\n", report.machine.cpu,
                           report.machine.n_cores, report.load_before.one_minute, report.load_after.one_minute));
  write_output(fmt::format("{} request tokens, {} new; medians of {} interleaved rounds (least .. most)\n",
                           report.request_tokens, report.new_tokens, report.repeats));
  write_output(
      fmt::format("parity: every id and every logit bit equal with and without the cache, at every length\n\n"));
  write_output(fmt::format("{:>8}  {:>10}  {:>10}  {:>10}  {:<32}  {:<32}  {:>7}  {}\n", "prefix", "prefill",
                           "fork", "copy", "first token, cached", "first token, uncached", "speedup",
                           "break-even"));
  const auto spread = [](const Times& times) {
    return fmt::format("{} ({} .. {})", show_milliseconds(times.median()), show_milliseconds(times.least()),
                       show_milliseconds(times.most()));
  };
  for (const BenchRow& row : report.rows) {
    const auto break_even = row.break_even();
    write_output(fmt::format(
        "{:>7}{}  {:>10}  {:>10}  {:>10}  {:<32}  {:<32}  {:>6.1f}x  {}\n", row.prefix_tokens,
        row.is_context ? "*" : " ", show_milliseconds(row.prefill.median()), show_milliseconds(row.fork.median()),
        show_milliseconds(row.copy.median()), spread(row.first_cached), spread(row.first_uncached), row.speedup(),
        break_even ? fmt::format("{} request{}", *break_even, *break_even == 1 ? "" : "s") : "never"));
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
