// kvfork bench: cached against uncached on the user's own model, over prefix lengths. Parity is proven before
// anything is timed.

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/new_file.h"
#include "cli/bench_report.h"
#include "cli/commands.h"
#include "cli/help.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/report_html.h"
#include "cli/session.h"
#include "cli/stopwatch.h"
#include "kvfork/context.h"
#include "kvfork/error.h"
#include "kvfork/fork.h"
#include "kvfork/generate.h"
#include "kvfork/model.h"
#include "kvfork/text.h"
#include "kvfork/verify.h"

namespace kvfork::cli {
namespace {

constexpr size_t kDefaultLengths[] = {128, 512, 1024, 2048};

struct Args {
  ModelFlags model_flags;
  FixedPartFlags fixed_part;
  std::string prompt = "What do I need to request a refund?";
  std::string prefix_lengths;
  std::string html;
  size_t max_new_tokens = 16;
  size_t repeats = 5;
};

// One prefix length: its context, and a request that starts with it.
struct Length {
  std::shared_ptr<const Context> context;
  Request request;
  std::vector<int32_t> answer;  // as proven
};

class Bench {
 public:
  explicit Bench(const Args& args)
      : args_(args), asked_lengths_(parse_sizes(args.prefix_lengths, "--prefix-lengths")) {}

  int run() {
    std::optional<base::NewFile> html;  // what cannot be written is found out before any work
    if (!args_.html.empty()) html.emplace(base::NewFile::create(args_.html, 0, base::NewFile::Devices::WriteInto));
    open();
    report_.machine = read_machine();
    report_.started = read_clock();
    report_.load_before = read_load();
    for (const size_t n_tokens : choose_lengths()) prove_parity(n_tokens);
    measure();
    report_.load_after = read_load();
    if (html) {
      html->write(make_html(report_));
      html->commit();
    }
    args_.model_flags.json ? print_bench_json(report_) : print_table(report_);
    return 0;
  }

 private:
  const Model& model() const { return session_->model(); }

  void open() {
    session_.emplace(args_.model_flags, args_.fixed_part);
    options_ = GenerateOptions::from_defaults(model().generation_defaults(), args_.max_new_tokens);
    options_.eos_token_ids.clear();  // the same number of new tokens at every length
    report_.model = model().info();
    report_.prompt = args_.prompt;
    report_.repeats = args_.repeats;
    report_.new_tokens = args_.max_new_tokens;
    const Request request = session_->make_request(args_.prompt);
    tail_.assign(request.new_ids().begin(), request.new_ids().end());
    report_.request_tokens = tail_.size();
  }

  // What was asked for, or the usual lengths that fit and the fixed part's own.
  std::vector<size_t> choose_lengths() const {
    const size_t limit = model().info().max_position_embeddings;
    const size_t n_more = tail_.size() + args_.max_new_tokens;
    std::vector<size_t> lengths = asked_lengths_;
    for (const size_t n_tokens : lengths) {
      if (n_tokens + n_more > limit)
        throw Error(ErrorCode::Limit,
                    fmt::format("context limit: expected at most {} tokens (max_position_embeddings), found {} of "
                                "prefix, {} of request and {} new",
                                limit, n_tokens, tail_.size(), args_.max_new_tokens));
    }
    if (lengths.empty()) {
      for (const size_t n_tokens : kDefaultLengths) {
        if (n_tokens + n_more <= limit) lengths.push_back(n_tokens);
      }
      if (session_->context_ids().size() + n_more <= limit) lengths.push_back(session_->context_ids().size());
    }
    if (lengths.empty())
      throw Error(ErrorCode::Limit,
                  fmt::format("context limit: expected room for a prefix, {} request and {} new tokens in {}",
                              tail_.size(), args_.max_new_tokens, limit));
    std::ranges::sort(lengths);
    lengths.erase(std::unique(lengths.begin(), lengths.end()), lengths.end());
    return lengths;
  }

  void prove_parity(size_t n_tokens) {
    Progress progress(fmt::format("proving parity at {} tokens", n_tokens), args_.model_flags.progress());
    std::vector<int32_t> ids(n_tokens);
    for (size_t i = 0; i < n_tokens; ++i) ids[i] = session_->context_ids()[i % session_->context_ids().size()];
    const bool is_context = n_tokens == session_->context_ids().size();
    auto context = is_context && session_->saved() != nullptr ? session_->saved() : model().prefill(ids);
    ids.insert(ids.end(), tail_.begin(), tail_.end());
    Length length{
        .context = std::move(context), .request = Request::unchecked(std::move(ids), n_tokens), .answer = {}};
    const ParityReport parity = compare_uncached(*length.context, length.request, options_);
    if (parity.first_difference)
      throw Error(ErrorCode::Parity,
                  fmt::format("parity: prefix of {} tokens: cached and uncached generation differ at new token {}; "
                              "nothing is timed",
                              n_tokens, *parity.first_difference));
    length.answer = parity.cached.ids;
    lengths_.push_back(std::move(length));
    report_.rows.push_back(
        {.prefix_tokens = n_tokens, .is_context = is_context, .kv_bytes = lengths_.back().context->kv_bytes()});
  }

