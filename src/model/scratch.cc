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
    return {{.max = floats(rows), .sum = floats(rows), .out = floats(rows * out_stride)}};
  }
  size_t used() const { return used_; }

 private:
  std::byte* base_;
  size_t used_ = 0;
};

// The largest of each size over all layers.
struct Widths {
  size_t hidden = 0;
  size_t projected = 0;             // of a row of q, k and v
  size_t attention = 0;             // of a row of attention's output, or of a layer with a state
  std::vector<size_t> values = {};  // the different widths of such rows
  size_t channels = 0;
  size_t gates = 0;
  size_t inner = 0;  // of the feed-forward
  size_t n_kv_heads = 0;
  size_t out_stride = 0;
  size_t tile_rows = 0;
  bool has_plain_mlp = false;
  size_t n_experts = 0;
  size_t top_k = 0;
  size_t expert_inner = 0;
  size_t expert_hidden = 0;  // of what experts read and give

  explicit Widths(const checkpoint::ModelSpec& spec)
      : hidden(spec.hidden_size), tile_rows(attention_tile_rows(spec)) {
    for (const checkpoint::LayerSpec& layer : spec.layers) {
      const checkpoint::AttentionSpec& heads = layer.attention;
      projected = std::max(projected, heads.projected_width);
      take_values(heads.n_heads * heads.head_dim);
      if (layer.recurrent) take_recurrent(*layer.recurrent);
      inner = std::max(inner, layer.mlp.down.k);
      has_plain_mlp |= layer.mlp.up.exists() && !layer.mlp.gate.exists();
      if (layer.experts) take_experts(*layer.experts);
      n_kv_heads = std::max(n_kv_heads, heads.n_kv_heads);
      out_stride = std::max(out_stride, kernels::value_stride(heads.head_dim));
    }
  }

  void take_values(size_t width) {
    attention = std::max(attention, width);
    if (width != 0 && std::find(values.begin(), values.end(), width) == values.end()) values.push_back(width);
  }

  void take_recurrent(const checkpoint::RecurrentSpec& recurrent) {
    projected = std::max(projected, recurrent.projected_width);
    channels = std::max(channels, recurrent.n_channels);
    gates = std::max(gates, 2 * recurrent.n_heads);
    take_values(recurrent.value_width());
  }

  void take_experts(const checkpoint::ExpertsSpec& experts) {
    n_experts = std::max(n_experts, experts.experts.size());
    top_k = std::max(top_k, experts.top_k);
    const checkpoint::MlpSpec& first = experts.experts.front();
    expert_inner = std::max(expert_inner, first.down.k);
    expert_hidden = std::max(expert_hidden, first.down.n_features);
    if (experts.shared) inner = std::max(inner, experts.shared->down.k);
    if (first.gate.exists()) return;
    has_plain_mlp = true;
    inner = std::max(inner, first.down.k);
  }

  // Of packed rows of k numbers of all experts together: at most so many groups of 16 rows are filled or begun.
  size_t packed_expert_bytes(const kernels::KernelTable& kernels, size_t max_rows, size_t k) const {
    size_t group_bytes = 0;
    for (const auto type : {kernels::Element::F32, kernels::Element::F16, kernels::Element::BF16}) {
      for (size_t n = 1; n <= 16; ++n) group_bytes = std::max(group_bytes, kernels.packed_bytes(n, k, type));
    }
    const size_t slots = max_rows * top_k;
    return (slots / 16 + std::min(slots, n_experts)) * group_bytes;
  }

  // Of packed rows of the widest input. Every width is asked for: the widest rows need not take the most bytes.
  size_t packed_bytes(const kernels::KernelTable& kernels, size_t max_rows) const {
    size_t n_bytes = 0;
    std::vector<size_t> inputs = values;
    inputs.insert(inputs.end(), {hidden, inner, expert_hidden});
    for (const size_t k : inputs) {
      for (const auto type : {kernels::Element::F32, kernels::Element::F16, kernels::Element::BF16})
        n_bytes = std::max(n_bytes, kernels.packed_bytes(max_rows, k, type));
    }
    return n_bytes;
  }
};

}  // namespace

