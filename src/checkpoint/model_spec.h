// The description of a decoder: what is there, layer by layer, with no family's name left in it.
//
// families/ turns a config into a ModelSpec; src/model resolves its tensors and runs it. A spec is plain data:
// every size is checked, every tensor that it refers to is an index into `tensors`. Immutable once made.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace kvfork::checkpoint {

/// Index into ModelSpec::tensors.
using TensorIndex = uint32_t;
inline constexpr TensorIndex kNoTensor = UINT32_MAX;

/// How a stored tensor differs from what the model multiplies with.
enum class Arrangement : uint8_t {
  AsStored,
  Transposed,         ///< rows of `row_elements` are stored as columns: [.., row_elements, rows]
  TransposedPairs,    ///< the same, and even rows come before odd ones: gate and up of gpt-oss alternate
  InterleavedHalves,  ///< of each `head_rows` rows the two halves alternate (llama's q and k in a GGUF file)
};

/// A tensor that the model needs.
struct TensorSpec {
  std::string name;       ///< Hugging Face spelling, e.g. model.layers.0.self_attn.q_proj.weight
  std::string file_name;  ///< spelling in the weight files: `name`, or a GGUF name
  std::vector<uint64_t> shape;
  Arrangement arrangement = Arrangement::AsStored;
  size_t head_rows = 0;
  size_t row_elements = 0;
};

/// A matrix [n_features, k]: the rows [first_row, first_row + n_features) of a stored tensor whose rows have k
/// elements, and an optional bias: the elements of the same numbers of a stored vector.
struct MatrixSpec {
  TensorIndex tensor = kNoTensor;
  TensorIndex bias = kNoTensor;
  size_t first_row = 0;
  size_t n_features = 0;
  size_t k = 0;

  bool exists() const noexcept { return tensor != kNoTensor; }
};

struct NormSpec {
  enum class Kind : uint8_t {
    None,   ///< the input passes unchanged
    Rms,    ///< x / sqrt(mean(x^2) + eps)
    Layer,  ///< the mean is subtracted first
  };
  Kind kind = Kind::None;
  TensorIndex weight = kNoTensor;  ///< none: no multiplication
  TensorIndex bias = kNoTensor;
  double eps = 0;
  double weight_offset = 0;  ///< added to each stored weight: 1 where weights are stored less one
  double weight_scale = 1;   ///< multiplies each weight after that

  bool exists() const noexcept { return kind != Kind::None; }
};

/// Gelu is the form with erf.
enum class Activation : uint8_t { Silu, Gelu, GeluTanh, Relu, ReluSquared };

/// Rotation of queries and keys by position. `inverse_frequencies[i]` turns pair i; components beyond the pairs are
/// left alone. Empty: no rotation.
struct RotationSpec {
  std::vector<float> inverse_frequencies;
  /// The frequencies of a timeline longer than `switch_length`; empty: there is no switch.
  std::vector<float> long_inverse_frequencies;
  size_t switch_length = 0;
  float factor = 1;         ///< multiplies sine and cosine
  bool neighbours = false;  ///< pairs are (2i, 2i + 1) instead of (i, i + n)

  bool exists() const noexcept { return !inverse_frequencies.empty(); }
};

/// Where the heads of q, k or v lie in a row of projected values: head h at offset + h * stride.
struct HeadSlices {
  size_t offset = 0;
  size_t stride = 0;
};

/// A projection of the normalized input, written to the row of projected values from `column` on.
struct ProjectionSpec {
  MatrixSpec matrix;
  size_t column = 0;
  double scale = 1;  ///< multiplies the projected values
};

/// How far a norm of q or k reaches.
enum class HeadNormForm : uint8_t {
  Head,   ///< each head by itself, one weight of [head_dim] for all
  Heads,  ///< each head by itself, weights [n_heads, head_dim]
  Whole,  ///< all heads together, weights [n_heads * head_dim]
};

struct AttentionSpec {
  size_t n_heads = 0;     ///< 0: the layer has no attention
  size_t n_kv_heads = 0;  ///< divides n_heads
  size_t head_dim = 0;
  std::vector<ProjectionSpec> projections;
  size_t projected_width = 0;  ///< floats in a row of projected values
  HeadSlices q, k, v;
  NormSpec q_norm, k_norm;
  HeadNormForm head_norm_form = HeadNormForm::Head;
  bool norms_after_rotation = false;
  double clip = 0;         ///< q, k and v are cut to [-clip, clip] before the rotation; 0: they are not
  size_t rotation = 0;     ///< index into ModelSpec::rotations
  size_t window = 0;       ///< keys that a query sees, its own included; 0: all
  double score_scale = 0;  ///< multiplies q . k
  /// A rotated query at position p is multiplied by 1 + stretch * ln(1 + floor(p / stretch_length)); 0: it is not.
  double stretch = 0;
  size_t stretch_length = 0;
  double score_cap = 0;           ///< scores become tanh(score / cap) * cap; 0: they do not
  TensorIndex sinks = kNoTensor;  ///< [n_heads] scores of a key without a value
  /// Results are multiplied by the sigmoid of so many projected values, which lie head by head as these slices say;
  /// stride 0: they are not.
  HeadSlices gate;
  MatrixSpec output;
  double output_scale = 1;  ///< multiplies what is added

  bool exists() const noexcept { return n_heads != 0; }
};

/// A layer whose memory is a state. Its projected values go through a causal convolution by channel; what becomes
/// of the channels is the form's.
struct RecurrentSpec {
  enum class Form : uint8_t {
    ShortConvolution,  ///< after * conv(before * channels), of equal widths
    GatedDelta,        ///< a matrix by head that fades, is corrected by each token, and is read
    Mamba2,            ///< a matrix by head that fades and takes in each token; `skip` adds the token's own value
  };
  Form form = Form::ShortConvolution;
  std::vector<ProjectionSpec> projections;
  size_t projected_width = 0;

