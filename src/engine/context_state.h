// What a Context holds.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "engine/state_access.h"
#include "kvfork/model.h"
#include "kvfork/prompt.h"
#include "model/kv_cache.h"

namespace kvfork::engine {

/// What keys and values are mapped from, when it is a file that could change while it is open.
class ContextStorage {
 public:
  virtual ~ContextStorage() = default;
  virtual const std::string& path() const noexcept = 0;
  /// Compares every byte with its checksum. Throws Error{Corrupt, Io}.
  virtual void check(const base::ThreadPool& pool) const = 0;
  /// That the bytes are those that were checked last; checks them where none were. Throws Error{Corrupt, Io}.
  virtual void expect_sound(const base::ThreadPool& pool) const = 0;
};

struct ContextState {
  ContextState() = default;
  ContextState(const ContextState&) = delete;
  ContextState& operator=(const ContextState&) = delete;
  ~ContextState();

  std::shared_ptr<const Model> model;
  std::shared_ptr<const model::KvPrefix> kv;
  std::vector<int32_t> ids;                       // [kv->n_tokens()]
  std::vector<float> logits;                      // [vocab_size]
  std::shared_ptr<const ContextOrigin> origin;    // null: from ids alone
  std::shared_ptr<const Context> parent;          // null: starts at position 0
  std::shared_ptr<const ContextStorage> storage;  // null: made in this process
  /// The nearest ancestor that is mapped from a file; the parents keep it. Null: there is none.
  const ContextState* nearest_mapped = nullptr;

  /// Takes a parent, and what is to be known of it.
  void set_parent(std::shared_ptr<const Context> from);

  /// Before the mapped files of this context and its parents are read: that they are whole and as they were when
  /// they were checked. The first call checks every byte. Throws Error{Corrupt, Io}.
  void expect_sound() const;
};

/// A fork that starts at the last place up to n_tokens where the context's layers allow it: n_tokens itself, unless
/// they have states. Nothing has been run. Throws Error{Corrupt} as Context::fork.
Fork start_fork(const Context& context, size_t n_tokens);
/// The same for the tokens that a request shares with the context. Throws as Context::fork.
Fork start_fork(const Context& context, const Request& request);

}  // namespace kvfork::engine
