// A context whose keys and values are random numbers: costs what any other does, and needs no prefill.
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "base/memory_region.h"
#include "engine/context_state.h"
#include "engine/model_state.h"
#include "kvfork/context.h"

namespace kvfork::test {

inline std::shared_ptr<const Context> make_random_context(const std::shared_ptr<const Model>& model,
                                                          size_t n_tokens) {
  const auto shared_layout = engine::state_of(*model).kv_layout;
  const model::StateLayout& layout = *shared_layout;
  const size_t n_blocks = (n_tokens + kernels::kBlockTokens - 1) / kernels::kBlockTokens;
  const auto region = std::make_shared<base::MemoryRegion>(
      base::MemoryRegion::allocate(n_blocks * layout.block_bytes(), "random context"));
  std::mt19937_64 random(1);
  auto* words = reinterpret_cast<uint64_t*>(region->data());
  constexpr uint64_t kSmallFloats = 0x3FFFFFFF3FFFFFFF;  // below 2, as float32 and as bfloat16
  for (size_t i = 0; i < n_blocks * layout.block_bytes() / 8; ++i) words[i] = random() & kSmallFloats;
  struct Owner {
    std::shared_ptr<base::MemoryRegion> region;
    model::BlockPlaces places;
  };
  const auto owner = std::make_shared<Owner>(Owner{region, model::BlockPlaces::by_block(layout)});
  std::vector<model::KvBlock> blocks;
  for (size_t i = 0; i < n_blocks; ++i)
    blocks.push_back({.base = region->data(), .places = &owner->places, .index = i});
  auto context = std::make_unique<engine::ContextState>();
  context->model = model;
  for (size_t i = 0; i < n_tokens; ++i)
    context->ids.push_back(static_cast<int32_t>(random() % model->info().vocab_size));
  context->logits.assign(model->info().vocab_size, 0.5f);
  context->kv = model::KvPrefix::from_parts(shared_layout, n_tokens, {.blocks = blocks, .owner = owner});
  return engine::StateAccess::make_context(std::move(context));
}

}  // namespace kvfork::test
