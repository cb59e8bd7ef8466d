// kvfork save: prefill a context once and keep it as a file.

#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "cli/commands.h"
#include "cli/fixed_part.h"
#include "cli/help.h"
#include "cli/json_parts.h"
#include "cli/known_contexts.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/stopwatch.h"
#include "cli/warnings.h"
#include "kvfork/context.h"
#include "kvfork/error.h"
#include "kvfork/fork.h"
#include "kvfork/identity.h"
#include "kvfork/inspect.h"
#include "kvfork/model.h"
#include "kvfork/request.h"
#include "kvfork/text.h"

namespace kvfork::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Args {
  ModelFlags model_flags;
  FixedPartFlags fixed_part;
  std::string out;
  bool flatten = false;
};

// Found out before the prefill, which may take minutes.
void expect_writable_place(const std::string& out) {
  const std::filesystem::path path(out);
  std::error_code error;
  if (std::filesystem::is_directory(path, error))
    throw Error(ErrorCode::Io, fmt::format("{}: expected the name of a file to write, found a directory", out));
  const auto directory = path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
  if (!std::filesystem::is_directory(directory, error))
    throw Error(ErrorCode::NotFound,
                fmt::format("{}: expected the directory {}, found none", out, directory.string()));
}

class Save {
 public:
  explicit Save(const Args& args) : args_(args) {}

  int run() {
    if (args_.fixed_part.loads() && !args_.fixed_part.is_given())
      throw UsageError("save: with --load, expected --messages, --context or --context-file to continue it with");
    expect_writable_place(args_.out);
    model_ = args_.model_flags.open();
    model_->text();
    const Stopwatch watch;
    context_ = args_.fixed_part.loads() ? continue_saved() : prefill();
    prefill_seconds_ = watch.seconds();
    save();
    remember_context(args_.out);
    args_.model_flags.json ? print_json() : print_text();
    return 0;
  }

 private:
  std::shared_ptr<const Context> prefill() const {
    const BoundaryMode mode = args_.fixed_part.mode();
    const Prompter prompter = args_.fixed_part.make_prompter(model_->shared_text());
    const Prompt prompt = prompter.make_context(mode);
    warn_about(prompt);
    Progress progress("prefill", args_.model_flags.progress(), Progress::Unit::Tokens);
    return model_->prefill(
        prompt.ids, [&](size_t done) { progress.update(done, prompt.ids.size()); },
        prompter.make_origin(mode, prompt));
  }

  // A file that names its parent is of no use without it.
  void expect_no_ancestor(const Context& parent) const {
    std::error_code error;
    if (args_.flatten || !std::filesystem::exists(args_.out, error)) return;
    std::string id;
    try {
      id = inspect_context(args_.out, ContextCheck::Quick).id;
    } catch (const Error&) {
      return;  // no context
    }
    for (const Context* ancestor = &parent; ancestor != nullptr; ancestor = ancestor->parent().get()) {
      if (ancestor->id() != id) continue;
      throw UsageError(fmt::format(
          "--out: {} holds a context that this one continues and would name; expected another file, or --flatten",
          args_.out));
    }
  }

  std::shared_ptr<const Context> continue_saved() const {
    const auto parent = args_.fixed_part.open_saved(*model_);
    expect_no_ancestor(*parent);
    // Only for its refusal of a context without text.
    (void)Prompter::from_origin(model_->shared_text(), parent->origin());
    FixedPart more = args_.fixed_part.read();
    if (parent->origin()->fixed.raw_text) more.raw_text = args_.fixed_part.read_context_text();
    auto origin = std::make_shared<ContextOrigin>(*parent->origin());
    origin->fixed = continue_fixed_part(origin->fixed, more);
    const BoundaryMode mode = *args_.fixed_part.boundary_option ? args_.fixed_part.mode() : origin->boundary;
    const Prompter prompter = Prompter::from_origin(model_->shared_text(), origin);
    const Prompt prompt = prompter.make_context(mode);
    warn_about(prompt);
    const Request whole(prompt.ids, parent->ids(), mode, prompter.tokenizer());
    if (whole.n_new() == 0)
      throw Error(ErrorCode::InvalidArgument,
                  fmt::format("{}: expected messages that add tokens to it, found none", args_.fixed_part.load));
    Progress progress("prefill", args_.model_flags.progress(), Progress::Unit::Tokens);
    Fork fork = parent->fork(whole, [&](size_t done) { progress.update(whole.n_cached() + done, whole.size()); });
    return std::move(fork).seal(prompter.make_origin(mode, prompt));
  }

  void save() {
    {
      const Progress progress("reading the weights' fingerprint", args_.model_flags.progress());
      identity_ = context_->identity();
    }
    Progress progress("saving", args_.model_flags.progress(), Progress::Unit::Bytes);
    const Stopwatch watch;
    bytes_ = context_->save(args_.out,
                            {.flatten = args_.flatten,
                             .on_progress = [&](uint64_t done, uint64_t total) { progress.update(done, total); }});
    save_seconds_ = watch.seconds();
  }

  bool names_parent() const { return context_->parent() != nullptr && !args_.flatten; }

  void print_json() const {
    Json json = {{"file", args_.out}, {"model", model_->info().path}};
    json.update(what_ran_json(*model_));
    json.update({{"tokens", context_->size()},
                 {"bytes", bytes_},
                 {"seconds", save_seconds_},
                 {"prefill_seconds", prefill_seconds_},
                 {"id", context_->id()},
                 {"parent", names_parent() ? Json(context_->parent()->id()) : Json(nullptr)},
                 {"identity", identity_json(identity_)}});
    write_json(json);
  }

  void print_text() const {
    print_line("{}: {}, {}; prefill {} ({}), saved in {}", args_.out, show_count(context_->size(), "token"),
               show_bytes(bytes_), show_time(prefill_seconds_ * 1000),
               show_rate(context_->size(), prefill_seconds_ * 1000), show_time(save_seconds_ * 1000));
    print_line("id {}", context_->id());
    if (names_parent()) print_line("continues {} ({})", args_.fixed_part.load, context_->parent()->id());
  }

  const Args& args_;
  std::shared_ptr<const Model> model_;
  std::shared_ptr<const Context> context_;
  Identity identity_;
  double prefill_seconds_ = 0;
  double save_seconds_ = 0;
  uint64_t bytes_ = 0;
};

}  // namespace

Command add_save(CLI::App& app) {
  auto args = std::make_shared<Args>();
  args->model_flags.add_to(app);
  args->fixed_part.add_to(app, FixedPartFlags::Load::Continues);
  app.add_option("--out", args->out, "The file to write; a file of that name is replaced once the new one is whole")
      ->group(kOutputGroup)
      ->type_name("FILE")
      ->required();
  app.add_flag("--flatten", args->flatten, "With --load: write the whole, not the part after the parent")
      ->group(kOutputGroup);
  return [args] { return Save(*args).run(); };
}

}  // namespace kvfork::cli
