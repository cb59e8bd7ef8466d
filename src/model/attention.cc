// Stores keys and values of a pass, and walks its queries over the blocks of keys in one fixed order.
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

size_t group_size(const checkpoint::AttentionSpec& heads) {
  return heads.n_heads / heads.n_kv_heads;
}

size_t tokens_per_tile(const checkpoint::AttentionSpec& heads) {
  return std::max<size_t>(1, kTileRows * heads.n_kv_heads / heads.n_heads);
}

size_t count_tiles(const checkpoint::AttentionSpec& heads, size_t n_rows) {
  const size_t n_tokens = tokens_per_tile(heads);
  return (n_rows + n_tokens - 1) / n_tokens * heads.n_kv_heads;
}

}  // namespace

size_t attention_tile_rows(const checkpoint::ModelSpec& spec) {
  size_t most = 0;
  for (const checkpoint::LayerSpec& layer : spec.layers) {
    if (!layer.attention.exists()) continue;
    most = std::max(most, tokens_per_tile(layer.attention) * group_size(layer.attention));
  }
  return most;
}

// One tile's walk over its keys in one layer.
struct Attention::Walk {
  const AttentionTile& tile;
  size_t layer;
  const checkpoint::AttentionSpec& heads;
  const Scratch& scratch;

  size_t group_size() const { return model::group_size(heads); }  // query heads of the KV head
  size_t out_stride() const { return kernels::value_stride(heads.head_dim); }
  const float* query(size_t i, size_t head) const {
    return scratch.projected + (tile.first_row + i) * heads.projected_width + heads.q.offset +
           (tile.kv_head * group_size() + head) * heads.q.stride;
  }

  const float* gate(size_t i, size_t head) const {
    return scratch.projected + (tile.first_row + i) * heads.projected_width + heads.gate.offset +
           (tile.kv_head * group_size() + head) * heads.gate.stride;
  }

  const RowToken& token(size_t i) const { return scratch.tokens[tile.first_row + i]; }
  size_t first_key(size_t i) const {
    const size_t n_seen = token(i).position + 1;
    return heads.window == 0 || n_seen <= heads.window ? 0 : n_seen - heads.window;
  }
  bool sees(size_t i, size_t begin, size_t end) const { return token(i).position >= begin && first_key(i) < end; }
  size_t begin() const {  // of the keys that some row sees
    size_t first = first_key(0);
    for (size_t i = 1; i < tile.n_tokens; ++i) first = std::min(first, first_key(i));
    return first;
  }
  size_t end() const {
    size_t n = 0;
    for (size_t i = 0; i < tile.n_tokens; ++i) n = std::max(n, token(i).position + 1);
    return n;
  }
  /// Whether two rows read the same block.
  bool shares(size_t i, size_t j, size_t block) const {
    const KvSequence *a = token(i).kv, *b = token(j).kv;
    return a == b || a->block(block) == b->block(block);
  }
  /// Whether all rows read the same block: those of one sequence, or all of them see it and share it.
  bool is_common(size_t block) const {
    const auto reads = [&](size_t i) { return sees(i, block * kBlock, (block + 1) * kBlock); };
    for (size_t i = 1; i < tile.n_tokens; ++i) {
      if (token(i).kv != token(0).kv && !(reads(0) && reads(i) && shares(0, i, block))) return false;
    }
    return true;
  }
  kernels::KvBlockData data(const RowToken& of, size_t block) const {
    const StateLayout& layout = of.kv->layout();
    const KvBlock at = of.kv->block(block);
    return {at.key(layout, layer, tile.kv_head), at.value(layout, layer, tile.kv_head)};
  }

  size_t first_chunk() const { return begin() / kChunkTokens; }
  size_t end_chunk() const { return chunks_of(end()); }

  // Calls visit(first, n) for runs of tokens that see some of the keys [begin, end), as long as same(i, i + 1)
  // holds between neighbours.
  template <class Same, class Visit>
  void for_runs(size_t begin, size_t end, const Same& same, const Visit& visit) const {
    for (size_t first = 0, next; first < tile.n_tokens; first = next) {
      next = first + 1;
      if (!sees(first, begin, end)) continue;
      while (next < tile.n_tokens && sees(next, begin, end) && same(next - 1, next)) ++next;
      visit(first, next - first);
    }
  }
};

