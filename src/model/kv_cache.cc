// The memory of rows and states: what a sealed prefix shares, and a private tail that grows.

#include "model/kv_cache.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/release_chain.h"

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

std::shared_ptr<const float> floats_of(const std::shared_ptr<base::MemoryRegion>& buffer) {
  return {buffer, reinterpret_cast<const float*>(buffer->data())};
}

// Zeroes one position's keys and values in a block of one layer and head.
void clear_row(std::byte* keys, std::byte* values, size_t slot, size_t head_dim, size_t element_bytes,
               size_t value_row_bytes) {
  constexpr size_t kGroup = kernels::kGroupTokens;
  std::byte* group = keys + (slot / kGroup * head_dim * kGroup + slot % kGroup) * element_bytes;
  for (size_t i = 0; i < head_dim; ++i) std::memset(group + i * kGroup * element_bytes, 0, element_bytes);
  std::memset(values + slot * value_row_bytes, 0, value_row_bytes);
}

}  // namespace

std::shared_ptr<const KvPrefix> KvPrefix::from_parts(std::shared_ptr<const StateLayout> layout, size_t n_tokens,
                                                     Parts parts) {
  const size_t n_shared = parts.n_shared_blocks;
  KVFORK_CHECK(n_shared + parts.blocks.size() == (n_tokens + kBlock - 1) / kBlock);
  KVFORK_CHECK(n_shared == 0 || (parts.parent != nullptr && n_shared * kBlock <= parts.parent->n_tokens()));
  auto prefix = std::make_shared<KvPrefix>();
  prefix->n_tokens_ = n_tokens;
  prefix->n_shared_blocks_ = n_shared;
  prefix->blocks_.reserve(n_shared + parts.blocks.size());
  for (size_t i = 0; i < n_shared; ++i) prefix->blocks_.push_back(parts.parent->block(i));
  prefix->blocks_.insert(prefix->blocks_.end(), parts.blocks.begin(), parts.blocks.end());
  if (layout->has_states()) {
    KVFORK_CHECK(!parts.states.empty() && parts.states.back().position == n_tokens);
    if (parts.parent != nullptr) {
      const size_t end = std::min(parts.n_shared_tokens, parts.states.front().position - 1);
      prefix->share_states(*parts.parent, end);
    }
    prefix->states_.insert(prefix->states_.end(), parts.states.begin(), parts.states.end());
  }
  prefix->layout_ = std::move(layout);
  prefix->parent_ = std::move(parts.parent);
  prefix->owner_ = std::move(parts.owner);
  return prefix;
}

KvPrefix::~KvPrefix() {
  base::release_chain(
      std::move(parent_), [](KvPrefix & prefix) -> auto& { return prefix.parent_; });
}

size_t KvPrefix::count_states(size_t n_tokens) const noexcept {
  const auto after = std::upper_bound(states_.begin(), states_.end(), n_tokens,
                                      [](size_t n, const States& states) { return n < states.position; });
  return static_cast<size_t>(after - states_.begin());
}

void KvPrefix::share_states(const KvPrefix& parent, size_t end) {
  constexpr size_t kMostShared = 32;  // the last ones: a long chain of contexts must not hold a list of all
  const auto before = parent.states().first(parent.count_states(end));
  const auto shared = before.last(std::min(kMostShared, before.size()));
  states_.assign(shared.begin(), shared.end());
  n_shared_states_ = states_.size();
}

size_t KvPrefix::own_bytes() const noexcept {
  const size_t n_states = states_.size() - n_shared_states_;
  return total_size(regions_) + n_states * layout_->n_state_floats() * sizeof(float);
}

size_t KvPrefix::last_start(size_t n_tokens) const noexcept {
  if (!layout_->has_states()) return n_tokens;
  const size_t n_states = count_states(n_tokens);
  return n_states == 0 ? 0 : states_[n_states - 1].position;
}

