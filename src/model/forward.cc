// The forward pass, top to bottom.
#include "model/forward.h"

#include "base/check.h"
#include "base/float_environment.h"
#include "model/rope.h"

namespace kvfork::model {

Forward::Forward(const checkpoint::ModelSpec& spec, const Weights& weights, const kernels::KernelTable& kernels,
                 const base::ThreadPool& pool, kernels::Rounding rounding)
    : spec_(spec),
      weights_(weights),
      kernels_(kernels),
      attention_(spec, kernels, pool),
      recurrent_(kernels, pool),
      products_(kernels, pool, rounding),
      experts_(kernels, pool, rounding),
      residual_scale_(static_cast<float>(spec.residual_scale)) {}

void Forward::run(std::span<const Step> steps, float* logits, Scratch& scratch) const {
  const base::FloatEnvironment environment;
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
    for (const Step& step : steps) step.kv->begin_layer(i);
    if (layer.spec->recurrent) add_recurrent(i, layer, scratch);
    if (layer.spec->attention.exists()) add_attention(i, layer, scratch);
    if (layer.spec->has_feed_forward())
      add_feed_forward(layer, scratch);  // x += (silu(norm(x) W_gate) * norm(x) W_up) W_down, or experts
  }
  compute_logits(steps, logits, scratch);
  for (const Step& step : steps) step.kv->advance(step.ids.size());
}

void Forward::add_recurrent(size_t index, const LayerWeights& layer, Scratch& scratch) const noexcept {
  const checkpoint::RecurrentSpec& spec = *layer.spec->recurrent;
  project(layer, spec.projections, layer.recurrent.projections, spec.projected_width, scratch);
  recurrent_.run(index, layer, scratch);  // convolution and matrices, from one state to the next
  // Attention beside it reads x as it is now, so what is added is kept until that has been read.
  const bool is_kept = layer.spec->attention.exists();
  add_mixed(layer, layer.recurrent.output, spec.output_scale, is_kept, scratch);
}

void Forward::add_attention(size_t index, const LayerWeights& layer, Scratch& scratch) const noexcept {
  const checkpoint::AttentionSpec& spec = layer.spec->attention;
  project(layer, spec.projections, layer.projections, spec.projected_width, scratch);  // q, k, v = norm(x) W + b
  attention_.store(index, layer, scratch);  // norms and rotation of q and k; k and v join the cache
  attention_.run(index, layer, scratch);    // softmax(q K * scale) V
  // The feed-forward of parallel branches reads x as it is now too.
  const bool is_kept = layer.spec->branches != checkpoint::Branches::Sequential;
  add_mixed(layer, layer.output, spec.output_scale, is_kept, scratch);  // x += attention W_o
  if (layer.spec->recurrent)
    products_.add_normalized(scratch.x, scratch.branch, scratch.x_rows.size(), spec_.hidden_size, {},
                             residual_scale_ * static_cast<float>(layer.spec->recurrent->output_scale));
}

void Forward::embed(std::span<const Step> steps, Scratch& scratch) const noexcept {
  const size_t hidden = spec_.hidden_size;
  scratch.x_rows.clear();
  for (const Step& step : steps) {
    for (const int32_t id : step.ids) {
      const size_t row = scratch.x_rows.size();
      float* x = scratch.x + row * hidden;
      kernels_.widen(weights_.embedding.row(static_cast<size_t>(id)), weights_.embedding.type, hidden, x);
      if (spec_.embedding_scale != 1) kernels_.scale(x, static_cast<float>(spec_.embedding_scale), hidden);
      if (weights_.positions.n_features != 0) {
        kernels_.widen(weights_.positions.row(scratch.tokens[row].position), weights_.positions.type, hidden,
                       scratch.product);
        kernels_.add(x, scratch.product, hidden);
      }
      scratch.x_rows.push_back(x);
    }
  }
}

// Cosines and sines of every row's position, for each kind of rotation.
void Forward::rotate_positions(Scratch& scratch) const noexcept {
  for (size_t i = 0; i < spec_.rotations.size(); ++i) {
    const checkpoint::RotationSpec& rotation = spec_.rotations[i];
    const size_t n_pairs = rotation.inverse_frequencies.size();
    for (size_t row = 0; row < scratch.tokens.size(); ++row)
      rotate_position(rotation.inverse_frequencies, rotation.factor, scratch.tokens[row].position,
                      scratch.rotations[i].cos + row * n_pairs, scratch.rotations[i].sin + row * n_pairs);
  }
}

