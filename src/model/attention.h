// Attention of the rows of a pass over their sequences' keys and values.
//
// A row's keys are walked in blocks of kBlockTokens and chunks of kChunkBlocks blocks, both counted from absolute
// position 0: blocks are merged in order into their chunk, chunks in order into the row's result. That order is
// the same whether one thread walks all chunks or several share them, so the bits are the same too.
//
// A tile holds rows that follow one another in the pass, whatever their sequences. Where these share a block, as
// forks of one context do, it is read once for all of them.
#pragma once

#include <cstddef>
#include <span>

#include "base/thread_pool.h"
#include "checkpoint/model_spec.h"
#include "kernels/kernels.h"
#include "model/kv_cache.h"
#include "model/scratch.h"
#include "model/weights.h"

namespace kvfork::model {

/// Blocks of keys whose results are merged before they meet the rest of the row.
inline constexpr size_t kChunkBlocks = 4;

/// Rows of the largest attention tile of this model.
size_t attention_tile_rows(const checkpoint::ModelSpec& spec);

class Attention {
 public:
  Attention(const checkpoint::ModelSpec& spec, const kernels::KernelTable& kernels, const base::ThreadPool& pool);

  /// Makes room for what passes of up to n_tokens tokens may need, so that they allocate nothing. Throws
  /// Error{Limit}.
  void reserve(size_t n_tokens, Scratch& scratch) const;

  /// Lists the rows of the pass, scratch.sequences, and makes room for what they need. Throws Error{Limit}.
  void prepare(Scratch& scratch) const;

  /// Normalizes and rotates q and k of the pass and stores k and v of `layer`.
  void store(size_t index, const LayerWeights& layer, Scratch& scratch) const noexcept;

  /// scratch.attention = softmax(q K^T * score_scale) V for every row.
  void run(size_t index, const LayerWeights& layer, Scratch& scratch) const noexcept;

 private:
  struct Walk;
  void arrange(const checkpoint::AttentionSpec& heads, Scratch& scratch) const noexcept;
  void normalize_rows(const LayerWeights& layer, Scratch& scratch) const noexcept;
  void turn_heads(float* row_values, const checkpoint::HeadSlices& slices, size_t first, size_t n, const Norm& norm,
                  const checkpoint::AttentionSpec& heads, size_t row, const Scratch& scratch) const noexcept;
  void stretch_queries(float* row_values, const checkpoint::AttentionSpec& heads, size_t first, size_t n,
                       size_t position) const noexcept;
  void store_tile(const AttentionTile& tile, size_t index, const LayerWeights& layer,
                  Scratch& scratch) const noexcept;
  void walk_blocks(const Walk& walk, size_t block, size_t end, const AttentionPart& into,
                   Scratch::AttentionWorkspace& workspace) const noexcept;
  void walk_chunk(const Walk& walk, size_t chunk, const AttentionPart& into,
                  Scratch::AttentionWorkspace& workspace) const noexcept;
  void walk_tile(const Walk& walk, const LayerWeights& layer,
                 Scratch::AttentionWorkspace& workspace) const noexcept;
  void merge(const Walk& walk, size_t n_rows, const AttentionPart& into, const AttentionPart& part) const noexcept;
  void take_chunk(const Walk& walk, size_t chunk, const AttentionPart& total,
                  const AttentionPart& part) const noexcept;
  void add_sinks(const Walk& walk, std::span<const float> sinks, const AttentionPart& total,
                 const AttentionPart& spare) const noexcept;
  void finish(const Walk& walk, const LayerWeights& layer, const AttentionPart& total,
              const AttentionPart& spare) const noexcept;
  bool splits(size_t n_tiles, size_t n_chunks) const noexcept;
  size_t most_split_tiles() const noexcept { return 4 * pool_.n_threads(); }

  const checkpoint::ModelSpec& spec_;
  const kernels::KernelTable& kernels_;
  const base::ThreadPool& pool_;
  size_t most_tile_rows_;
};

}  // namespace kvfork::model
