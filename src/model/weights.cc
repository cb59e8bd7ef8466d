// Resolves the tensors of a ModelSpec to places in the mapped files.
#include "model/weights.h"

#include <cmath>

#include "base/error.h"
#include "kernels/select.h"
#include "model/double_math.h"

namespace kvfork::model {
namespace {

kernels::Element element_of(const checkpoint::Weight& weight) {
  switch (weight.dtype) {
    case checkpoint::DType::F32:
      return kernels::Element::F32;
    case checkpoint::DType::F16:
      return kernels::Element::F16;
    case checkpoint::DType::BF16:
      return kernels::Element::BF16;
    default:
      base::fail(ErrorCode::Unsupported, "{}: expected F32, F16 or BF16 weights", weight.name);
  }
}

kernels::Activation activation_of(const checkpoint::MlpSpec& spec) {
  if (spec.clamp != 0) return kernels::Activation::SwishClamped;
  switch (spec.activation) {
    case checkpoint::Activation::Silu:
      return kernels::Activation::Silu;
    case checkpoint::Activation::Gelu:
      return kernels::Activation::Gelu;
    case checkpoint::Activation::GeluTanh:
      return kernels::Activation::GeluTanh;
    case checkpoint::Activation::Relu:
      return kernels::Activation::Relu;
    case checkpoint::Activation::ReluSquared:
      return kernels::Activation::ReluSquared;
  }
  return kernels::Activation::Silu;
}

class Resolver {
 public:
  explicit Resolver(const std::vector<checkpoint::Weight>& weights) : weights_(weights) {}

  // `offset` is added to each value.
  std::vector<float> vector(checkpoint::TensorIndex index, double offset = 0) const {
    if (index == checkpoint::kNoTensor) return {};
    const checkpoint::Weight& weight = weights_[index];
    const size_t n = static_cast<size_t>(checkpoint::count_elements(weight.shape).value());
    std::vector<float> values(n);
    kernels::find_kernel_set("portable")->widen(weight.data, element_of(weight), n, values.data());
    if (offset != 0) {
      for (float& value : values) value += static_cast<float>(offset);
    }
    return values;
  }

  Matrix matrix(const checkpoint::MatrixSpec& spec) const {
    if (!spec.exists()) return {};
    const checkpoint::Weight& weight = weights_[spec.tensor];
    Matrix matrix{weight.data, element_of(weight), spec.n_features, spec.k, {}};
    matrix.data = matrix.row(spec.first_row);
    matrix.bias = vector(spec.bias);
    if (!matrix.bias.empty()) {
      matrix.bias.erase(matrix.bias.begin(), matrix.bias.begin() + static_cast<ptrdiff_t>(spec.first_row));
      matrix.bias.resize(spec.n_features);
    }
    return matrix;
  }

  Norm norm(const checkpoint::NormSpec& spec) const {
    Norm norm{.kind = spec.kind,
              .weight = vector(spec.weight, spec.weight_offset),
              .bias = vector(spec.bias),
              .eps = static_cast<float>(spec.eps)};
    if (spec.weight_scale != 1) {
      for (float& value : norm.weight) value *= static_cast<float>(spec.weight_scale);
    }
    return norm;
  }

  MlpWeights mlp(const checkpoint::MlpSpec& spec) const {
    return {.gate = matrix(spec.gate),
            .up = matrix(spec.up),
            .down = matrix(spec.down),
            .activation = activation_of(spec),
            .clamp = static_cast<float>(spec.clamp)};
  }

  ExpertsWeights experts(const checkpoint::ExpertsSpec& spec) const {
    ExpertsWeights experts{.router = matrix(spec.router),
                           .correction = vector(spec.correction),
                           .before = matrix(spec.before),
                           .after = matrix(spec.after),
                           .experts = {},
                           .shared = {},
                           .shared_gate = {}};
    for (const checkpoint::MlpSpec& expert : spec.experts) experts.experts.push_back(mlp(expert));
    if (spec.shared) experts.shared = mlp(*spec.shared);
    experts.shared_gate = matrix(spec.shared_gate);
    return experts;
  }

