// What a kernel set provides: single-threaded functions over caller memory, collected in a table.
//
// Every function is noexcept, allocates nothing, keeps no state and may run on any thread. The caller meets the
// preconditions; nothing is checked here. Pointers to weights need no alignment.
//
// Bits (docs/numerics.md): what is written for one output row and one output feature depends on that row's input
// and that feature's weights alone. It does not depend on how many rows or features the call covers, on where a
// range begins, or on the alignment of a pointer. Between sets only a tolerance is promised.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace kvfork::kernels {

/// How stored numbers are encoded. Arithmetic is float32 throughout.
enum class Element : uint8_t { F32, F16, BF16 };

static constexpr size_t element_bytes(Element type) {
  return type == Element::F32 ? 4 : 2;
}

/// What happens to an activation where it enters a matrix product.
enum class Rounding : uint8_t { None, ToBF16 };

/// A function of single numbers, between the products of a feed-forward layer.
enum class Activation : uint8_t {
  Silu,         // x / (1 + exp(-x))
  Gelu,         // x / 2 * (1 + erf(x / sqrt(2)))
  GeluTanh,     // x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))
  Relu,         // max(x, 0)
  ReluSquared,  // max(x, 0)^2
  Sigmoid,      // 1 / (1 + exp(-x))
  SwishClamped  // x / (1 + exp(-1.702 x)); of bounded numbers in activate_mul
};

/// Keys and values are kept in blocks of this many consecutive positions, counted from absolute position 0.
inline constexpr size_t kBlockTokens = 64;

/// Keys of a block lie in groups of this many: K[group][head_dim][kGroupTokens], so that one vector holds one
/// component of many keys. Values lie as V[kBlockTokens][value_stride(head_dim)].
inline constexpr size_t kGroupTokens = 16;

/// Elements between two value rows of a block: head_dim rounded up to a multiple of 16. The padding is zero.
static constexpr size_t value_stride(size_t head_dim) {
  return (head_dim + 15) / 16 * 16;
}

/// Activations on their way into products: rows [row_begin, row_end) of the n_rows that one product takes together.
/// Calls for different rows may run at the same time, but two calls may not share a run of pack_rows rows.
struct PackArgs {
  const float* x;   // row `row_begin`
  size_t x_stride;  // floats between rows
  size_t row_begin;
  size_t row_end;
  size_t n_rows;
  size_t k;
  Element weight_type;
  Rounding rounding;
  void* packed;  // 64-byte aligned, packed_bytes(n_rows, k, weight_type)
};

/// Product of packed activations with a weight matrix:
///   y[row * y_stride + feature] = sum_k x[row, k] * weight[feature, k] (+ bias[feature])
/// for every row in [row_begin, row_end) and feature in [feature_begin, feature_end).
struct MatmulArgs {
  const void* weight;  // [n_features, k], row-major, as stored
  Element weight_type;
  Rounding rounding;
  const void* packed;  // made by `pack` with the same n_rows, k, weight_type and rounding
  size_t n_rows;
  size_t row_begin;  // a multiple of 16
  size_t row_end;
  size_t k;
  size_t feature_begin;
  size_t feature_end;
  const float* bias;  // [n_features], or null
  float* y;           // row 0, feature 0; what it holds before means nothing, until the return partial sums
  size_t y_stride;    // floats between rows
  void* workspace;    // workspace_bytes of the table
  const void* next_weight = nullptr;  // where the caller goes on after feature_end, to be prefetched; null: there
};

/// The gated half of a feed-forward layer, packed as inputs of the product that takes its results:
///   packed = pack(activation(x gate^T + bias) * (x up^T + bias))
/// for the rows and features that `gate` names. Both products take the same ones, with the same workspace; y and
/// y_stride are not read. The bits are those of matmul, activate_mul and pack. Two calls may not share a run of
/// range_features features and pack_rows rows.
struct GatedArgs {
  MatmulArgs gate;  // features begin at a multiple of range_features, and end at one or at n_features
  MatmulArgs up;
  size_t n_features;
  Element out_type;  // of the weights that the results meet
  void* packed;      // 64-byte aligned, packed_bytes(n_rows, n_features, out_type)
  Activation activation = Activation::Silu;
  float clamp = 0;  // of activate_mul
};

/// The norm of a row, with d[i] = x[i] - mean(x) if the mean is subtracted and d[i] = x[i] if not:
///   y[i] = weight[i] * (d[i] * (1 / sqrt(mean(d^2) + eps))) + bias[i]
struct NormArgs {
  const float* x;
  const float* weight;  // [n], or null: none
  const float* bias;    // [n], or null: none
  float eps;
  bool subtracts_mean;
  size_t n;
  float* y;  // may be x
};