  size_t channels = 0;  ///< column of the first channel among the projected values
  size_t n_channels = 0;
  TensorIndex convolution = kNoTensor;       ///< [n_channels, 1, width]
  TensorIndex convolution_bias = kNoTensor;  ///< [n_channels]
  size_t width = 0;                          ///< inputs that a channel's output sees, its own included
  size_t before = 0, after = 0;              ///< of ShortConvolution: columns of what multiplies

  size_t n_heads = 0;      ///< of values; each has a matrix [n_keys, n_columns]
  size_t n_key_heads = 0;  ///< divides n_heads; head h reads and writes by key head h * n_key_heads / n_heads
  size_t n_keys = 0;
  size_t n_columns = 0;
  HeadSlices read, write, value;  ///< among the convolved channels
  size_t gain = 0;                ///< column of the heads' gains before their sigmoid, or before softplus (Mamba2)
  size_t fade = 0;        ///< column of what the heads' fades are made of; unused by Mamba2, whose gain serves
  double gain_scale = 1;  ///< of GatedDelta
  double least_step = 0;  ///< of Mamba2: bounds of the gain
  double most_step = 0;   ///< 0: none
  TensorIndex log_fade = kNoTensor;   ///< [n_heads] A_log: a head fades by exp(-exp(A_log) * softplus(fade + bias))
  bool is_negative_fade = false;      ///< the tensor holds -exp(A_log) instead (GGUF)
  TensorIndex fade_bias = kNoTensor;  ///< [n_heads] dt_bias
  TensorIndex skip = kNoTensor;       ///< [n_heads] D of Mamba2
  size_t gate = 0;                    ///< column of the output gates, silu of which multiplies
  bool normed_before_gate = true;     ///< or the norm is of the gated values
  NormSpec norm;                      ///< of each part of the values that follow one another
  size_t n_norms = 0;                 ///< parts
  MatrixSpec output;
  double output_scale = 1;  ///< multiplies what is added

  size_t value_width() const noexcept { return form == Form::ShortConvolution ? n_channels : n_heads * n_columns; }
  size_t matrix_floats() const noexcept { return n_heads * n_keys * n_columns; }
  size_t n_floats() const noexcept { return matrix_floats() + (width - 1) * n_channels; }
};

/// down(activation(gate(x)) * up(x)), or down(activation(up(x))) without a gate.
struct MlpSpec {
  MatrixSpec gate, up, down;
  double output_scale = 1;  ///< multiplies what is added; not of experts
  Activation activation = Activation::Silu;
  double clamp = 0;  ///< not 0: (up + 1) * gate * sigmoid(1.702 gate), gate at most `clamp` and up within it
};

/// A mixture of experts. The scores of the router choose top_k of them for each row.
struct ExpertsSpec {
  enum class Score : uint8_t {
    Softmax,          ///< over all experts
    SoftmaxOfChosen,  ///< over the chosen ones
    Sigmoid,
  };
  MatrixSpec router;
  TensorIndex correction = kNoTensor;  ///< [n_experts] added to scores for the choice alone
  size_t top_k = 0;
  Score score = Score::Softmax;
  size_t n_groups = 1;  ///< experts are chosen from the best groups_kept groups
  size_t groups_kept = 1;
  bool is_normed = false;  ///< weights are divided by max(their sum, least) + tiny
  double least = 0;
  double tiny = 0;
  double scale = 1;          ///< multiplies the weights last
  MatrixSpec before, after;  ///< around the experts, but for the shared one: [inner, hidden] and [hidden, inner]
  std::vector<MlpSpec> experts;
  std::optional<MlpSpec> shared;  ///< added for every row
  MatrixSpec shared_gate;         ///< [1, hidden]: its sigmoid multiplies the shared part
};

/// How the two branches of a layer follow one another.
enum class Branches : uint8_t {
  Sequential,
  ParallelSharedNorm,  ///< the feed-forward reads attention's normalized input
  ParallelOwnNorm,     ///< the feed-forward normalizes the layer's input with a norm of its own
};

struct LayerSpec {
  NormSpec attention_norm;  ///< of attention's input
  AttentionSpec attention;
  std::optional<RecurrentSpec> recurrent;  ///< instead of attention, or beside it: both read the same input
  NormSpec attention_norm_after;           ///< of attention's output, before it is added
  NormSpec mlp_norm;
  MlpSpec mlp;
  std::optional<ExpertsSpec> experts;  ///< instead of `mlp`
  NormSpec mlp_norm_after;
  Branches branches = Branches::Sequential;

  bool has_feed_forward() const noexcept { return experts.has_value() || mlp.up.exists(); }
};

struct ModelSpec {
  size_t hidden_size = 0;
  size_t vocab_size = 0;
  std::vector<TensorSpec> tensors;
  MatrixSpec embedding;
  double embedding_scale = 1;
  MatrixSpec positions;  ///< learned embeddings of positions, added to those of tokens
  std::vector<RotationSpec> rotations;
  std::vector<LayerSpec> layers;
  double residual_scale = 1;  ///< multiplies what a branch adds
  NormSpec final_norm;
  MatrixSpec head;  ///< the embedding where the two are tied
  double logit_scale = 1;
  double logit_cap = 0;  ///< logits become tanh(logit / cap) * cap; 0: they do not

  bool has_other_parts =
      false;  ///< the files also hold towers and projectors for images or sound, which are ignored
  bool has_draft_layers =
      false;  ///< the files also hold layers beyond the last, for drafting tokens, which are ignored
};

}  // namespace kvfork::checkpoint
