// One request's private timeline: everything before it is read from a sealed context, everything new is its own.
//
// Move-only; used by one thread at a time. Keeps its context and model alive. Different forks may run on different
// threads at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

namespace kvfork {

class Context;
class Model;
struct ContextOrigin;
namespace engine {
struct ForkState;
struct StateAccess;
}  // namespace engine

class Fork {
 public:
  Fork(Fork&&) noexcept;
  Fork& operator=(Fork&&) noexcept;
  Fork(const Fork&) = delete;
  Fork& operator=(const Fork&) = delete;
  ~Fork();

  const std::shared_ptr<const Model>& model() const noexcept;
  /// The context it was forked from; null for Model::start().
  const std::shared_ptr<const Context>& context() const noexcept;

  size_t size() const noexcept;                          ///< tokens, those shared with the context included
  std::span<const int32_t> shared_ids() const noexcept;  ///< the context's tokens before the fork
  std::span<const int32_t> own_ids() const noexcept;     ///< tokens since
  size_t request_size() const noexcept;  ///< tokens of the request that it was made for; 0 where there was none

  /// Makes room for `n_tokens` tokens in all, so that later calls allocate nothing. Throws Error{Limit}.
  void reserve(size_t n_tokens);

  /// Continues the timeline. The logits of the last position are the same bits however ids are split into calls.
  /// `on_progress` is called after each part with the number of ids done, and must not call this fork. No ids: no
  /// effect. `ids` may be own_ids() or a part of them.
  /// Throws Error{InvalidArgument} for an id outside the vocabulary, a fork that was sealed, or a call from inside
  /// of its own callback; Error{Limit} beyond max_position_embeddings or memory; and what `on_progress` throws.
  /// After any throw the timeline and its logits are as they were before the call.
  void append(std::span<const int32_t> ids, const std::function<void(size_t)>& on_progress = {});

  /// Continues the timeline up to the end of a longer request, as the next turn of a conversation is. The timeline
  /// must be an exact prefix of `request_ids`: token ids are compared, and Error{Boundary} names the first that
  /// differs. Otherwise as append.
  void extend_to(std::span<const int32_t> request_ids, const std::function<void(size_t)>& on_progress = {});

  /// Whether the timeline is an exact prefix of these ids, and shorter.
  bool is_prefix_of(std::span<const int32_t> request_ids) const noexcept;

  /// As append; hands the logits of every position to `on_logits(first, rows)`, rows [n, vocab_size], in order.
  /// Where `on_logits` throws, the timeline ends with the rows that it was given. Throws Error{InvalidArgument}
  /// without it.
  void append_scored(std::span<const int32_t> ids,
                     const std::function<void(size_t first, std::span<const float> rows)>& on_logits);

  /// [vocab_size] after the last token. Throws Error{InvalidArgument} where nothing was run: an empty timeline, or
  /// a fork that starts before its context's end.
  std::span<const float> logits() const;

  /// Seals the timeline into a context of its own; a child that shares its parent's memory. `origin` as in
  /// Model::prefill. The fork is spent once its memory is handed over, even when the system refuses what
  /// remains to be done. Throws Error{InvalidArgument} where logits() does, Error{Limit, Io}.
  std::shared_ptr<const Context> seal(std::shared_ptr<const ContextOrigin> origin = nullptr) &&;

 private:
  friend struct engine::StateAccess;
  explicit Fork(std::unique_ptr<engine::ForkState> state) noexcept;

  std::unique_ptr<engine::ForkState> state_;
};

}  // namespace kvfork