/// Rotation of pairs of components (a, b) of each head in place, the same angles for every head:
///   a, b = a * cos[i] - b * sin[i],  b * cos[i] + a * sin[i]   for pair i
/// Pair i is of neighbours 2i and 2i + 1, or of i and i + n_pairs. Components from 2 * n_pairs on are not touched.
struct RopeArgs {
  float* x;
  size_t n_heads;
  size_t head_stride;  // floats between heads
  size_t n_pairs;
  bool neighbours;
  const float* cos;  // [n_pairs]
  const float* sin;
};

/// Keys [first, last) of a call's blocks, counted from the first key of its first block; first < last.
struct KeyRange {
  uint32_t first;
  uint32_t last;
};

/// Keys and values of kBlockTokens positions of one KV head.
struct KvBlockData {
  const void* k;  // [kBlockTokens / kGroupTokens][head_dim][kGroupTokens]
  const void* v;  // [kBlockTokens][value_stride(head_dim)]
};

/// Attention's results of rows, not yet normalized.
struct AttentionResult {
  float* max;  // [n_rows]
  float* sum;  // [n_rows]
  float* out;  // [n_rows, value_stride(head_dim)]
};

/// Attention of query rows over consecutive blocks of one KV head, not yet normalized. For row r and each block of
/// which it sees keys (the others are not touched, whatever they hold, and add exact zeros):
///   score[t] = scale * (q[r] . K[t]), then cap * tanh(score[t] / cap) unless cap is 0
///   max[r] = max_t score[t];  p[t] = exp(score[t] - max[r]);  sum[r] = sum_t p[t];  out[r] = sum_t p[t] * V[t]
/// The first of these blocks gives the row's result, later ones are merged into it in order, as attention_merge
/// does. Bits do not depend on how blocks are divided into calls.
struct AttentionArgs {
  const float* const* q;  // [n_rows] pointers to [head_dim]
  const KeyRange* seen;   // [n_rows]
  size_t n_rows;
  size_t head_dim;
  float scale;
  Element kv_type;  // F32 or BF16
  const KvBlockData* blocks;
  size_t n_blocks;
  AttentionResult result;
  AttentionResult spare;  // room for a block's results; may be null where n_blocks is 1 and nothing is continued
  void* workspace;        // workspace_bytes of the table
  /// The rows' results hold what earlier blocks gave. Every row then sees a key of the first block.
  bool continues = false;
  /// What the caller will pass as the first keys next, to be prefetched; or null.
  const void* next_k = nullptr;
  float cap = 0;
};

/// Keys and values of consecutive positions of one KV head, stored into one block from slot `slot` on.
struct StoreKvArgs {
  const float* k;  // [n_tokens] rows of head_dim, k_stride floats apart
  size_t k_stride;
  const float* v;
  size_t v_stride;
  size_t n_tokens;  // slot + n_tokens <= kBlockTokens
  size_t head_dim;
  size_t slot;
  Element kv_type;
  void* k_block;
  void* v_block;
};

/// A causal convolution of each channel by itself over consecutive tokens, and the inputs that the next call needs:
///   y[t][c] = bias[c] + sum_j weight[j][c] * x[t - width + 1 + j][c], then silu of it if asked
/// Inputs before the first token come from `tail`, whose last row is the latest.
struct ConvolutionArgs {
  const float* x;  // [n_tokens] rows of channels
  size_t x_stride;
  size_t n_tokens;
  size_t n_channels;    // of the call; pointers are to its first one
  size_t width;         // at least 1
  const float* weight;  // [width] rows of channels
  size_t weight_stride;
  const float* bias;  // [n_channels], or null
  bool silu;
  const float* tail;  // [width - 1] rows of channels
  size_t tail_stride;
  float* next_tail;  // the same; may not overlap `tail`
  float* y;          // may not overlap x
  size_t y_stride;
};

