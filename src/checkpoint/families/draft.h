// A model's description while a family makes it: the config that is read, the spec that grows, and the parts that
// families have in common.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/config.h"
#include "checkpoint/families/family.h"
#include "checkpoint/json_fields.h"
#include "checkpoint/rotation.h"
#include "checkpoint/tensor_names.h"

namespace kvfork::checkpoint {

/// What the table of tensors does not say about a family's layers.
struct Form {
  NormSpec::Kind norm = NormSpec::Kind::Rms;
  double norm_offset = 0;  ///< added to stored norm weights
  HeadNormForm head_norms = HeadNormForm::Head;
  bool norms_after_rotation = false;
  bool rotates_neighbours = false;
  std::optional<double> partial_rotary_factor;  ///< the default, where the family reads such a field
  double score_scale = 0;                       ///< 0: head_dim^-0.5
  double score_cap = 0;
  double clip = 0;
  double clamp = 0;  ///< of SwishClamped
  Branches branches = Branches::Sequential;
  size_t position_offset = 0;  ///< rows of Positions before that of position 0
  size_t n_positions = 0;      ///< rows of Positions in all
  ExpertsSpec experts;         ///< its numbers; the tensors come from the table
  size_t n_experts = 0;        ///< 0: no layer has experts
  size_t expert_inner = 0;
  size_t expert_hidden = 0;            ///< what experts read and give, between two projections; 0: hidden values
  size_t shared_inner = 0;             ///< 0: no shared expert
  std::vector<bool> has_experts = {};  ///< by layer; empty: every layer, where there are any
  bool norms_have_weights = true;      ///< or norms are there without any tensor of theirs
  RecurrentSpec recurrent = {};        ///< its numbers; the tensors come from the table
  /// Types of layers: full_attention, hybrid (attention beside a state), mlp or moe (neither); others have a state.
  /// Empty: no layer has one.
  std::vector<std::string> recurrent_layers = {};
  bool has_single_branches = false;           ///< layers with attention or a state have no feed-forward
  std::vector<double> recurrent_scales = {};  ///< of Mamba2: of gates, values, writes, reads and steps
  bool has_output_gate = false;               ///< each head of q is followed by a gate of attention's results
};

class Draft {
 public:
  /// All references must outlive the draft. The sizes of `config` have been read and checked.
  Draft(const Family& family, const JsonFields& fields, const TensorNames& names, ModelConfig& config);

  const JsonFields& fields() const noexcept { return fields_; }
  const TensorNames& names() const noexcept { return names_; }
  ModelConfig& config() noexcept { return config_; }
  ModelSpec& spec() noexcept { return config_.spec; }

  /// A number of the config that must be there, or has a default.
  double get_number(std::string_view name) const;
  double number(std::string_view name, double absent) const { return fields_.find_number(name).value_or(absent); }
  size_t size(std::string_view name, size_t absent) const { return fields_.find_size(name).value_or(absent); }
  bool flag(std::string_view name, bool absent) const { return fields_.find_bool(name).value_or(absent); }

  /// attention_bias of the config (of a GGUF file: its tensors) decides over the biases of q, k, v and the output.
  void read_attention_bias(bool absent = false);
  /// The same of mlp_bias and the feed-forward.
  void read_mlp_bias(bool absent = false);

  /// layer_types of the config, or of each layer what `usual` says. Throws Error{Corrupt} where their number is not
  /// that of the layers, Error{Unsupported} for a type that is neither full_attention nor `other`.
  std::vector<std::string> layer_types(const std::vector<std::string>& usual,
                                       std::string_view other = "sliding_attention") const;
  /// `every`-th layer full, the others with a window, or all full for 0.
  std::vector<std::string> usual_layer_types(size_t every) const;

  /// Describes the whole model: embedding, layers, last norm and head, with the tensors that the family's table
  /// has.
  void assemble(const Form& form);

