// What a Context holds.
#pragma once

#include <memory>
#include <vector>

#include "engine/context_file.h"
#include "kvfork/context.h"
#include "kvfork/model.h"
#include "kvfork/prompt.h"
#include "model/kv_cache.h"

namespace kvfork {

struct Context::Impl {
  std::shared_ptr<const Model> model;
  std::shared_ptr<const model::KvPrefix> kv;
  std::vector<int32_t> ids;                         // [kv->n_tokens()]
  std::vector<float> logits;                        // [vocab_size]
  std::shared_ptr<const ContextOrigin> origin;      // null: from ids alone
  std::shared_ptr<const Context> parent;            // null: starts at position 0
  std::shared_ptr<const engine::ContextFile> file;  // null: made in this process

  /// Before the mapped files of this context and its parents are read: that they are whole and as they were when
  /// they were checked. The first call checks every byte. Throws Error{Corrupt, Io}.
  void expect_sound() const;
};

}  // namespace kvfork
