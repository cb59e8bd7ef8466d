// What the checks of verify() exercise: every step of the library that they rely on, one virtual function each.
//
// The base class hands each step on to the library. Tests derive from it and break one step, to see that the check
// for it reports that. Belongs to one thread; model and prompter must outlive it.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kvfork/batch.h"
#include "kvfork/context.h"
#include "kvfork/fork.h"
#include "kvfork/generate.h"
#include "kvfork/model.h"
#include "kvfork/prompt.h"

namespace kvfork::checks {

using Ids = std::span<const int32_t>;

class VerifySubject {
 public:
  VerifySubject(std::shared_ptr<const Model> model, const Prompter& prompter, BoundaryMode mode)
      : model_(std::move(model)), prompter_(prompter), mode_(mode) {}
  virtual ~VerifySubject() = default;

  const Model& model() const noexcept { return *model_; }
  const Prompter& prompter() const noexcept { return prompter_; }
  BoundaryMode mode() const noexcept { return mode_; }

  virtual Prompt make_request(std::string_view text);
  virtual size_t count_cached(Ids context, Ids request, BoundaryMode mode);
  virtual std::shared_ptr<const Context> prefill(Ids ids);
  virtual Fork fork(const Context& context, size_t n_tokens);
  virtual void append(Fork& fork, Ids ids);
  virtual Generation generate(Fork& fork, const GenerateOptions& options,
                              const std::function<bool(int32_t)>& on_token);
  virtual std::vector<BatchAnswer> answer_all(const Context& context, std::span<const BatchRequest> requests,
                                              size_t width);
  virtual void save(const Context& context, const std::string& path);
  virtual std::shared_ptr<const Context> open(const std::string& path);

  /// From a fork after n_cached tokens; made of the steps above.
  virtual Generation answer(const Context& context, size_t n_cached, Ids request, const GenerateOptions& options);
  /// From position 0, without a cache.
  virtual Generation answer_uncached(Ids request, const GenerateOptions& options);

 private:
  std::shared_ptr<const Model> model_;
  const Prompter& prompter_;
  BoundaryMode mode_;
};

}  // namespace kvfork::checks
