// The HTML report of `kvfork bench`.
#include "cli/report_html.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "cli/escape_xml.h"
#include "cli/progress.h"
#include "cli/svg_plot.h"
#include "kvfork/version.h"

namespace kvfork::cli {
namespace {

constexpr const char* kStyle = R"(
:root { color-scheme: light dark; --page: #fbfaf8; --card: #fff; --ink: #1d1d1b; --soft: #5d5c58; --rule: #dcdad4;
  --cached: #0b6e75; --uncached: #b4531a; }
@media (prefers-color-scheme: dark) {
  :root { --page: #161614; --card: #1f1f1c; --ink: #ecebe6; --soft: #a8a69e; --rule: #3a3934; --cached: #5cc6cd; --uncached: #f09a5f; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; }
main { max-width: 68rem; margin: 0 auto; padding: 1.5rem 1rem 3rem; }
h1 { font-size: 1.5rem; line-height: 1.25; margin: 0 0 .25rem; overflow-wrap: anywhere; }
h2 { font-size: 1.05rem; margin: 2.25rem 0 .75rem; }
p { max-width: 44rem; margin: .5rem 0; }
.soft, figcaption, .note { color: var(--soft); }
.note { font-size: .875rem; }
.facts { display: grid; grid-template-columns: repeat(auto-fit, minmax(10rem, 1fr)); gap: .75rem; margin: 1.25rem 0; padding: 0; }
.facts div { background: var(--card); border: 1px solid var(--rule); border-radius: .5rem; padding: .75rem 1rem; }
.facts dt { font-size: .875rem; color: var(--soft); }
.facts dd { margin: 0; font-size: 1.5rem; font-variant-numeric: tabular-nums; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr)); gap: 1rem; }
figure { margin: 0; background: var(--card); border: 1px solid var(--rule); border-radius: .5rem; padding: .75rem; }
figcaption { font-size: .875rem; }
figure .note { margin: .25rem 0 0; }
figcaption strong { display: block; color: var(--ink); font-size: 1rem; }
.key { white-space: nowrap; margin-right: 1rem; }
.key i { display: inline-block; width: .7em; height: .7em; margin-right: .35em; background: currentColor; }
.key.cached i { border-radius: 50%; }
.key.cached { color: var(--cached); } .key.uncached { color: var(--uncached); }
svg { display: block; width: 100%; height: auto; font: 13px system-ui, sans-serif; }
svg text { fill: var(--soft); } svg .end { text-anchor: end; } svg .middle { text-anchor: middle; }
svg .grid { stroke: var(--rule); } svg .axis { stroke: var(--soft); } svg .marked { stroke: var(--soft); stroke-dasharray: 4 4; }
svg .line { fill: none; stroke-width: 2; } svg .line.uncached { stroke-dasharray: 7 4; } svg .whisker { stroke-width: 1.5; }
svg .cached { stroke: var(--cached); } svg .uncached { stroke: var(--uncached); }
svg .mark.cached { fill: var(--cached); } svg .mark.uncached { fill: var(--uncached); }
.scroll { overflow-x: auto; border: 1px solid var(--rule); border-radius: .5rem; background: var(--card); }
table { border-collapse: collapse; width: 100%; font-size: .875rem; font-variant-numeric: tabular-nums; }
th, td { padding: .45rem .6rem; text-align: right; white-space: nowrap; border-top: 1px solid var(--rule); }
thead th { border-top: 0; color: var(--soft); font-weight: 600; vertical-align: bottom; }
td small { display: block; color: var(--soft); }
tr.own { font-weight: 600; } tr.own small { font-weight: 400; }
.record { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1.25rem; font-size: .875rem; margin: 0; }
.record dt { color: var(--soft); } .record dd { margin: 0; overflow-wrap: anywhere; }
@media (max-width: 30rem) { .record { grid-template-columns: 1fr; } .record dd { margin-bottom: .4rem; } }
@media print {
  :root { --page: #fff; --card: #fff; --ink: #000; --soft: #444; --rule: #bbb; --cached: #0b6e75; --uncached: #b4531a; }
  @page { margin: 14mm; }
  body { font-size: 10pt; } main { max-width: none; padding: 0; }
  .plots { grid-template-columns: 1fr 1fr; } .scroll { overflow: visible; } th, td { padding: .25rem .35rem; }
  figure, .facts div, tr { break-inside: avoid; } h2 { break-after: avoid; } }
)";

std::string show_count(double value) {
  return fmt::format("{:.0f}", value);
}

std::string show_factor(double value) {
  return fmt::format("{:g}\u00D7", value);
}

// A tick: no more digits than it needs.
std::string show_time(double milliseconds) {
  if (milliseconds == 0) return "0";
  if (milliseconds < 0.999) return fmt::format("{:g} \u00B5s", milliseconds * 1000);
  if (milliseconds < 999) return fmt::format("{:g} ms", milliseconds);
  return fmt::format("{:g} s", milliseconds / 1000);
}

std::string show_precise(double milliseconds) {
  std::string text = show_time(milliseconds);
  if (const size_t unit = text.find(" us"); unit != std::string::npos) text.replace(unit, 3, " \u00B5s");
  return text;
}

PlotSeries series_of(const BenchReport& report, const char* name, const char* css_class, Times BenchRow::*times) {
  PlotSeries series{.name = name, .css_class = css_class};
  for (const BenchRow& row : report.rows) {
    const Times& values = row.*times;
    series.points.push_back({.x = static_cast<double>(row.prefix_tokens),
                             .y = values.median(),
                             .low = values.least(),
                             .high = values.most(),
                             .note = fmt::format("{}, {} prefix tokens: {} ({} to {})", name, row.prefix_tokens,
                                                 show_precise(values.median()), show_precise(values.least()),
                                                 show_precise(values.most()))});
  }
  return series;
}

Plot over_lengths(std::string title) {
  return {.title = std::move(title),
          .x_label = "prefix tokens",
          .x_scale = Scale::Log,
          .y_scale = Scale::Log,
          .show_x = show_count,
          .show_y = show_time};
}

// Time for all of the first n requests.
Plot plot_break_even(const BenchRow& row) {
  Plot plot{.title = fmt::format("Time for n requests over {} prefix tokens", row.prefix_tokens),
            .x_label = "requests",
            .show_x = show_count,
            .show_y = show_time};
  const auto break_even = row.break_even();
  // Beyond some hundreds the crossing is one pixel from the end anyway.
  const size_t n_most = std::max<size_t>(8, std::min<size_t>(2 * break_even.value_or(4), 1000));
  PlotSeries cached{.name = "prefill once, then forks", .css_class = "cached"};
  PlotSeries uncached{.name = "no cache", .css_class = "uncached"};
  for (size_t n = 0; n <= n_most; n += std::max<size_t>(1, n_most / 8)) {
    const auto requests = static_cast<double>(n);
    const double with = row.prefill.median() + requests * row.total_cached.median();
    const double without = requests * row.total_uncached.median();
    cached.points.push_back(
        {.x = requests, .y = with, .note = fmt::format("{} requests: {}", n, show_precise(with))});
    uncached.points.push_back(
        {.x = requests, .y = without, .note = fmt::format("{} requests: {}", n, show_precise(without))});
  }
  plot.series = {std::move(cached), std::move(uncached)};
  if (break_even && *break_even <= n_most) {
    plot.marked_x = static_cast<double>(*break_even);
    plot.marked_text = fmt::format("repaid at {}", *break_even);
  }
  return plot;
}

std::string figure(const Plot& plot, const std::string& caption) {
  std::string keys;
  for (const PlotSeries& series : plot.series)
    keys += fmt::format("<span class=\"key {}\"><i></i>{}</span> ", series.css_class, escape_xml(series.name));
  return fmt::format("<figure><figcaption><strong>{}</strong>{}</figcaption>{}<p class=\"note\">{}</p></figure>\n",
                     escape_xml(plot.title), keys, make_svg(plot), escape_xml(caption));
}

std::string fact(const std::string& name, const std::string& value) {
  return fmt::format("<div><dt>{}</dt><dd>{}</dd></div>", escape_xml(name), escape_xml(value));
}

std::string show_requests(std::optional<size_t> n) {
  return n ? fmt::format("{} request{}", *n, *n == 1 ? "" : "s") : "never";
}

std::string summary(const BenchReport& report) {
  const BenchRow& row = report.headline();
  std::string html = fmt::format(
      "<p>With a prefix of {} tokens prefilled once, a request of {} tokens has its first new token after {} "
      "instead of {}. The "
      "prefill takes {} and is repaid {}.</p>\n",
      row.prefix_tokens, report.request_tokens, show_precise(row.first_cached.median()),
      show_precise(row.first_uncached.median()), show_precise(row.prefill.median()),
      row.break_even() ? fmt::format("from request {} on", *row.break_even())
                       : std::string("by no number of requests"));
  html += "<dl class=\"facts\">";
  html += fact("first token, cached", show_precise(row.first_cached.median()));
  html += fact("first token, uncached", show_precise(row.first_uncached.median()));
  html += fact("speedup", fmt::format("{:.1f}\u00D7", row.speedup()));
  html += fact("fork", show_precise(row.fork.median()));
  html += fact("break-even", show_requests(row.break_even()));
  return html +
         "</dl>\n<p class=\"note\">Before anything was timed, every new id and the bits of the logits that it was "
         "picked from were "
         "compared with and without the cache, at every length: all equal.</p>\n";
}

PlotSeries speedups(const BenchReport& report) {
  PlotSeries series{.name = "without cache / from a fork", .css_class = "cached"};
  for (const BenchRow& row : report.rows)
    series.points.push_back(
        {.x = static_cast<double>(row.prefix_tokens),
         .y = row.speedup(),
         .note = fmt::format("{} prefix tokens: {:.1f}\u00D7", row.prefix_tokens, row.speedup())});
  return series;
}

std::string plots(const BenchReport& report) {
  Plot first = over_lengths("Time to the first token");
  first.series = {series_of(report, "from a fork", "cached", &BenchRow::first_cached),
                  series_of(report, "without cache", "uncached", &BenchRow::first_uncached)};
  Plot speedup{.title = "Speedup of the first token",
               .x_label = "prefix tokens",
               .show_x = show_count,
               .show_y = show_factor};
  speedup.series = {speedups(report)};
  Plot fork = over_lengths("Fork or copy the context");
  fork.series = {series_of(report, "fork", "cached", &BenchRow::fork),
                 series_of(report, "deep copy", "uncached", &BenchRow::copy)};
  return "<h2>Plots</h2>\n<div class=\"plots\">\n" +
         figure(first, "Medians; bars from the least to the most. Both axes logarithmic.") +
         figure(plot_break_even(report.headline()),
                "Medians, added up: one prefill and a fork each, or the whole request each time.") +
         figure(speedup, "Of the medians.") +
         figure(fork, "A fork copies nothing; a deep copy moves all keys and values. Both axes logarithmic.") +
         "</div>\n";
}

// Median, and below it the spread in the median's unit.
std::string cell(const Times& times) {
  if (times.empty()) return "<td>\u2013</td>";
  const double median = times.median();
  const double factor = median < 0.1 ? 1000 : median < 1000 ? 1 : 0.001;
  const int digits = median * factor < 10 ? 2 : 1;
  return fmt::format("<td>{}<small>{:.{}f} \u2013 {:.{}f}</small></td>", show_precise(median),
                     times.least() * factor, digits, times.most() * factor, digits);
}

std::string table(const BenchReport& report) {
  std::string html =
      "<h2>Figures</h2>\n<div class=\"scroll\"><table><thead><tr><th scope=\"col\">prefix<br>tokens</th><th "
      "scope=\"col\">keys and<br>values</th>"
      "<th scope=\"col\">prefill</th><th scope=\"col\">fork</th><th scope=\"col\">copy</th><th scope=\"col\">first "
      "token,<br>cached</th>"
      "<th scope=\"col\">first token,<br>uncached</th><th scope=\"col\">speedup</th><th scope=\"col\">all "
      "tokens,<br>cached</th>"
      "<th scope=\"col\">all tokens,<br>uncached</th><th "
      "scope=\"col\">break-even,<br>requests</th></tr></thead><tbody>\n";
  for (const BenchRow& row : report.rows) {
    html += fmt::format("<tr{}><td>{}{}</td><td>{}</td>", row.is_context ? " class=\"own\"" : "", row.prefix_tokens,
                        row.is_context ? "<small>the fixed part</small>" : "", show_bytes(row.kv_bytes));
    html += cell(row.prefill) + cell(row.fork) + cell(row.copy) + cell(row.first_cached) + cell(row.first_uncached);
    html += fmt::format("<td>{:.1f}\u00D7</td>", row.speedup());
    html += cell(row.total_cached) + cell(row.total_uncached) +
            fmt::format("<td>{}</td></tr>\n", row.break_even() ? fmt::format("{}", *row.break_even()) : "never");
  }
  return html + fmt::format(
                    "</tbody></table></div>\n<p class=\"note\">Medians of {} rounds, least \u2013 most below. In "
                    "each round all lengths "
                    "take turns, and at each length the two ways do. A cached time begins before the fork. Lengths "
                    "other than the "
                    "fixed part\u2019s are parts or repetitions of its tokens.</p>\n",
                    report.repeats);
}

std::string record(const BenchReport& report) {
  const ModelInfo& model = report.model;
  const Machine& machine = report.machine;
  const auto entry = [](const char* name, const std::string& value) {
    return fmt::format("<dt>{}</dt><dd>{}</dd>\n", name, escape_xml(value));
  };
  std::string html = "<h2>Environment</h2>\n<dl class=\"record\">\n";
  html += entry("model", fmt::format("{} ({})", model.path, model.architecture));
  html += entry("weights", show_bytes(model.weight_bytes));
  html += entry("mode", compute_mode_name(model.mode));
  html += entry("kernel set", model.kernel_set);
  html += entry("threads", fmt::format("{}", model.n_threads));
  html += entry("request", fmt::format("{} tokens, {} new; \u201C{}\u201D", report.request_tokens,
                                       report.new_tokens, report.prompt));
  html += entry("processor", fmt::format("{}, {} cores", machine.cpu, machine.n_cores));
  html += entry("memory", fmt::format("{:.1f} GiB", static_cast<double>(machine.memory_bytes) / (1 << 30)));
  html += entry("system", machine.system);
  if (!machine.governor.empty()) html += entry("frequency governor", machine.governor);
  html += entry("load", fmt::format("{:.2f} before, {:.2f} after (one minute)", report.load_before.one_minute,
                                    report.load_after.one_minute));
  html += entry("version", fmt::format("kvfork {}, compiler {}", version(), __VERSION__));
  html += entry("started", report.started);
  return html + "</dl>\n";
}

}  // namespace

std::string make_html(const BenchReport& report) {
  const std::string title = fmt::format("Cached against uncached: {}", name_of_path(report.model.path));
  std::string html = "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n";
  html += "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n";
  html +=
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
      "img-src data:\">\n";
  html += fmt::format(
      "<link rel=\"icon\" href=\"data:,\">\n<title>{}</title>\n<style>{}</style>\n</head>\n<body>\n<main>\n",
      escape_xml(title), kStyle);
  html += fmt::format("<h1>{}</h1>\n<p class=\"soft\">{}, kernel set {}, {} thread{}</p>\n", escape_xml(title),
                      compute_mode_name(report.model.mode), escape_xml(report.model.kernel_set),
                      report.model.n_threads, report.model.n_threads == 1 ? "" : "s");
  html += summary(report) + plots(report) + table(report) + record(report);
  return html + "</main>\n</body>\n</html>\n";
}

}  // namespace kvfork::cli
