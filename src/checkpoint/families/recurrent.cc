// The parts of layers with a state: which tensors make them, and where their values lie among the projected ones.
#include <array>
#include <iterator>
#include <limits>
#include <span>

#include "base/error.h"
#include "checkpoint/families/draft.h"

namespace kvfork::checkpoint {

void Draft::read_mamba(Form& form, std::span<const TensorRow> rows, std::string_view in_bias,
                       std::string_view out_bias, std::string_view convolution_bias) {
  add_tensors(rows);
  has_recurrent_in_bias_ = flag(in_bias, false);
  has_recurrent_out_bias_ = flag(out_bias, false);
  has_convolution_bias_ = flag(convolution_bias, true);
  RecurrentSpec& mamba = form.recurrent;
  mamba.form = RecurrentSpec::Form::Mamba2;
  mamba.norm = {.kind = NormSpec::Kind::Rms, .eps = config_.rms_norm_eps};
  mamba.normed_before_gate = false;
  // No upper bound is null, or {"__float__": "Infinity"}.
  const auto limit = fields_.find("time_step_limit");
  simdjson::dom::array bounds;
  if (!limit || limit->is_null()) return;
  double least = 0, most = std::numeric_limits<double>::max();
  const auto fail_bounds = [&] { fields_.fail_type("time_step_limit", "two numbers in ascending order", *limit); };
  if (limit->get(bounds) != simdjson::SUCCESS || bounds.size() != 2 || bounds.at(0).get(least) != simdjson::SUCCESS)
    fail_bounds();
  const bool is_unbounded = bounds.at(1).is_null() || bounds.at(1).is_object();
  if (!is_unbounded && bounds.at(1).get(most) != simdjson::SUCCESS) fail_bounds();
  if (!(least >= 0) || !(most > 0) || !(most >= least)) fail_bounds();
  mamba.least_step = least;
  mamba.most_step = most;
}

void Draft::read_mamba_sizes(Form& form, size_t width) const {
  RecurrentSpec& mamba = form.recurrent;
  mamba.n_heads = size("mamba_n_heads", 128);
  mamba.n_key_heads = size("mamba_n_groups", 1);
  mamba.n_keys = size("mamba_d_state", 256);
  mamba.width = size("mamba_d_conv", 4);
  mamba.n_columns = mamba.n_heads == 0 ? 0 : width / mamba.n_heads;
  if (mamba.n_columns * mamba.n_heads != width)
    base::fail(ErrorCode::Corrupt, "{}: mamba_n_heads: expected a divisor of the {} values of all heads, found {}",
               fields_.subject(), width, mamba.n_heads);
}

// One matrix gives the output gates, the channels (values, writes and reads) and the steps, in this order.
void Draft::project_mamba(size_t layer, const Form& form, RecurrentSpec& recurrent) {
  const size_t width = recurrent.value_width(), n_reads = recurrent.n_key_heads * recurrent.n_keys;
  recurrent.n_channels = width + 2 * n_reads;
  recurrent.gate = 0;
  recurrent.channels = width;
  recurrent.value = {0, recurrent.n_columns};
  recurrent.write = {width, recurrent.n_keys};
  recurrent.read = {width + n_reads, recurrent.n_keys};
  recurrent.gain = width + recurrent.n_channels;
  recurrent.projected_width = recurrent.gain + recurrent.n_heads;
  MatrixSpec part = matrix(Role::RecurrentIn, layer, recurrent.projected_width, config_.hidden_size);
  if (form.recurrent_scales.empty()) {
    recurrent.projections.push_back({part, 0});
    return;
  }
  const std::array<size_t, 5> sizes = {width, width, n_reads, n_reads, recurrent.n_heads};
  for (size_t i = 0; i < sizes.size(); ++i) {
    part.n_features = sizes[i];
    recurrent.projections.push_back({part, part.first_row, form.recurrent_scales[i]});
    part.first_row += sizes[i];
  }
}

void Draft::place_delta(size_t layer, RecurrentSpec& recurrent) {
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
}

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
  const bool is_mamba = recurrent.form == RecurrentSpec::Form::Mamba2;
  if (is_mamba) recurrent.skip = add(get_row(Role::Skip), layer, ".weight", {recurrent.n_heads});
  recurrent.n_norms = is_mamba ? recurrent.n_key_heads : recurrent.n_heads;
  const size_t n_weights = is_mamba ? recurrent.value_width() : recurrent.n_columns;
  if (recurrent.norm.exists())
    recurrent.norm.weight = add(get_row(Role::RecurrentNorm), layer, ".weight", {n_weights});
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
    recurrent.form == RecurrentSpec::Form::Mamba2 ? project_mamba(layer, form, recurrent)
                                                  : place_delta(layer, recurrent);
    add_memory(layer, form, recurrent);
  }
  const TensorRow& convolution = get_row(Role::Convolution);
  recurrent.convolution = add(convolution, layer, ".weight", {recurrent.n_channels, 1, recurrent.width});
  if (has_bias(convolution)) recurrent.convolution_bias = add(convolution, layer, ".bias", {recurrent.n_channels});
  recurrent.output = matrix(Role::RecurrentOut, layer, hidden, recurrent.value_width());
  return recurrent;
}

}  // namespace kvfork::checkpoint