Attention::Attention(const checkpoint::ModelSpec& spec, const kernels::KernelTable& kernels,
                     const base::ThreadPool& pool)
    : spec_(spec), kernels_(kernels), pool_(pool), most_tile_rows_(attention_tile_rows(spec)) {}

// Few tiles over many keys: threads share the chunks of a tile, or some would stand idle.
bool Attention::splits(size_t n_tiles, size_t n_chunks) const noexcept {
  return pool_.n_threads() > 1 && n_chunks > 1 && n_tiles < most_split_tiles();
}

void Attention::reserve(size_t n_tokens, Scratch& scratch) const {
  if (pool_.n_threads() > 1 && chunks_of(n_tokens) > 1)
    scratch.reserve_parts(most_split_tiles() * chunks_of(n_tokens), most_tile_rows_);
}

void Attention::prepare(Scratch& scratch) const {
  scratch.tokens.clear();
  for (const SequenceRows& rows : scratch.sequences) {
    for (size_t i = 0; i < rows.n_tokens; ++i) scratch.tokens.push_back({rows.kv, rows.position + i});
  }
  scratch.tiles.clear();
  const size_t n_chunks = chunks_of(longest(scratch.sequences));
  for (const checkpoint::LayerSpec& layer : spec_.layers) {
    if (!layer.attention.exists()) continue;
    const size_t n_tiles = count_tiles(layer.attention, scratch.tokens.size());
    if (splits(n_tiles, n_chunks)) scratch.reserve_parts(n_tiles * n_chunks, most_tile_rows_);
  }
}

// Divides the rows of the pass into tiles. Layers that are alike share them.
void Attention::arrange(const checkpoint::AttentionSpec& heads, Scratch& scratch) const noexcept {
  const size_t n_rows = scratch.tokens.size();
  const size_t tile_tokens = tokens_per_tile(heads);
  if (scratch.tiles.size() == count_tiles(heads, n_rows) && scratch.tile_tokens == tile_tokens) return;
  scratch.tile_tokens = tile_tokens;
  scratch.tiles.clear();
  for (size_t row = 0; row < n_rows; row += tile_tokens) {
    for (size_t head = 0; head < heads.n_kv_heads; ++head) {
      scratch.tiles.push_back({.kv_head = static_cast<uint32_t>(head),
                               .first_row = static_cast<uint32_t>(row),
                               .n_tokens = static_cast<uint32_t>(std::min(tile_tokens, n_rows - row))});
    }
  }
}

void Attention::store(size_t index, const LayerWeights& layer, Scratch& scratch) const noexcept {
  const checkpoint::AttentionSpec& heads = layer.spec->attention;
  arrange(heads, scratch);
  const bool is_whole = layer.q_norm.exists() && heads.head_norm_form == checkpoint::HeadNormForm::Whole;
  if (is_whole || heads.clip != 0) normalize_rows(layer, scratch);
  // A few rows are rotated and stored faster than another thread wakes.
  if (scratch.tokens.size() * heads.n_kv_heads < 4 * pool_.n_threads()) {
    for (const AttentionTile& tile : scratch.tiles) store_tile(tile, index, layer, scratch);
  } else {
    pool_.run(scratch.tiles.size(),
              [&](size_t item, size_t) noexcept { store_tile(scratch.tiles[item], index, layer, scratch); });
  }
}

// What reaches over all heads of a row: norms of q and k as a whole, and the bounds of q, k and v.
void Attention::normalize_rows(const LayerWeights& layer, Scratch& scratch) const noexcept {
  const checkpoint::AttentionSpec& heads = layer.spec->attention;
  pool_.run(scratch.tokens.size(), [&](size_t row, size_t) noexcept {
    float* projected = scratch.projected + row * heads.projected_width;
    if (layer.q_norm.exists() && heads.head_norm_form == checkpoint::HeadNormForm::Whole) {
      float* q = projected + heads.q.offset;
      float* k = projected + heads.k.offset;
      kernels_.norm(layer.q_norm.args(q, heads.n_heads * heads.head_dim, q));
      kernels_.norm(layer.k_norm.args(k, heads.n_kv_heads * heads.head_dim, k));
    }
    if (heads.clip != 0) kernels_.clip(projected, static_cast<float>(heads.clip), heads.projected_width);
  });
}

