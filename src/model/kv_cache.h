// Keys and values of one timeline: a sealed, shared prefix and a private tail.
//
// KvPrefix is immutable, its pages read-only to the MMU, and safe to read from any thread. KvSequence is move-only
// and belongs to one thread at a time; it writes only to memory of its own. Blocks hold kernels::kBlockTokens
// positions counted from absolute position 0. In every block of every layer the keys of all KV heads lie together,
// and so do the values:
//   K [n_kv_heads][groups][head_dim][kGroupTokens], V [n_kv_heads][kBlockTokens][value_stride]
// In memory these follow one another, block -> layer -> K, V; in a saved file, layer -> K of all blocks, V of all
// blocks. So a block is found by the place of its first layer's K and V and the distance between layers.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "base/memory_region.h"
#include "kernels/kernels.h"

namespace kvfork::model {

struct KvLayout {
  size_t n_layers = 0;
  size_t n_kv_heads = 0;
  size_t head_dim = 0;
  kernels::Element type = kernels::Element::F32;

  size_t element_bytes() const noexcept { return kernels::element_bytes(type); }
  size_t key_bytes() const noexcept { return kernels::kBlockTokens * head_dim * element_bytes(); }
  size_t value_bytes() const noexcept {
    return kernels::kBlockTokens * kernels::value_stride(head_dim) * element_bytes();
  }
  /// Keys, or values, of all KV heads of one layer of a block.
  size_t keys_bytes() const noexcept { return n_kv_heads * key_bytes(); }
  size_t values_bytes() const noexcept { return n_kv_heads * value_bytes(); }
  size_t layer_bytes() const noexcept { return keys_bytes() + values_bytes(); }
  size_t block_bytes() const noexcept { return n_layers * layer_bytes(); }
  /// Key and value bytes of one position, without padding.
  size_t token_bytes() const noexcept { return n_layers * n_kv_heads * 2 * head_dim * element_bytes(); }

  friend bool operator==(const KvLayout&, const KvLayout&) = default;
};

/// Where a block lies; T is std::byte or const std::byte.
template <typename T>
struct KvBlockAt {
  T* keys = nullptr;    // of layer 0, KV head 0
  T* values = nullptr;  // of layer 0, KV head 0
  size_t layer_stride = 0;

  T* key(const KvLayout& layout, size_t layer, size_t head) const noexcept {
    return keys + layer * layer_stride + head * layout.key_bytes();
  }
  T* value(const KvLayout& layout, size_t layer, size_t head) const noexcept {
    return values + layer * layer_stride + head * layout.value_bytes();
  }
};

using KvBlock = KvBlockAt<const std::byte>;
using OwnKvBlock = KvBlockAt<std::byte>;

/// Sealed keys and values of positions [0, n_tokens). Keeps the prefix it grew from alive.
class KvPrefix {
 public:
  /// `own` blocks that follow the first n_shared blocks of `parent` (which may be null, with n_shared 0). `owner`
  /// keeps their memory alive, which nobody writes to.
  static std::shared_ptr<const KvPrefix> from_blocks(const KvLayout& layout, size_t n_tokens,
                                                     std::shared_ptr<const KvPrefix> parent, size_t n_shared,
                                                     std::span<const KvBlock> own,
                                                     std::shared_ptr<const void> owner);

  const KvLayout& layout() const noexcept { return layout_; }
  size_t n_tokens() const noexcept { return n_tokens_; }
  /// Block `index`; its positions at and beyond n_tokens are zero.
  const KvBlock& block(size_t index) const noexcept { return blocks_[index]; }
  size_t n_blocks() const noexcept { return blocks_.size(); }
  const std::shared_ptr<const KvPrefix>& parent() const noexcept { return parent_; }
  /// Blocks that are the parent's.
  size_t n_shared_blocks() const noexcept { return n_shared_blocks_; }
  /// Bytes of memory of its own, not counting what it shares with the prefix it grew from.
  size_t own_bytes() const noexcept;

 private:
  friend class KvSequence;
  KvLayout layout_;
  size_t n_tokens_ = 0;
  std::shared_ptr<const KvPrefix> parent_;
  size_t n_shared_blocks_ = 0;
  std::shared_ptr<const void> owner_;
  std::vector<base::MemoryRegion> regions_;
  std::vector<KvBlock> blocks_;
};

class KvSequence {
 public:
  /// An empty timeline.
  explicit KvSequence(const KvLayout& layout) : layout_(layout) {}
  /// A fork: starts after the first n_tokens positions of the prefix (1..its length). Costs the same at any length;
  /// nothing is copied yet.
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
  KvBlock block(size_t index) const noexcept {
    if (index < n_shared_blocks_) return prefix_->block(index);
    const OwnKvBlock& own = own_blocks_[index - n_shared_blocks_];
    return {own.keys, own.values, own.layer_stride};
  }
  /// Block `index` for writing; it must be one of the tail's.
  const OwnKvBlock& own_block(size_t index) const noexcept { return own_blocks_[index - n_shared_blocks_]; }

  /// After a pass has written n positions to every layer.
  void advance(size_t n) noexcept { n_tokens_ += n; }

  /// Takes back what passes have added beyond n_tokens, which lies in the tail. It is to be written again, taken in
  /// by advance(), or cleared before anything else happens.
  void rewind(size_t n_tokens) noexcept { n_tokens_ = n_tokens; }
  /// Zeroes positions [n_tokens(), end) after a rewind.
  void clear_to(size_t end) noexcept;

  /// Makes this timeline immutable: pages become read-only. The sequence is spent.
  std::shared_ptr<const KvPrefix> seal() &&;

 private:
  KvLayout layout_;
  std::shared_ptr<const KvPrefix> prefix_;
  size_t n_shared_blocks_ = 0;    // blocks read from the prefix: its whole ones
  size_t n_borrowed_tokens_ = 0;  // positions of the prefix in a block that is shared in part
  size_t n_layers_borrowed_ = 0;  // layers whose part of that block is in the tail already
  size_t n_tokens_ = 0;
  std::vector<base::MemoryRegion> regions_;
  std::vector<OwnKvBlock> own_blocks_;
};

}  // namespace kvfork::model
