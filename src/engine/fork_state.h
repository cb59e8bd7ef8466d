// What a Fork holds.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "engine/state_access.h"
#include "kvfork/context.h"
#include "kvfork/model.h"
#include "model/kv_cache.h"

namespace kvfork::engine {

struct ForkState {
  ForkState(std::shared_ptr<const Model> owner, std::shared_ptr<const Context> parent, model::KvSequence sequence)
      : model(std::move(owner)), context(std::move(parent)), kv(std::move(sequence)) {}

  /// Before a pass: that weights and mapped keys and values are what they were. Throws Error{Corrupt, Io}.
  void expect_sound() const;

  std::shared_ptr<const Model> model;
  std::shared_ptr<const Context> context;  // null: started without one
  model::KvSequence kv;
  std::vector<int32_t> own_ids;
  std::vector<float> logits;       // [vocab_size] once something of its own was run
  std::vector<float> next_logits;  // those of an append that has not ended
  bool is_running = false;         // inside of append or append_scored
  bool is_spent = false;           // sealed
  size_t request_size = 0;         // tokens of the request that it was made for
};

}  // namespace kvfork::engine
