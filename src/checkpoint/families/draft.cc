// How a family's table of tensors and a config become a ModelSpec.
#include "checkpoint/families/draft.h"

#include <fmt/format.h>

#include <cmath>

#include "base/check.h"
#include "base/error.h"
#include "checkpoint/rotation.h"

namespace kvfork::checkpoint {

using base::fail;

void Draft::read_attention_bias() {
  // The metadata of a GGUF file does not speak of biases; its tensors do.
  const bool stated = !names_.is_gguf() && fields_.find_bool("attention_bias").value_or(false);
  config_.attention_qkv_bias = stated || names_.has("blk.0.attn_q.bias");
  config_.attention_output_bias = stated || names_.has("blk.0.attn_output.bias");
}

void Draft::read_mlp_bias() {
  config_.mlp_bias = names_.is_gguf() ? names_.has("blk.0.ffn_up.bias") : fields_.find_bool("mlp_bias").value_or(false);
}

void Draft::refuse_sliding_window(std::string_view switch_key) const {
  if (const auto types = fields_.find("layer_types")) {
    simdjson::dom::array list;
    if (types->get(list) != simdjson::SUCCESS) fields_.fail_type("layer_types", "a list", *types);
    for (const simdjson::dom::element item : list) {
      std::string_view type;
      if (item.get(type) != simdjson::SUCCESS) fields_.fail_type("layer_types", "a list of names", item);
      if (type != "full_attention") fields_.fail_unsupported("layer_types", item, "only \"full_attention\"");
    }
    if (list.size() != config_.num_hidden_layers)
      fail(ErrorCode::Corrupt, "{}: layer_types: expected {} entries (num_hidden_layers), found {}",
           fields_.subject(), config_.num_hidden_layers, list.size());
  }
  // Qwen2 ships sliding_window with use_sliding_window false: the window is then off.
  const auto window = fields_.find_integer("sliding_window");
  const bool is_on = switch_key.empty() ? window.has_value() : fields_.find_bool(switch_key).value_or(false);
  if (is_on && (window || !fields_.has("sliding_window")))
    fail(ErrorCode::Unsupported, "{}: sliding_window {} is switched on{}; kvfork does not implement sliding windows yet",
         fields_.subject(), window.value_or(4096), switch_key.empty() ? "" : fmt::format(" by {}", switch_key));
}

const TensorRow* Draft::find_row(Role role) const {
  for (const auto table : {family_.more_tensors, family_.tensors}) {
    for (const TensorRow& row : table) {
      if (row.role == role) return &row;
    }
  }
  return nullptr;
}

const TensorRow& Draft::get_row(Role role) const {
  const TensorRow* row = find_row(role);
  KVFORK_CHECK(row != nullptr);
  return *row;
}

bool Draft::has_bias(Bias bias) const {
  switch (bias) {
    case Bias::Never:
      return false;
    case Bias::AttentionInput:
      return config_.attention_qkv_bias;
    case Bias::AttentionOutput:
      return config_.attention_output_bias;
    case Bias::Mlp:
      return config_.mlp_bias;
  }
  return false;
}

TensorIndex Draft::add_tensor(const std::string& hf, const std::string& gguf, std::vector<uint64_t> shape) {
  spec().tensors.push_back({.name = hf, .file_name = names_.is_gguf() ? gguf : hf, .shape = std::move(shape)});
  return static_cast<TensorIndex>(spec().tensors.size() - 1);
}

TensorIndex Draft::add(const TensorRow& row, size_t layer, std::string_view suffix, std::vector<uint64_t> shape) {
  if (row.role == Role::Head)
    return add_tensor(fmt::format("{}{}", row.hf, suffix), fmt::format("{}{}", row.gguf, suffix), std::move(shape));
  if (layer == kTop)
    return add_tensor(fmt::format("model.{}{}", row.hf, suffix), fmt::format("{}{}", row.gguf, suffix),
                      std::move(shape));
  const TensorIndex index = add_tensor(fmt::format("model.layers.{}.{}{}", layer, row.hf, suffix),
                                       fmt::format("blk.{}.{}{}", layer, row.gguf, suffix), std::move(shape));
  if (names_.is_gguf() && family_.gguf_permutes_qk && (row.role == Role::Q || row.role == Role::K)) {
    spec().tensors[index].arrangement = Arrangement::InterleavedHalves;
    spec().tensors[index].head_rows = config_.head_dim;
  }
  return index;
}

MatrixSpec Draft::matrix(Role role, size_t layer, size_t n_features, size_t k) {
  const TensorRow& row = get_row(role);
  MatrixSpec matrix{.n_features = n_features, .k = k};
  matrix.tensor = add(row, layer, ".weight", {n_features, k});
  if (has_bias(row.bias)) matrix.bias = add(row, layer, ".bias", {n_features});
  return matrix;
}

NormSpec Draft::norm(Role role, size_t layer, size_t width, const Form& form) {
  const TensorRow* row = find_row(role);
  if (row == nullptr) return {};
  return {.kind = form.norm, .weight = add(*row, layer, ".weight", {width}), .eps = config_.rms_norm_eps};
}

AttentionSpec Draft::attention(size_t layer, const Form& form) {
  const size_t hidden = config_.hidden_size;
  AttentionSpec attention{.n_heads = config_.num_attention_heads,
                          .n_kv_heads = config_.num_key_value_heads,
                          .head_dim = config_.head_dim,
                          .score_scale = 1.0 / std::sqrt(static_cast<double>(config_.head_dim))};
  const size_t dim = attention.head_dim;
  const auto project = [&](Role role, size_t n_heads) {
    const HeadSlices slices{attention.projected_width, dim};
    attention.projections.push_back({matrix(role, layer, n_heads * dim, hidden), attention.projected_width});
    attention.projected_width += n_heads * dim;
    return slices;
  };
  attention.q = project(Role::Q, attention.n_heads);
  attention.k = project(Role::K, attention.n_kv_heads);
  attention.v = project(Role::V, attention.n_kv_heads);
  attention.q_norm = norm(Role::QNorm, layer, dim, form);
  attention.k_norm = norm(Role::KNorm, layer, dim, form);
  attention.output = matrix(Role::Output, layer, hidden, attention.n_heads * dim);
  return attention;
}

LayerSpec Draft::layer(size_t index, const Form& form) {
  const size_t hidden = config_.hidden_size;
  const size_t inner = config_.intermediate_size;
  LayerSpec layer;
  layer.attention_norm = norm(Role::AttentionNorm, index, hidden, form);
  layer.attention = attention(index, form);
  layer.mlp_norm = norm(Role::MlpNorm, index, hidden, form);
  layer.mlp.gate = matrix(Role::Gate, index, inner, hidden);
  layer.mlp.up = matrix(Role::Up, index, inner, hidden);
  layer.mlp.down = matrix(Role::Down, index, hidden, inner);
  return layer;
}

void Draft::assemble(const Form& form) {
  const size_t hidden = config_.hidden_size;
  ModelSpec& model = spec();
  model.hidden_size = hidden;
  model.vocab_size = config_.vocab_size;
  model.rotations = {make_rotation(config_.rope_theta, config_.rope_scaling, config_.head_dim)};
  model.embedding = matrix(Role::Embedding, kTop, config_.vocab_size, hidden);
  for (size_t i = 0; i < config_.num_hidden_layers; ++i) model.layers.push_back(layer(i, form));
  model.final_norm = norm(Role::FinalNorm, kTop, hidden, form);
  model.head = config_.tie_word_embeddings ? model.embedding : matrix(Role::Head, kTop, config_.vocab_size, hidden);
}

}  // namespace kvfork::checkpoint
