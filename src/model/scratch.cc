// Sizes and hands out the activation buffers of a pass.
#include "model/scratch.h"

#include <algorithm>

#include "model/attention.h"

namespace kvfork::model {
namespace {

constexpr size_t kAlignment = 64;

size_t aligned(size_t n_bytes) {
  return (n_bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// Hands out aligned pieces of a region; with a null base it only counts.
class Carver {
 public:
  explicit Carver(std::byte* base) : base_(base) {}

  std::byte* bytes(size_t n_bytes) {
    std::byte* piece = base_ == nullptr ? nullptr : base_ + used_;
    used_ += aligned(n_bytes);
    return piece;
  }
  float* floats(size_t n) { return reinterpret_cast<float*>(bytes(n * sizeof(float))); }
  AttentionPart part(size_t rows, size_t out_stride) {
    return {.max = floats(rows), .sum = floats(rows), .out = floats(rows * out_stride)};
  }
  size_t used() const { return used_; }

 private:
  std::byte* base_;
  size_t used_ = 0;
};

// The largest of each size over all layers.
struct Widths {
  size_t hidden = 0;
  size_t projected = 0;  // of a row of q, k and v
  size_t attention = 0;  // of a row of attention's output
  size_t inner = 0;      // of the feed-forward
  size_t n_kv_heads = 0;
  size_t out_stride = 0;
  size_t tile_rows = 0;

  explicit Widths(const checkpoint::ModelSpec& spec) : hidden(spec.hidden_size), tile_rows(attention_tile_rows(spec)) {
    for (const checkpoint::LayerSpec& layer : spec.layers) {
      const checkpoint::AttentionSpec& heads = layer.attention;
      projected = std::max(projected, heads.projected_width);
      attention = std::max(attention, heads.n_heads * heads.head_dim);
      inner = std::max(inner, layer.mlp.down.k);
      n_kv_heads = std::max(n_kv_heads, heads.n_kv_heads);
      out_stride = std::max(out_stride, kernels::value_stride(heads.head_dim));
    }
  }

  // Of packed rows of the widest input. Every width is asked for: the widest rows need not take the most bytes.
  size_t packed_bytes(const kernels::KernelTable& kernels, size_t max_rows) const {
    size_t n_bytes = 0;
    for (const size_t k : {hidden, inner, attention}) {
      for (const auto type : {kernels::Element::F32, kernels::Element::F16, kernels::Element::BF16})
        n_bytes = std::max(n_bytes, kernels.packed_bytes(max_rows, k, type));
    }
    return n_bytes;
  }
};

}  // namespace

Scratch::Scratch(const checkpoint::ModelSpec& spec, const kernels::KernelTable& kernels, size_t max_rows,
                 size_t n_threads)
    : workspaces(n_threads), max_rows_(max_rows), work_bytes_(aligned(kernels.workspace_bytes)) {
  const Widths widths(spec);
  out_stride_ = widths.out_stride;
  rotations.resize(spec.rotations.size());
  const size_t n_packed = widths.packed_bytes(kernels, max_rows);
  const auto carve = [&](Carver carver) {
    x = carver.floats(max_rows * widths.hidden);
    norm = carver.floats(n_threads * kernels.pack_rows * widths.hidden);
    packed = carver.bytes(n_packed);
    packed_up = carver.bytes(n_packed);
    packed_gated = carver.bytes(n_packed);
    work_ = carver.bytes(n_threads * work_bytes_);
    projected = carver.floats(max_rows * widths.projected);
    attention = carver.floats(max_rows * widths.attention);
    product = carver.floats(max_rows * widths.hidden);
    for (size_t i = 0; i < rotations.size(); ++i) {
      rotations[i].cos = carver.floats(max_rows * spec.rotations[i].inverse_frequencies.size());
      rotations[i].sin = carver.floats(max_rows * spec.rotations[i].inverse_frequencies.size());
    }
    for (auto& workspace : workspaces) {
      workspace.total = carver.part(widths.tile_rows, out_stride_);
      workspace.chunk = carver.part(widths.tile_rows, out_stride_);
      workspace.block = carver.part(widths.tile_rows, out_stride_);
    }
    return carver.used();
  };
  region_ = base::MemoryRegion::allocate(carve(Carver(nullptr)), "activations");
  carve(Carver(region_.data()));
  for (size_t thread = 0; thread < n_threads; ++thread) workspaces[thread].kernels = work(thread);
  for (auto& workspace : workspaces) {
    workspace.q.resize(widths.tile_rows);
    workspace.n_valid.resize(widths.tile_rows);
  }
  tiles.reserve(max_rows * widths.n_kv_heads);
  sequences.reserve(max_rows);
  tokens.reserve(max_rows);
  x_rows.reserve(max_rows);
  size_t most_targets = 1;
  for (const auto& layer : spec.layers) most_targets = std::max(most_targets, layer.attention.projections.size());
  targets.reserve(most_targets);
}

std::span<const AttentionPart> Scratch::reserve_parts(size_t n_parts, size_t rows) {
  if (n_parts > parts_.size() || rows > part_rows_) {
    part_rows_ = std::max(rows, part_rows_);
    const size_t n_new = std::max(n_parts, 2 * parts_.size());
    const size_t part_bytes =
        2 * aligned(part_rows_ * sizeof(float)) + aligned(part_rows_ * out_stride_ * sizeof(float));
    parts_region_ = base::MemoryRegion::allocate(n_new * part_bytes, "attention results");
    Carver carver(parts_region_.data());
    parts_.clear();
    for (size_t i = 0; i < n_new; ++i) parts_.push_back(carver.part(part_rows_, out_stride_));
  }
  return parts_;
}

}  // namespace kvfork::model