  // The file has a row of weights for each channel, and the kernels read a row of channels for each weight.
  std::vector<float> convolution(const checkpoint::RecurrentSpec& spec) const {
    const std::vector<float> by_channel = vector(spec.convolution);
    std::vector<float> by_tap(by_channel.size());
    for (size_t c = 0; c < spec.n_channels; ++c) {
      for (size_t j = 0; j < spec.width; ++j) by_tap[j * spec.n_channels + c] = by_channel[c * spec.width + j];
    }
    return by_tap;
  }

  // x / sqrt(sum(x^2) + 1e-6) * factor, as the norm of x with a constant weight.
  static Norm unit_length(size_t n, double factor) {
    constexpr double kEps = 1e-6;
    const double size = static_cast<double>(n);
    return {.kind = checkpoint::NormSpec::Kind::Rms,
            .weight = std::vector<float>(n, static_cast<float>(factor / std::sqrt(size))),
            .bias = {},
            .eps = static_cast<float>(kEps / size)};
  }

  RecurrentWeights recurrent(const checkpoint::RecurrentSpec& spec) const {
    RecurrentWeights weights{.projections = {},
                             .convolution = convolution(spec),
                             .convolution_bias = vector(spec.convolution_bias),
                             .fade_rate = vector(spec.log_fade),
                             .fade_bias = vector(spec.fade_bias),
                             .skip = vector(spec.skip),
                             .read_norm = {},
                             .write_norm = {},
                             .norm = norm(spec.norm),
                             .output = matrix(spec.output)};
    for (const auto& projection : spec.projections) weights.projections.push_back(matrix(projection.matrix));
    for (float& rate : weights.fade_rate)
      rate = spec.is_negative_fade ? -rate : static_cast<float>(exponential(static_cast<double>(rate)));
    if (spec.form == checkpoint::RecurrentSpec::Form::GatedDelta) {
      weights.read_norm = unit_length(spec.n_keys, 1 / std::sqrt(static_cast<double>(spec.n_keys)));
      weights.write_norm = unit_length(spec.n_keys, 1);
    }
    return weights;
  }

  LayerWeights layer(const checkpoint::LayerSpec& spec) const {
    LayerWeights layer{.spec = &spec,
                       .attention_norm = norm(spec.attention_norm),
                       .projections = {},
                       .q_norm = norm(spec.attention.q_norm),
                       .k_norm = norm(spec.attention.k_norm),
                       .sinks = vector(spec.attention.sinks),
                       .output = matrix(spec.attention.output),
                       .attention_norm_after = norm(spec.attention_norm_after),
                       .mlp_norm = norm(spec.mlp_norm),
                       .mlp = mlp(spec.mlp),
                       .mlp_norm_after = norm(spec.mlp_norm_after)};
    if (spec.experts) layer.experts = experts(*spec.experts);
    if (spec.recurrent) layer.recurrent = recurrent(*spec.recurrent);
    for (const auto& projection : spec.attention.projections)
      layer.projections.push_back(matrix(projection.matrix));
    return layer;
  }

 private:
  const std::vector<checkpoint::Weight>& weights_;
};

}  // namespace

Weights make_weights(const checkpoint::Checkpoint& checkpoint) {
  const checkpoint::ModelSpec& spec = checkpoint.config().spec;
  const Resolver resolver(checkpoint.weights());
  Weights weights;
  weights.embedding = resolver.matrix(spec.embedding);
  weights.positions = resolver.matrix(spec.positions);
  for (const checkpoint::LayerSpec& layer : spec.layers) weights.layers.push_back(resolver.layer(layer));
  weights.final_norm = resolver.norm(spec.final_norm);
  weights.head = resolver.matrix(spec.head);
  return weights;
}

}  // namespace kvfork::model
