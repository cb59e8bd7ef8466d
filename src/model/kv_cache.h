// What a model remembers of one timeline: a sealed, shared prefix and a private tail.
//
// KvPrefix is immutable, its pages read-only to the MMU, and safe to read from any thread. KvSequence is move-only
// and belongs to one thread at a time; it writes only to memory of its own. Rows of keys and values lie in blocks
// (state_layout.h). States exist at single positions: a prefix holds those of its end and of chosen places before
// it, a sequence those of its end.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "base/memory_region.h"
#include "kernels/kernels.h"
#include "model/state_layout.h"

namespace kvfork::model {

/// A block of rows; T is std::byte or const std::byte.
template <typename T>
struct KvBlockAt {
  T* base = nullptr;
  const BlockPlaces* places = nullptr;
  size_t index = 0;  // counted from base

  T* key(const StateLayout& layout, size_t layer, size_t head) const noexcept {
    return at(places->keys[layer]) + head * layout.key_bytes(layer);
  }
  T* value(const StateLayout& layout, size_t layer, size_t head) const noexcept {
    return at(places->values[layer]) + head * layout.value_bytes(layer);
  }
  friend bool operator==(const KvBlockAt&, const KvBlockAt&) = default;

 private:
  T* at(const BlockPlaces::Place& place) const noexcept { return base + place.offset + index * place.step; }
};

using KvBlock = KvBlockAt<const std::byte>;
using OwnKvBlock = KvBlockAt<std::byte>;

/// The states of all layers at one position: [layout.n_state_floats()]. The pointer keeps their memory alive.
struct States {
  size_t position = 0;
  std::shared_ptr<const float> floats;
};

/// Sealed rows and states of positions [0, n_tokens). Keeps the prefix it grew from alive.
class KvPrefix {
 public:
  KvPrefix() = default;
  KvPrefix(const KvPrefix&) = delete;
  KvPrefix& operator=(const KvPrefix&) = delete;
  ~KvPrefix();

  /// What a prefix is made of when it does not come from a sequence.
  struct Parts {
    std::shared_ptr<const KvPrefix> parent;  // may be null
    size_t n_shared_blocks = 0;              // of the parent
    size_t n_shared_tokens = 0;              // the parent's tokens that are its own: states up to there are shared
    std::span<const KvBlock> blocks;         // that follow those of the parent
    std::span<const States> states;          // of its own, positions ascending
    std::shared_ptr<const void> owner;       // keeps blocks alive, which nobody writes to
  };
  static std::shared_ptr<const KvPrefix> from_parts(std::shared_ptr<const StateLayout> layout, size_t n_tokens,
                                                    Parts parts);

  const StateLayout& layout() const noexcept { return *layout_; }
  size_t n_tokens() const noexcept { return n_tokens_; }
  /// Block `index`; its positions at and beyond n_tokens are zero.
  const KvBlock& block(size_t index) const noexcept { return blocks_[index]; }
  size_t n_blocks() const noexcept { return blocks_.size(); }
  const std::shared_ptr<const KvPrefix>& parent() const noexcept { return parent_; }
  /// Blocks that are the parent's.
  size_t n_shared_blocks() const noexcept { return n_shared_blocks_; }
  /// The states that it holds, the parent's before the place where it was forked included, in ascending order of
  /// positions. Empty where the layout has none.
  std::span<const States> states() const noexcept { return states_; }
  size_t n_shared_states() const noexcept { return n_shared_states_; }  ///< those that are the parent's
  /// The last position up to n_tokens where a sequence can start: n_tokens itself, unless there are states; 0 when
  /// none lies before it.
  size_t last_start(size_t n_tokens) const noexcept;
  /// Bytes of memory of its own, not counting what it shares with the prefix it grew from.
  size_t own_bytes() const noexcept;

 private:
  friend class KvSequence;
  size_t count_states(size_t n_tokens) const noexcept;  // of positions up to n_tokens
  void share_states(const KvPrefix& parent, size_t end);