// Normalizes and rotates heads [first, first + n) of q or k in one row.
void Attention::turn_heads(float* row_values, const checkpoint::HeadSlices& slices, size_t first, size_t n,
                           const Norm& norm, const checkpoint::AttentionSpec& heads, size_t row,
                           const Scratch& scratch) const noexcept {
  float* x = row_values + slices.offset + first * slices.stride;
  const auto normalize = [&] {
    if (!norm.exists() || heads.head_norm_form == checkpoint::HeadNormForm::Whole) return;
    const bool has_own = heads.head_norm_form == checkpoint::HeadNormForm::Heads;
    for (size_t i = 0; i < n; ++i) {
      float* head = x + i * slices.stride;
      kernels_.norm(norm.args(head, heads.head_dim, head, has_own ? first + i : 0));
    }
  };
  if (!heads.norms_after_rotation) normalize();
  const checkpoint::RotationSpec& spec = spec_.rotations[heads.rotation];
  if (spec.exists()) {
    const size_t n_pairs = spec.inverse_frequencies.size();
    const Scratch::Rotation& rotation = scratch.rotations[heads.rotation];
    kernels_.rope({.x = x,
                   .n_heads = n,
                   .head_stride = slices.stride,
                   .n_pairs = n_pairs,
                   .neighbours = spec.neighbours,
                   .cos = rotation.cos + row * n_pairs,
                   .sin = rotation.sin + row * n_pairs});
  }
  if (heads.norms_after_rotation) normalize();
}

void Attention::stretch_queries(float* row_values, const checkpoint::AttentionSpec& heads, size_t first, size_t n,
                                size_t position) const noexcept {
  const size_t n_lengths = position / heads.stretch_length;
  const auto factor = static_cast<float>(1 + heads.stretch * std::log(1 + static_cast<double>(n_lengths)));
  for (size_t head = first; head < first + n; ++head)
    kernels_.scale(row_values + heads.q.offset + head * heads.q.stride, factor, heads.head_dim);
}

void Attention::store_tile(const AttentionTile& tile, size_t index, const LayerWeights& layer,
                           Scratch& scratch) const noexcept {
  const checkpoint::AttentionSpec& heads = layer.spec->attention;
  const size_t width = heads.projected_width;
  const size_t group = group_size(heads);
  const size_t k = heads.k.offset + tile.kv_head * heads.k.stride;
  const size_t v = heads.v.offset + tile.kv_head * heads.v.stride;
  const size_t end = tile.first_row + tile.n_tokens;
  for (size_t row = tile.first_row; row < end; ++row) {
    float* projected = scratch.projected + row * width;
    turn_heads(projected, heads.q, tile.kv_head * group, group, layer.q_norm, heads, row, scratch);
    if (heads.stretch != 0)
      stretch_queries(projected, heads, tile.kv_head * group, group, scratch.tokens[row].position);
    turn_heads(projected, heads.k, tile.kv_head, 1, layer.k_norm, heads, row, scratch);
  }
  for (size_t row = tile.first_row; row < end;) {
    const auto [kv, position] = scratch.tokens[row];
    const size_t slot = position % kBlock;
    size_t n = 1;
    while (row + n < end && slot + n < kBlock && scratch.tokens[row + n].kv == kv) ++n;
    const StateLayout& layout = kv->layout();
    const OwnKvBlock& block = kv->own_block(position / kBlock);
    kernels_.store_kv({.k = scratch.projected + row * width + k,
                       .k_stride = width,
                       .v = scratch.projected + row * width + v,
                       .v_stride = width,
                       .n_tokens = n,
                       .head_dim = heads.head_dim,
                       .slot = slot,
                       .kv_type = layout.type(),
                       .k_block = block.key(layout, index, tile.kv_head),
                       .v_block = block.value(layout, index, tile.kv_head)});
    row += n;
  }
}

