// kvfork ask: the daily command. Each question is answered at once from a fork of the cached context, and the
// answer streams as its tokens come. Nothing is compared here: kvfork run and kvfork verify do that.

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/commands.h"
#include "cli/generation_flags.h"
#include "cli/help.h"
#include "cli/line_editor.h"
#include "cli/numbers.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/prompt_flags.h"
#include "cli/session.h"
#include "cli/stopwatch.h"
#include "kvfork/answer_stream.h"
#include "kvfork/error.h"

namespace kvfork::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kExitFailure = 1;
constexpr int kExitRefused = 3;

struct Args {
  ModelFlags model_flags;
  FixedPartFlags fixed_part;
  GenerationFlags generation;
  PromptFlags prompts;
  bool chat = false;
  bool stats = false;
};

// Ctrl-C while an answer is made, in a conversation on a terminal.
volatile std::sig_atomic_t is_interrupted = 0;

void note_interrupt(int) {
  is_interrupted = 1;
}

struct Interrupted {};

class InterruptGuard {
 public:
  InterruptGuard() {
    is_interrupted = 0;
    old_ = std::signal(SIGINT, note_interrupt);
  }
  ~InterruptGuard() { std::signal(SIGINT, old_); }
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

 private:
  void (*old_)(int) = nullptr;
};

// What one answer took.
struct Answer {
  Generation generation;
  std::string text;
  size_t n_cached = 0;   // tokens that were not run again
  size_t n_request = 0;  // tokens run for the question
  double request_ms = 0;
  double total_ms = 0;
};

class Ask {
 public:
  explicit Ask(const Args& args)
      : args_(args),
        session_(args.model_flags, args.fixed_part),
        options_(args.generation.options(session_.model().generation_defaults())) {
    options_.speculation = Speculation::Lookup;
    if (args.chat && session_.prompter().fixed_part().raw_text)
      throw UsageError("--chat: a conversation needs the chat template, which --raw leaves out");
  }

  int run() {
    session_.context();
    const std::vector<std::string> prompts = args_.prompts.read();
    if (!prompts.empty()) {
      for (const std::string& prompt : prompts) answer_and_print(prompt);
    } else if (::isatty(STDIN_FILENO) == 1) {
      converse();
    } else {
      for (std::string line; std::getline(std::cin, line);) {
        for (const std::string& prompt : split_prompts(line)) answer_and_print(prompt);
      }
    }
    return exit_code_;
  }

 private:
  // Questions from a terminal until Ctrl-D.
  void converse() {
    print_note("{}: {} cached. Ctrl-C ends an answer, Ctrl-D the program; /help lists the commands.",
               args_.model_flags.model, show_count(session_.context_ids().size(), "token"));
    LineEditor editor;
    while (const auto line = editor.read("> ")) {
      const std::vector<std::string> prompts = split_prompts(*line);
      if (prompts.empty()) continue;
      if (prompts[0].starts_with('/')) {
        if (!take_command(prompts[0])) return;
        continue;
      }
      const InterruptGuard guard;
      answer_and_print(prompts[0]);
    }
  }

  // False ends the conversation.
  bool take_command(const std::string& command) {
    if (command == "/exit" || command == "/quit") return false;
    if (command == "/reset") {
      messages_ = Json::array();
      fork_.reset();
      print_note("The conversation starts anew from the fixed part.");
    } else if (command == "/stats") {
      shows_stats_ = !shows_stats_;
      if (shows_stats_ && last_) print_stats(*last_);
      print_note("Statistics after each answer: {}.", shows_stats_ ? "on" : "off");
    } else {
      print_note(
          "/stats  show or hide tokens and times after each answer\n"
          "/reset  forget the conversation (with --chat)\n"
          "/exit   end, as Ctrl-D does");
    }
    return true;
  }

  // An error of one question does not end the others.
  void answer_and_print(const std::string& question) {
    try {
      last_ = args_.chat ? answer_in_chat(question) : answer_alone(question);
      args_.model_flags.json ? print_json(question, *last_) : write_output("\n");
      flush_output();
      if (shows_stats_) print_stats(*last_);
    } catch (const Interrupted&) {
      write_output("\n");
    } catch (const Error& error) {
      if (error.code() == ErrorCode::Io) throw;
      print_error(error.what());
      exit_code_ = error.code() == ErrorCode::Boundary ? kExitRefused : kExitFailure;
    }
  }

  Answer answer_alone(const std::string& question) {
    const Request request = session_.make_request(question);
    session_.expect_room(request, options_.max_new_tokens);
    session_.context();  // prefilled before the question's time begins
    std::optional<Fork> fork;
    return answer(request, session_.n_read(request), [&](const OnProgress& on_progress) -> Fork& {
      return fork.emplace(session_.fork(request, on_progress));
    });
  }

