// Hands each step that the checklist exercises on to the library.

#include "verify/verify_subject.h"

#include "kvfork/boundary.h"

namespace kvfork::checks {

Prompt VerifySubject::make_request(std::string_view text) {
  return prompter_.make_request(text);
}

size_t VerifySubject::count_cached(Ids context, Ids request, BoundaryMode mode) {
  return count_cached_tokens(context, request, mode, prompter_.tokenizer());
}

std::shared_ptr<const Context> VerifySubject::prefill(Ids ids) {
  return model_->prefill(ids);
}

Fork VerifySubject::fork(const Context& context, size_t n_tokens) {
  return context.fork_unchecked(n_tokens);
}

void VerifySubject::append(Fork& fork, Ids ids) {
  fork.append(ids);
}

Generation VerifySubject::generate(Fork& fork, const GenerateOptions& options,
                                   const std::function<bool(int32_t)>& on_token) {
  return kvfork::generate(fork, options, on_token);
}

std::vector<BatchAnswer> VerifySubject::answer_all(const Context& context, std::span<const BatchRequest> requests,
                                                   size_t width) {
  std::vector<BatchAnswer> answers(requests.size());
  kvfork::answer_all(context, requests, {.max_width = width},
                     {.on_answer = [&](size_t index, BatchAnswer answer) { answers[index] = std::move(answer); }});
  return answers;
}

void VerifySubject::save(const Context& context, const std::string& path) {
  context.save(path, {.flatten = true});  // a parent's file lies elsewhere
}

std::shared_ptr<const Context> VerifySubject::open(const std::string& path) {
  return model_->open_context(path);
}

Generation VerifySubject::answer(const Context& context, size_t n_cached, Ids request,
                                 const GenerateOptions& options) {
  Fork forked = fork(context, n_cached);
  append(forked, request.subspan(n_cached));
  return generate(forked, options, {});
}

Generation VerifySubject::answer_uncached(Ids request, const GenerateOptions& options) {
  Fork whole = model_->start();
  whole.append(request);
  return kvfork::generate(whole, options);
}

}  // namespace kvfork::checks
