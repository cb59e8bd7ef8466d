// kvfork batch: requests as JSONL in, answers as JSONL out, decoded together, resumable. docs/batch.md is its
// manual.

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "cli/answers_file.h"
#include "cli/batch_lines.h"
#include "cli/commands.h"
#include "cli/generation_flags.h"
#include "cli/help.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/session.h"
#include "cli/stopwatch.h"
#include "kvfork/answer_stream.h"
#include "kvfork/batch.h"
#include "kvfork/error.h"
#include "kvfork/identity.h"
#include "kvfork/model.h"
#include "kvfork/text.h"

namespace kvfork::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Args {
  ModelFlags model_flags;
  FixedPartFlags fixed_part;
  GenerationFlags generation;
  std::string in;
  std::string out;
  BatchOptions batch;
};

// A file that standard output was sent to; what is written to a pipe twice comes out twice.
bool is_standard_output(const std::string& path) {
  struct stat named {
  }, output{};
  return ::stat(path.c_str(), &named) == 0 && ::fstat(STDOUT_FILENO, &output) == 0 && S_ISREG(output.st_mode) &&
         named.st_dev == output.st_dev && named.st_ino == output.st_ino;
}

// A line of the input on its way to a line of the output.
struct Line {
  nlohmann::ordered_json id;
  std::string error;            // no request, or one that is refused
  std::optional<size_t> place;  // among the requests that are to be run
  size_t n_tokens = 0;          // of the whole request
  size_t n_cached_tokens = 0;
  std::string digest;
};

class BatchCommand {
 public:
  explicit BatchCommand(const Args& args) : args_(args) {}

  int run() {
    std::error_code error;
    if (std::filesystem::equivalent(args_.in, args_.out, error))
      throw UsageError(fmt::format("--out: expected another file than --in, found {}", args_.out));
    if (args_.model_flags.json && is_standard_output(args_.out))
      throw UsageError(fmt::format(
          "--out: expected another file than standard output, which --json writes to, found {}", args_.out));
    const std::string input = read_text(args_.in);
    expect_json_lines(input);
    open_model();
    out_.emplace(args_.out);
    plan_lines(split_lines(input));
    const size_t n_finished = out_->finished_lines().size();
    check_torn(n_finished);
    if (n_finished < lines_.size() || !out_->torn_line().empty()) out_->begin();
    if (n_finished < lines_.size()) answer_rest(n_finished);
    out_->sync();
    report(n_finished);
    if (n_errors_ == 0) return 0;
    print_error(fmt::format("{}: {} of {} lines {} an error{}", args_.out, n_errors_, lines_.size(),
                            n_errors_ == 1 ? "has" : "have",
                            first_error_.empty() ? "" : "; the first is: " + first_error_));
    return 1;
  }

 private:
  // A file of another kind, such as a list of prompts, would give an error for each of its lines.
  void expect_json_lines(const std::string& input) const {
    const auto lines = split_lines(input);
    if (lines.empty() || lines[0].find_first_not_of(" \t\r") == lines[0].find('{')) return;
    throw UsageError(fmt::format("--in: {}: expected a JSON object in each line, found in line 1: {}", args_.in,
                                 lines[0].substr(0, 60)));
  }

  void open_model() {
    session_.emplace(args_.model_flags, args_.fixed_part);
    defaults_ = args_.generation.options(session_->model().generation_defaults());
    const Identity& identity = session_->model().identity();
    identity_ = identity.architecture + identity.config + identity.weights + identity.dtype + identity.kernel_set +
                identity.kernel_bits + session_->model().text().tokenizer_fingerprint();
  }

  // Reads every request, and compares those that are finished with what the output holds.
  void plan_lines(const std::vector<std::string_view>& input) {
    const auto& finished = out_->finished_lines();
    if (finished.size() > input.size()) fail_resume(input.size());
    Progress progress("reading requests", args_.model_flags.progress());
    for (size_t i = 0; i < input.size(); ++i) {
      Line line = plan_line(parse_request_line(input[i], defaults_), i >= finished.size());
      if (i < finished.size()) check_finished(line, i);
      lines_.push_back(std::move(line));
      if (i % 64 == 0) progress.update(i, input.size());
    }
  }

  Line plan_line(RequestLine request, bool is_to_run) {
    Line line{.id = std::move(request.id), .error = std::move(request.error)};
    if (!line.error.empty()) return line;
    try {
      Request made = request.prompt ? session_->make_request(*request.prompt)
                                    : session_->make_request_from_messages(request.messages_json);
      line.n_cached_tokens = made.n_cached();
      line.n_tokens = made.size();
      line.digest = make_digest(identity_, made.ids(), request.options);
      if (!is_to_run) return line;
      line.place = requests_.size();
      requests_.push_back({.request = std::move(made), .options = std::move(request.options)});
    } catch (const Error& error) {
      line.error = error.what();
    }
    return line;
  }

  // A finished line must be this request's answer. One that failed while it ran is not run again.
  void check_finished(const Line& line, size_t index) {
    const std::string& text = out_->finished_lines()[index];
    const Json found = Json::parse(text, nullptr, false);
    if (!found.is_object() || !found.contains("id") || found["id"] != line.id) fail_resume(index);
    const bool has_error = found.contains("error");
    if (has_error) count_error(index, found["error"].is_string() ? found["error"].get<std::string>() : "");
    if (!line.error.empty()) {
      if (text + "\n" != format_error(line.id, line.error)) fail_resume(index);
    } else if (!is_as_written(text) || !found.contains("digest") || found["digest"] != line.digest) {
      fail_resume(index);
    }
  }

