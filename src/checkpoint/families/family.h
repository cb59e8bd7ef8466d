// What one family of decoders is: its names, its defaults, its tensors, and how its config describes a model.
//
// One file of this folder per family, or per few that differ in a handful of words. A family is a table of tensors,
// a handful of defaults and a function that reads the config keys which are special to it; registry.cc lists them
// all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace kvfork::checkpoint {

class Draft;

/// What a tensor is to the model. The role decides its shape; `inner` is intermediate_size, or that of the experts.
enum class Role : uint8_t {
  Embedding,            ///< [vocab, hidden]
  Positions,            ///< [positions, hidden]
  AttentionNorm,        ///< [hidden]
  Q,                    ///< [n_heads * head_dim, hidden]
  K,                    ///< [n_kv_heads * head_dim, hidden]
  V,                    ///< [n_kv_heads * head_dim, hidden]
  Qkv,                  ///< those of q, of k and of v below each other
  QkvByHead,            ///< the same head after head
  QNorm,                ///< [head_dim], or as HeadNormForm says
  KNorm,                ///< the same of the keys
  Sinks,                ///< [n_heads]
  Output,               ///< [hidden, n_heads * head_dim]
  AttentionNormAfter,   ///< [hidden]
  MlpNorm,              ///< [hidden]
  Gate,                 ///< [inner, hidden]
  Up,                   ///< [inner, hidden]
  GateUp,               ///< gate and up below each other
  Down,                 ///< [hidden, inner]
  MlpNormAfter,         ///< [hidden]
  Router,               ///< [n_experts, hidden]
  RouterCorrection,     ///< [n_experts]
  RouterCorrectionRow,  ///< [1, n_experts]
  ExpertGate,           ///< [inner, hidden] of one expert, whose number stands for {} in the name
  ExpertUp,             ///< the same
  ExpertDown,           ///< [hidden, inner] of one expert
  ExpertsGate,          ///< [n_experts, inner, hidden]
  ExpertsUp,            ///< [n_experts, inner, hidden]
  ExpertsGateUp,        ///< [n_experts, 2 * inner, hidden], gate above up
  ExpertsDown,          ///< [n_experts, hidden, inner]
  ExpertsBefore,        ///< [inner, hidden] what experts read instead of the hidden values
  ExpertsAfter,         ///< [hidden, inner] back from it
  SharedGate,           ///< [inner, hidden] of the shared expert
  SharedUp,             ///< the same
  SharedGateUp,         ///< gate and up below each other
  SharedDown,           ///< [hidden, inner]
  SharedRouter,         ///< [1, hidden]
  RecurrentIn,          ///< what a layer with a state projects its input to, as its form says
  RecurrentQkvz,        ///< of GatedDelta: q, k, v and output gate, key head after key head
  RecurrentGate,        ///< [value_width, hidden] output gate
  RecurrentGains,       ///< [n_heads, hidden]
  RecurrentFades,       ///< [n_heads, hidden]
  RecurrentGainsFades,  ///< both of these, key head after key head
  Convolution,          ///< [n_channels, 1, width]
  LogFade,              ///< [n_heads]
  FadeBias,             ///< [n_heads]
  Skip,                 ///< [n_heads]
  RecurrentNorm,        ///< [width of a part], or [value_width]
  RecurrentOut,         ///< [hidden, value_width]
  FinalNorm,            ///< [hidden]
  Head,                 ///< [vocab, hidden]
};

/// When a tensor has a bias beside its weight.
enum class Bias : uint8_t {
  Never,
  Always,
  AttentionInput,
  AttentionOutput,
  Mlp,
  RecurrentIn,
  Convolution,
  RecurrentOut
};

/// A tensor's names without ".weight". Those of a layer follow the layer's own prefix.
struct TensorRow {
  Role role;
  std::string_view hf;    ///< "self_attn.q_proj"; empty: directories have no such tensor
  std::string_view gguf;  ///< "attn_q"; empty: GGUF files have no such tensor
  Bias bias = Bias::Never;
  bool is_whole_name = false;  ///< nothing follows the Hugging Face name
  bool is_transposed = false;  ///< directories have the matrix transposed; gate and up in turns, where it has both
};

/// The tensors of Llama, which most families have too.
std::span<const TensorRow> llama_tensors() noexcept;

/// Norms of q and k by the names that most families give them.
std::span<const TensorRow> head_norm_tensors() noexcept;

/// Router and experts by the names that most mixtures give them, one by one or stacked.
std::span<const TensorRow> expert_tensors() noexcept;

