// What a Model holds, and the scratch buffers its passes borrow.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "checkpoint/checkpoint.h"
#include "engine/state_access.h"
#include "kernels/kernels.h"
#include "kvfork/identity.h"
#include "kvfork/text.h"
#include "model/forward.h"
#include "model/kv_cache.h"
#include "model/scratch.h"
#include "model/weights.h"

namespace kvfork::engine {

/// Rows of the largest pass: longer inputs are run in parts of this many.
inline constexpr size_t kMaxPassRows = 512;

/// Scratch buffers that are not in use. Thread-safe.
class ScratchPool {
 public:
  /// Gives a scratch back; a plain pointer, so that a lease costs no allocation.
  struct Return {
    const ScratchPool* pool = nullptr;
    void operator()(model::Scratch* scratch) const { pool->take_back(std::unique_ptr<model::Scratch>(scratch)); }
  };
  using Lease = std::unique_ptr<model::Scratch, Return>;

  ScratchPool(const checkpoint::ModelSpec& spec, const kernels::KernelTable& kernels, size_t n_threads)
      : spec_(spec), kernels_(kernels), n_threads_(n_threads) {}

  /// A scratch for passes of `n_rows` rows (at most kMaxPassRows); returns to the pool when the lease ends.
  Lease borrow(size_t n_rows) const;

 private:
  void take_back(std::unique_ptr<model::Scratch> scratch) const;

  const checkpoint::ModelSpec& spec_;
  const kernels::KernelTable& kernels_;
  size_t n_threads_;
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<model::Scratch>> free_;  // capacity n_made_
  mutable size_t n_made_ = 0;
};

struct ModelState {
  ModelState(const std::string& path, const ModelOptions& options);

  /// That the weights are what was opened: files that are changed in place would show in what is computed, and a
  /// context would name weights that it was not made with. Throws Error{Corrupt, Io}.
  void expect_unchanged_weights() const;

  checkpoint::Checkpoint checkpoint;
  std::vector<const base::MappedFile*> weight_files;
  const kernels::KernelTable& kernels;
  base::ThreadPool pool;
  model::Weights weights;
  std::shared_ptr<const model::StateLayout> kv_layout;
  model::Forward forward;
  ScratchPool scratch;
  ModelInfo info;
  GenerationDefaults defaults;

  // Made when first asked for. A failed attempt leaves nothing, and the next call tries again.
  mutable std::mutex text_mutex;
  mutable std::shared_ptr<const Text> text;
  mutable std::mutex identity_mutex;
  mutable std::optional<Identity> identity;
};

}  // namespace kvfork::engine