void Forward::project(const LayerWeights& layer, std::span<const checkpoint::ProjectionSpec> specs,
                      std::span<const Matrix> matrices, size_t width, Scratch& scratch) const noexcept {
  std::vector<ProductTarget>& targets = scratch.targets;
  targets.clear();
  for (size_t i = 0; i < matrices.size(); ++i) {
    const Matrix& matrix = matrices[i];
    targets.push_back({&matrix, scratch.projected + specs[i].column, width});
    // Matrices that follow one another share packed inputs where their types do.
    const bool is_last = i + 1 == matrices.size() || matrices[i + 1].type != matrix.type;
    if (!is_last) continue;
    products_.pack_normalized(scratch.x_rows, spec_.hidden_size, layer.attention_norm, matrix.type, scratch.packed,
                              scratch);
    products_.multiply(targets, scratch.x_rows.size(), scratch.packed, scratch);
    targets.clear();
  }
  for (size_t i = 0; i < matrices.size(); ++i) {
    if (specs[i].scale == 1) continue;
    for (size_t row = 0; row < scratch.x_rows.size(); ++row)
      kernels_.scale(scratch.projected + row * width + specs[i].column, static_cast<float>(specs[i].scale),
                     matrices[i].n_features);
  }
}

// x += norm(packed W^T) * scale * residual_scale
void Forward::add_product(const Matrix& matrix, const std::byte* packed, const Norm& norm_after, double scale,
                          Scratch& scratch) const noexcept {
  const float factor = residual_scale_ * static_cast<float>(scale);
  const size_t n_rows = scratch.x_rows.size();
  if (!norm_after.exists() && factor == 1)
    return products_.multiply_add(matrix, n_rows, packed, scratch.x, scratch);
  const ProductTarget target{&matrix, scratch.product, matrix.n_features};
  products_.multiply({&target, 1}, n_rows, packed, scratch);
  products_.add_normalized(scratch.x, scratch.product, n_rows, spec_.hidden_size, norm_after, factor);
}

// What attention or a state gives is added to x, or kept in scratch.branch.
void Forward::add_mixed(const LayerWeights& layer, const Matrix& output, double scale, bool is_kept,
                        Scratch& scratch) const noexcept {
  const size_t n_rows = scratch.x_rows.size();
  products_.pack(scratch.attention, n_rows, output.k, output.type, scratch.packed);
  if (!is_kept) return add_product(output, scratch.packed, layer.attention_norm_after, scale, scratch);
  const ProductTarget target{&output, scratch.branch, output.n_features};
  products_.multiply({&target, 1}, n_rows, scratch.packed, scratch);
}

void Forward::add_feed_forward(const LayerWeights& layer, Scratch& scratch) const noexcept {
  if (layer.spec->experts) return add_experts(layer, scratch);
  const size_t n_rows = scratch.x_rows.size();
  const size_t hidden = spec_.hidden_size;
  const MlpWeights& mlp = layer.mlp;
  const bool shares_norm = layer.spec->branches == checkpoint::Branches::ParallelSharedNorm;
  const Norm& norm = shares_norm ? layer.attention_norm : layer.mlp_norm;
  const auto pack_input = [&](const Matrix& matrix, std::byte* packed) {
    products_.pack_normalized(scratch.x_rows, hidden, norm, matrix.type, packed, scratch);
    return packed;
  };
  const std::byte* packed_up = pack_input(mlp.up, scratch.packed_up);
  if (mlp.is_gated()) {
    const bool is_shared = mlp.gate.type == mlp.up.type;
    const std::byte* packed = is_shared ? packed_up : pack_input(mlp.gate, scratch.packed);
    products_.multiply_gated(mlp, n_rows, packed, packed_up, scratch.packed_gated, scratch);
  } else {
    products_.multiply_activated(mlp, n_rows, packed_up, scratch.packed_gated, scratch);
  }
  if (layer.spec->branches != checkpoint::Branches::Sequential)
    products_.add_normalized(scratch.x, scratch.branch, n_rows, hidden, layer.attention_norm_after,
                             residual_scale_);
  add_product(mlp.down, scratch.packed_gated, layer.mlp_norm_after, layer.spec->mlp.output_scale, scratch);
}

void Forward::add_experts(const LayerWeights& layer, Scratch& scratch) const noexcept {
  const size_t n_rows = scratch.x_rows.size();
  const size_t hidden = spec_.hidden_size;
  products_.normalize(scratch.x_rows, hidden, layer.mlp_norm, scratch.experts.normed);
  experts_.run(layer, n_rows, scratch.experts.normed, scratch.branch, scratch);
  products_.add_normalized(scratch.x, scratch.branch, n_rows, hidden, layer.mlp_norm_after, residual_scale_);
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
  const size_t n_logits = scratch.x_rows.size();
  products_.pack_normalized(scratch.x_rows, spec_.hidden_size, weights_.final_norm, weights_.head.type,
                            scratch.packed, scratch);
  const ProductTarget target{&weights_.head, logits, spec_.vocab_size};
  products_.multiply({&target, 1}, n_logits, scratch.packed, scratch);
  for (size_t row = 0; row < n_logits; ++row) {
    float* y = logits + row * spec_.vocab_size;
    if (spec_.logit_scale != 1) kernels_.scale(y, static_cast<float>(spec_.logit_scale), spec_.vocab_size);
    if (spec_.logit_cap != 0) kernels_.cap(y, static_cast<float>(spec_.logit_cap), spec_.vocab_size);
  }
}

}  // namespace kvfork::model
