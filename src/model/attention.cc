#include "model/attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace kvfork::model {
namespace {

constexpr size_t kBlock = kernels::kBlockTokens;
constexpr size_t kChunkTokens = kChunkBlocks * kBlock;

// Rows that share one walk over the keys: enough to reuse a block from L1, few enough that their results stay in
// L2.
constexpr size_t kTileRows = 128;

size_t chunks_of(size_t n_tokens) {
  return (n_tokens + kChunkTokens - 1) / kChunkTokens;
}

size_t longest(std::span<const SequenceRows> sequences) {
  size_t n_tokens = 0;
  for (const auto& sequence : sequences) n_tokens = std::max(n_tokens, sequence.position + sequence.n_tokens);
  return n_tokens;
}

size_t tokens_per_tile(const checkpoint::ModelConfig& config) {
  return std::max<size_t>(1, kTileRows * config.num_key_value_heads / config.num_attention_heads);
}

}  // namespace

size_t attention_tile_rows(const checkpoint::ModelConfig& config) {
  return tokens_per_tile(config) * (config.num_attention_heads / config.num_key_value_heads);
}

// One tile's walk over its keys in one layer.
struct Attention::Walk {
  const AttentionTile& tile;
  size_t layer;
  const Scratch& scratch;

  const RowToken& token(size_t i) const { return scratch.tokens[tile.first_row + i]; }
  size_t n_tokens() const {  // keys that some row sees
    size_t n = 0;
    for (size_t i = 0; i < tile.n_tokens; ++i) n = std::max(n, token(i).position + 1);
    return n;
  }

  // Calls visit(first, n) for runs of tokens that see the key at `position`, as long as `same` holds between
  // neighbours.
  template <class Same, class Visit>
  void for_runs(size_t position, const Same& same, const Visit& visit) const {
    for (size_t first = 0, end; first < tile.n_tokens; first = end) {
      end = first + 1;
      if (token(first).position < position) continue;
      while (end < tile.n_tokens && token(end).position >= position && same(token(end - 1), token(end))) ++end;
      visit(first, end - first);
    }
  }
};

Attention::Attention(const checkpoint::ModelConfig& config, const kernels::KernelTable& kernels,
                     const base::ThreadPool& pool)
    : config_(config),
      kernels_(kernels),
      pool_(pool),
      group_size_(config.num_attention_heads / config.num_key_value_heads),
      tile_tokens_(tokens_per_tile(config)),
      out_stride_(kernels::value_stride(config.head_dim)),
      scale_(static_cast<float>(1.0 / std::sqrt(static_cast<double>(config.head_dim)))) {}

// Few tiles over many keys: threads share the chunks of a tile, or some would stand idle.
bool Attention::splits(const Scratch& scratch, size_t n_chunks) const noexcept {
  return pool_.n_threads() > 1 && n_chunks > 1 && scratch.tiles.size() < most_split_tiles();
}

void Attention::reserve(size_t n_tokens, Scratch& scratch) const {
  if (pool_.n_threads() > 1 && chunks_of(n_tokens) > 1)
    scratch.reserve_parts(most_split_tiles() * chunks_of(n_tokens), tile_tokens_ * group_size_);
}

void Attention::prepare(std::span<const SequenceRows> sequences, Scratch& scratch) const {
  scratch.tokens.clear();
  for (const SequenceRows& rows : sequences) {
    for (size_t i = 0; i < rows.n_tokens; ++i) scratch.tokens.push_back({rows.kv, rows.position + i});
  }
  const size_t n_rows = scratch.tokens.size();
  scratch.tiles.clear();
  for (size_t row = 0; row < n_rows; row += tile_tokens_) {
    for (size_t head = 0; head < config_.num_key_value_heads; ++head) {
      scratch.tiles.push_back({.kv_head = static_cast<uint32_t>(head),
                               .first_row = static_cast<uint32_t>(row),
                               .n_tokens = static_cast<uint32_t>(std::min(tile_tokens_, n_rows - row))});
    }
  }
  const size_t n_chunks = chunks_of(longest(sequences));
  if (splits(scratch, n_chunks)) scratch.reserve_parts(scratch.tiles.size() * n_chunks, tile_tokens_ * group_size_);
}

