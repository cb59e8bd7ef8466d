// Resolves the tensors of a ModelSpec to places in the mapped files.
#include "model/weights.h"

#include "base/error.h"
#include "kernels/select.h"

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

class Resolver {
 public:
  explicit Resolver(const checkpoint::Checkpoint& checkpoint)
      : spec_(checkpoint.config().spec), weights_(checkpoint.weights()) {}

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

  LayerWeights layer(const checkpoint::LayerSpec& spec) const {
    return {.input_norm = vector(spec.attention_norm.weight, spec.attention_norm.weight_offset),
            .q = matrix(spec.attention.projections[0].matrix),
            .k = matrix(spec.attention.projections[1].matrix),
            .v = matrix(spec.attention.projections[2].matrix),
            .o = matrix(spec.attention.output),
            .post_attention_norm = vector(spec.mlp_norm.weight, spec.mlp_norm.weight_offset),
            .gate = matrix(spec.mlp.gate),
            .up = matrix(spec.mlp.up),
            .down = matrix(spec.mlp.down)};
  }

 private:
  const checkpoint::ModelSpec& spec_;
  const std::vector<checkpoint::Weight>& weights_;
};

}  // namespace

Weights make_weights(const checkpoint::Checkpoint& checkpoint) {
  const checkpoint::ModelSpec& spec = checkpoint.config().spec;
  const Resolver resolver(checkpoint);
  Weights weights;
  weights.embedding = resolver.matrix(spec.embedding);
  for (const checkpoint::LayerSpec& layer : spec.layers) weights.layers.push_back(resolver.layer(layer));
  weights.final_norm = resolver.vector(spec.final_norm.weight, spec.final_norm.weight_offset);
  weights.lm_head = resolver.matrix(spec.head);
  return weights;
}

}  // namespace kvfork::model
