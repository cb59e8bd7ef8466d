// A model and the fixed part of its requests, opened as the command's options say.
//
// What the commands that answer requests do alike: open the model, open the saved context or render the fixed part,
// make requests whose boundary is checked, and prefill the context when it is first needed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/fixed_part.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "kvfork/context.h"
#include "kvfork/fork.h"
#include "kvfork/model.h"
#include "kvfork/prompt.h"
#include "kvfork/request.h"
#include "kvfork/text.h"

namespace kvfork::cli {

class Session {
 public:
  /// Opens everything that can be opened without running the model. Throws as Model::open, Model::open_context,
  /// Prompter::make_context.
  Session(const ModelFlags& model_flags, const FixedPartFlags& fixed_part);

  const Model& model() const { return *model_; }
  const std::shared_ptr<const Model>& shared_model() const { return model_; }
  const Tokenizer& tokenizer() const { return prompter_->tokenizer(); }
  const Prompter& prompter() const { return *prompter_; }
  BoundaryMode mode() const { return mode_; }
  const std::string& revision() const { return revision_; }  ///< the Hub's commit; empty where it is not known
  std::span<const int32_t> context_ids() const { return context_ids_; }
  double open_ms() const { return open_ms_; }
  std::optional<double> load_ms() const { return load_ms_; }        ///< opening and checking the saved context
  std::optional<double> prefill_ms() const { return prefill_ms_; }  ///< running the fixed part

  /// Warns about control tokens. Throws Error{Boundary} when the context is not an exact prefix of the request, and
  /// as Prompter::make_request.
  Request make_request(std::string_view text) const;
  Request make_request_from_messages(std::string_view messages_json) const;

  /// Throws Error{Limit} when the request and so many new tokens are beyond the context limit.
  void expect_room(const Request& request, size_t max_new_tokens) const;

  /// The saved context, or null where the fixed part is still to be run.
  const std::shared_ptr<const Context>& saved() const { return context_; }
  /// The context; the first call prefills it, with progress.
  const std::shared_ptr<const Context>& context();

  /// Tokens of the request that are read from the context, which is prefilled if it has to be; the others are run.
  size_t n_read(const Request& request) { return context()->last_start(request.n_cached()); }

  /// A fork of the context that holds the whole request. Throws as Context::fork.
  Fork fork(const Request& request, const std::function<void(size_t)>& on_progress = {}) {
    return context()->fork(request, on_progress);
  }

 private:
  void open_model(const ModelFlags& flags);
  Request check(Prompt prompt) const;

  Progress::Show show_;
  std::shared_ptr<const Model> model_;
  std::string revision_;
  std::optional<Prompter> prompter_;
  BoundaryMode mode_ = BoundaryMode::Message;
  std::vector<int32_t> context_ids_;
  std::shared_ptr<const Context> context_;
  double open_ms_ = 0;
  std::optional<double> load_ms_;
  std::optional<double> prefill_ms_;
};

}  // namespace kvfork::cli