// Long: one list of every buffer, walked twice in the same order: to count its bytes and to place it.
Scratch::Scratch(const checkpoint::ModelSpec& spec, const kernels::KernelTable& kernels, size_t max_rows,
                 size_t n_threads)
    : workspaces(n_threads), max_rows_(max_rows), work_bytes_(aligned(kernels.workspace_bytes)) {
  const Widths widths(spec);
  out_stride_ = widths.out_stride;
  rotations.resize(spec.rotations.size());
  const size_t n_packed = widths.packed_bytes(kernels, max_rows);
  if (widths.n_experts != 0) {
    const size_t n_slots = max_rows * widths.top_k;
    experts.packed_bytes = widths.packed_expert_bytes(kernels, max_rows, widths.expert_hidden);
    experts.packed_inner_bytes = widths.packed_expert_bytes(kernels, max_rows, widths.expert_inner);
    experts.work.resize(n_threads * 2 * widths.n_experts);
    experts.choices.resize(n_slots);
    experts.slots.resize(n_slots);
    experts.rows.resize(n_slots);
    experts.counts.resize(widths.n_experts);
    experts.active.reserve(widths.n_experts);
  }
  const auto carve = [&](Carver carver) {
    x = carver.floats(max_rows * widths.hidden);
    norm = carver.floats(n_threads * kernels.pack_rows * std::max(widths.hidden, widths.expert_hidden));
    packed = carver.bytes(n_packed);
    packed_up = carver.bytes(n_packed);
    packed_gated = carver.bytes(n_packed);
    work_ = carver.bytes(n_threads * work_bytes_);
    projected = carver.floats(max_rows * widths.projected);
    attention = carver.floats(max_rows * widths.attention);
    convolved = carver.floats(max_rows * widths.channels);
    gates = carver.floats(max_rows * widths.gates);
    product = carver.floats(max_rows * widths.hidden);
    branch = carver.floats(max_rows * widths.hidden);
    if (widths.has_plain_mlp) inner = carver.floats(max_rows * widths.inner);
    if (widths.n_experts != 0) {
      experts.normed = carver.floats(max_rows * widths.hidden);
      experts.scores = carver.floats(max_rows * widths.n_experts);
      experts.results = carver.floats(max_rows * widths.top_k * widths.expert_hidden);
      experts.projected = carver.floats(max_rows * widths.expert_hidden);
      experts.packed = carver.bytes(experts.packed_bytes);
      experts.packed_inner = carver.bytes(experts.packed_inner_bytes);
    }
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
    workspace.seen.resize(widths.tile_rows);
    workspace.blocks.resize(kChunkBlocks);
  }
  tiles.reserve(max_rows * widths.n_kv_heads);
  sequences.reserve(max_rows);
  tokens.reserve(max_rows);
  x_rows.reserve(max_rows);
  size_t most_targets = 1;
  for (const auto& layer : spec.layers) {
    most_targets = std::max(most_targets, layer.attention.projections.size());
    if (layer.recurrent) most_targets = std::max(most_targets, layer.recurrent->projections.size());
  }
  targets.reserve(most_targets);
}

std::span<const AttentionPart> Scratch::reserve_parts(size_t n_parts, size_t rows) {
  if (n_parts > parts_.size() || rows > part_rows_) {
    const size_t most_rows = std::max(rows, part_rows_);
    const size_t n_new = std::max(n_parts, 2 * parts_.size());
    const size_t part_bytes =
        2 * aligned(most_rows * sizeof(float)) + aligned(most_rows * out_stride_ * sizeof(float));
    parts_.reserve(n_new);
    parts_region_ = base::MemoryRegion::allocate(n_new * part_bytes, "attention results");
    Carver carver(parts_region_.data());
    part_rows_ = most_rows;
    parts_.clear();
    for (size_t i = 0; i < n_new; ++i) parts_.push_back(carver.part(part_rows_, out_stride_));
  }
  return parts_;
}

}  // namespace kvfork::model
