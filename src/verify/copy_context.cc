// copy_context: what every request would pay without forks.

#include <cstring>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/memory_region.h"
#include "engine/context_state.h"
#include "engine/model_state.h"
#include "kvfork/verify.h"

namespace kvfork {

std::shared_ptr<const Context> copy_context(const Context& context) {
  return base::only_errors([&]() -> std::shared_ptr<const Context> {
    const engine::ContextState& source = engine::state_of(context);
    source.expect_sound();
    const model::KvPrefix& kv = *source.kv;
    const auto layout = engine::state_of(*source.model).kv_layout;
    const size_t state_bytes = layout->n_state_floats() * sizeof(float);
    const auto region = std::make_shared<base::MemoryRegion>(base::MemoryRegion::allocate(
        kv.n_blocks() * layout->block_bytes() + kv.states().size() * state_bytes, "copy of a context"));
    const auto places = std::make_shared<const model::BlockPlaces>(model::BlockPlaces::by_block(*layout));
    std::vector<model::KvBlock> blocks;
    for (size_t i = 0; i < kv.n_blocks(); ++i) {
      const model::OwnKvBlock to{.base = region->data(), .places = places.get(), .index = i};
      for (size_t layer = 0; layer < layout->n_layers(); ++layer) {
        std::memcpy(to.key(*layout, layer, 0), kv.block(i).key(*layout, layer, 0), layout->keys_bytes(layer));
        std::memcpy(to.value(*layout, layer, 0), kv.block(i).value(*layout, layer, 0), layout->values_bytes(layer));
      }
      blocks.push_back({.base = to.base, .places = to.places, .index = i});
    }
    std::vector<model::States> states;
    std::byte* to = region->data() + kv.n_blocks() * layout->block_bytes();
    for (const model::States& from : kv.states()) {
      std::memcpy(to, from.floats.get(), state_bytes);
      states.push_back({.position = from.position, .floats = {region, reinterpret_cast<const float*>(to)}});
      to += state_bytes;
    }
    region->make_read_only();
    auto copy = std::make_unique<engine::ContextState>();
    copy->model = source.model;
    copy->ids = source.ids;
    copy->logits = source.logits;
    copy->origin = source.origin;
    copy->kv = model::KvPrefix::from_parts(
        layout, kv.n_tokens(),
        {.blocks = blocks,
         .states = states,
         .owner = std::make_shared<std::pair<decltype(region), decltype(places)>>(region, places)});
    return engine::StateAccess::make_context(std::move(copy));
  });
}

}  // namespace kvfork
