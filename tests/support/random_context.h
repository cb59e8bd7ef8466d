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
  const model::KvLayout& layout = engine::state_of(*model).kv_layout;
  const size_t n_blocks = (n_tokens + kernels::kBlockTokens - 1) / kernels::kBlockTokens;
  const auto region = std::make_shared<base::MemoryRegion>(
      base::MemoryRegion::allocate(n_blocks * layout.block_bytes(), "random context"));
  std::mt19937_64 random(1);
  auto* words = reinterpret_cast<uint64_t*>(region->data());
  constexpr uint64_t kSmallFloats = 0x3FFFFFFF3FFFFFFF;  // below 2, as float32 and as bfloat16
  for (size_t i = 0; i < n_blocks * layout.block_bytes() / 8; ++i) words[i] = random() & kSmallFloats;
  std::vector<model::KvBlock> blocks;
  for (size_t i = 0; i < n_blocks; ++i) {
    const std::byte* at = region->data() + i * layout.block_bytes();
    blocks.push_back({.keys = at, .values = at + layout.keys_bytes(), .layer_stride = layout.layer_bytes()});
  }
  auto context = std::make_unique<engine::ContextState>();
  context->model = model;
  for (size_t i = 0; i < n_tokens; ++i)
    context->ids.push_back(static_cast<int32_t>(random() % model->info().vocab_size));
  context->logits.assign(model->info().vocab_size, 0.5f);
  context->kv = model::KvPrefix::from_blocks(layout, n_tokens, nullptr, 0, blocks, region);
  return engine::StateAccess::make_context(std::move(context));
}

}  // namespace kvfork::test