  /// After assemble: layers of type sliding_attention see `window` keys.
  void set_windows(const std::vector<std::string>& layer_types, size_t window);
  /// After assemble: every layer sees `window` keys; 0: all.
  void set_window(size_t window);
  /// After assemble: layers with a window turn by another rotation.
  void rotate_windows_by(const RopeSettings& settings, const Form& form);
  /// After assemble: layers that see all keys, or all layers, do not rotate.
  void stop_rotation_of_full_layers();
  void stop_rotation();
  /// sliding_window where use_sliding_window switches it on, else 0.
  size_t switched_window() const;
  /// The same window by layer_types, or from layer max_window_layers on (Qwen2 and Qwen3).
  void set_switched_windows();
  /// Before assemble: rows beside the family's own.
  void add_tensors(std::span<const TensorRow> rows) { tables_.push_back(rows); }
  /// Every decoder_sparse_step-th layer has experts, but for those of mlp_only_layers (Qwen).
  void read_sparse_layers(Form& form) const;
  /// Experts chosen by sigmoid scores with a correction, in layers from first_k_dense_replace on (DeepSeek's form
  /// without latent attention). The numbers are the family's defaults.
  void read_corrected_experts(Form& form, size_t n_experts, size_t inner, size_t top_k, size_t n_shared,
                              bool is_normed);
  /// Mamba 2, but for its sizes: tensors of `rows`, norms, bounds of the steps and which fields say what has a
  /// bias.
  void read_mamba(Form& form, std::span<const TensorRow> rows, std::string_view in_bias, std::string_view out_bias,
                  std::string_view convolution_bias);
  /// The sizes of Mamba 2 by the names that Granite and Falcon give them; heads have `width` values together.
  void read_mamba_sizes(Form& form, size_t width) const;
  /// A rotation to which layers may be switched, or none at all. Returns its index.
  size_t add_rotation(const RopeSettings& settings, const Form& form);
  size_t add_no_rotation();

 private:
  const TensorRow* find_row(Role role) const;
  const TensorRow& get_row(Role role) const;
  bool is_fused(Role fused, Role first, size_t layer) const;
  std::string name_of(const TensorRow& row, size_t layer, std::string_view suffix,
                      TensorNames::Spelling spelling) const;
  bool is_there(Role role, size_t layer) const;
  bool has_bias(const TensorRow& row) const;
  TensorIndex add(const TensorRow& row, size_t layer, std::string_view suffix, std::vector<uint64_t> shape);
  void transpose(const TensorRow& row, TensorIndex index, size_t row_elements);
  MatrixSpec matrix(Role role, size_t layer, size_t n_features, size_t k);
  NormSpec norm(Role role, size_t layer, size_t width, const Form& form);
  void project_qkv(size_t layer, const Form& form, AttentionSpec& attention);
  void check_recurrent(const RecurrentSpec& recurrent) const;
  void project_mamba(size_t layer, const Form& form, RecurrentSpec& recurrent);
  void place_delta(size_t layer, RecurrentSpec& recurrent);
  void project_delta(size_t layer, RecurrentSpec& recurrent);
  void project_delta_by_head(size_t layer, RecurrentSpec& recurrent);
  void add_memory(size_t layer, const Form& form, RecurrentSpec& recurrent);
  RecurrentSpec recurrent(size_t layer, const Form& form);
  AttentionSpec attention(size_t layer, const Form& form);
  MlpSpec mlp(size_t layer, size_t inner, const Form& form);
  MlpSpec shared_mlp(size_t layer, const Form& form);
  ExpertsSpec experts(size_t layer, const Form& form);
  LayerSpec layer(size_t index, const Form& form);
  RotationSpec rotation(const RopeSettings& settings, const Form& form) const;

  static constexpr size_t kTop = SIZE_MAX;

  const Family& family_;
  const JsonFields& fields_;
  const TensorNames& names_;
  ModelConfig& config_;
  std::vector<std::span<const TensorRow>> tables_;  // the first that has a role counts
  std::string prefix_;                              // of every tensor but the head
  std::string head_prefix_;                         // of the head
  bool has_recurrent_in_bias_ = false, has_recurrent_out_bias_ = false, has_convolution_bias_ = false;
  size_t expert_ = 0;  // stands for {} in the names of an expert's tensors
};

}  // namespace kvfork::checkpoint