  // All lengths take turns, and at each length the two ways do; who goes first changes from round to round.
  void measure() {
    Progress progress("measuring", args_.model_flags.progress());
    for (size_t round = 0; round < args_.repeats; ++round) {
      for (size_t i = 0; i < lengths_.size(); ++i) {
        progress.update(round * lengths_.size() + i, args_.repeats * lengths_.size());
        const bool cached_first = round % 2 == 0;
        if (cached_first) measure_cached(lengths_[i], report_.rows[i]);
        measure_uncached(lengths_[i], report_.rows[i]);
        if (!cached_first) measure_cached(lengths_[i], report_.rows[i]);
        measure_prefill(lengths_[i], report_.rows[i]);
      }
    }
  }

  void measure_cached(const Length& length, BenchRow& row) const {
    const Stopwatch fork_watch;
    (void)length.context->fork_unchecked(row.prefix_tokens);
    row.fork.add(fork_watch.milliseconds());
    const Stopwatch watch;
    Fork fork = length.context->fork(length.request);
    const auto [first, last] = finish(fork, length, watch);
    row.first_cached.add(first);
    row.total_cached.add(last);
    if (args_.max_new_tokens > 1) row.decode.add((last - first) / static_cast<double>(args_.max_new_tokens - 1));
  }

  void measure_uncached(const Length& length, BenchRow& row) const {
    const Stopwatch watch;
    Fork fork = model().start();
    fork.append(length.request.ids());
    const auto [first, last] = finish(fork, length, watch);
    row.first_uncached.add(first);
    row.total_uncached.add(last);
  }

  void measure_prefill(const Length& length, BenchRow& row) const {
    const Stopwatch prefill;
    model().prefill(std::span(length.request.ids()).first(row.prefix_tokens));
    row.prefill.add(prefill.milliseconds());
    const Stopwatch copying;
    const auto copy = copy_context(*length.context);
    row.copy.add(copying.milliseconds());
  }

  // When the first and the last new token were known, in milliseconds of the watch.
  std::pair<double, double> finish(Fork& fork, const Length& length, const Stopwatch& watch) const {
    std::optional<double> first;
    double last = 0;
    const Generation generation = generate(fork, options_, [&](int32_t) {
      last = watch.milliseconds();
      if (!first) first = last;
      return true;
    });
    if (generation.ids != length.answer)
      throw Error(ErrorCode::Isolation, "isolation: a repeated request gave other tokens than before");
    return {*first, last};
  }

  const Args& args_;
  std::vector<size_t> asked_lengths_;
  std::optional<Session> session_;
  GenerateOptions options_;
  std::vector<int32_t> tail_;  // what a request adds to its prefix
  std::vector<Length> lengths_;
  BenchReport report_;
};

}  // namespace

Command add_bench(CLI::App& app) {
  auto args = std::make_shared<Args>();
  args->model_flags.add_to(app);
  args->fixed_part.add_to(app);
  app.add_option("--prompt", args->prompt, "The request after each prefix")
      ->group(kRequestGroup)
      ->type_name("TEXT")
      ->capture_default_str();
  app.add_option("--prefix-lengths", args->prefix_lengths,
                 "Tokens of the prefixes to measure, 128,512,1024: the fixed part's, cut or repeated (default: "
                 "these, 2048 and its own)")
      ->group(kRequestGroup)
      ->type_name("N,N,...");
  app.add_option("--max-new-tokens", args->max_new_tokens, "New tokens per request")
      ->group(kRequestGroup)
      ->type_name("N")
      ->check(whole_number(1))
      ->capture_default_str();
  app.add_option("--repeats", args->repeats, "Rounds, of which medians and spread are shown")
      ->group(kRequestGroup)
      ->type_name("N")
      ->check(CLI::Range(size_t{1}, size_t{10000}))
      ->capture_default_str();
  app.add_option("--html", args->html, "Also write a report with plots to this file")
      ->group(kOutputGroup)
      ->type_name("FILE");
  return [args] { return Bench(*args).run(); };
}

}  // namespace kvfork::cli
