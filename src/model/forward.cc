// The forward pass, top to bottom.
#include "model/forward.h"

#include "base/check.h"
#include "model/rope.h"

namespace kvfork::model {

Forward::Forward(const checkpoint::ModelSpec& spec, const Weights& weights, const kernels::KernelTable& kernels,
                 const base::ThreadPool& pool, kernels::Rounding rounding)
    : spec_(spec),
      weights_(weights),
      kernels_(kernels),
      attention_(spec, kernels, pool),
      products_(kernels, pool, rounding) {}

void Forward::run(std::span<const Step> steps, float* logits, Scratch& scratch) const {
  size_t n_rows = 0;
  scratch.sequences.clear();
  for (const Step& step : steps) {
    scratch.sequences.push_back({step.kv, n_rows, step.ids.size(), step.kv->n_tokens()});
    n_rows += step.ids.size();
  }
  KVFORK_CHECK(n_rows > 0 && n_rows <= scratch.max_rows());
  attention_.prepare(scratch);

  embed(steps, scratch);
  rotate_positions(scratch);
  for (size_t i = 0; i < weights_.layers.size(); ++i) {
    const LayerWeights& layer = weights_.layers[i];
    project(layer, scratch);              // q, k, v = norm(x) W + b
    attention_.store(i, layer, scratch);  // norms and rotation of q and k; k and v join the cache
    attention_.run(i, layer, scratch);    // softmax(q K * scale) V
    add_attention(layer, scratch);        // x += attention W_o
    add_feed_forward(layer, scratch);     // x += (silu(norm(x) W_gate) * norm(x) W_up) W_down
  }
  compute_logits(steps, logits, scratch);
  for (const Step& step : steps) step.kv->advance(step.ids.size());
}

void Forward::embed(std::span<const Step> steps, Scratch& scratch) const noexcept {
  const size_t hidden = spec_.hidden_size;
  scratch.x_rows.clear();
  for (const Step& step : steps) {
    for (const int32_t id : step.ids) {
      float* x = scratch.x + scratch.x_rows.size() * hidden;
      kernels_.widen(weights_.embedding.row(static_cast<size_t>(id)), weights_.embedding.type, hidden, x);
      scratch.x_rows.push_back(x);
    }
  }
}

// Cosines and sines of every row's position, for each kind of rotation.
void Forward::rotate_positions(Scratch& scratch) const noexcept {
  for (size_t i = 0; i < spec_.rotations.size(); ++i) {
    const std::vector<float>& frequencies = spec_.rotations[i].inverse_frequencies;
    for (size_t row = 0; row < scratch.tokens.size(); ++row)
      rotate_position(frequencies, scratch.tokens[row].position, scratch.rotations[i].cos + row * frequencies.size(),
                      scratch.rotations[i].sin + row * frequencies.size());
  }
}

void Forward::project(const LayerWeights& layer, Scratch& scratch) const noexcept {
  const checkpoint::AttentionSpec& attention = layer.spec->attention;
  std::vector<ProductTarget>& targets = scratch.targets;
  targets.clear();
  for (size_t i = 0; i < layer.projections.size(); ++i) {
    const Matrix& matrix = layer.projections[i];
    targets.push_back(
        {&matrix, scratch.projected + attention.projections[i].column, attention.projected_width});
    // Matrices that follow one another share packed inputs where their types do.
    const bool is_last = i + 1 == layer.projections.size() || layer.projections[i + 1].type != matrix.type;
    if (!is_last) continue;
    products_.pack_normalized(scratch.x_rows, layer.attention_norm, matrix.type, scratch.packed, scratch);
    products_.multiply(targets, scratch.x_rows.size(), scratch.packed, scratch);
    targets.clear();
  }
}

void Forward::add_attention(const LayerWeights& layer, Scratch& scratch) const noexcept {
  const size_t n_rows = scratch.x_rows.size();
  products_.pack(scratch.attention, n_rows, layer.output.k, layer.output.type, scratch.packed);
  products_.multiply_add(layer.output, n_rows, scratch.packed, scratch.x, scratch);
}

void Forward::add_feed_forward(const LayerWeights& layer, Scratch& scratch) const noexcept {
  const size_t n_rows = scratch.x_rows.size();
  const MlpWeights& mlp = layer.mlp;
  products_.pack_normalized(scratch.x_rows, layer.mlp_norm, mlp.gate.type, scratch.packed, scratch);
  const std::byte* packed_up = scratch.packed;
  if (mlp.up.type != mlp.gate.type) {
    products_.pack_normalized(scratch.x_rows, layer.mlp_norm, mlp.up.type, scratch.packed_up, scratch);
    packed_up = scratch.packed_up;
  }
  products_.multiply_gated(mlp, n_rows, scratch.packed, packed_up, scratch.packed_gated, scratch);
  products_.multiply_add(mlp.down, n_rows, scratch.packed_gated, scratch.x, scratch);
}

void Forward::compute_logits(std::span<const Step> steps, float* logits, Scratch& scratch) const noexcept {
  size_t n_rows = 0;
  scratch.x_rows.clear();
  for (const Step& step : steps) {
    n_rows += step.ids.size();
    for (size_t i = step.n_logits; i > 0; --i)
      scratch.x_rows.push_back(scratch.x + (n_rows - i) * spec_.hidden_size);
  }
  if (scratch.x_rows.empty()) return;
  products_.pack_normalized(scratch.x_rows, weights_.final_norm, weights_.head.type, scratch.packed, scratch);
  const ProductTarget target{&weights_.head, logits, weights_.head.n_features};
  products_.multiply({&target, 1}, scratch.x_rows.size(), scratch.packed, scratch);
}

}  // namespace kvfork::model
