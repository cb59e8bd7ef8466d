// A prefilled context: token ids, their sealed keys and values, and the logits after the last of them.
//
// Held as shared_ptr<const Context>; immutable, its KV pages read-only to the MMU. Any thread may fork it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kvfork/boundary.h"
#include "kvfork/fork.h"

namespace kvfork {

class Model;
struct ContextOrigin;
struct Identity;
class Request;
namespace engine {
struct ContextState;
struct StateAccess;
}  // namespace engine

struct SaveOptions {
  bool flatten = false;  ///< a child is saved whole; otherwise its own part, which names the parent
  std::function<void(uint64_t done, uint64_t total)> on_progress;  ///< in bytes
};

class Context : public std::enable_shared_from_this<Context> {
 public:
  ~Context();

  const std::shared_ptr<const Model>& model() const noexcept;
  std::span<const int32_t> ids() const noexcept;   ///< [size]
  size_t size() const noexcept;                    ///< tokens
  size_t kv_bytes() const noexcept;                ///< of its keys, values and states
  std::span<const float> logits() const noexcept;  ///< [vocab_size], after the last token

  /// What its ids were rendered from; null when it was prefilled from ids alone.
  const std::shared_ptr<const ContextOrigin>& origin() const noexcept;
  /// The context that this one continues and shares memory with; null for one that starts at position 0.
  const std::shared_ptr<const Context>& parent() const noexcept;

  /// A private timeline that holds the whole request: the tokens that the request shares with the context are read
  /// from it, the others have been run. `on_progress` as in Fork::append. The first fork of an opened file checks
  /// the file. Throws Error{Boundary} when the request's cached tokens are not the context's;
  /// Error{InvalidArgument} when they end before the context and nothing follows them, so that there are no logits;
  /// Error{Corrupt} for a damaged file; and as Fork::append.
  Fork fork(const Request& request, const std::function<void(size_t)>& on_progress = {}) const;

  /// The same for the ids of a whole request, which are compared with the context's first (boundary.h).
  Fork fork(std::vector<int32_t> request_ids, BoundaryMode mode = BoundaryMode::Message,
            const std::function<void(size_t)>& on_progress = {}) const;

  /// A private timeline that starts at the end of the context's first n_tokens tokens, or of all of them. Nothing
  /// compares what the caller appends with a request: this is for measurements, and for programs that make their
  /// own token ids. The cost does not depend on the context's length. A fork that starts before the context's end
  /// has no logits until something is appended. Throws Error{InvalidArgument} unless 1 <= n_tokens <= size(), and
  /// Error{Corrupt} as fork().
  Fork fork_unchecked(size_t n_tokens) const;
  Fork fork_unchecked() const { return fork_unchecked(size()); }

  /// The last position up to n_tokens where a fork starts without running tokens of the context again: n_tokens
  /// itself, unless layers have a state, which exists at chosen positions only; 0 when there is none. What a fork
  /// at n_tokens reads from the context ends there.
  size_t last_start(size_t n_tokens) const noexcept;

  /// SHA-256 over all key and value bytes of the context, lower-case hex: equal before and after any use.
  std::string hash() const;

  /// Everything that its bits and ids depend on. Throws as Model::identity.
  Identity identity() const;

  /// SHA-256 over the identity's deciding fields and the token ids, lower-case hex: contexts with the same id hold
  /// the same bits. Throws as Model::identity.
  std::string id() const;

  /// Writes one safetensors file (docs/cache-file.md) and returns its size. The name is taken once everything has
  /// reached the disk: no crash, full disk or second writer leaves a file that opens and is not whole. Throws
  /// Error{Io, NotFound}, and as Model::identity.
  uint64_t save(const std::string& path, const SaveOptions& options = {}) const;

  /// Compares every byte of the file that it was opened from with its checksums, and of its parents' files those
  /// that have not been compared since they changed. Throws Error{Corrupt, Io}. No file: no effect.
  void check() const;

 private:
  friend struct engine::StateAccess;
  explicit Context(std::unique_ptr<engine::ContextState> state);

  std::unique_ptr<engine::ContextState> state_;
};

}  // namespace kvfork
