// copy_context: what every request would pay without forks.

#include <cstring>
#include <vector>

#include "base/memory_region.h"
#include "engine/context_state.h"
#include "kvfork/verify.h"

namespace kvfork {

std::shared_ptr<const Context> copy_context(const Context& context) {
  const engine::ContextState& source = engine::state_of(context);
  source.expect_sound();
  const model::KvPrefix& kv = *source.kv;
  const model::KvLayout& layout = kv.layout();
  const auto region = std::make_shared<base::MemoryRegion>(
      base::MemoryRegion::allocate(kv.n_blocks() * layout.block_bytes(), "copy of a context"));
  std::vector<model::KvBlock> blocks;
  std::byte* to = region->data();
  for (size_t i = 0; i < kv.n_blocks(); ++i) {
    blocks.push_back({.keys = to, .values = to + layout.keys_bytes(), .layer_stride = layout.layer_bytes()});
    for (size_t layer = 0; layer < layout.n_layers; ++layer) {
      std::memcpy(to, kv.block(i).key(layout, layer, 0), layout.keys_bytes());
      std::memcpy(to + layout.keys_bytes(), kv.block(i).value(layout, layer, 0), layout.values_bytes());
      to += layout.layer_bytes();
    }
  }
  region->make_read_only();
  auto copy = std::make_unique<engine::ContextState>();
  copy->model = source.model;
  copy->ids = source.ids;
  copy->logits = source.logits;
  copy->origin = source.origin;
  copy->kv = model::KvPrefix::from_blocks(layout, kv.n_tokens(), nullptr, 0, blocks, region);
  return engine::StateAccess::make_context(std::move(copy));
}

}  // namespace kvfork
