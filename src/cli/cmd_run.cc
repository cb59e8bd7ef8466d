// kvfork run: the main job. One context, many prompts; parity is proven for each before any answer or timing is
// shown.

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/fixed_part.h"
#include "cli/generation_flags.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/run_report.h"
#include "cli/warnings.h"
#include "kvfork/answer_stream.h"
#include "kvfork/boundary.h"
#include "kvfork/context.h"
#include "kvfork/error.h"
#include "kvfork/fork.h"
#include "kvfork/generate.h"
#include "kvfork/identity.h"
#include "kvfork/model.h"
#include "kvfork/text.h"
#include "kvfork/verify.h"

namespace kvfork::cli {
namespace {

struct Args {
  ModelFlags model_flags;
  FixedPartFlags fixed_part;
  GenerationFlags generation;
  std::vector<std::string> prompts;
  std::vector<std::string> prompt_files;
  std::string speculate = "lookup";
  size_t benchmark_repeats = 3;
};

using Clock = std::chrono::steady_clock;

double milliseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

std::vector<std::string> read_prompts(const Args& args) {
  std::vector<std::string> prompts = args.prompts;
  for (const std::string& file : args.prompt_files) {
    prompts.push_back(read_text(file));
    if (prompts.back().ends_with('\n')) prompts.back().pop_back();  // the one that editors add
  }
  if (!prompts.empty()) return prompts;
  if (::isatty(STDIN_FILENO) == 1)
    throw UsageError("run: expected --prompt, --prompt-file, or prompts on standard input");
  const std::string input = read_standard_input();
  for (size_t begin = 0; begin < input.size();) {
    const size_t end = std::min(input.find('\n', begin), input.size());
    std::string line = input.substr(begin, end - begin);
    if (line.ends_with('\r')) line.pop_back();
    prompts.push_back(std::move(line));
    begin = end + 1;
  }
  if (prompts.empty()) throw UsageError("run: expected at least one prompt, found none on standard input");
  return prompts;
}

class Run {
 public:
  explicit Run(const Args& args) : args_(args), prompts_(read_prompts(args)) {}

  int run() {
    open_model();
    args_.fixed_part.loads() ? load() : prefill();
    for (RunAnswer& answer : report_.answers) prove_parity(answer);
    if (!args_.model_flags.json) print_header(report_);
    for (RunAnswer& answer : report_.answers) measure(answer);
    args_.model_flags.json ? print_json(report_) : print_timings(report_);
    return 0;
  }

 private:
  void open_model() {
    const LocatedModel located = args_.model_flags.locate();
    const Progress progress("opening " + args_.model_flags.model, args_.model_flags.progress());
    const auto start = Clock::now();
    model_ = Model::open(located.path, args_.model_flags.options());
    model_->text();
    report_.open_ms = milliseconds_since(start);
    report_.model = model_;
    report_.name = args_.model_flags.model;
    report_.revision = located.revision ? *located.revision : model_->identity().revision;
    options_ = args_.generation.options(model_->generation_defaults());
    if (args_.speculate == "lookup") options_.speculation = Speculation::Lookup;
  }

  void load() {
    {
      const Progress progress("loading " + args_.fixed_part.load, args_.model_flags.progress());
      const auto start = Clock::now();
      context_ = args_.fixed_part.open_saved(*model_);
      report_.load_ms = milliseconds_since(start);
    }
    report_.context = context_;
    prompter_.emplace(Prompter::from_origin(model_->shared_text(), context_->origin()));
    plan_requests(context_->ids(), context_->origin()->boundary);
  }

  // Everything that can be refused is refused here, before the model does any work.
  void plan_requests(std::span<const int32_t> context_ids, BoundaryMode mode) {
    const ModelInfo& info = model_->info();
    for (const std::string& text : prompts_) {
      Prompt request = prompter_->make_request(text);
      warn_about(request);
      RunAnswer answer;
      answer.prompt = text;
      answer.request = std::move(request.ids);
      answer.cached_tokens = count_cached_tokens(context_ids, answer.request, mode, prompter_->tokenizer());
      if (answer.request.size() + options_.max_new_tokens > info.max_position_embeddings)
        throw Error(
            ErrorCode::Limit,
            fmt::format(
                "context limit: expected at most {} tokens (max_position_embeddings), found {} of context, {} "
                "of request and {} new; lower --max-new-tokens or shorten the text",
                info.max_position_embeddings, answer.cached_tokens, answer.request_tokens(),
                options_.max_new_tokens));
      report_.answers.push_back(std::move(answer));
    }
  }