KvSequence::KvSequence(std::shared_ptr<const KvPrefix> prefix, size_t n_tokens)
    : layout_(prefix->layout_),
      prefix_(std::move(prefix)),
      n_shared_blocks_(n_tokens / kBlock),
      n_borrowed_tokens_(n_tokens % kBlock),
      n_tokens_(n_tokens) {
  KVFORK_CHECK(n_tokens > 0 && n_tokens <= prefix_->n_tokens());
  if (!layout_->has_states()) return;
  KVFORK_CHECK(prefix_->last_start(n_tokens) == n_tokens);
  const States& states = prefix_->states()[prefix_->count_states(n_tokens) - 1];
  states_ = {.position = n_tokens, .floats = states.floats, .buffer = nullptr};
}

size_t KvSequence::own_bytes() const noexcept {
  size_t n_states = spare_.size() + kept_.size() + (next_ != nullptr) + (states_.buffer != nullptr);
  if (marked_.buffer != states_.buffer) n_states += marked_.buffer != nullptr;
  return total_size(regions_) + n_states * layout_->n_state_floats() * sizeof(float);
}

void KvSequence::reserve(size_t n_tokens) {
  if (layout_->has_states()) reserve_states();
  const size_t n_needed = (n_tokens + kBlock - 1) / kBlock;
  const size_t n_present = n_shared_blocks_ + own_blocks_.size();
  if (n_needed <= n_present) return;
  const size_t n_new = n_needed - n_present;
  own_blocks_.reserve(own_blocks_.size() + n_new);
  regions_.reserve(regions_.size() + 1);
  if (places_ == nullptr) places_ = std::make_shared<const BlockPlaces>(BlockPlaces::by_block(*layout_));
  if (layout_->block_bytes() > 0)
    regions_.push_back(base::MemoryRegion::allocate(n_new * layout_->block_bytes(), "KV cache"));
  std::byte* base = layout_->block_bytes() > 0 ? regions_.back().data() : nullptr;
  for (size_t i = 0; i < n_new; ++i) own_blocks_.push_back({.base = base, .places = places_.get(), .index = i});
}

KvSequence::Buffer KvSequence::make_buffer() const {
  return std::make_shared<base::MemoryRegion>(
      base::MemoryRegion::allocate(layout_->n_state_floats() * sizeof(float), "states"));
}

// The states now, those that were marked and those that a pass writes: three buffers, of which only those are ever
// touched that are in use.
void KvSequence::reserve_states() {
  if (next_ != nullptr) return;
  std::vector<Buffer> buffers(kStateBuffers);
  for (Buffer& buffer : buffers) buffer = make_buffer();
  spare_.reserve(kStateBuffers + 1);
  if (states_.floats == nullptr) {  // an empty timeline: all zero
    states_ = {.position = 0, .floats = floats_of(buffers.back()), .buffer = buffers.back()};
    buffers.pop_back();
  }
  next_ = std::move(buffers.back());
  buffers.pop_back();
  for (Buffer& buffer : buffers) spare_.push_back(std::move(buffer));
}

// Back to the spare ones, when nothing else holds the buffer.
void KvSequence::recycle(OwnStates& states) noexcept {
  states.floats.reset();
  const bool is_held = states.buffer == nullptr || states.buffer == states_.buffer ||
                       states.buffer == marked_.buffer ||
                       std::ranges::any_of(kept_, [&](const auto& kept) { return kept.buffer == states.buffer; });
  if (!is_held) spare_.push_back(std::move(states.buffer));
  states = {};
}

void KvSequence::advance(size_t n) noexcept {
  n_tokens_ += n;
  if (!layout_->has_states()) return;
  OwnStates before = std::move(states_);
  states_ = {.position = n_tokens_, .floats = floats_of(next_), .buffer = std::move(next_)};
  recycle(before);
  KVFORK_CHECK(!spare_.empty());
  next_ = std::move(spare_.back());
  spare_.pop_back();
}

void KvSequence::mark() noexcept {
  OwnStates before = std::move(marked_);
  marked_ = states_;
  recycle(before);
}

