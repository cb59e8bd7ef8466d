// kvfork score: log-probabilities and logits per position.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/help.h"
#include "cli/json_parts.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/safetensors_writer.h"
#include "cli/score_requests.h"
#include "cli/warnings.h"
#include "kvfork/context.h"
#include "kvfork/error.h"
#include "kvfork/fork.h"
#include "kvfork/model.h"
#include "kvfork/text.h"

namespace kvfork::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kTopCount = 5;

struct Args {
  ModelFlags model_flags;
  TemplateFlags template_flags;
  CLI::Option* text_option = nullptr;
  CLI::Option* ids_option = nullptr;
  CLI::Option* fork_option = nullptr;
  CLI::Option* logits_option = nullptr;
  std::string text;
  std::string messages_file;
  std::string requests_file;
  std::string ids;
  std::string logits_file;
  std::string chunks;
  size_t fork_at = 0;
  bool add_special_tokens = false;
  bool no_generation_prompt = false;
};

struct Candidate {
  int32_t id;
  double log_probability;
};

// What one row of logits says about the token after it.
struct Prediction {
  double log_sum;  // log of the sum of exp(logit)
  std::vector<Candidate> top;

  Prediction(std::span<const float> logits) : log_sum(0) {
    const double best = *std::max_element(logits.begin(), logits.end());
    for (const float logit : logits) log_sum += std::exp(logit - best);
    log_sum = best + std::log(log_sum);
    std::vector<int32_t> order(logits.size());
    std::iota(order.begin(), order.end(), 0);
    const auto middle = order.begin() + static_cast<ptrdiff_t>(std::min(kTopCount, order.size()));
    std::partial_sort(order.begin(), middle, order.end(), [&](int32_t a, int32_t b) {
      const float x = logits[static_cast<size_t>(a)];
      const float y = logits[static_cast<size_t>(b)];
      return x != y ? x > y : a < b;
    });
    for (auto it = order.begin(); it != middle; ++it)
      top.push_back({*it, logits[static_cast<size_t>(*it)] - log_sum});
  }
};

class Score {
 public:
  explicit Score(const Args& args) : args_(args) {}

  int run() {
    if (!args_.requests_file.empty())
      return score_requests(args_.model_flags.open(), args_.requests_file, args_.add_special_tokens,
                            args_.model_flags.progress());
    chunks_ = parse_sizes(args_.chunks, "--chunks");
    model_ = args_.model_flags.open();
    ids_ = make_ids();
    if (ids_.empty()) throw Error(ErrorCode::InvalidArgument, "score: expected at least one token, found none");
    if (*args_.fork_option && args_.fork_at >= ids_.size())
      throw UsageError(
          fmt::format("--fork-at: expected fewer than the {} tokens, found {}", ids_.size(), args_.fork_at));
    const ModelInfo& info = model_->info();
    if (ids_.size() > info.max_position_embeddings)
      throw Error(ErrorCode::Limit,
                  fmt::format("context limit: expected at most {} tokens (max_position_embeddings), found {}",
                              info.max_position_embeddings, ids_.size()));
    for (const int32_t id : ids_) {
      if (id < 0 || static_cast<size_t>(id) >= info.vocab_size)
        throw Error(ErrorCode::InvalidArgument,
                    fmt::format("ids: expected ids below {}, found {}", info.vocab_size, id));
    }
    if (*args_.logits_option) file_.emplace(args_.logits_file, ids_, info.vocab_size);
    score_all();
    if (file_) file_->finish();
    args_.model_flags.json ? print_json() : print_table();
    return 0;
  }