// Attention over blocks [block, end) of a chunk, for the rows that see some of their keys. The first block of a
// chunk that a row sees begins its result, `into`; later ones are merged into it.
void Attention::walk_blocks(const Walk& walk, size_t block, size_t end, const AttentionPart& into,
                            Scratch::AttentionWorkspace& workspace) const noexcept {
  const size_t group = walk.group_size();
  const size_t first_key = block * kBlock, end_key = end * kBlock;
  const auto begins = [&](size_t i) { return block % kChunkBlocks == 0 || walk.first_key(i) >= first_key; };
  const auto same = [&](size_t i, size_t j) { return begins(i) == begins(j) && walk.shares(i, j, block); };
  walk.for_runs(first_key, end_key, same, [&](size_t first, size_t n_tokens) {
    size_t n_rows = 0;
    for (size_t token = first; token < first + n_tokens; ++token) {
      const size_t from = std::max(walk.first_key(token), first_key) - first_key;
      const size_t to = std::min(end_key, walk.token(token).position + 1) - first_key;
      for (size_t head = 0; head < group; ++head, ++n_rows) {
        workspace.q[n_rows] = walk.query(token, head);
        workspace.seen[n_rows] = {static_cast<uint32_t>(from), static_cast<uint32_t>(to)};
      }
    }
    const RowToken& last = walk.token(first + n_tokens - 1);
    const size_t n_blocks = std::min(end, last.position / kBlock + 1) - block;
    for (size_t i = 0; i < n_blocks; ++i) workspace.blocks[i] = walk.data(last, block + i);
    kernels_.attention({.q = workspace.q.data(),
                        .seen = workspace.seen.data(),
                        .n_rows = n_rows,
                        .head_dim = walk.heads.head_dim,
                        .scale = static_cast<float>(walk.heads.score_scale),
                        .kv_type = last.kv->layout().type(),
                        .blocks = workspace.blocks.data(),
                        .n_blocks = n_blocks,
                        .result = into.from_row(first * group, walk.out_stride()),
                        .spare = workspace.block,
                        .workspace = workspace.kernels,
                        .continues = !begins(first),
                        .next_k = last.position >= end_key ? walk.data(last, end).k : nullptr,
                        .cap = static_cast<float>(walk.heads.score_cap)});
  });
}

void Attention::merge(const Walk& walk, size_t n_rows, const AttentionPart& into,
                      const AttentionPart& part) const noexcept {
  kernels_.attention_merge(into, part, n_rows, walk.heads.head_dim);
}

// The blocks of one chunk, merged in order. Rows that see no key of it are left alone.
void Attention::walk_chunk(const Walk& walk, size_t chunk, const AttentionPart& into,
                           Scratch::AttentionWorkspace& workspace) const noexcept {
  const size_t end = std::min((chunk + 1) * kChunkBlocks, (walk.end() + kBlock - 1) / kBlock);
  for (size_t block = std::max(chunk * kChunkBlocks, walk.begin() / kBlock), next; block < end; block = next) {
    for (next = block + 1; next < end && walk.is_common(block) && walk.is_common(next);) ++next;
    walk_blocks(walk, block, next, into, workspace);
  }
}

// Takes a chunk into the rows' results: the first one that a row sees begins its result.
void Attention::take_chunk(const Walk& walk, size_t chunk, const AttentionPart& total,
                           const AttentionPart& part) const noexcept {
  const size_t begin = chunk * kChunkTokens;
  const auto begins = [&](size_t i) { return walk.first_key(i) >= begin; };
  const auto same = [&](size_t i, size_t j) { return begins(i) == begins(j); };
  walk.for_runs(begin, begin + kChunkTokens, same, [&](size_t first, size_t n_tokens) {
    const size_t n_rows = n_tokens * walk.group_size();
    const AttentionPart to = total.from_row(first * walk.group_size(), walk.out_stride());
    const AttentionPart from = part.from_row(first * walk.group_size(), walk.out_stride());
    if (!begins(first)) return merge(walk, n_rows, to, from);
    std::memcpy(to.max, from.max, n_rows * sizeof(float));
    std::memcpy(to.sum, from.sum, n_rows * sizeof(float));
    std::memcpy(to.out, from.out, n_rows * walk.out_stride() * sizeof(float));
  });
}

