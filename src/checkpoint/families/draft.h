// A model's description while a family makes it: the config that is read, the spec that grows, and the parts that
// families have in common.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "checkpoint/config.h"
#include "checkpoint/families/family.h"
#include "checkpoint/json_fields.h"
#include "checkpoint/tensor_names.h"

namespace kvfork::checkpoint {

/// What the table of tensors does not say about how a family's layers are put together.
struct Form {
  NormSpec::Kind norm = NormSpec::Kind::Rms;
};

class Draft {
 public:
  /// All references must outlive the draft. The sizes of `config` have been read and checked.
  Draft(const Family& family, const JsonFields& fields, const TensorNames& names, ModelConfig& config)
      : family_(family), fields_(fields), names_(names), config_(config) {}

  const JsonFields& fields() const noexcept { return fields_; }
  ModelConfig& config() noexcept { return config_; }
  ModelSpec& spec() noexcept { return config_.spec; }

  /// attention_bias of the config (of a GGUF file: its tensors) decides over the biases of q, k, v and the output.
  void read_attention_bias();
  /// The same of mlp_bias and the feed-forward.
  void read_mlp_bias();
  /// Throws Error{Unsupported} where the config switches a window on, Error{Corrupt} for layer_types that do not fit.
  /// `switch_key`: the field that switches it, or empty where sliding_window alone does.
  void refuse_sliding_window(std::string_view switch_key = "") const;

  /// Describes the whole model: embedding, layers, last norm and head, with the tensors that the family's table has.
  void assemble(const Form& form);

 private:
  const TensorRow* find_row(Role role) const;
  const TensorRow& get_row(Role role) const;
  bool has_bias(Bias bias) const;
  TensorIndex add_tensor(const std::string& hf, const std::string& gguf, std::vector<uint64_t> shape);
  /// A tensor of `row`; `layer` is the index of its layer, or kTop.
  TensorIndex add(const TensorRow& row, size_t layer, std::string_view suffix, std::vector<uint64_t> shape);
  MatrixSpec matrix(Role role, size_t layer, size_t n_features, size_t k);
  NormSpec norm(Role role, size_t layer, size_t width, const Form& form);
  AttentionSpec attention(size_t layer, const Form& form);
  LayerSpec layer(size_t index, const Form& form);

  static constexpr size_t kTop = SIZE_MAX;

  const Family& family_;
  const JsonFields& fields_;
  const TensorNames& names_;
  ModelConfig& config_;
};

}  // namespace kvfork::checkpoint