 private:
  std::vector<int32_t> make_ids() const {
    if (*args_.ids_option) return parse_ids(args_.ids, "--ids");
    const Text& text = model_->text();
    const UserText user_text = args_.template_flags.user_text();
    Prompt prompt;
    if (!args_.messages_file.empty()) {
      ChatRequest request = args_.template_flags.request();
      request.messages_json = read_text(args_.messages_file);
      request.add_generation_prompt = !args_.no_generation_prompt;
      prompt = encode_chat(text.tokenizer(), args_.template_flags.choose(text.chat_template()), request, user_text);
    } else {
      EncodeOptions options;
      options.add_special_tokens = args_.add_special_tokens;
      prompt = encode_text(text.tokenizer(), *args_.text_option ? args_.text : read_standard_input(), options,
                           user_text);
    }
    warn_about(prompt);
    return std::move(prompt.ids);
  }

  void score_all() {
    Progress progress("scoring", args_.model_flags.progress(), Progress::Unit::Tokens);
    Fork timeline = model_->start();
    size_t done = 0;
    size_t next_chunk = 0;
    while (done < ids_.size()) {
      size_t n = ids_.size() - done;
      if (next_chunk < chunks_.size()) n = std::min(n, chunks_[next_chunk++]);
      const bool seals = *args_.fork_option && done < args_.fork_at && done + n >= args_.fork_at;
      if (seals) {  // the part up to the seal, the seal, then the rest of this call
        feed(timeline, done, args_.fork_at - done);
        timeline = std::move(timeline).seal()->fork_unchecked();
        n -= args_.fork_at - done;
        done = args_.fork_at;
      }
      feed(timeline, done, n);
      done += n;
      progress.update(done, ids_.size());
    }
  }

  void feed(Fork& timeline, size_t begin, size_t n) {
    const size_t vocab_size = model_->info().vocab_size;
    timeline.append_scored(std::span(ids_).subspan(begin, n), [&](size_t, std::span<const float> rows) {
      for (size_t row = 0; row < rows.size() / vocab_size; ++row)
        take_row(rows.subspan(row * vocab_size, vocab_size));
      if (file_) file_->add(rows);
    });
  }

  void take_row(std::span<const float> logits) {
    for (size_t id = 0; id < logits.size(); ++id) {
      if (!std::isfinite(logits[id]))
        throw Error(ErrorCode::Corrupt,
                    fmt::format("logits: expected numbers, found {} for id {} after position {}; are the "
                                "weights intact?",
                                logits[id], id, top_.size()));
    }
    const Prediction prediction(logits);
    const size_t next = top_.size() + 1;
    if (next < ids_.size())
      log_probabilities_.push_back(logits[static_cast<size_t>(ids_[next])] - prediction.log_sum);
    top_.push_back(prediction.top);
  }

  // The token string; ids without one (padding of the vocabulary, a model without a tokenizer) have none.
  std::string piece_of(int32_t id) const {
    if (tokenizer() == nullptr || !tokenizer()->has_id(id)) return "";
    return std::string(tokenizer()->piece(id));
  }

  const Tokenizer* tokenizer() const {
    if (!tokenizer_looked_up_) {
      tokenizer_looked_up_ = true;
      try {
        tokenizer_ = &model_->text().tokenizer();
      } catch (const Error& error) {
        if (!*args_.ids_option) throw;  // with --ids the model alone is enough
      }
    }
    return tokenizer_;
  }

  void print_json() const {
    Json positions = Json::array();
    for (size_t i = 0; i < ids_.size(); ++i) {
      positions.push_back({{"position", i},
                           {"id", ids_[i]},
                           {"piece", piece_of(ids_[i])},
                           {"logprob", i == 0 ? Json(nullptr) : Json(log_probabilities_[i - 1])},
                           {"top", i == 0 ? Json(nullptr) : top_json(top_[i - 1])}});
    }
    Json json = {{"model", model_->info().path}};
    json.update(what_ran_json(*model_));
    json.update({{"tokens", ids_.size()},
                 {"logprob", total()},
                 {"positions", std::move(positions)},
                 {"next", top_json(top_.back())}});
    write_json(json);
  }

  Json top_json(const std::vector<Candidate>& candidates) const {
    Json top = Json::array();
    for (const Candidate& candidate : candidates)
      top.push_back(
          {{"id", candidate.id}, {"piece", piece_of(candidate.id)}, {"logprob", candidate.log_probability}});
    return top;
  }

