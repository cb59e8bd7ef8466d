// Warnings, each said once.
#include "cli/warnings.h"

#include <fmt/format.h>

#include <set>

#include "cli/output.h"

namespace kvfork::cli {
namespace {

constexpr size_t kMostNamed = 16;  // a vocabulary may hold thousands

void warn_about_dropped(const EncodeReport& report) {
  if (report.n_dropped_bytes == 0) return;
  std::string dropped;
  for (const std::string& bytes : report.dropped) {
    if (!dropped.empty()) dropped += ", ";
    for (const char c : bytes) dropped += fmt::format("0x{:02X}", static_cast<unsigned char>(c));
  }
  static std::set<std::string> said;  // many prompts drop the same bytes
  if (said.size() >= kMostNamed || !said.insert(dropped).second) return;
  print_warning(
      fmt::format("tokenizer: {} no token in this vocabulary and {} dropped: {}",
                  report.n_dropped_bytes == 1 ? "1 byte has" : fmt::format("{} bytes have", report.n_dropped_bytes),
                  report.n_dropped_bytes == 1 ? "was" : "were", dropped));
}

}  // namespace

void warn_about(const Prompt& prompt) {
  warn_about_dropped(prompt.report);
  warn_about_control_tokens(prompt.control_tokens);
}

void warn_about_control_tokens(const std::vector<std::string>& tokens) {
  static std::set<std::string> named;
  std::string list;
  for (const std::string& token : tokens) {
    if (named.size() >= kMostNamed || !named.insert(token).second) continue;
    list += (list.empty() ? "" : ", ") + to_json_text(token);
    if (named.size() == kMostNamed) list += "; no more will be named";
  }
  if (list.empty()) return;
  print_warning(
      fmt::format("user text: holds control tokens, which are read as such, as Transformers reads them: {}; "
                  "--literal-user-text keeps them plain text",
                  list));
}

}  // namespace kvfork::cli
