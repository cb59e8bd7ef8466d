// The parts of layers with a state: which tensors make them, and where their values lie among the projected ones.
#include <iterator>
#include <span>

#include "base/error.h"
#include "checkpoint/families/draft.h"

namespace kvfork::checkpoint {

// q, k and v of all heads, the output gates, and a gain and a fade for each head, from matrices of their own.
void Draft::project_delta(size_t layer, RecurrentSpec& recurrent) {
  const auto project = [&](Role role, size_t n_features, size_t column) {
    recurrent.projections.push_back({matrix(role, layer, n_features, config_.hidden_size), column});
  };
  project(Role::RecurrentIn, recurrent.n_channels, recurrent.channels);
  project(Role::RecurrentGate, recurrent.value_width(), recurrent.gate);
  project(Role::RecurrentGains, recurrent.n_heads, recurrent.gain);
  project(Role::RecurrentFades, recurrent.n_heads, recurrent.fade);
}

// The same from two matrices: each key head's rows of q and k, and those of v and gate of the heads that it serves;
// each key head's gains and fades.
void Draft::project_delta_by_head(size_t layer, RecurrentSpec& recurrent) {
  const size_t n_served = recurrent.n_heads / recurrent.n_key_heads;
  const size_t n_keys = recurrent.n_keys, n_values = n_served * recurrent.n_columns;
  const MatrixSpec qkvz =
      matrix(Role::RecurrentQkvz, layer, recurrent.n_channels + recurrent.value_width(), config_.hidden_size);
  const MatrixSpec gates = matrix(Role::RecurrentGainsFades, layer, 2 * recurrent.n_heads, config_.hidden_size);
  const auto take = [&](MatrixSpec part, size_t& row, size_t n_rows, size_t column) {
    part.first_row = row;
    part.n_features = n_rows;
    row += n_rows;
    recurrent.projections.push_back({part, column});
  };
  size_t row = 0;
  for (size_t head = 0; head < recurrent.n_key_heads; ++head) {
    take(qkvz, row, n_keys, recurrent.channels + recurrent.read.offset + head * n_keys);
    take(qkvz, row, n_keys, recurrent.channels + recurrent.write.offset + head * n_keys);
    take(qkvz, row, n_values, recurrent.channels + recurrent.value.offset + head * n_values);
    take(qkvz, row, n_values, recurrent.gate + head * n_values);
  }
  row = 0;
  for (size_t head = 0; head < recurrent.n_key_heads; ++head) {
    take(gates, row, n_served, recurrent.gain + head * n_served);
    take(gates, row, n_served, recurrent.fade + head * n_served);
  }
}

// What the matrices need beside the projected values.
void Draft::add_memory(size_t layer, const Form& form, RecurrentSpec& recurrent) {
  recurrent.log_fade = add(get_row(Role::LogFade), layer, ".weight", {recurrent.n_heads});
  recurrent.fade_bias = add(get_row(Role::FadeBias), layer, ".weight", {recurrent.n_heads});
  recurrent.norm = form.recurrent.norm;
  recurrent.norm.weight = add(get_row(Role::RecurrentNorm), layer, ".weight", {recurrent.n_columns});
  recurrent.n_norms = recurrent.n_heads;
}

void Draft::check_recurrent(const RecurrentSpec& recurrent) const {
  struct Bound {
    const char* name;
    size_t value;
    size_t max;
  };
  constexpr size_t kMostHeads = size_t{1} << 14;
  const Bound bounds[] = {{"the width of the convolution", recurrent.width, 64},
                          {"the number of value heads", recurrent.n_heads, kMostHeads},
                          {"the number of key heads", recurrent.n_key_heads, kMostHeads},
                          {"the size of a key", recurrent.n_keys, kMostHeads},
                          {"the size of a value", recurrent.n_columns, kMostHeads}};
  const bool has_matrix = recurrent.form != RecurrentSpec::Form::ShortConvolution;
  for (const Bound& bound : std::span(bounds).first(has_matrix ? std::size(bounds) : 1)) {
    if (bound.value == 0 || bound.value > bound.max)
      base::fail(ErrorCode::Corrupt, "{}: {} of a layer with a state: expected 1 to {}, found {}",
                 fields_.subject(), bound.name, bound.max, bound.value);
  }
  if (has_matrix && recurrent.n_heads % recurrent.n_key_heads != 0)
    base::fail(ErrorCode::Corrupt, "{}: expected a number of value heads that {} key heads divide, found {}",
               fields_.subject(), recurrent.n_key_heads, recurrent.n_heads);
}

RecurrentSpec Draft::recurrent(size_t layer, const Form& form) {
  const size_t hidden = config_.hidden_size;
  RecurrentSpec recurrent = form.recurrent;
  if (recurrent.form == RecurrentSpec::Form::ShortConvolution) {
    recurrent.n_channels = hidden;
    recurrent.before = 0;
    recurrent.after = hidden;
    recurrent.channels = 2 * hidden;
    recurrent.projected_width = 3 * hidden;
    recurrent.projections.push_back({matrix(Role::RecurrentIn, layer, 3 * hidden, hidden), 0});
  } else {
    const size_t n_reads = recurrent.n_key_heads * recurrent.n_keys;
    recurrent.n_channels = 2 * n_reads + recurrent.value_width();
    recurrent.read = {0, recurrent.n_keys};
    recurrent.write = {n_reads, recurrent.n_keys};
    recurrent.value = {2 * n_reads, recurrent.n_columns};
    recurrent.gate = recurrent.n_channels;
    recurrent.gain = recurrent.gate + recurrent.value_width();
    recurrent.fade = recurrent.gain + recurrent.n_heads;
    recurrent.projected_width = recurrent.fade + recurrent.n_heads;
    find_row(Role::RecurrentQkvz) == nullptr ? project_delta(layer, recurrent)
                                             : project_delta_by_head(layer, recurrent);
    add_memory(layer, form, recurrent);
  }
  const TensorRow& convolution = get_row(Role::Convolution);
  recurrent.convolution = add(convolution, layer, ".weight", {recurrent.n_channels, 1, recurrent.width});
  if (has_bias(convolution)) recurrent.convolution_bias = add(convolution, layer, ".bias", {recurrent.n_channels});
  recurrent.output = matrix(Role::RecurrentOut, layer, hidden, recurrent.value_width());
  return recurrent;
}

}  // namespace kvfork::checkpoint
