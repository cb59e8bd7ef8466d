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

size_t packed_bytes(const checkpoint::ModelConfig& config, const kernels::KernelTable& kernels, size_t max_rows) {
  size_t n_bytes = 0;
  // Of each width: the widest rows need not take the most bytes.
  for (const size_t k :
       {config.hidden_size, config.intermediate_size, config.num_attention_heads * config.head_dim}) {
    for (const auto type : {kernels::Element::F32, kernels::Element::F16, kernels::Element::BF16})
      n_bytes = std::max(n_bytes, kernels.packed_bytes(max_rows, k, type));
  }
  return n_bytes;
}

}  // namespace

Scratch::Scratch(const checkpoint::ModelConfig& config, const kernels::KernelTable& kernels, size_t max_rows,
                 size_t n_threads)
    : workspaces(n_threads),
      max_rows_(max_rows),
      out_stride_(kernels::value_stride(config.head_dim)),
      work_bytes_(aligned(kernels.workspace_bytes)) {
  const size_t tile_rows = attention_tile_rows(config);
  const size_t n_packed = packed_bytes(config, kernels, max_rows);
  const auto carve = [&](Carver carver) {
    x = carver.floats(max_rows * config.hidden_size);
    norm = carver.floats(n_threads * kernels.pack_rows * config.hidden_size);
    packed = carver.bytes(n_packed);
    packed_up = carver.bytes(n_packed);
    packed_gated = carver.bytes(n_packed);
    work_ = carver.bytes(n_threads * work_bytes_);
    q = carver.floats(max_rows * config.num_attention_heads * config.head_dim);
    k = carver.floats(max_rows * config.num_key_value_heads * config.head_dim);
    v = carver.floats(max_rows * config.num_key_value_heads * config.head_dim);
    attention = carver.floats(max_rows * config.num_attention_heads * config.head_dim);
    product = carver.floats(max_rows * config.hidden_size);
    cos = carver.floats(max_rows * config.head_dim / 2);
    sin = carver.floats(max_rows * config.head_dim / 2);
    for (auto& workspace : workspaces) {
      workspace.total = carver.part(tile_rows, out_stride_);
      workspace.chunk = carver.part(tile_rows, out_stride_);
      workspace.block = carver.part(tile_rows, out_stride_);
    }
    return carver.used();
  };
  region_ = base::MemoryRegion::allocate(carve(Carver(nullptr)), "activations");
  carve(Carver(region_.data()));
  for (size_t thread = 0; thread < n_threads; ++thread) workspaces[thread].kernels = work(thread);
  for (auto& workspace : workspaces) {
    workspace.q.resize(tile_rows);
    workspace.n_valid.resize(tile_rows);
  }
  tiles.reserve(max_rows * config.num_key_value_heads);
  sequences.reserve(max_rows);
  tokens.reserve(max_rows);
  x_rows.resize(max_rows);
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
