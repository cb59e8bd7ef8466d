#include "model/forward.h"

#include <algorithm>

#include "base/check.h"
#include "model/rope.h"

namespace kvfork::model {

// How a product is divided into items of work: some rows after others, so that a thread keeps to activations that
// its core's cache holds, and of each some features.
struct Forward::Division {
  size_t n_rows, chunk_rows;
  size_t n_features, per_item;

  Division(const Forward& forward, const Matrix& matrix, size_t rows, size_t multiple = 1)
      : n_rows(rows),
        chunk_rows(forward.kernels_.chunk_rows(rows, forward.rounding_)),
        n_features(matrix.n_features),
        per_item((forward.kernels_.item_features(chunk_rows, matrix.k, matrix.type) + multiple - 1) / multiple *
                 multiple) {}
  size_t n_chunks() const { return (n_rows + chunk_rows - 1) / chunk_rows; }
  size_t items_per_chunk() const { return (n_features + per_item - 1) / per_item; }
  size_t n_items() const { return n_chunks() * items_per_chunk(); }
  size_t row_begin(size_t item) const { return item / items_per_chunk() * chunk_rows; }
  size_t row_end(size_t item) const { return std::min(n_rows, row_begin(item) + chunk_rows); }
  size_t begin(size_t item) const { return item % items_per_chunk() * per_item; }
  size_t end(size_t item) const { return std::min(n_features, begin(item) + per_item); }
};

Forward::Forward(const checkpoint::ModelConfig& config, const Weights& weights, const kernels::KernelTable& kernels,
                 const base::ThreadPool& pool, kernels::Rounding rounding)
    : config_(config),
      weights_(weights),
      kernels_(kernels),
      pool_(pool),
      rounding_(rounding),
      attention_(config, kernels, pool),
      inverse_frequencies_(config.spec.rotations.front().inverse_frequencies) {}

void Forward::run(std::span<const Step> steps, float* logits, Scratch& scratch) const {
  size_t n_rows = 0;
  scratch.sequences.clear();
  for (const Step& step : steps) {
    scratch.sequences.push_back({step.kv, n_rows, step.ids.size(), step.kv->n_tokens()});
    n_rows += step.ids.size();
  }
  KVFORK_CHECK(n_rows > 0 && n_rows <= scratch.max_rows());
  const std::span<const SequenceRows> sequences = scratch.sequences;
  attention_.prepare(sequences, scratch);

  embed(steps, sequences, scratch);
  for (size_t i = 0; i < weights_.layers.size(); ++i) {
    const LayerWeights& layer = weights_.layers[i];
    project_qkv(layer, n_rows, scratch);  // q, k, v = norm(x) W + b
    attention_.store(i, scratch);         // rotate q and k; k, v join the cache
    attention_.run(i, scratch);           // softmax(q K / sqrt(d)) V
    pack(scratch.attention, n_rows, layer.o.k, layer.o.type, scratch);
    multiply_add(layer.o, n_rows, scratch.packed, scratch);  // x += attention W_o
    feed_forward(layer, n_rows, scratch);                    // x += (silu(norm(x) W_gate) * norm(x) W_up) W_down
  }
  compute_logits(steps, logits, scratch);
  for (const Step& step : steps) step.kv->advance(step.ids.size());
}

void Forward::embed(std::span<const Step> steps, std::span<const SequenceRows> sequences,
                    Scratch& scratch) const noexcept {
  const size_t hidden = config_.hidden_size;
  for (size_t i = 0; i < steps.size(); ++i) {
    for (size_t token = 0; token < steps[i].ids.size(); ++token) {
      const size_t row = sequences[i].first_row + token;
      const auto id = static_cast<size_t>(steps[i].ids[token]);
      kernels_.widen(weights_.embedding.row(id), weights_.embedding.type, hidden, scratch.x + row * hidden);
      scratch.x_rows[row] = scratch.x + row * hidden;
      const size_t half = config_.head_dim / 2;
      rotate_position(inverse_frequencies_, sequences[i].position + token, scratch.cos + row * half,
                      scratch.sin + row * half);
    }
  }
}

void Forward::project_qkv(const LayerWeights& layer, size_t n_rows, Scratch& scratch) const noexcept {
  const Target targets[] = {{layer.q, scratch.q}, {layer.k, scratch.k}, {layer.v, scratch.v}};
  const auto project = [&](std::span<const Target> group) {
    normalize_and_pack(n_rows, layer.input_norm, group[0].matrix.type, scratch.packed, scratch);
    multiply(group, n_rows, scratch);
  };
  const bool same_type = layer.q.type == layer.k.type && layer.q.type == layer.v.type;
  if (same_type) {
    project(targets);
  } else {
    for (const Target& target : targets) project({&target, 1});
  }
}

void Forward::feed_forward(const LayerWeights& layer, size_t n_rows, Scratch& scratch) const noexcept {
  normalize_and_pack(n_rows, layer.post_attention_norm, layer.gate.type, scratch.packed, scratch);
  const std::byte* packed_up = scratch.packed;
  if (layer.up.type != layer.gate.type) {
    normalize_and_pack(n_rows, layer.post_attention_norm, layer.up.type, scratch.packed_up, scratch);
    packed_up = scratch.packed_up;
  }
  const Division division(*this, layer.gate, n_rows, kernels_.range_features);
  pool_.run(division.n_items(), [&](size_t item, size_t thread) noexcept {
    kernels_.gated({.gate = product(layer.gate, division, item, scratch.packed, scratch.work(thread)),
                    .up = product(layer.up, division, item, packed_up, scratch.work(thread)),
                    .n_features = layer.down.k,
                    .out_type = layer.down.type,
                    .packed = scratch.packed_gated});
  });
  multiply_add(layer.down, n_rows, scratch.packed_gated, scratch);
}

void Forward::compute_logits(std::span<const Step> steps, float* logits, Scratch& scratch) const noexcept {
  size_t n_rows = 0;
  size_t n_logits = 0;
  for (const Step& step : steps) {
    n_rows += step.ids.size();
    for (size_t i = step.n_logits; i > 0; --i)
      scratch.x_rows[n_logits++] = scratch.x + (n_rows - i) * config_.hidden_size;
  }
  if (n_logits == 0) return;
  normalize_and_pack(n_logits, weights_.final_norm, weights_.lm_head.type, scratch.packed, scratch);
  const Target target = {weights_.lm_head, logits};
  multiply({&target, 1}, n_logits, scratch);
}

// packed = norm(x_rows[r]) for n_rows rows.
void Forward::normalize_and_pack(size_t n_rows, const std::vector<float>& norm, kernels::Element type,
                                 std::byte* packed, Scratch& scratch) const noexcept {
  const size_t hidden = config_.hidden_size;
  const auto eps = static_cast<float>(config_.rms_norm_eps);
  pack_rows(n_rows, hidden, type, packed, [&](size_t begin, size_t end, size_t thread) noexcept {
    float* normalized = scratch.norm + thread * kernels_.pack_rows * hidden;
    for (size_t row = begin; row < end; ++row)
      kernels_.rms_norm(scratch.x_rows[row], norm.data(), eps, hidden, normalized + (row - begin) * hidden);
    return normalized;
  });
}

// packed = x [n_rows, k].
void Forward::pack(const float* x, size_t n_rows, size_t k, kernels::Element type,
                   Scratch& scratch) const noexcept {
  pack_rows(n_rows, k, type, scratch.packed, [&](size_t begin, size_t, size_t) noexcept { return x + begin * k; });
}

// packed = rows that make(begin, end, thread) points to, in runs of the kernel set's pack_rows.
template <class Make>
void Forward::pack_rows(size_t n_rows, size_t k, kernels::Element type, std::byte* packed,
                        const Make& make) const noexcept {
  const size_t run = kernels_.pack_rows;
  pool_.run((n_rows + run - 1) / run, [&](size_t item, size_t thread) noexcept {
    const size_t begin = item * run;
    const size_t end = std::min(n_rows, begin + run);
    kernels_.pack({.x = make(begin, end, thread),
                   .x_stride = k,
                   .row_begin = begin,
                   .row_end = end,
                   .n_rows = n_rows,
                   .k = k,
                   .weight_type = type,
                   .rounding = rounding_,
                   .packed = packed});
  });
}

// One item of a product, but for where its results go.
kernels::MatmulArgs Forward::product(const Matrix& matrix, const Division& division, size_t item,
                                     const std::byte* packed, std::byte* workspace) const noexcept {
  return {.weight = matrix.data,
          .weight_type = matrix.type,
          .rounding = rounding_,
          .packed = packed,
          .n_rows = division.n_rows,
          .row_begin = division.row_begin(item),
          .row_end = division.row_end(item),
          .k = matrix.k,
          .feature_begin = division.begin(item),
          .feature_end = division.end(item),
          .bias = matrix.bias_or_null(),
          .y = nullptr,
          .y_stride = matrix.n_features,
          .workspace = workspace};
}

// y [n_rows, n_features] = packed W^T (+ bias) for every target, all of one type and width. Items of all targets go
// through the same rows together.
void Forward::multiply(std::span<const Target> targets, size_t n_rows, Scratch& scratch) const noexcept {
  size_t per_chunk = 0;
  for (const Target& target : targets) per_chunk += Division(*this, target.matrix, n_rows).items_per_chunk();
  const size_t n_chunks = Division(*this, targets[0].matrix, n_rows).n_chunks();
  pool_.run(n_chunks * per_chunk, [&](size_t item, size_t thread) noexcept {
    size_t part = item % per_chunk;
    for (const Target& target : targets) {
      const Division division(*this, target.matrix, n_rows);
      if (part < division.items_per_chunk()) {
        part += item / per_chunk * division.items_per_chunk();
        kernels::MatmulArgs args = product(target.matrix, division, part, scratch.packed, scratch.work(thread));
        args.y = target.y;
        return kernels_.matmul(args);
      }
      part -= division.items_per_chunk();
    }
  });
}

// x += packed W^T (+ bias).
void Forward::multiply_add(const Matrix& matrix, size_t n_rows, const std::byte* packed,
                           Scratch& scratch) const noexcept {
  const size_t hidden = config_.hidden_size;
  const Division division(*this, matrix, n_rows);
  pool_.run(division.n_items(), [&](size_t item, size_t thread) noexcept {
    kernels::MatmulArgs args = product(matrix, division, item, packed, scratch.work(thread));
    args.y = scratch.product;
    kernels_.matmul(args);
    for (size_t row = args.row_begin; row < args.row_end; ++row) {
      const size_t at = row * hidden + args.feature_begin;
      kernels_.add(scratch.x + at, scratch.product + at, args.feature_end - args.feature_begin);
    }
  });
}

}  // namespace kvfork::model
