// kvfork run: the careful utility. Parity is proven for every prompt before any answer is shown; times are measured
// only when asked for.

#include <fmt/format.h>
#include <unistd.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/generation_flags.h"
#include "cli/help.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/prompt_flags.h"
#include "cli/run_report.h"
#include "cli/session.h"
#include "cli/stopwatch.h"
#include "kvfork/answer_stream.h"
#include "kvfork/error.h"
#include "kvfork/verify.h"

namespace kvfork::cli {
namespace {

struct Args {
  ModelFlags model_flags;
  FixedPartFlags fixed_part;
  GenerationFlags generation;
  PromptFlags prompts;
  std::string speculate = "lookup";
  size_t benchmark_repeats = 0;
};

std::vector<std::string> read_prompts(const Args& args) {
  std::vector<std::string> prompts = args.prompts.read();
  if (!prompts.empty()) return prompts;
  if (::isatty(STDIN_FILENO) == 1)
    throw UsageError("run: expected --prompt, --prompt-file, or prompts on standard input");
  prompts = split_prompts(read_standard_input());
  if (prompts.empty()) throw UsageError("run: expected at least one prompt, found none on standard input");
  return prompts;
}

class Run {
 public:
  explicit Run(const Args& args)
      : args_(args),
        prompts_(read_prompts(args)),
        session_(args.model_flags, args.fixed_part),
        options_(args.generation.options(session_.model().generation_defaults())) {
    if (args.speculate == "lookup") options_.speculation = Speculation::Lookup;
  }

  int run() {
    report_.name = args_.model_flags.model;
    plan_requests();
    session_.context();
    for (RunAnswer& answer : report_.answers) answer.n_read = session_.n_read(answer.request);
    prove_parity();
    const bool is_text = !args_.model_flags.json;
    const bool has_notes = is_text && !args_.model_flags.quiet;
    if (has_notes) print_run_header(session_, report_);
    if (is_text) {
      for (const RunAnswer& answer : report_.answers) print_run_answer(answer, has_notes);
    }
    if (args_.benchmark_repeats > 0) measure();
    if (!is_text) print_run_json(session_, report_);
    if (has_notes && args_.benchmark_repeats > 0) print_run_timings(session_, report_);
    return 0;
  }

 private:
  // Everything that can be refused is refused here, before the model does any work.
  void plan_requests() {
    for (const std::string& text : prompts_) {
      report_.answers.push_back({.prompt = text, .request = session_.make_request(text)});
      session_.expect_room(report_.answers.back().request, options_.max_new_tokens);
    }
  }

  void prove_parity() {
    Progress progress("proving parity", args_.model_flags.progress());
    size_t number = 0;
    for (RunAnswer& answer : report_.answers) {
      progress.restart(fmt::format("proving parity, prompt {} of {}", ++number, prompts_.size()));
      GenerateOptions greedy = options_;
      greedy.sampling = {};
      prove(answer, greedy);
      if (options_.sampling.temperature > 0) prove(answer, options_);
      answer.text = answer_text(session_.tokenizer(), answer.generation.ids, options_.stop);
    }
  }

  void prove(RunAnswer& answer, const GenerateOptions& options) {
    const ParityReport parity = compare_uncached(*session_.context(), answer.request, options);
    answer.generation = parity.cached;
    if (!parity.first_difference) return;
    const size_t at = *parity.first_difference;
    const auto shown = [at](const Generation& generation) {
      return at < generation.ids.size() ? fmt::format("id {}", generation.ids[at]) : std::string("nothing");
    };
    base::fail(
        ErrorCode::Parity,
        "parity: prompt '{}': cached and uncached generation differ at new token {} (position {}): cached {}, "
        "uncached {}; no answer is shown",
        answer.prompt, at, answer.request.size() + at, shown(parity.cached), shown(parity.uncached));
  }

  // Cached and uncached take turns.
  void measure() {
    Progress progress("measuring", args_.model_flags.progress());
    const size_t n_rounds = args_.benchmark_repeats * report_.answers.size();
    size_t n_done = 0;
    for (RunAnswer& answer : report_.answers) {
      for (size_t round = 0; round < args_.benchmark_repeats; ++round) {
        measure_cached(answer);
        measure_uncached(answer);
        progress.update(++n_done, n_rounds);
      }
    }
  }

  void measure_uncached(RunAnswer& answer) const {
    GenerateOptions one = options_;
    one.max_new_tokens = 1;
    const Stopwatch watch;
    Fork fork = session_.model().start();
    fork.append(answer.request.ids());
    generate(fork, one);
    answer.first_uncached.add(watch.milliseconds());
  }

  void measure_cached(RunAnswer& answer) {
    const Stopwatch fork_watch;
    if (answer.n_read > 0) (void)session_.context()->fork_unchecked(answer.n_read);
    const double fork_ms = fork_watch.milliseconds();
    const Stopwatch watch;
    Fork fork = session_.fork(answer.request);
    std::optional<double> first;
    double last = 0;
    const Generation generation = generate(fork, options_, [&](int32_t) {
      last = watch.milliseconds();
      if (!first) first = last;
      return true;
    });
    if (generation.ids != answer.generation.ids)
      throw Error(ErrorCode::Isolation, "isolation: a repeated request gave other tokens than before");
    answer.fork.add(fork_ms);
    answer.first_cached.add(*first);
    if (generation.ids.size() > 1)
      answer.decode.add((last - *first) / static_cast<double>(generation.ids.size() - 1));
  }

  const Args& args_;
  std::vector<std::string> prompts_;
  Session session_;
  GenerateOptions options_;
  RunReport report_;
};

}  // namespace

Command add_run(CLI::App& app) {
  auto args = std::make_shared<Args>();
  args->model_flags.model = "Qwen/Qwen2-0.5B-Instruct";
  args->model_flags.add_to(app);
  app.get_option("--model")->required(false)->capture_default_str();
  args->fixed_part.add_to(app);
  args->prompts.add_to(app, "A request; repeatable (default: one per line of standard input)");
  app.add_option("--benchmark-repeats", args->benchmark_repeats,
                 "Measure each prompt this many times with and without the cache, and show medians")
      ->group(kOutputGroup)
      ->type_name("N")
      ->check(CLI::Range(size_t{0}, size_t{10000}))
      ->capture_default_str();
  args->generation.add_to(app);
  app.add_option(
         "--speculate", args->speculate,
         "lookup: guess the next tokens from the text so far and check them in one pass; off: one token per "
         "pass. The answers are the same")
      ->group(kSamplingGroup)
      ->check(CLI::IsMember({"off", "lookup"}))
      ->capture_default_str();
  return [args] { return Run(*args).run(); };
}

}  // namespace kvfork::cli
