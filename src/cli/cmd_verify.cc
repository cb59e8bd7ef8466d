// kvfork verify: the checklist on the user's own model, context and prompts. docs/verify.md is its manual.

#include <fmt/format.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/commands.h"
#include "cli/fixed_part.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/replaced_file.h"
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
  std::vector<std::string> prompts;
  std::vector<std::string> prompt_files;
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

class Verify {
 public:
  explicit Verify(const Args& args) : args_(args) {}

  int run() {
    std::optional<ReplacedFile> junit;  // what cannot be written is found out before any work
    if (!args_.junit.empty()) junit.emplace(args_.junit);
    VerifyOptions options = args_.options;
    options.prompts = read_prompts();
    open_model();
    const bool prints = !args_.model_flags.json;
    std::optional<Progress> progress(std::in_place, "prefill", args_.model_flags.progress());
    bool is_first = prints;
    options.on_start = [&](const std::string& name) {
      progress.reset();
      if (std::exchange(is_first, false)) print_model();
      progress.emplace("checking " + name, args_.model_flags.progress());
    };
    options.on_check = [&](const VerifyCheck& check) {
      progress.reset();
      if (prints) print_check(check);
    };
    const VerifyReport report = verify(model_, *prompter_, mode_, context_, options);
    if (junit) junit->finish(make_junit(report));
    prints ? print_summary(report) : print_verify_json(*model_, report);
    if (report.pass) return 0;
    print_error(fmt::format("verify: failed: {}; see the report", names_of_failed(report)));
    return kExitCheckFailed;
  }

 private:
  std::vector<std::string> read_prompts() const {
    std::vector<std::string> prompts = args_.prompts;
    for (const std::string& file : args_.prompt_files) {
      prompts.push_back(read_text(file));
      if (prompts.back().ends_with('\n')) prompts.back().pop_back();  // the one that editors add
    }
    return prompts;
  }

  void open_model() {
    model_ = args_.model_flags.open();
    model_->text();
    if (args_.fixed_part.loads()) {
      context_ = args_.fixed_part.open_saved(*model_);
      prompter_.emplace(Prompter::from_origin(model_->shared_text(), context_->origin()));
      mode_ = context_->origin()->boundary;
    } else {
      prompter_.emplace(args_.fixed_part.make_prompter(model_->shared_text()));
      mode_ = args_.fixed_part.mode();
    }
  }

  void print_model() const {
    const ModelInfo& info = model_->info();
    write_output(fmt::format("{} ({}), {}, kernel set {}, {} thread{}\n", info.path, info.architecture,
                             compute_mode_name(info.mode), info.kernel_set, info.n_threads,
                             info.n_threads == 1 ? "" : "s"));
    flush_output();
  }

  const Args& args_;
  std::shared_ptr<const Model> model_;
  std::shared_ptr<const Context> context_;  // null: verify() prefills it
  std::optional<Prompter> prompter_;
  BoundaryMode mode_ = BoundaryMode::Message;
};

}  // namespace

Command add_verify(CLI::App& app) {
  auto args = std::make_shared<Args>();
  args->model_flags.add_to(app);
  args->fixed_part.add_to(app);
  app.add_option("--prompt", args->prompts,
                 "A request to check with; repeatable (default: a built-in list of several lengths)")
      ->allow_extra_args(false);
  app.add_option("--prompt-file", args->prompt_files,
                 "A file whose whole text, less one final newline, is a request; repeatable")
      ->allow_extra_args(false);
  app.add_option("--max-new-tokens", args->options.max_new_tokens, "New tokens per generation, at most")
      ->check(whole_number(1))
      ->capture_default_str();
  app.add_option("--limit-seconds", args->options.limit_seconds,
                 "Fill the model's context limit for real if that takes no longer than this")
      ->check(number_between(0, 1e9))
      ->capture_default_str();
  app.add_option("--junit", args->junit, "Also write the report to this file as JUnit XML");
  return [args] { return Verify(*args).run(); };
}

}  // namespace kvfork::cli