void KvSequence::keep_states() {
  if (!layout_->has_states() || states_.buffer == nullptr || n_tokens_ == 0) return;
  if (!kept_.empty() && kept_.back().position == n_tokens_) return;
  kept_.reserve(kept_.size() + 1);
  spare_.reserve(spare_.size() + kept_.size() + 4);
  spare_.push_back(make_buffer());  // in place of the one that is kept
  kept_.push_back(states_);
}

void KvSequence::rewind(size_t n_tokens) noexcept {
  n_tokens_ = n_tokens;
  if (!layout_->has_states() || states_.position == n_tokens) return;
  KVFORK_CHECK(marked_.position == n_tokens);
  while (!kept_.empty() && kept_.back().position > n_tokens) {
    OwnStates dropped = std::move(kept_.back());
    kept_.pop_back();
    recycle(dropped);
  }
  OwnStates before = std::move(states_);
  states_ = marked_;
  recycle(before);
}

void KvSequence::begin_layer(size_t layer) noexcept {
  if (n_borrowed_tokens_ == 0 || layer < n_layers_borrowed_) return;
  KVFORK_CHECK(layer == n_layers_borrowed_);
  n_layers_borrowed_ = layer + 1;
  const KvBlock& from = prefix_->block(n_shared_blocks_);
  const OwnKvBlock& to = own_blocks_.front();
  const LayerState& rows = layout_->layer(layer);
  const size_t value_bytes = n_borrowed_tokens_ * layout_->value_row_bytes(layer);
  const auto copy = layout_->type() == kernels::Element::F32 ? copy_keys<float> : copy_keys<uint16_t>;
  for (size_t head = 0; head < rows.n_kv_heads; ++head) {
    copy(from.key(*layout_, layer, head), to.key(*layout_, layer, head), n_borrowed_tokens_, rows.head_dim);
    std::memcpy(to.value(*layout_, layer, head), from.value(*layout_, layer, head), value_bytes);
  }
}

void KvSequence::clear_to(size_t end) noexcept {
  for (size_t position = n_tokens_; position < end; ++position) {
    const OwnKvBlock& to = own_block(position / kBlock);
    for (size_t layer = 0; layer < layout_->n_layers(); ++layer) {
      const LayerState& rows = layout_->layer(layer);
      for (size_t head = 0; head < rows.n_kv_heads; ++head)
        clear_row(to.key(*layout_, layer, head), to.value(*layout_, layer, head), position % kBlock, rows.head_dim,
                  layout_->element_bytes(), layout_->value_row_bytes(layer));
    }
  }
}

std::shared_ptr<const KvPrefix> KvSequence::seal() && {
  KVFORK_CHECK(n_borrowed_tokens_ == 0 || n_layers_borrowed_ == layout_->n_layers());
  auto sealed = std::make_shared<KvPrefix>();
  sealed->n_tokens_ = n_tokens_;
  const size_t n_blocks = (n_tokens_ + kBlock - 1) / kBlock;
  sealed->blocks_.reserve(n_blocks);
  for (size_t i = 0; i < n_blocks; ++i) sealed->blocks_.push_back(block(i));
  sealed->n_shared_blocks_ = n_shared_blocks_;
  if (layout_->has_states()) {
    KVFORK_CHECK(states_.position == n_tokens_ && states_.buffer != nullptr);
    const size_t first_own = n_shared_blocks_ * kBlock + n_borrowed_tokens_;  // where this timeline was forked
    if (prefix_ != nullptr) sealed->share_states(*prefix_, first_own);
    if (kept_.empty() || kept_.back().position != n_tokens_) kept_.push_back(states_);
    for (const OwnStates& kept : kept_) {
      kept.buffer->make_read_only();
      sealed->states_.push_back({.position = kept.position, .floats = kept.floats});
    }
  }
  sealed->layout_ = std::move(layout_);
  sealed->parent_ = std::move(prefix_);
  sealed->regions_ = std::move(regions_);
  sealed->places_ = std::move(places_);
  own_blocks_.clear();
  for (auto& region : sealed->regions_) region.make_read_only();
  return sealed;
}

}  // namespace kvfork::model
