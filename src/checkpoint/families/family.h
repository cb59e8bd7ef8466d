// What one family of decoders is: its names, its defaults, its tensors, and how its config describes a model.
//
// One file of this folder per family. A family is a table of tensors, a handful of defaults and a function that reads
// the config keys which are special to it; registry.cc lists them all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace kvfork::checkpoint {

class Draft;

/// What a tensor is to the model. The role decides its shape.
enum class Role : uint8_t {
  Embedding,           ///< [vocab, hidden]
  AttentionNorm,       ///< [hidden]
  Q,                   ///< [n_heads * head_dim, hidden]
  K,                   ///< [n_kv_heads * head_dim, hidden]
  V,                   ///< [n_kv_heads * head_dim, hidden]
  QNorm,               ///< [head_dim], or as HeadNormForm says
  KNorm,               ///< the same of the keys
  Output,              ///< [hidden, n_heads * head_dim]
  MlpNorm,             ///< [hidden]
  Gate,                ///< [intermediate, hidden]
  Up,                  ///< [intermediate, hidden]
  Down,                ///< [hidden, intermediate]
  FinalNorm,           ///< [hidden]
  Head,                ///< [vocab, hidden]
};

/// When a matrix has a bias beside its weight.
enum class Bias : uint8_t { Never, AttentionInput, AttentionOutput, Mlp };

/// A tensor's names without ".weight". Those of a layer follow the layer's own prefix.
struct TensorRow {
  Role role;
  std::string_view hf;    ///< "self_attn.q_proj"
  std::string_view gguf;  ///< "attn_q"; empty: GGUF files have no such tensor
  Bias bias = Bias::Never;
};

/// The tensors of Llama, which most families have too.
std::span<const TensorRow> llama_tensors() noexcept;

/// What Transformers takes for fields that a config.json leaves out.
struct ConfigDefaults {
  size_t vocab_size = 0;
  size_t hidden_size = 0;
  size_t intermediate_size = 0;
  size_t num_hidden_layers = 0;
  size_t num_attention_heads = 0;
  size_t num_key_value_heads = 0;  ///< 0: as many as attention heads
  size_t head_dim = 0;             ///< 0: hidden_size / num_attention_heads
  size_t max_position_embeddings = 0;
  double rms_norm_eps = 1e-6;
  std::optional<int32_t> bos_token_id;
  std::optional<int32_t> eos_token_id;
};

struct Family {
  std::string_view model_type;         ///< of config.json
  std::string_view class_name;         ///< architectures[0] of config.json
  std::string_view gguf_architecture;  ///< general.architecture; empty: no GGUF form is read
  ConfigDefaults defaults;
  std::span<const TensorRow> tensors;
  std::span<const TensorRow> more_tensors;  ///< beside `tensors`
  bool gguf_permutes_qk = false;  ///< converters interleave the halves of each head's rows of q and k
  /// Reads what is special to the family and describes the model. Throws Error{Unsupported, Corrupt}.
  void (*describe)(Draft& draft);
};

extern const Family kLlama;
extern const Family kQwen2;
extern const Family kQwen3;

/// Every family that is read, in the order in which messages list them.
std::span<const Family* const> families() noexcept;

/// The family of this model_type, class name or GGUF architecture, or nullptr.
const Family* find_family(std::string_view model_type) noexcept;
const Family* find_family_of_class(std::string_view class_name) noexcept;
const Family* find_family_of_gguf(std::string_view architecture) noexcept;

/// "Qwen2ForCausalLM, LlamaForCausalLM".
std::string list_families();

}  // namespace kvfork::checkpoint
