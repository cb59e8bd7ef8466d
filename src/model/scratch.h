// Every activation buffer of a forward pass, sized once.
//
// One pass at a time uses a Scratch. Buffers hold rows of activations; one row is one token of one sequence.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/memory_region.h"
#include "checkpoint/model_spec.h"
#include "kernels/kernels.h"
#include "model/kv_cache.h"

namespace kvfork::model {

/// Attention results of a tile of rows before they are normalized.
struct AttentionPart : kernels::AttentionResult {
  AttentionPart from_row(size_t row, size_t out_stride) const noexcept {
    return {{max + row, sum + row, out + row * out_stride}};
  }
};

/// Rows of one KV head that attention computes together: n_tokens rows of the pass times the query heads of the
/// group.
struct AttentionTile {
  uint32_t kv_head;
  uint32_t first_row;  // in the pass
  uint32_t n_tokens;
};

/// The token of a row: where it stands in which sequence.
struct RowToken {
  KvSequence* kv;
  size_t position;
};

/// A sequence's rows in a pass: tokens at [position, position + n_tokens) in rows from first_row on.
struct SequenceRows {
  KvSequence* kv;
  size_t first_row;
  size_t n_tokens;
  size_t position;
};

/// An expert that a row has chosen, and what its result is multiplied by.
struct Choice {
  uint32_t expert = 0;
  float weight = 0;
};

struct Matrix;

/// A product's matrix, and where its results go: row r at y + r * y_stride.
struct ProductTarget {
  const Matrix* matrix;
  float* y;
  size_t y_stride;
};

class Scratch {
 public:
  /// Buffers for passes of up to `max_rows` rows by `n_threads` threads. Throws Error{Limit} when memory is
  /// refused.
  Scratch(const checkpoint::ModelSpec& spec, const kernels::KernelTable& kernels, size_t max_rows,
          size_t n_threads);

  size_t max_rows() const noexcept { return max_rows_; }

  float* x = nullptr;                 // [max_rows, hidden] residual stream
  float* norm = nullptr;              // [n_threads, pack_rows, hidden] normalized rows
  std::byte* packed = nullptr;        // max_rows packed rows of the widest product input
  std::byte* packed_up = nullptr;     // the same, for W_up where its type is not W_gate's
  float* inner = nullptr;             // [max_rows, inner] of a feed-forward without gate
  float* branch = nullptr;            // [max_rows, hidden] what a branch of a layer gives, before it is added to x
  std::byte* packed_gated = nullptr;  // the same, made while others are read
  float* projected = nullptr;         // [max_rows, projected_width] q, k and v as the layer's spec places them
  float* attention = nullptr;         // [max_rows, n_heads * head_dim], or the values of a layer with a state
  float* convolved = nullptr;         // [max_rows, n_channels] of a layer with a state
  float* gates = nullptr;             // [max_rows, 2 * n_heads] of a layer with a state
  float* product = nullptr;           // [max_rows, hidden] a product before it is added to x

  /// Of every row's position, for one kind of rotation: [max_rows, n_pairs].
  struct Rotation {
    float* cos = nullptr;
    float* sin = nullptr;
  };
  std::vector<Rotation> rotations;  // those of the spec

  /// The rows of one expert: slots [first_slot, first_slot + n_rows), and where they lie packed.
  struct ExpertRows {
    size_t expert;
    size_t first_slot;
    size_t n_rows;
    size_t packed;        // bytes from Experts::packed
    size_t packed_inner;  // bytes from Experts::packed_inner
  };

  /// What a mixture of experts needs; empty where no layer has one. A slot is a pair of a row and an expert it
  /// chose.
  struct Experts {
    float* normed = nullptr;            // [max_rows, hidden]
    float* scores = nullptr;            // [max_rows, n_experts]
    float* projected = nullptr;         // [rows, what experts read and give]
    float* results = nullptr;           // [slots, the same]
    std::byte* packed = nullptr;        // the rows of every expert, packed
    std::byte* packed_inner = nullptr;  // the same of what is between the two products
    size_t packed_bytes = 0;
    size_t packed_inner_bytes = 0;
    std::vector<double> work;        // [n_threads, 2 * n_experts]
    std::vector<Choice> choices;     // [max_rows, top_k]
    std::vector<uint32_t> slots;     // [max_rows, top_k] the slot of each choice
    std::vector<uint32_t> rows;      // the row of each slot
    std::vector<uint32_t> counts;    // [n_experts]
    std::vector<ExpertRows> active;  // capacity n_experts
  } experts;

  /// What kernels that `thread` calls may write to: workspace_bytes.
  std::byte* work(size_t thread) const noexcept { return work_ + thread * work_bytes_; }

  /// What one thread needs while it walks the keys of a tile.
  struct AttentionWorkspace {
    std::vector<const float*> q;               // [rows]
    std::vector<kernels::KeyRange> seen;       // [rows]
    std::vector<kernels::KvBlockData> blocks;  // [kChunkBlocks]
    AttentionPart total, chunk, block;
    std::byte* kernels = nullptr;  // work(thread)
  };
  std::vector<AttentionWorkspace> workspaces;  // [n_threads]
  std::vector<AttentionTile> tiles;            // of the layer; capacity max_rows * n_kv_heads
  size_t tile_tokens = 0;                      // of a tile that is not the last
  std::vector<SequenceRows> sequences;         // of the pass; capacity max_rows
  std::vector<RowToken> tokens;                // [rows of the pass]; capacity max_rows
  std::vector<const float*> x_rows;            // the rows of x that are to be normalized; capacity max_rows
  std::vector<ProductTarget> targets;          // of one call; capacity of the most projections of a layer

  /// Room for `n_parts` results of `rows` rows each, kept between the two steps of split attention. Grows only.
  std::span<const AttentionPart> reserve_parts(size_t n_parts, size_t rows);

 private:
  size_t max_rows_ = 0;
  size_t out_stride_ = 0;
  std::byte* work_ = nullptr;
  size_t work_bytes_ = 0;
  base::MemoryRegion region_;
  base::MemoryRegion parts_region_;
  size_t part_rows_ = 0;
  std::vector<AttentionPart> parts_;
};

}  // namespace kvfork::model