  std::string top_text(const std::vector<Candidate>& candidates) const {
    std::string text;
    for (const Candidate& candidate : candidates)
      text += fmt::format("{}{} {} {:.4f}", text.empty() ? "" : "  ", candidate.id,
                          to_json_text(piece_of(candidate.id)), candidate.log_probability);
    return text;
  }

  void print_table() const {
    print_line("position\tid\tpiece\tlogprob\ttop 5 for this position");
    for (size_t i = 0; i < ids_.size(); ++i) {
      print_line("{}\t{}\t{}\t{}\t{}", i, ids_[i], to_json_text(piece_of(ids_[i])),
                 i == 0 ? "-" : fmt::format("{:.4f}", log_probabilities_[i - 1]),
                 i == 0 ? "-" : top_text(top_[i - 1]));
    }
    print_line("next\t\t\t\t{}", top_text(top_.back()));
    print_line("{} tokens, log-probability {:.4f}", ids_.size(), total());
  }

  double total() const { return std::accumulate(log_probabilities_.begin(), log_probabilities_.end(), 0.0); }

  const Args& args_;
  std::shared_ptr<const Model> model_;
  std::vector<size_t> chunks_;
  std::vector<int32_t> ids_;
  std::optional<LogitsFile> file_;
  std::vector<std::vector<Candidate>> top_;  // [n_tokens] predictions after each position
  std::vector<double> log_probabilities_;    // [n_tokens - 1] of the tokens from the second on
  mutable const Tokenizer* tokenizer_ = nullptr;
  mutable bool tokenizer_looked_up_ = false;
};

}  // namespace

Command add_score(CLI::App& app) {
  auto args = std::make_shared<Args>();
  args->model_flags.add_to(app);
  args->text_option = app.add_option("--text", args->text, "The text (default: standard input)")
                          ->group(kRequestGroup)
                          ->type_name("TEXT");
  CLI::Option* messages = app.add_option("--messages", args->messages_file, "JSON file with a message list")
                              ->group(kRequestGroup)
                              ->type_name("FILE");
  args->ids_option = app.add_option("--ids", args->ids, "Token ids, separated by commas")
                         ->group(kRequestGroup)
                         ->type_name("N,N,...");
  args->text_option->excludes(messages)->excludes(args->ids_option);
  messages->excludes(args->ids_option);
  CLI::Option* requests =
      app.add_option("--in", args->requests_file,
                     "JSONL with context and continuation, or continuations, per line: prints a line of scores for "
                     "each; what contexts share is run once")
          ->group(kRequestGroup)
          ->type_name("FILE");
  requests->excludes(args->text_option)->excludes(messages)->excludes(args->ids_option);
  args->template_flags.add_to(app);
  app.add_flag("--add-special-tokens", args->add_special_tokens,
               "Apply the tokenizer's post-processor to plain text")
      ->group(kRequestGroup);
  app.add_flag("--no-generation-prompt", args->no_generation_prompt, "Do not open the assistant's turn")
      ->group(kRequestGroup);
  args->logits_option =
      app.add_option("--logits", args->logits_file,
                     "Write float32 logits [n_tokens, vocab_size] and int64 ids to this safetensors file")
          ->group(kOutputGroup)
          ->type_name("FILE");
  app.add_option("--chunks", args->chunks,
                 "Feed the ids in calls of these sizes, e.g. 5,17,100; the rest in one more")
      ->group(kRequestGroup)
      ->type_name("N,N,...");
  args->fork_option =
      app.add_option("--fork-at", args->fork_at, "Seal the first N tokens as a context and run the rest in a fork")
          ->group(kRequestGroup)
          ->type_name("N")
          ->check(whole_number(1));
  requests->excludes(args->logits_option)->excludes(args->fork_option)->excludes("--chunks");
  return [args] { return Score(*args).run(); };
}

}  // namespace kvfork::cli
