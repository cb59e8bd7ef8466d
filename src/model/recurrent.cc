// Runs layers with a state: convolution, gates, the walk of the matrices over the tokens, norm and output gate.
#include "model/recurrent.h"

#include <algorithm>
#include <cstring>

#include "model/double_math.h"

namespace kvfork::model {
namespace {

using Form = checkpoint::RecurrentSpec::Form;

// Items of work: channels of a convolution, and columns of a matrix. A block of columns of all keys stays in the
// first cache while it walks over the tokens.
constexpr size_t kItemChannels = 256;
constexpr size_t kItemColumns = 32;

size_t items_of(size_t n, size_t size) {
  return (n + size - 1) / size;
}

}  // namespace

// One layer of one pass.
struct Recurrent::Call {
  size_t layer;
  const checkpoint::RecurrentSpec& spec;
  const RecurrentWeights& weights;
  Scratch& scratch;

  float* projected(size_t row) const { return scratch.projected + row * spec.projected_width; }
  float* convolved(size_t row) const { return scratch.convolved + row * spec.n_channels; }
  float* values(size_t row) const { return scratch.attention + row * spec.value_width(); }
  // Of each row: the gains of all heads, then their fades.
  float* gates(size_t row) const { return scratch.gates + row * 2 * spec.n_heads; }
  size_t n_rows() const { return scratch.tokens.size(); }
};

void Recurrent::run(size_t index, const LayerWeights& layer, Scratch& scratch) const noexcept {
  const Call call{index, *layer.spec->recurrent, layer.recurrent, scratch};
  if (call.spec.form == Form::ShortConvolution) {
    const size_t n = call.spec.n_channels;
    pool_.run(call.n_rows(), [&](size_t row, size_t) noexcept {
      float* x = call.projected(row);
      kernels_.multiply(x + call.spec.channels, x + call.spec.before, n);
    });
  }
  convolve(call);
  if (call.spec.n_heads != 0) {
    prepare_rows(call);
    recur(call);
  }
  pool_.run(call.n_rows(), [&](size_t row, size_t) noexcept { finish_row(call, row); });
}

// Each item is a range of channels of one sequence, over all of its tokens.
void Recurrent::convolve(const Call& call) const noexcept {
  const auto& spec = call.spec;
  const size_t n_parts = items_of(spec.n_channels, kItemChannels);
  const size_t tail = spec.matrix_floats();
  pool_.run(call.scratch.sequences.size() * n_parts, [&](size_t item, size_t) noexcept {
    const SequenceRows& rows = call.scratch.sequences[item / n_parts];
    const size_t first = item % n_parts * kItemChannels;
    kernels_.convolve(
        {.x = call.projected(rows.first_row) + spec.channels + first,
         .x_stride = spec.projected_width,
         .n_tokens = rows.n_tokens,
         .n_channels = std::min(kItemChannels, spec.n_channels - first),
         .width = spec.width,
         .weight = call.weights.convolution.data() + first,
         .weight_stride = spec.n_channels,
         .bias = call.weights.convolution_bias.empty() ? nullptr : call.weights.convolution_bias.data() + first,
         .silu = spec.form != Form::ShortConvolution,
         .tail = rows.kv->state(call.layer) + tail + first,
         .tail_stride = spec.n_channels,
         .next_tail = rows.kv->next_state(call.layer) + tail + first,
         .y = call.convolved(rows.first_row) + first,
         .y_stride = spec.n_channels});
  });
}

// What each row's heads need before the walk: gains, fades, and unit lengths of what they read and write by.
void Recurrent::prepare_rows(const Call& call) const noexcept {
  const auto& spec = call.spec;
  const bool is_delta = spec.form == Form::GatedDelta;
  pool_.run(call.n_rows(), [&](size_t row, size_t) noexcept {
    const float* projected = call.projected(row);
    float* gains = call.gates(row);
    float* fades = gains + spec.n_heads;
    for (size_t head = 0; head < spec.n_heads; ++head) {
      const size_t raw = is_delta ? spec.fade : spec.gain;
      double step = softplus(static_cast<double>(projected[raw + head] + call.weights.fade_bias[head]));
      if (spec.most_step != 0) step = std::clamp(step, spec.least_step, spec.most_step);
      fades[head] = static_cast<float>(exponential(-static_cast<double>(call.weights.fade_rate[head]) * step));
      gains[head] = is_delta ? static_cast<float>(spec.gain_scale) * sigmoid(projected[spec.gain + head])
                             : static_cast<float>(step);
    }
    if (!is_delta) return;
    for (size_t head = 0; head < spec.n_key_heads; ++head) {
      float* read = call.convolved(row) + spec.read.offset + head * spec.read.stride;
      float* write = call.convolved(row) + spec.write.offset + head * spec.write.stride;
      kernels_.norm(call.weights.read_norm.args(read, spec.n_keys, read));
      kernels_.norm(call.weights.write_norm.args(write, spec.n_keys, write));
    }
  });
}

// Each item is a range of columns of one head's matrix of one sequence, over all of its tokens.
void Recurrent::recur(const Call& call) const noexcept {
  const auto& spec = call.spec;
  const size_t n_parts = items_of(spec.n_columns, kItemColumns);
  const size_t per_sequence = spec.n_heads * n_parts;
  pool_.run(call.scratch.sequences.size() * per_sequence, [&](size_t item, size_t) noexcept {
    const SequenceRows& rows = call.scratch.sequences[item / per_sequence];
    const size_t head = item % per_sequence / n_parts;
    const size_t first = item % n_parts * kItemColumns;
    const size_t key_head = head * spec.n_key_heads / spec.n_heads;
    const float* convolved = call.convolved(rows.first_row);
    const size_t matrix = head * spec.n_keys * spec.n_columns + first;
    kernels_.recur({.read = convolved + spec.read.offset + key_head * spec.read.stride,
                    .read_stride = spec.n_channels,
                    .write = convolved + spec.write.offset + key_head * spec.write.stride,
                    .write_stride = spec.n_channels,
                    .value = convolved + spec.value.offset + head * spec.value.stride + first,
                    .value_stride = spec.n_channels,
                    .gain = call.gates(rows.first_row) + head,
                    .gain_stride = 2 * spec.n_heads,
                    .fade = call.gates(rows.first_row) + spec.n_heads + head,
                    .fade_stride = 2 * spec.n_heads,
                    .fades_by_key = false,
                    .corrects = spec.form == Form::GatedDelta,
                    .n_tokens = rows.n_tokens,
                    .n_keys = spec.n_keys,
                    .n_columns = std::min(kItemColumns, spec.n_columns - first),
                    .state = rows.kv->state(call.layer) + matrix,
                    .state_stride = spec.n_columns,
                    .next_state = rows.kv->next_state(call.layer) + matrix,
                    .y = call.values(rows.first_row) + head * spec.n_columns + first,
                    .y_stride = spec.value_width()});
  });
}

// The token's own value, the norm by parts and the gate, which comes before or after it.
void Recurrent::finish_row(const Call& call, size_t row) const noexcept {
  const auto& spec = call.spec;
  const size_t width = spec.value_width();
  float* y = call.values(row);
  if (spec.form == Form::ShortConvolution) {
    std::memcpy(y, call.convolved(row), width * sizeof(float));
    kernels_.multiply(y, call.projected(row) + spec.after, width);
    return;
  }
  for (size_t head = 0; head < spec.n_heads && !call.weights.skip.empty(); ++head) {
    const float* value = call.convolved(row) + spec.value.offset + head * spec.value.stride;
    kernels_.add_scaled(y + head * spec.n_columns, value, call.weights.skip[head], spec.n_columns);
  }
  const float* gate = call.projected(row) + spec.gate;
  const auto apply_gate = [&] { kernels_.activate_mul(kernels::Activation::Silu, 0, gate, y, width, y); };
  if (!spec.normed_before_gate) apply_gate();
  const size_t part = width / spec.n_norms;
  const bool has_weights_by_part = call.weights.norm.weight.size() == width;
  for (size_t i = 0; i < spec.n_norms && call.weights.norm.exists(); ++i)
    kernels_.norm(call.weights.norm.args(y + i * part, part, y + i * part, has_weights_by_part ? i : 0));
  if (spec.normed_before_gate) apply_gate();
}

}  // namespace kvfork::model
