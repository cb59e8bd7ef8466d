// Opening a model with its fixed part, and the way from a user's words to a fork.
#include "cli/session.h"

#include <utility>

#include "base/error.h"
#include "cli/stopwatch.h"
#include "cli/warnings.h"
#include "kvfork/identity.h"

namespace kvfork::cli {

Session::Session(const ModelFlags& model_flags, const FixedPartFlags& fixed_part) : show_(model_flags.progress()) {
  open_model(model_flags);
  if (fixed_part.loads()) {
    const Progress progress("opening " + name_of_path(fixed_part.load), show_);
    const Stopwatch watch;
    context_ = fixed_part.open_saved(*model_);
    load_ms_ = watch.milliseconds();
    prompter_.emplace(Prompter::from_origin(model_->shared_text(), context_->origin()));
    context_ids_.assign(context_->ids().begin(), context_->ids().end());
    mode_ = context_->origin()->boundary;
    return;
  }
  mode_ = fixed_part.mode();
  prompter_.emplace(fixed_part.make_prompter(model_->shared_text()));
  Prompt context = prompter_->make_context(mode_);
  warn_about(context);
  context_ids_ = std::move(context.ids);
}

void Session::open_model(const ModelFlags& flags) {
  const LocatedModel located = flags.locate();
  const Progress progress("opening " + name_of_path(flags.model), show_);
  const Stopwatch watch;
  model_ = Model::open(located.path, flags.options());
  model_->text();
  open_ms_ = watch.milliseconds();
  revision_ = located.revision.value_or("");
}

Request Session::check(Prompt prompt) const {
  warn_about(prompt);
  return {std::move(prompt.ids), context_ids_, mode_, prompter_->tokenizer()};
}

Request Session::make_request(std::string_view text) const {
  return check(prompter_->make_request(text));
}

Request Session::make_request_from_messages(std::string_view messages_json) const {
  return check(prompter_->make_request_from_messages(messages_json));
}

void Session::expect_room(const Request& request, size_t max_new_tokens) const {
  const size_t limit = model_->info().max_position_embeddings;
  if (request.size() + max_new_tokens <= limit) return;
  base::fail(ErrorCode::Limit,
             "context limit: expected at most {} tokens (max_position_embeddings), found {} of context, {} of "
             "request and {} new; lower --max-new-tokens or shorten the text",
             limit, request.n_cached(), request.n_new(), max_new_tokens);
}

const std::shared_ptr<const Context>& Session::context() {
  if (context_ != nullptr) return context_;
  Progress progress("prefill", show_, Progress::Unit::Tokens);
  const Stopwatch watch;
  context_ = model_->prefill(context_ids_, [&](size_t done) { progress.update(done, context_ids_.size()); });
  prefill_ms_ = watch.milliseconds();
  return context_;
}

}  // namespace kvfork::cli