// A sink is one more score of a row, without a value: merged last, as a block of its own.
void Attention::add_sinks(const Walk& walk, std::span<const float> sinks, const AttentionPart& total,
                          const AttentionPart& spare) const noexcept {
  const size_t group = walk.group_size();
  const size_t n_rows = walk.tile.n_tokens * group;
  for (size_t row = 0; row < n_rows; ++row) {
    spare.max[row] = sinks[walk.tile.kv_head * group + row % group];
    spare.sum[row] = 1;
  }
  std::memset(spare.out, 0, n_rows * walk.out_stride() * sizeof(float));
  merge(walk, n_rows, total, spare);
}

void Attention::finish(const Walk& walk, const LayerWeights& layer, const AttentionPart& total,
                       const AttentionPart& spare) const noexcept {
  if (!layer.sinks.empty()) add_sinks(walk, layer.sinks, total, spare);
  const AttentionTile& tile = walk.tile;
  const size_t head_dim = walk.heads.head_dim;
  for (size_t token = 0; token < tile.n_tokens; ++token) {
    float* y = walk.scratch.attention +
               ((tile.first_row + token) * walk.heads.n_heads + tile.kv_head * walk.group_size()) * head_dim;
    for (size_t head = 0; head < walk.group_size(); ++head) {
      const size_t row = token * walk.group_size() + head;
      kernels_.attention_finish(total.out + row * walk.out_stride(), total.sum[row], head_dim, y + head * head_dim);
      if (walk.heads.gate.stride != 0)
        kernels_.activate_mul(kernels::Activation::Sigmoid, 0, walk.gate(token, head), y + head * head_dim,
                              head_dim, y + head * head_dim);
    }
  }
}

void Attention::walk_tile(const Walk& walk, const LayerWeights& layer,
                          Scratch::AttentionWorkspace& workspace) const noexcept {
  walk_chunk(walk, walk.first_chunk(), workspace.total, workspace);
  for (size_t chunk = walk.first_chunk() + 1; chunk < walk.end_chunk(); ++chunk) {
    walk_chunk(walk, chunk, workspace.chunk, workspace);
    take_chunk(walk, chunk, workspace.total, workspace.chunk);
  }
  finish(walk, layer, workspace.total, workspace.block);
}

void Attention::run(size_t index, const LayerWeights& layer, Scratch& scratch) const noexcept {
  const auto walk_of = [&](size_t tile) {
    return Walk{scratch.tiles[tile], index, layer.spec->attention, scratch};
  };
  const size_t n_chunks = chunks_of(longest(scratch.sequences));
  if (!splits(scratch.tiles.size(), n_chunks)) {
    pool_.run(scratch.tiles.size(), [&](size_t item, size_t thread) noexcept {
      walk_tile(walk_of(item), layer, scratch.workspaces[thread]);
    });
    return;
  }
  const std::span<const AttentionPart> parts = scratch.reserve_parts(0, 0);
  pool_.run(scratch.tiles.size() * n_chunks, [&](size_t item, size_t thread) noexcept {
    const Walk walk = walk_of(item / n_chunks);
    const size_t chunk = item % n_chunks;
    if (chunk >= walk.first_chunk() && chunk < walk.end_chunk())
      walk_chunk(walk, chunk, parts[item], scratch.workspaces[thread]);
  });
  for (size_t tile = 0; tile < scratch.tiles.size(); ++tile) {
    const Walk walk = walk_of(tile);
    const AttentionPart& total = parts[tile * n_chunks + walk.first_chunk()];
    for (size_t chunk = walk.first_chunk() + 1; chunk < walk.end_chunk(); ++chunk)
      take_chunk(walk, chunk, total, parts[tile * n_chunks + chunk]);
    finish(walk, layer, total, scratch.workspaces[0].block);
  }
}

}  // namespace kvfork::model
