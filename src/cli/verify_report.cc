// The text, the JSON and the JUnit XML of `kvfork verify`.
#include "cli/verify_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/escape_xml.h"
#include "cli/json_parts.h"
#include "cli/output.h"

namespace kvfork::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Counts {
  size_t n_passed = 0;
  size_t n_failed = 0;
  size_t n_skipped = 0;
  double seconds = 0;
};

Counts count(const VerifyReport& report) {
  Counts counts;
  for (const VerifyCheck& check : report.checks) {
    ++(!check.pass ? counts.n_skipped : *check.pass ? counts.n_passed : counts.n_failed);
    counts.seconds += check.seconds;
  }
  return counts;
}

std::string lines_of(const VerifyCheck& check) {
  std::string text;
  for (const std::string& line : check.lines) text += line + "\n";
  return text;
}

std::string junit_case(const VerifyCheck& check) {
  std::string xml = fmt::format("    <testcase classname=\"kvfork.verify\" name=\"{}\" time=\"{:.3f}\">\n",
                                escape_xml(check.name), check.seconds);
  const std::string detail = escape_xml(check.detail);
  if (!check.pass) {
    xml += fmt::format("      <skipped message=\"{}\"/>\n", detail);
  } else if (!*check.pass) {
    xml += fmt::format("      <failure message=\"{}\">{}</failure>\n", detail, escape_xml(lines_of(check)));
  }
  xml += fmt::format("      <system-out>{}</system-out>\n    </testcase>\n",
                     escape_xml(check.detail + "\n" + lines_of(check)));
  return xml;
}

}  // namespace

void print_verify_model(const std::string& name, const ModelInfo& info) {
  print_line("{} ({}), {}, kernel set {}, {}", name, info.architecture, compute_mode_name(info.mode),
             info.kernel_set, show_count(info.n_threads, "thread"));
  flush_output();
}

void print_check(const VerifyCheck& check) {
  const char* verdict = !check.pass ? "----" : *check.pass ? "pass" : "FAIL";
  print_line("{}  {:<11} {}", verdict, check.name, check.detail);
  for (const std::string& line : check.lines) print_line("                    {}", line);
  flush_output();
}

void print_summary(const VerifyReport& report) {
  const Counts counts = count(report);
  print_line("{} with a context of {}: {} passed, {} failed, {} not run, in {}", report.pass ? "pass" : "FAIL",
             show_count(report.n_context_tokens, "token"), counts.n_passed, counts.n_failed, counts.n_skipped,
             show_time(counts.seconds * 1000));
}

void print_verify_json(const std::string& name, const Model& model, const VerifyReport& report) {
  Json checks = Json::array();
  for (const VerifyCheck& check : report.checks) {
    checks.push_back({{"name", check.name},
                      {"pass", check.pass ? Json(*check.pass) : Json(nullptr)},
                      {"detail", check.detail},
                      {"lines", check.lines},
                      {"seconds", check.seconds}});
  }
  Json json = {{"pass", report.pass}, {"model", name}};
  json.update(what_ran_json(model));
  json["context"] = {{"tokens", report.n_context_tokens}, {"bytes", report.kv_bytes}};
  json["checks"] = std::move(checks);
  write_json(json);
}

std::string make_junit(const VerifyReport& report) {
  const Counts counts = count(report);
  const std::string numbers =
      fmt::format("tests=\"{}\" failures=\"{}\" errors=\"0\" skipped=\"{}\" time=\"{:.3f}\"", report.checks.size(),
                  counts.n_failed, counts.n_skipped, counts.seconds);
  std::string xml = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";
  xml += fmt::format("<testsuites name=\"kvfork\" {0}>\n  <testsuite name=\"kvfork.verify\" {0}>\n", numbers);
  for (const VerifyCheck& check : report.checks) xml += junit_case(check);
  return xml + "  </testsuite>\n</testsuites>\n";
}

}  // namespace kvfork::cli
