// Keys and values of one timeline: a sealed, shared prefix and a private tail.
//
// KvPrefix is immutable, its pages read-only to the MMU, and safe to read from any thread. KvSequence is move-only
// and belongs to one thread at a time; it writes only to memory of its own. Blocks hold kernels::kBlockTokens
// positions counted from absolute position 0, all layers and KV heads of a block together:
//   block -> layer -> KV head -> K [groups][head_dim][kGroupTokens], V [kBlockTokens][value_stride]
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "base/memory_region.h"
#include "kernels/kernels.h"

namespace kvfork::model {

struct KvLayout {
  size_t n_layers = 0;
  size_t n_kv_heads = 0;
  size_t head_dim = 0;
  kernels::Element type = kernels::Element::F32;

  size_t element_bytes() const noexcept { return type == kernels::Element::F32 ? 4 : 2; }
  size_t key_bytes() const noexcept { return kernels::kBlockTokens * head_dim * element_bytes(); }
  size_t value_bytes() const noexcept {
    return kernels::kBlockTokens * kernels::value_stride(head_dim) * element_bytes();
  }
  size_t layer_bytes() const noexcept { return n_kv_heads * (key_bytes() + value_bytes()); }
  size_t block_bytes() const noexcept { return n_layers * layer_bytes(); }
  /// Key and value bytes of one position, without padding.
  size_t token_bytes() const noexcept { return n_layers * n_kv_heads * 2 * head_dim * element_bytes(); }

  size_t key_offset(size_t layer, size_t head) const noexcept {
    return layer * layer_bytes() + head * (key_bytes() + value_bytes());
  }
  size_t value_offset(size_t layer, size_t head) const noexcept { return key_offset(layer, head) + key_bytes(); }
};

/// Sealed keys and values of positions [0, n_tokens). Keeps the prefix it grew from alive.
class KvPrefix {
 public:
  const KvLayout& layout() const noexcept { return layout_; }
  size_t n_tokens() const noexcept { return n_tokens_; }
  /// Base of block `index`; its positions at and beyond n_tokens hold nothing of meaning.
  const std::byte* block(size_t index) const noexcept { return blocks_[index]; }
  size_t n_blocks() const noexcept { return blocks_.size(); }
  /// Bytes of memory of its own, not counting what it shares with the prefix it grew from.
  size_t own_bytes() const noexcept;

 private:
  friend class KvSequence;
  KvLayout layout_;
  size_t n_tokens_ = 0;
  std::shared_ptr<const KvPrefix> parent_;
  std::vector<base::MemoryRegion> regions_;
  std::vector<const std::byte*> blocks_;
};

class KvSequence {
 public:
  /// An empty timeline.
  explicit KvSequence(const KvLayout& layout) : layout_(layout) {}
  /// A fork: starts after the first n_tokens positions of the prefix (1..its length). Costs the same at any length; nothing
  /// is copied yet.
  KvSequence(std::shared_ptr<const KvPrefix> prefix, size_t n_tokens);

  KvSequence(KvSequence&&) = default;
  KvSequence& operator=(KvSequence&&) = default;

  const KvLayout& layout() const noexcept { return layout_; }
  size_t n_tokens() const noexcept { return n_tokens_; }
  const std::shared_ptr<const KvPrefix>& prefix() const noexcept { return prefix_; }
  /// Bytes of memory of its own, touched or not.
  size_t own_bytes() const noexcept;

  /// Makes room for positions [0, n_tokens). Throws Error{Limit} and changes nothing when memory is refused.
  void reserve(size_t n_tokens);

  /// Before a pass writes to `layer`: brings the block that is shared in part into the tail, once per layer.
  void begin_layer(size_t layer) noexcept;

  /// Block `index` for reading. Positions written in this pass can be read at once.
  const std::byte* block(size_t index) const noexcept {
    return index < n_shared_blocks_ ? prefix_->block(index) : own_blocks_[index - n_shared_blocks_];
  }
  /// Block `index` for writing; it must be one of the tail's.
  std::byte* own_block(size_t index) noexcept { return own_blocks_[index - n_shared_blocks_]; }

  /// After a pass has written n positions to every layer.
  void advance(size_t n) noexcept { n_tokens_ += n; }

  /// Makes this timeline immutable: pages become read-only. The sequence is spent.
  std::shared_ptr<const KvPrefix> seal() &&;

 private:
  KvLayout layout_;
  std::shared_ptr<const KvPrefix> prefix_;
  size_t n_shared_blocks_ = 0;   // blocks read from the prefix: its whole ones
  size_t n_borrowed_tokens_ = 0; // positions of the prefix in a block that is shared in part
  size_t n_layers_borrowed_ = 0; // layers whose part of that block is in the tail already
  size_t n_tokens_ = 0;
  std::vector<base::MemoryRegion> regions_;
  std::vector<std::byte*> own_blocks_;
};

}  // namespace kvfork::model