/// A matrix that remembers consecutive tokens, S [n_keys, columns]; for each token in turn
///   change = gain * (value - S^T (fade * write)), or gain * value
///   S = fade * S + write x change
///   y = S^T read
/// `fade` is one number, or one for each key. The change subtracts what S answers if `corrects`.
struct RecurrenceArgs {
  const float* read;  // [n_tokens] rows of n_keys
  size_t read_stride;
  const float* write;  // the same
  size_t write_stride;
  const float* value;  // [n_tokens] rows of columns
  size_t value_stride;
  const float* gain;  // of token t at t * gain_stride
  size_t gain_stride;
  const float* fade;  // of token t from t * fade_stride on
  size_t fade_stride;
  bool fades_by_key;
  bool corrects;
  size_t n_tokens;
  size_t n_keys;
  size_t n_columns;    // of the call; pointers are to its first one
  const float* state;  // [n_keys] rows of columns, before the first token
  size_t state_stride;
  float* next_state;  // the same after the last one; may not overlap `state`
  float* y;           // [n_tokens] rows of columns
  size_t y_stride;
};

struct KernelTable {
  const char* name;  // "portable", "avx2", "avx512", "avx512_bf16", "amx": also what KVFORK_ISA accepts

  /// Memory that a call of matmul, gated or attention writes to, aligned to 64 bytes. What it holds means
  /// nothing, before and after. So these functions need little stack.
  size_t workspace_bytes;

  /// How work is best divided: rows per call of `pack`; rows and features per call of `matmul` or `gated`. Bits do
  /// not depend on any of them. What the rows of a call need stays in a core's cache from one call to the next:
  /// calls go through all features of some rows before they go to other rows.
  size_t pack_rows;
  size_t (*chunk_rows)(size_t n_rows, Rounding rounding) noexcept;  // a multiple of 16, or n_rows
  size_t range_features;  // of `gated`: what ranges of features are multiples of
  size_t (*item_features)(size_t n_rows, size_t k, Element weight_type) noexcept;

  /// Bytes of n_rows rows of k activations packed for products with weights of this type, with any rounding (a
  /// multiple of 64).
  size_t (*packed_bytes)(size_t n_rows, size_t k, Element weight_type) noexcept;

  /// Reorders activations as this set reads weights of this type, rounded first if asked.
  void (*pack)(const PackArgs& args) noexcept;

  void (*matmul)(const MatmulArgs& args) noexcept;

  /// At most as many rows as chunk_rows names.
  void (*gated)(const GatedArgs& args) noexcept;

  /// One row.
  void (*norm)(const NormArgs& args) noexcept;

  void (*rope)(const RopeArgs& args) noexcept;

  // Up to `widen` a number depends on its own element alone: any split of a row gives the same bits. NaN stays NaN.

  /// y[i] = activation(x[i]); y may be x.
  void (*activate)(Activation activation, const float* x, size_t n, float* y) noexcept;

  /// y[i] = activation(gate[i]) * up[i]; y may be gate or up. SwishClamped alone uses `clamp`, and is
  ///   y[i] = activation(min(gate[i], clamp)) * (max(-clamp, min(up[i], clamp)) + 1).
  void (*activate_mul)(Activation activation, float clamp, const float* gate, const float* up, size_t n,
                       float* y) noexcept;

  /// x[i] *= factor.
  void (*scale)(float* x, float factor, size_t n) noexcept;

  /// x[i] += factor * y[i], the product rounded before the sum.
  void (*add_scaled)(float* x, const float* y, float factor, size_t n) noexcept;

  /// x[i] = tanh(x[i] / cap) * cap, for cap > 0.
  void (*cap)(float* x, float cap, size_t n) noexcept;

  /// x[i] = the nearest number in [-limit, limit].
  void (*clip)(float* x, float limit, size_t n) noexcept;

  /// x[i] *= y[i].
  void (*multiply)(float* x, const float* y, size_t n) noexcept;

  /// x[i] += y[i].
  void (*add)(float* x, const float* y, size_t n) noexcept;

  /// y[i] = float(x[i]), exact.
  void (*widen)(const void* x, Element type, size_t n, float* y) noexcept;

  void (*store_kv)(const StoreKvArgs& args) noexcept;

  void (*attention)(const AttentionArgs& args) noexcept;

  /// Merges the results of later blocks into those of earlier ones. A sink, one more score of a row that has no
  /// value, is merged last, as a block of its own: max the sink, sum 1, out 0.
  void (*attention_merge)(const AttentionResult& into, const AttentionResult& later, size_t n_rows,
                          size_t head_dim) noexcept;

  /// y[0..head_dim) = out[0..head_dim) / sum, one row.
  void (*attention_finish)(const float* out, float sum, size_t head_dim, float* y) noexcept;

  // Layers with a state: the same bits for any split of the tokens into calls, and of channels or columns.
  void (*convolve)(const ConvolutionArgs& args) noexcept;
  void (*recur)(const RecurrenceArgs& args) noexcept;
};

}  // namespace kvfork::kernels
