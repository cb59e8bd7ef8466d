// kvfork verify: the checklist on the user's own model, context and prompts. docs/verify.md is its manual.

#include <fmt/format.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/new_file.h"
#include "cli/commands.h"
#include "cli/help.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/prompt_flags.h"
#include "cli/session.h"
#include "cli/verify_report.h"
#include "kvfork/context.h"
#include "kvfork/model.h"
#include "kvfork/text.h"
#include "kvfork/verify.h"

namespace kvfork::cli {
namespace {

constexpr int kExitCheckFailed = 3;

struct Args {
  ModelFlags model_flags;
  FixedPartFlags fixed_part;
  PromptFlags prompts;
  std::string junit;
  VerifyOptions options;
};

std::string names_of_failed(const VerifyReport& report) {
  std::string names;
  for (const VerifyCheck& check : report.checks) {
    if (!check.pass.value_or(true)) names += (names.empty() ? "" : ", ") + check.name;
  }
  return names;
}

int run_verify(const Args& args) {
  std::optional<base::NewFile> junit;  // what cannot be written is found out before any work
  if (!args.junit.empty()) junit.emplace(base::NewFile::create(args.junit, 0, base::NewFile::Devices::WriteInto));
  VerifyOptions options = args.options;
  options.prompts = args.prompts.read();
  const Session session(args.model_flags, args.fixed_part);
  const bool prints = !args.model_flags.json;
  std::optional<Progress> progress(std::in_place, "prefill", args.model_flags.progress());
  bool is_first = prints;
  options.on_start = [&](const std::string& name) {
    progress.reset();
    if (std::exchange(is_first, false)) print_verify_model(args.model_flags.model, session.model().info());
    progress.emplace("checking " + name, args.model_flags.progress());
  };
  options.on_check = [&](const VerifyCheck& check) {
    progress.reset();
    if (prints) print_check(check);
  };
  const VerifyReport report =
      verify(session.shared_model(), session.prompter(), session.mode(), session.saved(), options);
  if (junit) {
    junit->write(make_junit(report));
    junit->commit();
  }
  prints ? print_summary(report) : print_verify_json(args.model_flags.model, session.model(), report);
  if (report.pass) return 0;
  print_error(fmt::format("verify: failed: {}; see the report", names_of_failed(report)));
  return kExitCheckFailed;
}

}  // namespace

Command add_verify(CLI::App& app) {
  auto args = std::make_shared<Args>();
  args->model_flags.add_to(app);
  args->fixed_part.add_to(app);
  args->prompts.add_to(app, "A request to check with; repeatable (default: a built-in list of several lengths)");
  app.add_option("--max-new-tokens", args->options.max_new_tokens, "New tokens per generation, at most")
      ->group(kRequestGroup)
      ->type_name("N")
      ->check(whole_number(1))
      ->capture_default_str();
  app.add_option("--limit-seconds", args->options.limit_seconds,
                 "Fill the model's context limit for real if that takes no longer than this")
      ->group(kRequestGroup)
      ->type_name("X")
      ->check(number_between(0, 1e9))
      ->capture_default_str();
  app.add_option("--junit", args->junit, "Also write the report to this file as JUnit XML")
      ->group(kOutputGroup)
      ->type_name("FILE");
  return [args] { return run_verify(*args); };
}

}  // namespace kvfork::cli