  // The conversation stays in one fork as long as its tokens are the beginning of what the template renders.
  Answer answer_in_chat(const std::string& question) {
    Json messages = messages_;
    messages.push_back({{"role", "user"}, {"content", question}});
    const Request request = session_.make_request_from_messages(to_json_text(messages));
    session_.expect_room(request, options_.max_new_tokens);
    session_.context();
    const bool continues = fork_ && fork_->is_prefix_of(request.ids());
    const size_t n_cached = continues ? fork_->size() : session_.n_read(request);
    Answer made = answer(request, n_cached, [&](const OnProgress& on_progress) -> Fork& {
      if (continues) {
        fork_->extend_to(request.ids(), on_progress);
      } else {
        fork_.emplace(session_.fork(request, on_progress));
      }
      return *fork_;
    });
    messages.push_back({{"role", "assistant"}, {"content", made.text}});
    messages_ = std::move(messages);
    return made;
  }

  using OnProgress = std::function<void(size_t)>;

  // `prepare` makes the fork that holds the whole request.
  Answer answer(const Request& request, size_t n_cached, const std::function<Fork&(const OnProgress&)>& prepare) {
    Answer made{.n_cached = n_cached, .n_request = request.size() - n_cached};
    constexpr size_t kLong = 256;
    const bool is_long = made.n_request >= kLong;
    std::optional<Progress> progress(std::in_place, "reading the question",
                                     is_long ? args_.model_flags.progress() : Progress::Show::Never,
                                     Progress::Unit::Tokens);
    const Stopwatch watch;
    Fork& fork = prepare([&](size_t done) {
      progress->update(done, made.n_request);
      if (is_interrupted) throw Interrupted{};
    });
    progress.reset();
    made.request_ms = watch.milliseconds();
    AnswerStream stream(session_.tokenizer(), options_.stop);
    const auto take = [&](const std::string& text) {
      made.text += text;
      if (args_.model_flags.json || text.empty()) return;
      write_text(text);
      flush_output();
    };
    made.generation = generate(fork, options_, [&](int32_t id) {
      take(stream.push(id));
      return is_interrupted == 0;
    });
    take(stream.finish());
    made.total_ms = watch.milliseconds();
    return made;
  }

  // What the cached tokens would have taken: at the speed of the prefill where that was measured, else of the
  // question.
  double saved_ms(const Answer& made) const {
    if (session_.prefill_ms())
      return *session_.prefill_ms() * static_cast<double>(made.n_cached) /
             static_cast<double>(session_.context_ids().size());
    return made.n_request == 0
               ? 0
               : made.request_ms * static_cast<double>(made.n_cached) / static_cast<double>(made.n_request);
  }

  void print_stats(const Answer& made) const {
    const size_t n = made.generation.ids.size();
    print_note("{} in {}, {}; {} came from the cache, about {} saved", show_count(n, "token"),
               show_time(made.total_ms), show_rate(n, made.total_ms - made.request_ms),
               show_count(made.n_cached, "token"), show_time(saved_ms(made)));
  }

  void print_json(const std::string& question, const Answer& made) const {
    Json json = {{"prompt", question},
                 {"text", made.text},
                 {"ids", made.generation.ids},
                 {"stop", stop_reason_name(made.generation.stop)},
                 {"cached_tokens", made.n_cached},
                 {"request_tokens", made.n_request}};
    if (!made.generation.logprobs.empty()) json["logprobs"] = made.generation.logprobs;
    json["timings"] = {{"request_ms", made.request_ms}, {"total_ms", made.total_ms}};
    write_json(json);
  }

  const Args& args_;
  Session session_;
  GenerateOptions options_;
  bool shows_stats_ = args_.stats;
  std::optional<Answer> last_;
  Json messages_ = Json::array();  // of the conversation
  std::optional<Fork> fork_;       // that holds it
  int exit_code_ = 0;
};

}  // namespace

Command add_ask(CLI::App& app) {
  auto args = std::make_shared<Args>();
  args->model_flags.add_to(app);
  args->fixed_part.add_to(app);
  args->prompts.add_to(app,
                       "A question; repeatable (default: questions from the terminal, or one per line of standard "
                       "input)");
  app.add_flag("--chat", args->chat, "Keep the conversation: each question follows the answers before it")
      ->group(kRequestGroup);
  args->generation.add_to(app);
  app.add_flag("--stats", args->stats, "After each answer, print its tokens and times on standard error")
      ->group(kOutputGroup);
  app.get_option("--json")->description("One JSON document per answer, in one line each");
  return [args] { return Ask(*args).run(); };
}

}  // namespace kvfork::cli
