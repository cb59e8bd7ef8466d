// How a family's table of tensors and a config become a ModelSpec.
#include "checkpoint/families/draft.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/check.h"
#include "base/error.h"
#include "checkpoint/activation.h"

namespace kvfork::checkpoint {

using base::fail;

namespace {

// Parts of image models that lie beside the text model; their embeddings are not the one that is looked for.
bool is_of_other_part(std::string_view name) {
  constexpr std::array<std::string_view, 6> kOther = {"visual", "vision", "audio", "mtp", "patch", "per_layer"};
  return std::any_of(kOther.begin(), kOther.end(),
                     [name](std::string_view part) { return name.find(part) != std::string_view::npos; });
}

}  // namespace

Draft::Draft(const Family& family, const JsonFields& fields, const TensorNames& names, ModelConfig& config)
    : family_(family),
      fields_(fields),
      names_(names),
      config_(config),
      tables_{family.more_tensors, family.experts, family.tensors},
      prefix_(family.prefix) {
  if (names.is_gguf()) return;
  // A base model's names lack the prefix, and a text model inside of another has a longer one.
  const std::string embedding = fmt::format("{}.weight", get_row(Role::Embedding).hf);
  const std::string head = fmt::format("{}.weight", get_row(Role::Head).hf);
  for (const std::string& name : names.names) {
    if (is_of_other_part(name)) continue;
    if (name.ends_with(embedding)) prefix_ = name.substr(0, name.size() - embedding.size());
    if (name.ends_with(head)) head_prefix_ = name.substr(0, name.size() - head.size());
  }
}

double Draft::get_number(std::string_view name) const {
  const auto value = fields_.find_number(name);
  if (!value) fail(ErrorCode::Corrupt, "{}: {} is missing", fields_.subject(), name);
  return *value;
}

void Draft::read_attention_bias(bool absent) {
  // The metadata of a GGUF file does not speak of biases; its tensors do.
  const bool stated = !names_.is_gguf() && flag("attention_bias", absent);
  config_.attention_qkv_bias = stated || names_.has("blk.0.attn_q.bias");
  config_.attention_output_bias = stated || names_.has("blk.0.attn_output.bias");
}

void Draft::read_mlp_bias(bool absent) {
  config_.mlp_bias = names_.is_gguf() ? names_.has("blk.0.ffn_up.bias") : flag("mlp_bias", absent);
}

std::vector<std::string> Draft::usual_layer_types(size_t every) const {
  std::vector<std::string> types(config_.num_hidden_layers, "full_attention");
  for (size_t i = 0; every != 0 && i < types.size(); ++i) {
    if ((i + 1) % every != 0) types[i] = "sliding_attention";
  }
  return types;
}

std::vector<std::string> Draft::layer_types(const std::vector<std::string>& usual, std::string_view other) const {
  const auto names = fields_.find_strings("layer_types");
  if (!names) return usual;
  std::vector<std::string> types;
  for (std::string_view name : *names) {
    // What Transformers 4 called them.
    if (name == "attention") name = "full_attention";
    if (name == "mamba") name = "linear_attention";
    types.emplace_back(name);
    if (name != "full_attention" && name != other)
      fail(ErrorCode::Unsupported,
           "{}: layer_types: expected full_attention or {}, found \"{}\"; kvfork does not implement it",
           fields_.subject(), other, name);
  }
  if (names->size() != config_.num_hidden_layers)
    fail(ErrorCode::Corrupt, "{}: layer_types: expected {} entries (num_hidden_layers), found {}",
         fields_.subject(), config_.num_hidden_layers, names->size());
  return types;
}

void Draft::read_corrected_experts(Form& form, size_t n_experts, size_t inner, size_t top_k, size_t n_shared,
                                   bool is_normed) {
  form.n_experts = size("n_routed_experts", n_experts);
  form.expert_inner = size("moe_intermediate_size", inner);
  form.shared_inner = form.expert_inner * size("n_shared_experts", n_shared);
  form.experts.top_k = size("num_experts_per_tok", top_k);
  form.experts.score = ExpertsSpec::Score::Sigmoid;
  form.experts.n_groups = std::max<size_t>(1, size("n_group", 1));
  form.experts.groups_kept = std::max<size_t>(1, size("topk_group", 1));
  form.experts.is_normed = flag("norm_topk_prob", is_normed);
  form.experts.tiny = 1e-20;
  form.experts.scale = number("routed_scaling_factor", 1);
  const size_t first = size("first_k_dense_replace", n_experts == 0 ? 0 : 1);
  for (size_t i = 0; i < config_.num_hidden_layers; ++i) form.has_experts.push_back(i >= first);
}

void Draft::set_windows(const std::vector<std::string>& layer_types, size_t window) {
  for (size_t i = 0; i < layer_types.size(); ++i) {
    if (layer_types[i] == "sliding_attention") spec().layers[i].attention.window = window;
  }
}

void Draft::set_window(size_t window) {
  for (LayerSpec& layer : spec().layers) layer.attention.window = window;
}

void Draft::rotate_windows_by(const RopeSettings& settings, const Form& form) {
  const size_t rotation = add_rotation(settings, form);
  for (LayerSpec& layer : spec().layers) {
    if (layer.attention.window != 0) layer.attention.rotation = rotation;
  }
}

void Draft::stop_rotation_of_full_layers() {
  const size_t none = add_no_rotation();
  for (LayerSpec& layer : spec().layers) {
    if (layer.attention.window == 0) layer.attention.rotation = none;
  }
}

void Draft::stop_rotation() {
  const size_t none = add_no_rotation();
  for (LayerSpec& layer : spec().layers) layer.attention.rotation = none;
}

size_t Draft::switched_window() const {
  const size_t window = size("sliding_window", fields_.has("sliding_window") ? 0 : 4096);
  return flag("use_sliding_window", false) ? window : 0;
}

void Draft::set_switched_windows() {
  std::vector<std::string> usual = usual_layer_types(0);
  const size_t window = switched_window();
  const size_t first = size("max_window_layers", 28);
  for (size_t i = first; window != 0 && i < usual.size(); ++i) usual[i] = "sliding_attention";
  set_windows(layer_types(usual), window);
}

const TensorRow* Draft::find_row(Role role) const {
  for (const auto& table : tables_) {
    for (const TensorRow& row : table) {
      if (row.role == role && !(names_.is_gguf() ? row.gguf : row.hf).empty()) return &row;
    }
  }
  return nullptr;
}

const TensorRow& Draft::get_row(Role role) const {
  const TensorRow* row = find_row(role);
  KVFORK_CHECK(row != nullptr);
  return *row;
}

std::string Draft::name_of(const TensorRow& row, size_t layer, std::string_view suffix,
                           TensorNames::Spelling spelling) const {
  const bool is_gguf = spelling == TensorNames::Spelling::Gguf;
  std::string name(is_gguf ? row.gguf : row.hf);
  if (const size_t hole = name.find("{}"); hole != std::string::npos)
    name.replace(hole, 2, std::to_string(expert_));
  if (row.is_whole_name && !is_gguf) suffix = suffix == ".weight" ? "" : "_bias";
  if (layer == kTop && (is_gguf || row.role == Role::Head))
    return fmt::format("{}{}{}", is_gguf ? "" : head_prefix_, name, suffix);
  if (layer == kTop) return fmt::format("{}{}{}", prefix_, name, suffix);
  if (is_gguf) return fmt::format("blk.{}.{}{}", layer, name, suffix);
  return fmt::format("{}{}{}.{}{}", prefix_, family_.layer_prefix, layer, name, suffix);
}

bool Draft::is_there(Role role, size_t layer) const {
  const TensorRow* row = find_row(role);
  return row != nullptr && names_.has(name_of(*row, layer, ".weight", names_.spelling));
}

// Whether the parts that begin with `first` are stored as one tensor: the table may know both forms.
bool Draft::is_fused(Role fused, Role first, size_t layer) const {
  return find_row(fused) != nullptr && (find_row(first) == nullptr || is_there(fused, layer));
}

bool Draft::has_bias(const TensorRow& row) const {
  switch (row.bias) {
    case Bias::Never:
      return false;
    case Bias::Always:
      return true;
    case Bias::AttentionInput:
      return config_.attention_qkv_bias;
    case Bias::AttentionOutput:
      return config_.attention_output_bias;
    case Bias::Mlp:
      return config_.mlp_bias;
    case Bias::RecurrentIn:
      return has_recurrent_in_bias_;
    case Bias::Convolution:
      return has_convolution_bias_;
    case Bias::RecurrentOut:
      return has_recurrent_out_bias_;
  }
  return false;
}

TensorIndex Draft::add(const TensorRow& row, size_t layer, std::string_view suffix, std::vector<uint64_t> shape) {
  TensorSpec tensor{.name = name_of(row, layer, suffix, TensorNames::Spelling::HuggingFace),
                    .file_name = name_of(row, layer, suffix, names_.spelling),
                    .shape = std::move(shape)};
  if (row.hf.empty()) tensor.name = tensor.file_name;
  if (names_.is_gguf() && family_.gguf_permutes_qk && (row.role == Role::Q || row.role == Role::K)) {
    tensor.arrangement = Arrangement::InterleavedHalves;
    tensor.head_rows = config_.head_dim;
  }
  spec().tensors.push_back(std::move(tensor));
  return static_cast<TensorIndex>(spec().tensors.size() - 1);
}

// The tensor's shape is that of the matrix, or of several; the file has it the other way round.
void Draft::transpose(const TensorRow& row, TensorIndex index, size_t row_elements) {
  if (!row.is_transposed || names_.is_gguf() || index == kNoTensor) return;
  TensorSpec& tensor = spec().tensors[index];
  const bool is_pairs = row.role == Role::ExpertsGateUp;
  const bool is_vector = row_elements == 1;  // a bias
  if (is_vector && !is_pairs) return;
  tensor.arrangement = is_pairs ? Arrangement::TransposedPairs : Arrangement::Transposed;
  tensor.row_elements = row_elements;
  if (!is_vector) std::swap(tensor.shape[tensor.shape.size() - 1], tensor.shape[tensor.shape.size() - 2]);
}

MatrixSpec Draft::matrix(Role role, size_t layer, size_t n_features, size_t k) {
  const TensorRow& row = get_row(role);
  MatrixSpec matrix{.n_features = n_features, .k = k};
  matrix.tensor = add(row, layer, ".weight", {n_features, k});
  if (has_bias(row)) matrix.bias = add(row, layer, ".bias", {n_features});
  transpose(row, matrix.tensor, k);
  return matrix;
}

NormSpec Draft::norm(Role role, size_t layer, size_t width, const Form& form) {
  const TensorRow* row = find_row(role);
  if (row == nullptr) return {};
  if (!form.norms_have_weights) return {.kind = form.norm, .eps = config_.rms_norm_eps};
  NormSpec norm{.kind = form.norm, .eps = config_.rms_norm_eps, .weight_offset = form.norm_offset};
  norm.weight = add(*row, layer, ".weight", {width});
  if (has_bias(*row)) norm.bias = add(*row, layer, ".bias", {width});
  return norm;
}

void Draft::project_qkv(size_t layer, const Form& form, AttentionSpec& attention) {
  const size_t dim = attention.head_dim;
  const size_t q_stride = form.has_output_gate ? 2 * dim : dim;
  const size_t n_q = attention.n_heads * q_stride, n_kv = attention.n_kv_heads * dim;
  attention.projected_width = n_q + 2 * n_kv;
  attention.q = {0, q_stride};
  if (form.has_output_gate) attention.gate = {dim, q_stride};
  attention.k = {n_q, dim};
  attention.v = {n_q + n_kv, dim};
  const auto project = [&](Role role, size_t n_features, size_t column) {
    attention.projections.push_back({matrix(role, layer, n_features, config_.hidden_size), column});
  };
  if (is_fused(Role::QkvByHead, Role::Q, layer)) {
    project(Role::QkvByHead, attention.projected_width, 0);
    attention.q = {0, 3 * dim};
    attention.k = {dim, 3 * dim};
    attention.v = {2 * dim, 3 * dim};
  } else if (is_fused(Role::Qkv, Role::Q, layer)) {
    project(Role::Qkv, attention.projected_width, 0);
  } else {
    project(Role::Q, n_q, attention.q.offset);
    project(Role::K, n_kv, attention.k.offset);
    project(Role::V, n_kv, attention.v.offset);
  }
}

AttentionSpec Draft::attention(size_t layer, const Form& form) {
  AttentionSpec attention{.n_heads = config_.num_attention_heads,
                          .n_kv_heads = config_.num_key_value_heads,
                          .head_dim = config_.head_dim};
  const size_t dim = attention.head_dim;
  project_qkv(layer, form, attention);
  attention.head_norm_form = form.head_norms;
  attention.norms_after_rotation = form.norms_after_rotation;
  const bool is_whole = form.head_norms != HeadNormForm::Head;
  attention.q_norm = norm(Role::QNorm, layer, is_whole ? attention.n_heads * dim : dim, form);
  attention.k_norm = norm(Role::KNorm, layer, is_whole ? attention.n_kv_heads * dim : dim, form);
  if (form.head_norms == HeadNormForm::Heads) {
    for (const auto& [weight, n] : {std::pair{attention.q_norm.weight, attention.n_heads},
                                    std::pair{attention.k_norm.weight, attention.n_kv_heads}}) {
      if (weight != kNoTensor) spec().tensors[weight].shape = {n, dim};
    }
  }
  attention.clip = form.clip;
  attention.score_scale = form.score_scale != 0 ? form.score_scale : 1.0 / std::sqrt(static_cast<double>(dim));
  attention.score_cap = form.score_cap;
  if (const TensorRow* sinks = find_row(Role::Sinks))
    attention.sinks = add(*sinks, layer, ".weight", {attention.n_heads});
  attention.output = matrix(Role::Output, layer, config_.hidden_size, attention.n_heads * dim);
  return attention;
}

MlpSpec Draft::mlp(size_t layer, size_t inner, const Form& form) {
  const size_t hidden = config_.hidden_size;
  MlpSpec mlp{.activation = activation_of(config_.hidden_act), .clamp = form.clamp};
  if (is_fused(Role::GateUp, Role::Up, layer)) {
    mlp.gate = matrix(Role::GateUp, layer, 2 * inner, hidden);
    mlp.gate.n_features = inner;
    mlp.up = mlp.gate;
    mlp.up.first_row = inner;
  } else {
    if (find_row(Role::Gate) != nullptr) mlp.gate = matrix(Role::Gate, layer, inner, hidden);
    mlp.up = matrix(Role::Up, layer, inner, hidden);
  }
  mlp.down = matrix(Role::Down, layer, hidden, inner);
  return mlp;
}

LayerSpec Draft::layer(size_t index, const Form& form) {
  const size_t hidden = config_.hidden_size;
  LayerSpec layer;
  const std::string type = form.recurrent_layers.empty() ? "full_attention" : form.recurrent_layers[index];
  const bool has_mixer = type != "mlp" && type != "moe";
  layer.branches = form.branches;
  if (has_mixer) {
    layer.attention_norm = norm(Role::AttentionNorm, index, hidden, form);
    if (type != "full_attention") layer.recurrent = recurrent(index, form);
    if (type == "full_attention" || type == "hybrid") layer.attention = attention(index, form);
    layer.attention_norm_after = norm(Role::AttentionNormAfter, index, hidden, form);
    if (form.has_single_branches) return layer;
  }
  // A feed-forward that reads attention's norm has none of its own.
  if (form.branches != Branches::ParallelSharedNorm) layer.mlp_norm = norm(Role::MlpNorm, index, hidden, form);
  if (form.n_experts != 0 && (form.has_experts.empty() || form.has_experts[index])) {
    layer.experts = experts(index, form);
  } else {
    layer.mlp = mlp(index, config_.intermediate_size, form);
  }
  layer.mlp_norm_after = norm(Role::MlpNormAfter, index, hidden, form);
  return layer;
}

RotationSpec Draft::rotation(const RopeSettings& settings, const Form& form) const {
  const auto part = settings.partial_rotary_factor.value_or(1);
  const auto dim = static_cast<size_t>(static_cast<double>(config_.head_dim) * part);
  if (!(part > 0) || !(part <= 1) || dim % 2 != 0 || dim == 0)
    fail(ErrorCode::Corrupt,
         "{}: partial_rotary_factor: expected a part of head_dim ({}) that is an even number of components, found "
         "{}",
         fields_.subject(), config_.head_dim, part);
  RotationSpec rotation = make_rotation(settings.theta, settings.scaling, dim);
  rotation.neighbours = form.rotates_neighbours;
  return rotation;
}

size_t Draft::add_rotation(const RopeSettings& settings, const Form& form) {
  spec().rotations.push_back(rotation(settings, form));
  return spec().rotations.size() - 1;
}

size_t Draft::add_no_rotation() {
  spec().rotations.emplace_back();
  return spec().rotations.size() - 1;
}

void Draft::assemble(const Form& form) {
  if (!form.recurrent_layers.empty()) check_recurrent(form.recurrent);
  const size_t hidden = config_.hidden_size;
  ModelSpec& model = spec();
  model.hidden_size = hidden;
  model.vocab_size = config_.vocab_size;
  if (find_row(Role::Positions) == nullptr) {
    RopeSettings settings{config_.rope_theta, config_.rope_scaling, form.partial_rotary_factor, family_.rope_keys};
    settings.partial_rotary_factor =
        read_rope(fields_, settings, config_.max_position_embeddings).partial_rotary_factor;
    if (!form.partial_rotary_factor && settings.partial_rotary_factor.value_or(1) != 1)
      fail(ErrorCode::Unsupported,
           "{}: rope_parameters: partial_rotary_factor: expected 1, found {}; kvfork does not implement it",
           fields_.subject(), *settings.partial_rotary_factor);
    add_rotation(settings, form);
  } else {
    add_no_rotation();
  }
  model.embedding = matrix(Role::Embedding, kTop, config_.vocab_size, hidden);
  if (find_row(Role::Positions) != nullptr) {
    model.positions = matrix(Role::Positions, kTop, form.n_positions, hidden);
    model.positions.first_row = form.position_offset;
    model.positions.n_features -= form.position_offset;
  }
  for (size_t i = 0; i < config_.num_hidden_layers; ++i) model.layers.push_back(layer(i, form));
  model.final_norm = norm(Role::FinalNorm, kTop, hidden, form);
  model.head = config_.tie_word_embeddings ? model.embedding : matrix(Role::Head, kTop, config_.vocab_size, hidden);
}

}  // namespace kvfork::checkpoint
