// Layers whose memory is a state: a causal convolution by channel, and a matrix that fades, is corrected and is
// read at every token. Lanes hold channels or columns, which never meet, and tokens follow one another, so that no
// split of a run and no range of channels or columns changes a bit.
#pragma once

#include <stddef.h>

#include "kernels/generic/activation.h"
#include "kernels/generic/unrolled.h"
#include "kernels/kernels.h"

namespace kvfork::kernels {
namespace {

/// n lanes, which are all of a vector's if kFull.
template <class V, bool kFull>
typename V::Reg load_lanes(const float* p, size_t n) {
  return kFull ? V::load(p) : V::load_n(p, n);
}
template <class V, bool kFull>
void store_lanes(float* p, size_t n, typename V::Reg x) {
  kFull ? V::store(p, x) : V::store_n(p, n, x);
}

/// One vector of channels, all tokens: `n` lanes from channel c on.
template <class V, bool kSilu, bool kFull>
void convolve_channels(const ConvolutionArgs& args, size_t c, size_t n) {
  using Reg = typename V::Reg;
  const auto load = [=](const float* p) { return load_lanes<V, kFull>(p, n); };
  const size_t n_kept = args.width - 1;
  const auto input = [&](size_t t) {  // counted from the first input that the tail holds
    const float* row = t < n_kept ? args.tail + t * args.tail_stride : args.x + (t - n_kept) * args.x_stride;
    return load(row + c);
  };
  for (size_t t = 0; t < args.n_tokens; ++t) {
    Reg sum = args.bias == nullptr ? V::zero() : load(args.bias + c);
    for (size_t j = 0; j < args.width; ++j)
      sum = V::fma(load(args.weight + j * args.weight_stride + c), input(t + j), sum);
    if constexpr (kSilu) sum = activation_of<V, Activation::Silu>(sum);
    store_lanes<V, kFull>(args.y + t * args.y_stride + c, n, sum);
  }
  for (size_t t = 0; t < n_kept; ++t)
    store_lanes<V, kFull>(args.next_tail + t * args.tail_stride + c, n, input(args.n_tokens + t));
}

template <class V>
void convolve(const ConvolutionArgs& args) noexcept {
  size_t c = 0;
  for (; c + V::kLanes <= args.n_channels; c += V::kLanes) {
    args.silu ? convolve_channels<V, true, true>(args, c, V::kLanes)
              : convolve_channels<V, false, true>(args, c, V::kLanes);
  }
  if (c == args.n_channels) return;
  args.silu ? convolve_channels<V, true, false>(args, c, args.n_channels - c)
            : convolve_channels<V, false, false>(args, c, args.n_channels - c);
}

/// kVectors vectors of columns, all tokens. The last vector has n_last lanes. Sums over keys run in kSums chains.
template <class V, int kVectors, bool kFull>
struct RecurrenceColumns {
  using Reg = typename V::Reg;
  static constexpr int kSums = 4;

  const RecurrenceArgs& args;
  size_t column;
  size_t n_last;

  template <int kIndex>
  Reg load(const float* row, Constant<kIndex> i) const {
    return load_lanes < V, kFull || i + 1 < kVectors > (row + column + i * V::kLanes, n_last);
  }
  template <int kIndex>
  void store(float* row, Constant<kIndex> i, Reg x) const {
    store_lanes<V, kFull || i + 1 < kVectors>(row + column + i * V::kLanes, n_last, x);
  }

  static Reg total(const Reg (&sums)[kSums][kVectors], int i) {
    return V::add(V::add(sums[0][i], sums[1][i]), V::add(sums[2][i], sums[3][i]));
  }

  /// v = gain * (value - what the faded state answers to `write`), or gain * value.
  void find_change(size_t t, const float* state, const float* fade, size_t fade_step,
                   Reg (&change)[kVectors]) const {
    const float* write = args.write + t * args.write_stride;
    Reg sums[kSums][kVectors];
    for (auto& chain : sums) {
      for (Reg& sum : chain) sum = V::zero();
    }
    if (args.corrects) {
      for (size_t key = 0; key < args.n_keys; ++key) {
        const Reg by = V::broadcast(write[key] * fade[key * fade_step]);
        Reg(&chain)[kVectors] = sums[key % kSums];
        unrolled<kVectors>([&](auto i) KVFORK_INLINE {
          chain[i] = V::fma(load(state + key * args.state_stride, i), by, chain[i]);
        });
      }
    }
    const Reg gain = V::broadcast(args.gain[t * args.gain_stride]);
    unrolled<kVectors>([&](auto i) KVFORK_INLINE {
      change[i] = V::mul(gain, V::sub(load(args.value + t * args.value_stride, i), total(sums, i)));
    });
  }

  /// state = fade * state + write x change, and what it answers to `read`.
  void run_token(size_t t, const float* state) const {
    const float* write = args.write + t * args.write_stride;
    const float* read = args.read + t * args.read_stride;
    const float* fade = args.fade + t * args.fade_stride;
    const size_t fade_step = args.fades_by_key ? 1 : 0;
    Reg change[kVectors];
    find_change(t, state, fade, fade_step, change);
    Reg sums[kSums][kVectors];
    for (auto& chain : sums) {
      for (Reg& sum : chain) sum = V::zero();
    }
    for (size_t key = 0; key < args.n_keys; ++key) {
      const Reg by = V::broadcast(fade[key * fade_step]), in = V::broadcast(write[key]),
                out = V::broadcast(read[key]);
      Reg(&chain)[kVectors] = sums[key % kSums];
      unrolled<kVectors>([&](auto i) KVFORK_INLINE {
        const Reg next = V::fma(in, change[i], V::mul(by, load(state + key * args.state_stride, i)));
        store(args.next_state + key * args.state_stride, i, next);
        chain[i] = V::fma(next, out, chain[i]);
      });
    }
    unrolled<kVectors>([&](auto i) KVFORK_INLINE { store(args.y + t * args.y_stride, i, total(sums, i)); });
  }

  void run() const {
    run_token(0, args.state);
    for (size_t t = 1; t < args.n_tokens; ++t) run_token(t, args.next_state);
  }
};

template <class V>
void recur(const RecurrenceArgs& args) noexcept {
  constexpr size_t kPair = 2 * V::kLanes;
  size_t column = 0;
  for (; column + kPair <= args.n_columns; column += kPair)
    RecurrenceColumns<V, 2, true>{args, column, V::kLanes}.run();
  const size_t n_left = args.n_columns - column;
  if (n_left > V::kLanes) return RecurrenceColumns<V, 2, false>{args, column, n_left - V::kLanes}.run();
  if (n_left > 0) RecurrenceColumns<V, 1, false>{args, column, n_left}.run();
}

}  // namespace
}  // namespace kvfork::kernels