  std::shared_ptr<const StateLayout> layout_;
  size_t n_tokens_ = 0;
  std::shared_ptr<const KvPrefix> parent_;
  size_t n_shared_blocks_ = 0;
  size_t n_shared_states_ = 0;
  std::shared_ptr<const void> owner_;
  std::vector<base::MemoryRegion> regions_;
  std::shared_ptr<const BlockPlaces> places_;  // of the blocks in regions_
  std::vector<KvBlock> blocks_;
  std::vector<States> states_;
};

class KvSequence {
 public:
  /// Copies of all states that a sequence has room for.
  static constexpr size_t kStateBuffers = 3;

  /// An empty timeline.
  explicit KvSequence(std::shared_ptr<const StateLayout> layout) : layout_(std::move(layout)) {}
  /// A fork: starts after the first n_tokens positions of the prefix, which prefix->last_start() allows. Costs the
  /// same at any length; nothing is copied yet.
  KvSequence(std::shared_ptr<const KvPrefix> prefix, size_t n_tokens);

  KvSequence(KvSequence&&) = default;
  KvSequence& operator=(KvSequence&&) = default;

  const StateLayout& layout() const noexcept { return *layout_; }
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
    return {own.base, own.places, own.index};
  }
  /// Block `index` for writing; it must be one of the tail's.
  const OwnKvBlock& own_block(size_t index) const noexcept { return own_blocks_[index - n_shared_blocks_]; }

  /// The state of `layer` at n_tokens(), which a pass reads, and the place where it writes the one after its
  /// tokens. The two never overlap.
  const float* state(size_t layer) const noexcept { return states_.floats.get() + layout_->state_offset(layer); }
  float* next_state(size_t layer) const noexcept {
    return reinterpret_cast<float*>(next_->data()) + layout_->state_offset(layer);
  }

  /// After a pass has written n positions to every layer.
  void advance(size_t n) noexcept;

  /// Keeps the states of n_tokens() until the next call, so that the timeline can be rewound to this position.
  void mark() noexcept;
  /// Keeps the states of n_tokens() as a place where later forks may start, when the timeline is sealed. Throws
  /// Error{Limit} and changes nothing when memory is refused.
  void keep_states();

  /// Takes back what passes have added beyond n_tokens, which lies in the tail; with states, the marked position.
  /// It is to be written again, taken in by advance(), or cleared before anything else happens.
  void rewind(size_t n_tokens) noexcept;
  /// Rows of a pass that join the timeline one by one, or not at all: its length as far as they have joined. States
  /// stay where the pass has brought them, until rewind() or, when all have joined, for good.
  void show(size_t n_tokens) noexcept { n_tokens_ = n_tokens; }
  /// Zeroes positions [n_tokens(), end) after a rewind.
  void clear_to(size_t end) noexcept;

  /// Makes this timeline immutable: pages become read-only. The sequence is spent.
  std::shared_ptr<const KvPrefix> seal() &&;

 private:
  using Buffer = std::shared_ptr<base::MemoryRegion>;
  struct OwnStates {
    size_t position = 0;
    std::shared_ptr<const float> floats;
    Buffer buffer;  // that the floats lie in; null: the prefix's
  };

  Buffer make_buffer() const;
  void reserve_states();
  void recycle(OwnStates& states) noexcept;

  std::shared_ptr<const StateLayout> layout_;
  std::shared_ptr<const KvPrefix> prefix_;
  size_t n_shared_blocks_ = 0;    // blocks read from the prefix: its whole ones
  size_t n_borrowed_tokens_ = 0;  // positions of the prefix in a block that is shared in part
  size_t n_layers_borrowed_ = 0;  // layers whose part of that block is in the tail already
  size_t n_tokens_ = 0;
  std::vector<base::MemoryRegion> regions_;
  std::shared_ptr<const BlockPlaces> places_;  // of the blocks in regions_
  std::vector<OwnKvBlock> own_blocks_;

  // A pass reads states_ and writes next_. What is neither of the two, nor marked or kept, lies in spare_.
  OwnStates states_;
  OwnStates marked_;
  Buffer next_;
  std::vector<Buffer> spare_;
  std::vector<OwnStates> kept_;
};

}  // namespace kvfork::model
