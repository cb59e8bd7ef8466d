// One request's way from logits to answer: ids are picked one after the other until something ends it.
//
// Belongs to one thread. The options must outlive it. Whoever runs the model decides how rows come about; what is
// picked depends on the logits, the position and the options alone.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "engine/sampler.h"
#include "kvfork/answer_stream.h"
#include "kvfork/generate.h"

namespace kvfork {

class Model;
struct ModelInfo;

namespace engine {

/// Throws Error{Limit} when a request of n_tokens and its new tokens are beyond the model's context limit.
void check_room(size_t n_tokens, const GenerateOptions& options, const ModelInfo& info);

class AnswerBuilder {
 public:
  /// The request is shared_ids followed by own_ids. Options are checked already. Throws Error{InvalidArgument} for
  /// an empty stop string, and with stop strings what Model::text() throws.
  AnswerBuilder(const Model& model, std::span<const int32_t> shared_ids, std::span<const int32_t> own_ids,
                const GenerateOptions& options);

  /// Picks the id for `position` from its logits. Returns whether the answer goes on, and so whether the id is to
  /// be run. `on_token` as in generate(). Throws Error{Corrupt} when logits are not numbers, and what on_token
  /// throws.
  bool take(std::span<const float> logits, size_t position, const std::function<bool(int32_t)>& on_token);

  /// The id picked last; take() must have been called.
  const int32_t& last_id() const noexcept { return result_.ids.back(); }
  /// Ids that may still be picked.
  size_t n_left() const noexcept { return options_.max_new_tokens - result_.ids.size(); }

  /// The answer, once take() has returned false.
  Generation finish();

 private:
  const GenerateOptions& options_;
  Sampler sampler_;
  std::optional<AnswerStream> text_;  // with stop strings
  Generation result_;
};

}  // namespace engine
}  // namespace kvfork
