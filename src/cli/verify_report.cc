#include "cli/verify_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/escape_xml.h"
#include "cli/output.h"
#include "kvfork/version.h"

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

void print_check(const VerifyCheck& check) {
  const char* verdict = !check.pass ? "----" : *check.pass ? "pass" : "FAIL";
  write_output(fmt::format("{}  {:<11} {}\n", verdict, check.name, check.detail));
  for (const std::string& line : check.lines) write_output(fmt::format("                    {}\n", line));
  flush_output();
}

void print_summary(const VerifyReport& report) {
  const Counts counts = count(report);
  write_output(fmt::format("{} with a context of {} tokens: {} passed, {} failed, {} not run, in {:.1f} s\n",
                           report.pass ? "pass" : "FAIL", report.n_context_tokens, counts.n_passed, counts.n_failed,
                           counts.n_skipped, counts.seconds));
}

void print_verify_json(const Model& model, const VerifyReport& report) {
  const ModelInfo& info = model.info();
  Json checks = Json::array();
  for (const VerifyCheck& check : report.checks) {
    checks.push_back({{"name", check.name},
                      {"pass", check.pass ? Json(*check.pass) : Json(nullptr)},
                      {"detail", check.detail},
                      {"lines", check.lines},
                      {"seconds", check.seconds}});
  }
  write_json({{"pass", report.pass},
              {"model", info.path},
              {"dtype", compute_mode_name(info.mode)},
              {"kernel_set", info.kernel_set},
              {"threads", info.n_threads},
              {"versions", {{"kvfork", version()}, {"compiler", __VERSION__}}},
              {"context", {{"tokens", report.n_context_tokens}, {"bytes", report.kv_bytes}}},
              {"checks", std::move(checks)}});
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