  // What follows the finished lines may be the beginning of the next answer, or zeros that a crash of the machine
  // left.
  void check_torn(size_t index) const {
    const std::string& torn = out_->torn_line();
    if (torn.find_first_not_of('\0') == std::string::npos) return;
    if (index < lines_.size()) {
      for (const char* key : {"\"ids\":", "\"error\":"}) {
        const std::string start = fmt::format("{{\"id\":{},{}", to_json_text(lines_[index].id), key);
        const size_t n = std::min(start.size(), torn.size());
        if (torn.compare(0, n, start, 0, n) == 0) return;
      }
    }
    fail_resume(index);
  }

  [[noreturn]] void fail_resume(size_t index) const {
    throw Error(
        ErrorCode::InvalidArgument,
        fmt::format(
            "{}: line {} is not the answer to line {} of {} with this model, context and options; remove the file "
            "to start anew, or choose another --out (a template that reads the clock needs the same --now)",
            args_.out, index + 1, index + 1, args_.in));
  }

  void answer_rest(size_t n_finished) {
    if (!requests_.empty()) {
      const size_t n_prefill = session_->saved() == nullptr ? session_->context_ids().size() : 0;
      plan_batch(session_->model(), requests_, args_.batch, n_prefill);
      session_->context();
    }
    std::vector<size_t> line_of(requests_.size());
    for (size_t i = 0; i < lines_.size(); ++i) {
      if (lines_[i].place) line_of[*lines_[i].place] = i;
    }
    next_ = n_finished;
    size_t n_done = n_finished;
    Progress progress("batch", args_.model_flags.progress());
    progress.update(n_done, lines_.size());
    write_ready();
    if (requests_.empty()) return;
    const Stopwatch watch;
    batch_ = answer_all(*session_->context(), requests_, args_.batch,
                        {.on_answer =
                             [&](size_t place, const BatchAnswer& answer) {
                               ready_[line_of[place]] =
                                   format(lines_[line_of[place]], requests_[place].options, answer);
                               if (answer.error) count_error(line_of[place], answer.error->what());
                               progress.update(++n_done, lines_.size());
                               write_ready();
                             },
                         .on_token =
                             [&](size_t, int32_t) {
                               ++n_tokens_;
                               progress.add_tokens(1);
                               return true;
                             }});
    seconds_ = watch.seconds();
  }

  std::string format(const Line& line, const GenerateOptions& options, const BatchAnswer& answer) {
    if (answer.error) return format_failure(line.id, answer.error->what(), line.digest);
    const std::string text = answer_text(session_->tokenizer(), answer.generation.ids, options.stop);
    const size_t n_read = session_->context()->last_start(line.n_cached_tokens);
    return format_answer(line.id, answer.generation, text, line.n_tokens - n_read, n_read, line.digest);
  }

  void count_error(size_t index, const std::string& error) {
    if (n_errors_++ == 0) first_error_ = fmt::format("line {}: {}", index + 1, error);
  }

  // Writes lines as long as the next one is known.
  void write_ready() {
    for (; next_ < lines_.size(); ++next_) {
      if (!lines_[next_].place) {
        out_->append(format_error(lines_[next_].id, lines_[next_].error));
        count_error(next_, lines_[next_].error);
        continue;
      }
      const auto it = ready_.find(next_);
      if (it == ready_.end()) return;
      out_->append(it->second);
      ready_.erase(it);
    }
  }

  void report(size_t n_finished) const {
    const double rate = seconds_ > 0 ? static_cast<double>(n_tokens_) / seconds_ : 0;
    if (args_.model_flags.json) {
      write_json({{"requests", lines_.size()},
                  {"errors", n_errors_},
                  {"resumed", n_finished},
                  {"new_tokens", n_tokens_},
                  {"passes", batch_.n_passes},
                  {"widest", batch_.n_widest},
                  {"timings", {{"batch_ms", seconds_ * 1000}, {"tokens_per_s", rate}}}});
    } else if (!args_.model_flags.quiet) {
      fmt::print(stderr,
                 "kvfork: {}: {} requests, {} of them finished before; {} new tokens in {:.1f} s ({:.1f} "
                 "tokens/s), up to {} "
                 "requests at once\n",
                 args_.out, lines_.size(), n_finished, n_tokens_, seconds_, rate, batch_.n_widest);
    }
  }

  const Args& args_;
  std::optional<Session> session_;
  std::string identity_;
  GenerateOptions defaults_;
  std::optional<AnswersFile> out_;
  std::vector<Line> lines_;
  std::vector<BatchRequest> requests_;
  std::map<size_t, std::string> ready_;  // by line: answers that wait for one before them
  size_t next_ = 0;                      // the first line not written
  size_t n_errors_ = 0;
  std::string first_error_;
  size_t n_tokens_ = 0;
  double seconds_ = 0;
  BatchReport batch_;
};

}  // namespace

Command add_batch(CLI::App& app) {
  auto args = std::make_shared<Args>();
  args->model_flags.add_to(app);
  args->fixed_part.add_to(app);
  app.add_option("--in", args->in, "Requests, one JSON object per line; - for standard input")
      ->group(kRequestGroup)
      ->type_name("FILE")
      ->required();
  app.add_option("--out", args->out,
                 "Answers, one JSON object per line; a file that holds the first of them is continued")
      ->group(kRequestGroup)
      ->type_name("FILE")
      ->required();
  app.add_option("--width", args->batch.max_width,
                 "Requests decoded together, at most; fewer where memory is short")
      ->group(kRequestGroup)
      ->type_name("N")
      ->check(CLI::Range(size_t{1}, size_t{512}))
      ->capture_default_str();
  args->generation.add_to(app);
  return [args] { return BatchCommand(*args).run(); };
}

}  // namespace kvfork::cli