void Attention::store(size_t layer, Scratch& scratch) const noexcept {
  for (const SequenceRows& sequence : scratch.sequences) sequence.kv->begin_layer(layer);
  // A few rows are rotated and stored faster than another thread wakes.
  if (scratch.tokens.size() * config_.num_key_value_heads < 4 * pool_.n_threads()) {
    for (const AttentionTile& tile : scratch.tiles) store_tile(tile, layer, scratch);
  } else {
    pool_.run(scratch.tiles.size(),
              [&](size_t item, size_t) noexcept { store_tile(scratch.tiles[item], layer, scratch); });
  }
}

void Attention::store_tile(const AttentionTile& tile, size_t layer, Scratch& scratch) const noexcept {
  const size_t head_dim = config_.head_dim;
  const size_t q_stride = config_.num_attention_heads * head_dim;
  const size_t kv_stride = config_.num_key_value_heads * head_dim;
  const size_t end = tile.first_row + tile.n_tokens;
  for (size_t row = tile.first_row; row < end; ++row) {
    const float* cos = scratch.cos + row * head_dim / 2;
    const float* sin = scratch.sin + row * head_dim / 2;
    kernels_.rope(scratch.q + row * q_stride + tile.kv_head * group_size_ * head_dim, group_size_, head_dim, cos,
                  sin);
    kernels_.rope(scratch.k + row * kv_stride + tile.kv_head * head_dim, 1, head_dim, cos, sin);
  }
  for (size_t row = tile.first_row; row < end;) {
    const auto [kv, position] = scratch.tokens[row];
    const size_t slot = position % kBlock;
    size_t n = 1;
    while (row + n < end && slot + n < kBlock && scratch.tokens[row + n].kv == kv) ++n;
    const size_t offset = row * kv_stride + tile.kv_head * head_dim;
    const KvLayout& layout = kv->layout();
    const OwnKvBlock& block = kv->own_block(position / kBlock);
    kernels_.store_kv({.k = scratch.k + offset,
                       .k_stride = kv_stride,
                       .v = scratch.v + offset,
                       .v_stride = kv_stride,
                       .n_tokens = n,
                       .head_dim = head_dim,
                       .slot = slot,
                       .kv_type = layout.type,
                       .k_block = block.key(layout, layer, tile.kv_head),
                       .v_block = block.value(layout, layer, tile.kv_head)});
    row += n;
  }
}

// into = attention over one block, for the rows that see it.
void Attention::walk_block(const Walk& walk, size_t block, const AttentionPart& into,
                           Scratch::AttentionWorkspace& workspace) const noexcept {
  const size_t head_dim = config_.head_dim;
  const AttentionTile& tile = walk.tile;
  const auto shares_block = [&](const RowToken& a, const RowToken& b) {
    return a.kv == b.kv || a.kv->block(block).keys == b.kv->block(block).keys;
  };
  walk.for_runs(block * kBlock, shares_block, [&](size_t first, size_t n_tokens) {
    size_t n_rows = 0;
    for (size_t token = first; token < first + n_tokens; ++token) {
      const float* q =
          walk.scratch.q +
          ((tile.first_row + token) * config_.num_attention_heads + tile.kv_head * group_size_) * head_dim;
      const size_t position = walk.token(token).position;
      for (size_t head = 0; head < group_size_; ++head, ++n_rows) {
        workspace.q[n_rows] = q + head * head_dim;
        workspace.n_valid[n_rows] = static_cast<uint32_t>(std::min(kBlock, position + 1 - block * kBlock));
      }
    }
    const KvSequence& kv = *walk.token(first + n_tokens - 1).kv;
    const KvLayout& layout = kv.layout();
    const KvBlock at = kv.block(block);
    const bool has_next = walk.token(first + n_tokens - 1).position >= (block + 1) * kBlock;
    const AttentionPart part = into.from_row(first * group_size_, out_stride_);
    kernels_.attention_block(
        {.q = workspace.q.data(),
         .n_valid = workspace.n_valid.data(),
         .n_rows = n_rows,
         .head_dim = head_dim,
         .scale = scale_,
         .kv_type = layout.type,
         .k_block = at.key(layout, walk.layer, tile.kv_head),
         .v_block = at.value(layout, walk.layer, tile.kv_head),
         .max = part.max,
         .sum = part.sum,
         .out = part.out,
         .workspace = workspace.kernels,
         .next_k_block = has_next ? kv.block(block + 1).key(layout, walk.layer, tile.kv_head) : nullptr});
  });
}

