#include "model/forward.h"

#include <algorithm>

#include "base/check.h"
#include "model/rope.h"

namespace kvfork::model {
namespace {

// How a matrix's features are divided into items of work.
struct Division {
  size_t n_features;
  size_t per_item;

  Division(const kernels::KernelTable& kernels, const Matrix& matrix, size_t n_rows)
      : n_features(matrix.n_features), per_item(kernels.item_features(n_rows, matrix.k, matrix.type)) {}
  size_t n_items() const { return (n_features + per_item - 1) / per_item; }
  size_t begin(size_t item) const { return item * per_item; }
  size_t end(size_t item) const { return std::min(n_features, (item + 1) * per_item); }
};

}  // namespace

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
    multiply_add(layer.o, n_rows, scratch);  // x += attention W_o
    feed_forward(layer, n_rows, scratch);    // x += (silu(norm(x) W_gate) * norm(x) W_up) W_down
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
  struct Target {
    const Matrix& matrix;
    float* y;
  };
  const Target targets[] = {{layer.q, scratch.q}, {layer.k, scratch.k}, {layer.v, scratch.v}};
  const auto multiply_targets = [&](std::span<const Target> group) {
    normalize_and_pack(scratch.x_rows.data(), n_rows, layer.input_norm, group[0].matrix.type, scratch);
    size_t n_items = 0;
    for (const Target& target : group) n_items += Division(kernels_, target.matrix, n_rows).n_items();
    pool_.run(n_items, [&](size_t item, size_t) noexcept {
      for (const Target& target : group) {
        const Division division(kernels_, target.matrix, n_rows);
        if (item < division.n_items()) {
          multiply_item(target.matrix, n_rows, division.begin(item), division.end(item), target.y, scratch);
          return;
        }
        item -= division.n_items();
      }
    });
  };
  const bool same_type = layer.q.type == layer.k.type && layer.q.type == layer.v.type;
  if (same_type) {
    multiply_targets(targets);
  } else {
    for (const Target& target : targets) multiply_targets({&target, 1});
  }
}

void Forward::feed_forward(const LayerWeights& layer, size_t n_rows, Scratch& scratch) const noexcept {
  const size_t intermediate = config_.intermediate_size;
  const auto activate = [&](size_t begin, size_t end) noexcept {
    for (size_t row = 0; row < n_rows; ++row) {
      const size_t offset = row * intermediate + begin;
      kernels_.silu_mul(scratch.gate + offset, scratch.up + offset, end - begin, scratch.gate + offset);
    }
  };
  normalize_and_pack(scratch.x_rows.data(), n_rows, layer.post_attention_norm, layer.gate.type, scratch);
  const Division division(kernels_, layer.gate, n_rows);
  if (layer.gate.type == layer.up.type) {
    pool_.run(division.n_items(), [&](size_t item, size_t) noexcept {
      const size_t begin = division.begin(item);
      const size_t end = division.end(item);
      multiply_item(layer.gate, n_rows, begin, end, scratch.gate, scratch, layer.up.row(begin));
      multiply_item(layer.up, n_rows, begin, end, scratch.up, scratch, layer.gate.row(end));
      activate(begin, end);
    });
  } else {
    multiply(layer.gate, n_rows, scratch.gate, scratch);
    normalize_and_pack(scratch.x_rows.data(), n_rows, layer.post_attention_norm, layer.up.type, scratch);
    multiply(layer.up, n_rows, scratch.up, scratch);
    activate(0, intermediate);
  }
  pack(scratch.gate, n_rows, layer.down.k, layer.down.type, scratch);
  multiply_add(layer.down, n_rows, scratch);
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
  normalize_and_pack(scratch.x_rows.data(), n_logits, weights_.final_norm, weights_.lm_head.type, scratch);
  multiply(weights_.lm_head, n_logits, logits, scratch);
}

// packed = norm(x[r]) for n_rows rows.
void Forward::normalize_and_pack(const float* const* x, size_t n_rows, const std::vector<float>& norm,
                                 kernels::Element type, Scratch& scratch) const noexcept {
  const size_t hidden = config_.hidden_size;
  const auto eps = static_cast<float>(config_.rms_norm_eps);
  pack_rows(n_rows, hidden, type, scratch, [&](size_t begin, size_t end, size_t thread) noexcept {
    float* normalized = scratch.norm + thread * kernels_.pack_rows * hidden;
    for (size_t row = begin; row < end; ++row)
      kernels_.rms_norm(x[row], norm.data(), eps, hidden, normalized + (row - begin) * hidden);
    return normalized;
  });
}

// packed = x [n_rows, k].
void Forward::pack(const float* x, size_t n_rows, size_t k, kernels::Element type,
                   Scratch& scratch) const noexcept {
  pack_rows(n_rows, k, type, scratch, [&](size_t begin, size_t, size_t) noexcept { return x + begin * k; });
}

// packed = rows that make(begin, end, thread) points to, in runs of the kernel set's pack_rows.
template <class Make>
void Forward::pack_rows(size_t n_rows, size_t k, kernels::Element type, Scratch& scratch,
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
                   .packed = scratch.packed});
  });
}

// One item of a product: features [begin, end) of every row. `next_weight`: what the same thread reads next, where
// that is not the following feature.
void Forward::multiply_item(const Matrix& matrix, size_t n_rows, size_t begin, size_t end, float* y,
                            const Scratch& scratch, const void* next_weight) const noexcept {
  kernels_.matmul({.weight = matrix.data,
                   .weight_type = matrix.type,
                   .rounding = rounding_,
                   .packed = scratch.packed,
                   .n_rows = n_rows,
                   .k = matrix.k,
                   .feature_begin = begin,
                   .feature_end = end,
                   .bias = matrix.bias_or_null(),
                   .y = y,
                   .y_stride = matrix.n_features,
                   .next_weight = next_weight});
}

// y [n_rows, n_features] = packed W^T (+ bias).
void Forward::multiply(const Matrix& matrix, size_t n_rows, float* y, const Scratch& scratch) const noexcept {
  const Division division(kernels_, matrix, n_rows);
  pool_.run(division.n_items(), [&](size_t item, size_t) noexcept {
    multiply_item(matrix, n_rows, division.begin(item), division.end(item), y, scratch);
  });
}

// x += packed W^T (+ bias).
void Forward::multiply_add(const Matrix& matrix, size_t n_rows, Scratch& scratch) const noexcept {
  const size_t hidden = config_.hidden_size;
  const Division division(kernels_, matrix, n_rows);
  pool_.run(division.n_items(), [&](size_t item, size_t) noexcept {
    const size_t begin = division.begin(item);
    const size_t end = division.end(item);
    multiply_item(matrix, n_rows, begin, end, scratch.product, scratch);
    for (size_t row = 0; row < n_rows; ++row)
      kernels_.add(scratch.x + row * hidden + begin, scratch.product + row * hidden + begin, end - begin);
  });
}

}  // namespace kvfork::model
