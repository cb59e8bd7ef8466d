// What a Context holds.
#pragma once

#include <memory>
#include <vector>

#include "kvfork/context.h"
#include "kvfork/model.h"
#include "model/kv_cache.h"

namespace kvfork {

struct Context::Impl {
  std::shared_ptr<const Model> model;
  std::shared_ptr<const model::KvPrefix> kv;
  std::vector<int32_t> ids;   // [kv->n_tokens()]
  std::vector<float> logits;  // [vocab_size]
};

}  // namespace kvfork
