// The memory of keys and values: blocks that a sealed prefix shares and a private tail that grows.

#include "model/kv_cache.h"

#include <algorithm>
#include <cstdint>
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

// The keys of the first n_tokens of a block, and nothing of later ones: those may be another request's.
template <typename T>
void copy_keys(const std::byte* from, std::byte* to, size_t n_tokens, size_t head_dim) {
  constexpr size_t kGroup = kernels::kGroupTokens;
  const size_t group_bytes = kGroup * head_dim * sizeof(T);
  const size_t n_groups = n_tokens / kGroup;
  std::memcpy(to, from, n_groups * group_bytes);
  const size_t rest_bytes = n_tokens % kGroup * sizeof(T);
  if (rest_bytes == 0) return;
  for (size_t d = 0; d < head_dim; ++d) {
    const size_t offset = n_groups * group_bytes + d * kGroup * sizeof(T);
    std::memcpy(to + offset, from + offset, rest_bytes);
  }
}

}  // namespace

std::shared_ptr<const KvPrefix> KvPrefix::from_blocks(const KvLayout& layout, size_t n_tokens,
                                                      std::shared_ptr<const KvPrefix> parent, size_t n_shared,
                                                      std::span<const KvBlock> own,
                                                      std::shared_ptr<const void> owner) {
  KVFORK_CHECK(n_shared + own.size() == (n_tokens + kBlock - 1) / kBlock);
  KVFORK_CHECK(n_shared == 0 ||
               (parent != nullptr && parent->layout() == layout && n_shared * kBlock <= parent->n_tokens()));
  auto prefix = std::make_shared<KvPrefix>();
  prefix->layout_ = layout;
  prefix->n_tokens_ = n_tokens;
  prefix->n_shared_blocks_ = n_shared;
  prefix->blocks_.reserve(n_shared + own.size());
  for (size_t i = 0; i < n_shared; ++i) prefix->blocks_.push_back(parent->block(i));
  prefix->blocks_.insert(prefix->blocks_.end(), own.begin(), own.end());
  prefix->parent_ = std::move(parent);
  prefix->owner_ = std::move(owner);
  return prefix;
}

size_t KvPrefix::own_bytes() const noexcept {
  return total_size(regions_);
}

KvSequence::KvSequence(std::shared_ptr<const KvPrefix> prefix, size_t n_tokens)
    : layout_(prefix->layout()),
      prefix_(std::move(prefix)),
      n_shared_blocks_(n_tokens / kBlock),
      n_borrowed_tokens_(n_tokens % kBlock),
      n_tokens_(n_tokens) {
  KVFORK_CHECK(n_tokens > 0 && n_tokens <= prefix_->n_tokens());
}

size_t KvSequence::own_bytes() const noexcept {
  return total_size(regions_);
}

void KvSequence::reserve(size_t n_tokens) {
  const size_t n_needed = (n_tokens + kBlock - 1) / kBlock;
  const size_t n_present = n_shared_blocks_ + own_blocks_.size();
  if (n_needed <= n_present) return;
  const size_t n_new = n_needed - n_present;
  own_blocks_.reserve(own_blocks_.size() + n_new);
  regions_.reserve(regions_.size() + 1);
  regions_.push_back(base::MemoryRegion::allocate(n_new * layout_.block_bytes(), "KV cache"));
  for (size_t i = 0; i < n_new; ++i) {
    std::byte* base = regions_.back().data() + i * layout_.block_bytes();
    own_blocks_.push_back(
        {.keys = base, .values = base + layout_.keys_bytes(), .layer_stride = layout_.layer_bytes()});
  }
}

void KvSequence::begin_layer(size_t layer) noexcept {
  if (n_borrowed_tokens_ == 0 || layer < n_layers_borrowed_) return;
  KVFORK_CHECK(layer == n_layers_borrowed_);
  n_layers_borrowed_ = layer + 1;
  const KvBlock& from = prefix_->block(n_shared_blocks_);
  const OwnKvBlock& to = own_blocks_.front();
  const size_t value_bytes = n_borrowed_tokens_ * kernels::value_stride(layout_.head_dim) * layout_.element_bytes();
  const auto copy = layout_.type == kernels::Element::F32 ? copy_keys<float> : copy_keys<uint16_t>;
  for (size_t head = 0; head < layout_.n_kv_heads; ++head) {
    copy(from.key(layout_, layer, head), to.key(layout_, layer, head), n_borrowed_tokens_, layout_.head_dim);
    std::memcpy(to.value(layout_, layer, head), from.value(layout_, layer, head), value_bytes);
  }
}

void KvSequence::clear_to(size_t end) noexcept {
  const size_t n_bytes = layout_.element_bytes();
  const size_t value_bytes = kernels::value_stride(layout_.head_dim) * n_bytes;
  for (size_t position = n_tokens_; position < end; ++position) {
    const OwnKvBlock& to = own_block(position / kBlock);
    const size_t slot = position % kBlock;
    const size_t group = slot / kernels::kGroupTokens * layout_.head_dim;
    for (size_t layer = 0; layer < layout_.n_layers; ++layer) {
      for (size_t head = 0; head < layout_.n_kv_heads; ++head) {
        std::byte* keys = to.key(layout_, layer, head) + slot % kernels::kGroupTokens * n_bytes;
        for (size_t i = 0; i < layout_.head_dim; ++i)
          std::memset(keys + (group + i) * kernels::kGroupTokens * n_bytes, 0, n_bytes);
        std::memset(to.value(layout_, layer, head) + slot * value_bytes, 0, value_bytes);
      }
    }
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
  sealed->n_shared_blocks_ = n_shared_blocks_;
  sealed->parent_ = std::move(prefix_);
  sealed->regions_ = std::move(regions_);
  own_blocks_.clear();
  for (auto& region : sealed->regions_) region.make_read_only();
  return sealed;
}

}  // namespace kvfork::model
