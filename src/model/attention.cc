#include "model/attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace kvfork::model {
namespace {

constexpr size_t kBlock = kernels::kBlockTokens;
constexpr size_t kChunkTokens = kChunkBlocks * kBlock;

// Rows that share one walk over the keys: enough to reuse a block from L1, few enough that their results stay in L2.
constexpr size_t kTileRows = 64;

size_t chunks_of(size_t n_tokens) { return (n_tokens + kChunkTokens - 1) / kChunkTokens; }

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
  const KvSequence& kv;
  size_t layer;
  const Scratch& scratch;

  size_t n_chunks() const { return chunks_of(tile.position + tile.n_tokens); }
  // The first token of the tile that sees the key at `position`.
  size_t first_token_seeing(size_t position) const {
    return position <= tile.position ? 0 : position - tile.position;
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
  scratch.tiles.clear();
  for (size_t i = 0; i < sequences.size(); ++i) {
    const SequenceRows& rows = sequences[i];
    for (size_t token = 0; token < rows.n_tokens; token += tile_tokens_) {
      for (size_t head = 0; head < config_.num_key_value_heads; ++head) {
        scratch.tiles.push_back({.sequence = static_cast<uint32_t>(i),
                                 .kv_head = static_cast<uint32_t>(head),
                                 .first_row = static_cast<uint32_t>(rows.first_row + token),
                                 .n_tokens = static_cast<uint32_t>(std::min(tile_tokens_, rows.n_tokens - token)),
                                 .position = rows.position + token});
      }
    }
  }
  const size_t n_chunks = chunks_of(longest(sequences));
  if (splits(scratch, n_chunks)) scratch.reserve_parts(scratch.tiles.size() * n_chunks, tile_tokens_ * group_size_);
}

void Attention::store(std::span<const SequenceRows> sequences, size_t layer, Scratch& scratch) const noexcept {
  const size_t head_dim = config_.head_dim;
  const size_t q_stride = config_.num_attention_heads * head_dim;
  const size_t kv_stride = config_.num_key_value_heads * head_dim;
  for (const auto& sequence : sequences) sequence.kv->begin_layer(layer);

  const auto store_tile = [&](size_t item, size_t) noexcept {
    const AttentionTile& tile = scratch.tiles[item];
    KvSequence& kv = *sequences[tile.sequence].kv;
    const KvLayout& layout = kv.layout();
    for (size_t row = tile.first_row; row < tile.first_row + tile.n_tokens; ++row) {
      const float* cos = scratch.cos + row * head_dim / 2;
      const float* sin = scratch.sin + row * head_dim / 2;
      kernels_.rope(scratch.q + row * q_stride + tile.kv_head * group_size_ * head_dim, group_size_, head_dim, cos, sin);
      kernels_.rope(scratch.k + row * kv_stride + tile.kv_head * head_dim, 1, head_dim, cos, sin);
    }
    for (size_t token = 0; token < tile.n_tokens;) {
      const size_t position = tile.position + token;
      const size_t slot = position % kBlock;
      const size_t n = std::min<size_t>(tile.n_tokens - token, kBlock - slot);
      const size_t offset = (tile.first_row + token) * kv_stride + tile.kv_head * head_dim;
      const OwnKvBlock& block = kv.own_block(position / kBlock);
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
      token += n;
    }
  };
  // A few rows are rotated and stored faster than another thread wakes.
  if (scratch.tiles.size() < 4 * pool_.n_threads()) {
    for (size_t item = 0; item < scratch.tiles.size(); ++item) store_tile(item, 0);
  } else {
    pool_.run(scratch.tiles.size(), store_tile);
  }
}

// The blocks of one chunk, merged in order. Rows that see no key of a block are a prefix of the tile and left alone.
void Attention::walk_chunk(const Walk& walk, size_t chunk, const AttentionPart& into,
                           Scratch::AttentionWorkspace& workspace) const noexcept {
  const size_t head_dim = config_.head_dim;
  const AttentionTile& tile = walk.tile;
  const KvLayout& layout = walk.kv.layout();
  const size_t end = tile.position + tile.n_tokens;
  const size_t first_block = chunk * kChunkBlocks;
  for (size_t block = first_block; block < first_block + kChunkBlocks && block * kBlock < end; ++block) {
    const size_t first_token = walk.first_token_seeing(block * kBlock);
    const size_t first_row = first_token * group_size_;
    size_t n_rows = 0;
    for (size_t token = first_token; token < tile.n_tokens; ++token) {
      const float* q = walk.scratch.q +
                       ((tile.first_row + token) * config_.num_attention_heads + tile.kv_head * group_size_) * head_dim;
      const size_t n_valid = std::min(kBlock, tile.position + token + 1 - block * kBlock);
      for (size_t head = 0; head < group_size_; ++head, ++n_rows) {
        workspace.q[n_rows] = q + head * head_dim;
        workspace.n_valid[n_rows] = static_cast<uint32_t>(n_valid);
      }
    }
    const KvBlock at = walk.kv.block(block);
    const bool starts_chunk = block == first_block;
    const bool has_next = (block + 1) * kBlock < end;
    const AttentionPart part = (starts_chunk ? into : workspace.block).from_row(first_row, out_stride_);
    kernels_.attention_block({.q = workspace.q.data(),
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
                              .next_k_block = has_next ? walk.kv.block(block + 1).key(layout, walk.layer, tile.kv_head) : nullptr});
    if (starts_chunk) continue;
    const AttentionPart rest = into.from_row(first_row, out_stride_);
    kernels_.attention_merge(rest.max, rest.sum, rest.out, part.max, part.sum, part.out, n_rows, head_dim);
  }
}

// Merges a chunk's result into the rows' running result; chunk 0 starts it.
void Attention::merge(const Walk& walk, size_t chunk, const AttentionPart& into, const AttentionPart& part) const noexcept {
  const size_t first_row = walk.first_token_seeing(chunk * kChunkTokens) * group_size_;
  const size_t n_rows = walk.tile.n_tokens * group_size_ - first_row;
  const AttentionPart to = into.from_row(first_row, out_stride_);
  const AttentionPart from = part.from_row(first_row, out_stride_);
  kernels_.attention_merge(to.max, to.sum, to.out, from.max, from.sum, from.out, n_rows, config_.head_dim);
}

void Attention::finish(const Walk& walk, const AttentionPart& total) const noexcept {
  const AttentionTile& tile = walk.tile;
  for (size_t token = 0; token < tile.n_tokens; ++token) {
    for (size_t head = 0; head < group_size_; ++head) {
      const size_t row = token * group_size_ + head;
      float* y = walk.scratch.attention + ((tile.first_row + token) * config_.num_attention_heads +
                                           tile.kv_head * group_size_ + head) * config_.head_dim;
      kernels_.attention_finish(total.out + row * out_stride_, total.sum[row], config_.head_dim, y);
    }
  }
}

void Attention::walk_tile(const Walk& walk, Scratch::AttentionWorkspace& workspace) const noexcept {
  walk_chunk(walk, 0, workspace.total, workspace);
  for (size_t chunk = 1; chunk < walk.n_chunks(); ++chunk) {
    walk_chunk(walk, chunk, workspace.chunk, workspace);
    merge(walk, chunk, workspace.total, workspace.chunk);
  }
  finish(walk, workspace.total);
}

void Attention::run(std::span<const SequenceRows> sequences, size_t layer, Scratch& scratch) const noexcept {
  const auto walk_of = [&](size_t tile) {
    return Walk{scratch.tiles[tile], *sequences[scratch.tiles[tile].sequence].kv, layer, scratch};
  };
  const size_t n_chunks = chunks_of(longest(sequences));
  if (!splits(scratch, n_chunks)) {
    pool_.run(scratch.tiles.size(), [&](size_t item, size_t thread) noexcept {
      walk_tile(walk_of(item), scratch.workspaces[thread]);
    });
    return;
  }
  const std::span<const AttentionPart> parts = scratch.reserve_parts(0, 0);
  pool_.run(scratch.tiles.size() * n_chunks, [&](size_t item, size_t thread) noexcept {
    const Walk walk = walk_of(item / n_chunks);
    if (item % n_chunks < walk.n_chunks())
      walk_chunk(walk, item % n_chunks, parts[item], scratch.workspaces[thread]);
  });
  for (size_t tile = 0; tile < scratch.tiles.size(); ++tile) {
    const Walk walk = walk_of(tile);
    const AttentionPart& total = parts[tile * n_chunks];
    for (size_t chunk = 1; chunk < walk.n_chunks(); ++chunk) merge(walk, chunk, total, parts[tile * n_chunks + chunk]);
    finish(walk, total);
  }
}

}  // namespace kvfork::model