// The blocks of one chunk, merged in order. Rows that see no key of it are left alone.
void Attention::walk_chunk(const Walk& walk, size_t chunk, const AttentionPart& into,
                           Scratch::AttentionWorkspace& workspace) const noexcept {
  const size_t first_block = chunk * kChunkBlocks;
  const size_t end = std::min((first_block + kChunkBlocks) * kBlock, walk.n_tokens());
  walk_block(walk, first_block, into, workspace);
  for (size_t block = first_block + 1; block * kBlock < end; ++block) {
    walk_block(walk, block, workspace.block, workspace);
    merge(walk, block * kBlock, into, workspace.block);
  }
}

// Merges what later keys, from `position` on, have given to the rows that see them.
void Attention::merge(const Walk& walk, size_t position, const AttentionPart& into,
                      const AttentionPart& part) const noexcept {
  const auto any = [](const RowToken&, const RowToken&) { return true; };
  walk.for_runs(position, any, [&](size_t first, size_t n_tokens) {
    const AttentionPart to = into.from_row(first * group_size_, out_stride_);
    const AttentionPart from = part.from_row(first * group_size_, out_stride_);
    kernels_.attention_merge(to.max, to.sum, to.out, from.max, from.sum, from.out, n_tokens * group_size_,
                             config_.head_dim);
  });
}

void Attention::finish(const Walk& walk, const AttentionPart& total) const noexcept {
  const AttentionTile& tile = walk.tile;
  for (size_t token = 0; token < tile.n_tokens; ++token) {
    for (size_t head = 0; head < group_size_; ++head) {
      const size_t row = token * group_size_ + head;
      float* y = walk.scratch.attention +
                 ((tile.first_row + token) * config_.num_attention_heads + tile.kv_head * group_size_ + head) *
                     config_.head_dim;
      kernels_.attention_finish(total.out + row * out_stride_, total.sum[row], config_.head_dim, y);
    }
  }
}

void Attention::walk_tile(const Walk& walk, Scratch::AttentionWorkspace& workspace) const noexcept {
  walk_chunk(walk, 0, workspace.total, workspace);
  for (size_t chunk = 1; chunk < chunks_of(walk.n_tokens()); ++chunk) {
    walk_chunk(walk, chunk, workspace.chunk, workspace);
    merge(walk, chunk * kChunkTokens, workspace.total, workspace.chunk);
  }
  finish(walk, workspace.total);
}

void Attention::run(size_t layer, Scratch& scratch) const noexcept {
  const auto walk_of = [&](size_t tile) { return Walk{scratch.tiles[tile], layer, scratch}; };
  const size_t n_chunks = chunks_of(longest(scratch.sequences));
  if (!splits(scratch, n_chunks)) {
    pool_.run(scratch.tiles.size(),
              [&](size_t item, size_t thread) noexcept { walk_tile(walk_of(item), scratch.workspaces[thread]); });
    return;
  }
  const std::span<const AttentionPart> parts = scratch.reserve_parts(0, 0);
  pool_.run(scratch.tiles.size() * n_chunks, [&](size_t item, size_t thread) noexcept {
    const Walk walk = walk_of(item / n_chunks);
    if (item % n_chunks < chunks_of(walk.n_tokens()))
      walk_chunk(walk, item % n_chunks, parts[item], scratch.workspaces[thread]);
  });
  for (size_t tile = 0; tile < scratch.tiles.size(); ++tile) {
    const Walk walk = walk_of(tile);
    const AttentionPart& total = parts[tile * n_chunks];
    for (size_t chunk = 1; chunk < chunks_of(walk.n_tokens()); ++chunk)
      merge(walk, chunk * kChunkTokens, total, parts[tile * n_chunks + chunk]);
    finish(walk, total);
  }
}

}  // namespace kvfork::model
