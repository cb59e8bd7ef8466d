#include "model/weights.h"

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "base/check.h"
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

const checkpoint::Weight& get_weight(const checkpoint::Checkpoint& checkpoint, std::string_view name) {
  const checkpoint::Weight* weight = checkpoint.find_weight(name);
  if (weight == nullptr) base::fail(ErrorCode::Corrupt, "{}: expected this tensor, found none", name);
  return *weight;
}

std::vector<float> get_vector(const checkpoint::Checkpoint& checkpoint, std::string_view name) {
  const checkpoint::Weight& weight = get_weight(checkpoint, name);
  KVFORK_CHECK(weight.shape.size() == 1);
  std::vector<float> values(weight.shape[0]);
  kernels::find_kernel_set("portable")->widen(weight.data, element_of(weight), values.size(), values.data());
  return values;
}

// `prefix`.weight, and `prefix`.bias where the checkpoint has one.
Matrix get_matrix(const checkpoint::Checkpoint& checkpoint, const std::string& prefix) {
  const checkpoint::Weight& weight = get_weight(checkpoint, prefix + ".weight");
  KVFORK_CHECK(weight.shape.size() == 2);
  Matrix matrix{weight.data, element_of(weight), weight.shape[0], weight.shape[1], {}};
  if (checkpoint.find_weight(prefix + ".bias") != nullptr) matrix.bias = get_vector(checkpoint, prefix + ".bias");
  return matrix;
}

}  // namespace

Weights make_weights(const checkpoint::Checkpoint& checkpoint) {
  const checkpoint::ModelConfig& config = checkpoint.config();
  Weights weights;
  weights.embedding = get_matrix(checkpoint, "model.embed_tokens");
  for (size_t i = 0; i < config.num_hidden_layers; ++i) {
    const std::string layer = fmt::format("model.layers.{}.", i);
    const std::string attention = layer + "self_attn.";
    const std::string mlp = layer + "mlp.";
    weights.layers.push_back({
        .input_norm = get_vector(checkpoint, layer + "input_layernorm.weight"),
        .q = get_matrix(checkpoint, attention + "q_proj"),
        .k = get_matrix(checkpoint, attention + "k_proj"),
        .v = get_matrix(checkpoint, attention + "v_proj"),
        .o = get_matrix(checkpoint, attention + "o_proj"),
        .post_attention_norm = get_vector(checkpoint, layer + "post_attention_layernorm.weight"),
        .gate = get_matrix(checkpoint, mlp + "gate_proj"),
        .up = get_matrix(checkpoint, mlp + "up_proj"),
        .down = get_matrix(checkpoint, mlp + "down_proj"),
    });
  }
  weights.final_norm = get_vector(checkpoint, "model.norm.weight");
  weights.lm_head = config.tie_word_embeddings ? weights.embedding : get_matrix(checkpoint, "lm_head");
  return weights;
}

}  // namespace kvfork::model