/// The shared expert of Qwen's mixtures, and the gate of what it adds.
std::span<const TensorRow> gated_shared_expert_tensors() noexcept;

/// The correction of a sigmoid router and the shared expert, by the names of DeepSeek's form.
std::span<const TensorRow> corrected_expert_tensors() noexcept;

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
  double rope_theta = 10000;
  std::string_view hidden_act = "silu";
  bool tie_word_embeddings = false;
  std::optional<int32_t> bos_token_id;
  std::optional<int32_t> eos_token_id;
};

/// Names of config fields where a family does not use the common ones.
struct FieldNames {
  std::string_view norm_eps = "rms_norm_eps";
  std::string_view hidden_act = "hidden_act";
  std::string_view hidden_size = "hidden_size";
  std::string_view intermediate_size = "intermediate_size";
  std::string_view num_hidden_layers = "num_hidden_layers";
  std::string_view num_attention_heads = "num_attention_heads";
  std::string_view max_position_embeddings = "max_position_embeddings";
};

/// A number in a GGUF file's metadata, after the architecture's prefix, and the field of config.json that says the
/// same.
struct GgufField {
  std::string_view gguf;
  std::string_view config;
};

struct Family {
  std::string_view model_type;         ///< of config.json
  std::string_view class_name;         ///< architectures[0] of config.json
  std::string_view gguf_architecture;  ///< general.architecture; empty: no GGUF form is read
  ConfigDefaults defaults;
  FieldNames fields;
  std::string_view prefix = "model.";  ///< of every tensor but the head
  std::string_view layer_prefix = "layers.";
  std::span<const TensorRow> tensors;
  std::span<const TensorRow> more_tensors;           ///< beside `tensors`, and before them where a role is in both
  std::span<const TensorRow> experts;                ///< of a mixture, after more_tensors where a role is in both
  std::span<const std::string_view> rope_keys = {};  ///< RopeSettings::more_keys
  bool gguf_permutes_qk = false;                ///< converters interleave the halves of each head's rows of q and k
  std::span<const GgufField> gguf_fields = {};  ///< read beside those that every family has
  /// Reads what is special to the family and describes the model. Throws Error{Unsupported, Corrupt}.
  void (*describe)(Draft& draft);
};

extern const Family kQwen2;
extern const Family kQwen3;
extern const Family kQwen2Moe;
extern const Family kQwen3Moe;
extern const Family kQwen3Next;
extern const Family kQwen35;
extern const Family kQwen35Moe;
extern const Family kLfm2;
extern const Family kLfm2Moe;
extern const Family kLlama;
extern const Family kArcee;
extern const Family kCohere;
extern const Family kCohere2;
extern const Family kDots1;
extern const Family kErnie;
extern const Family kErnieMoe;
extern const Family kExaone4;
extern const Family kFalconH1;
extern const Family kGemma;
extern const Family kGemma2;
extern const Family kGemma3;
extern const Family kVaultGemma;
extern const Family kGlm;
extern const Family kGlm4;
extern const Family kGlm4Moe;
extern const Family kGptNeoX;
extern const Family kGpt2;
extern const Family kGptOss;
extern const Family kGranite;
extern const Family kGraniteMoe;
extern const Family kGraniteMoeHybrid;
extern const Family kHelium;
extern const Family kHunyuan;
extern const Family kHunyuanMoe;
extern const Family kMistral;
extern const Family kMiniMaxM2;
extern const Family kMinistral;
extern const Family kMinistral3;
extern const Family kMixtral;
extern const Family kNemotron;
extern const Family kNemotronH;
extern const Family kOlmo;
extern const Family kOlmo2;
extern const Family kOlmo3;
extern const Family kOlmoe;
extern const Family kOpt;
extern const Family kPhi;
extern const Family kPhi3;
extern const Family kSeedOss;
extern const Family kSmolLm3;
extern const Family kStableLm;
extern const Family kStarcoder2;

/// Every family that is read, in the order in which messages list them.
std::span<const Family* const> families() noexcept;

/// The family of this model_type, class name or GGUF architecture, or nullptr.
const Family* find_family(std::string_view model_type) noexcept;
const Family* find_family_of_class(std::string_view class_name) noexcept;
const Family* find_family_of_gguf(std::string_view architecture) noexcept;

/// "Qwen2ForCausalLM, LlamaForCausalLM".
std::string list_families();

}  // namespace kvfork::checkpoint
