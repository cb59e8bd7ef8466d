#include "model/kv_cache.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace kvfork::model {
namespace {

constexpr size_t kBlock = kernels::kBlockTokens;

size_t total_size(const std::vector<base::MemoryRegion>& regions) noexcept {
  size_t n_bytes = 0;
  for (const auto& region : regions) n_bytes += region.size();
  return n_bytes;
}

}  // namespace

size_t KvPrefix::own_bytes() const noexcept { return total_size(regions_); }

KvSequence::KvSequence(std::shared_ptr<const KvPrefix> prefix, size_t n_tokens)
    : layout_(prefix->layout()),
      prefix_(std::move(prefix)),
      n_shared_blocks_(n_tokens / kBlock),
      n_borrowed_tokens_(n_tokens % kBlock),
      n_tokens_(n_tokens) {
  KVFORK_CHECK(n_tokens > 0 && n_tokens <= prefix_->n_tokens());
}

size_t KvSequence::own_bytes() const noexcept { return total_size(regions_); }

void KvSequence::reserve(size_t n_tokens) {
  const size_t n_needed = (n_tokens + kBlock - 1) / kBlock;
  const size_t n_present = n_shared_blocks_ + own_blocks_.size();
  if (n_needed <= n_present) return;
  const size_t n_new = n_needed - n_present;
  own_blocks_.reserve(own_blocks_.size() + n_new);
  regions_.reserve(regions_.size() + 1);
  regions_.push_back(base::MemoryRegion::allocate(n_new * layout_.block_bytes(), "KV cache"));
  for (size_t i = 0; i < n_new; ++i) own_blocks_.push_back(regions_.back().data() + i * layout_.block_bytes());
}

void KvSequence::begin_layer(size_t layer) noexcept {
  if (n_borrowed_tokens_ == 0 || layer < n_layers_borrowed_) return;
  KVFORK_CHECK(layer == n_layers_borrowed_);
  n_layers_borrowed_ = layer + 1;
  const std::byte* from = prefix_->block(n_shared_blocks_);
  std::byte* to = own_blocks_.front();
  const size_t n_groups = (n_borrowed_tokens_ + kernels::kGroupTokens - 1) / kernels::kGroupTokens;
  const size_t key_bytes = n_groups * kernels::kGroupTokens * layout_.head_dim * layout_.element_bytes();
  const size_t value_bytes =
      n_borrowed_tokens_ * kernels::value_stride(layout_.head_dim) * layout_.element_bytes();
  for (size_t head = 0; head < layout_.n_kv_heads; ++head) {
    std::memcpy(to + layout_.key_offset(layer, head), from + layout_.key_offset(layer, head), key_bytes);
    std::memcpy(to + layout_.value_offset(layer, head), from + layout_.value_offset(layer, head), value_bytes);
  }
}

std::shared_ptr<const KvPrefix> KvSequence::seal() && {
  KVFORK_CHECK(n_borrowed_tokens_ == 0 || n_layers_borrowed_ == layout_.n_layers);
  auto sealed = std::make_shared<KvPrefix>();
  sealed->layout_ = layout_;
  sealed->n_tokens_ = n_tokens_;
  const size_t n_blocks = (n_tokens_ + kBlock - 1) / kBlock;
  sealed->blocks_.reserve(n_blocks);
  for (size_t i = 0; i < n_blocks; ++i) sealed->blocks_.push_back(block(i));
  sealed->parent_ = std::move(prefix_);
  sealed->regions_ = std::move(regions_);
  own_blocks_.clear();
  for (auto& region : sealed->regions_) region.make_read_only();
  return sealed;
}

}  // namespace kvfork::model