  void prefill() {
    const BoundaryMode mode = args_.fixed_part.mode();
    prompter_.emplace(args_.fixed_part.make_prompter(model_->shared_text()));
    const Prompt context = prompter_->make_context(mode);
    warn_about(context);
    plan_requests(context.ids, mode);
    Progress progress("prefill", args_.model_flags.progress());
    const auto start = Clock::now();
    context_ = model_->prefill(context.ids, [&](size_t done) { progress.update(done, context.ids.size()); });
    report_.prefill_ms = milliseconds_since(start);
    report_.context = context_;
  }

  void prove_parity(RunAnswer& answer) const {
    const Progress progress("proving parity", args_.model_flags.progress());
    GenerateOptions greedy = options_;
    greedy.sampling = {};
    check(compare_uncached(*context_, answer.cached_tokens, answer.request, greedy), answer);
    if (options_.sampling.temperature > 0)
      check(compare_uncached(*context_, answer.cached_tokens, answer.request, options_), answer);
  }

  void check(const ParityReport& parity, RunAnswer& answer) const {
    if (parity.first_difference) {
      const size_t at = *parity.first_difference;
      const auto shown = [at](const Generation& generation) {
        return at < generation.ids.size() ? fmt::format("id {}", generation.ids[at]) : std::string("nothing");
      };
      throw Error(ErrorCode::Parity, fmt::format("parity: prompt '{}': cached and uncached generation differ at "
                                                 "new token {} (position {}): cached {}, "
                                                 "uncached {}; no timing is shown",
                                                 answer.prompt, at, answer.request.size() + at,
                                                 shown(parity.cached), shown(parity.uncached)));
    }
    answer.generation = parity.cached;
    answer.text = answer_text(model_->text().tokenizer(), parity.cached.ids, options_.stop);
  }

  // The benchmark: cached and uncached take turns. The first cached round is also what the reader sees.
  void measure(RunAnswer& answer) const {
    if (!args_.model_flags.json) print_prompt(answer);
    for (size_t round = 0; round < args_.benchmark_repeats; ++round) {
      measure_cached(answer, round == 0);
      const auto start = Clock::now();
      Fork uncached = model_->start();
      uncached.append(answer.request);
      uncached_first_token(uncached);
      answer.ttft_uncached_ms.push_back(milliseconds_since(start));
    }
  }

  void uncached_first_token(Fork& fork) const {
    GenerateOptions one = options_;
    one.max_new_tokens = 1;
    generate(fork, one);
  }

  void measure_cached(RunAnswer& answer, bool streams) const {
    AnswerStream stream(model_->text().tokenizer(), options_.stop);
    const bool prints = streams && !args_.model_flags.json;
    const auto start = Clock::now();
    Fork fork = context_->fork_at(answer.cached_tokens);
    answer.fork_ms.push_back(milliseconds_since(start));
    fork.append(std::span(answer.request).subspan(answer.cached_tokens));
    std::optional<Clock::time_point> first;
    Clock::time_point last;
    const Generation generation = generate(fork, options_, [&](int32_t id) {
      last = Clock::now();
      if (!first) first = last;
      if (prints) {
        write_output(stream.push(id));
        flush_output();
      }
      return true;
    });
    if (generation.ids != answer.generation.ids)
      throw Error(ErrorCode::Isolation, "isolation: a repeated request gave other tokens than before");
    answer.ttft_cached_ms.push_back(std::chrono::duration<double, std::milli>(*first - start).count());
    if (generation.ids.size() > 1)
      answer.decode_ms_per_token.push_back(std::chrono::duration<double, std::milli>(last - *first).count() /
                                           static_cast<double>(generation.ids.size() - 1));
    if (prints) write_output(stream.finish() + "\n");
  }

  const Args& args_;
  std::vector<std::string> prompts_;
  std::shared_ptr<const Model> model_;
  std::optional<Prompter> prompter_;
  std::shared_ptr<const Context> context_;
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
  app.add_option("--prompt", args->prompts, "A request; repeatable (default: one per line of standard input)")
      ->allow_extra_args(false);
  app.add_option("--prompt-file", args->prompt_files,
                 "A file whose whole text, less one final newline, is a request; repeatable")
      ->allow_extra_args(false);
  app.add_option("--benchmark-repeats", args->benchmark_repeats,
                 "Rounds of the timings, of which medians are shown")
      ->check(CLI::Range(size_t{1}, size_t{10000}))
      ->capture_default_str();
  args->generation.add_to(app);
  app.add_option("--speculate", args->speculate,
                 "lookup: guess the next tokens from what came before and check them in one pass; off: one token "
                 "per pass. The "
                 "answers are the same")
      ->check(CLI::IsMember({"off", "lookup"}))
      ->capture_default_str();
  return [args] { return Run(*args).run(); };
}

}  // namespace kvfork::cli
