// Layers with a state: values against double-precision twins, the same bits for any split of tokens, channels and
// columns, and nothing touched beyond what a call names.
#include <algorithm>
#include <vector>

#include "tests/kernels/kernel_test.h"

namespace kvfork::kernels {
namespace {

class Convolve : public EachSet {};
class Recur : public EachSet {};

std::vector<float> random_floats(Random& random, size_t n) {
  std::vector<float> x(n);
  for (float& value : x) value = random.next();
  return x;
}

struct Convolution {
  size_t n_channels, width, n_tokens;
  bool silu, has_bias;
  std::vector<float> x, weight, bias, tail;

  Convolution(Random& random, size_t channels, size_t taps, size_t tokens, bool with_silu, bool with_bias)
      : n_channels(channels),
        width(taps),
        n_tokens(tokens),
        silu(with_silu),
        has_bias(with_bias),
        x(random_floats(random, tokens * channels)),
        weight(random_floats(random, taps * channels)),
        bias(random_floats(random, channels)),
        tail(random_floats(random, (taps - 1) * channels)) {}

  ConvolutionArgs args(size_t c, size_t n, size_t t, size_t tokens, const float* from, float* to, float* y) const {
    return {.x = x.data() + t * n_channels + c,
            .x_stride = n_channels,
            .n_tokens = tokens,
            .n_channels = n,
            .width = width,
            .weight = weight.data() + c,
            .weight_stride = n_channels,
            .bias = has_bias ? bias.data() + c : nullptr,
            .silu = silu,
            .tail = from + c,
            .tail_stride = n_channels,
            .next_tail = to + c,
            .y = y + t * n_channels + c,
            .y_stride = n_channels};
  }

  double expected(size_t t, size_t c, double& magnitude) const {
    double sum = has_bias ? bias[c] : 0;
    magnitude = std::fabs(sum);
    for (size_t j = 0; j < width; ++j) {
      const size_t at = t + j;
      const double input = at < width - 1 ? tail[at * n_channels + c] : x[(at - width + 1) * n_channels + c];
      sum += input * weight[j * n_channels + c];
      magnitude += std::fabs(input * weight[j * n_channels + c]);
    }
    return silu ? sum / (1 + std::exp(-sum)) : sum;
  }
};

TEST_P(Convolve, AgreesWithItsTwinInAnySplit) {
  Random random(3);
  for (const size_t channels : {1u, 3u, 15u, 16u, 17u, 40u, 101u}) {
    for (const size_t width : {1u, 2u, 3u, 4u, 7u}) {
      for (const size_t tokens : {1u, 2u, 5u, 19u}) {
        const Convolution c(random, channels, width, tokens, tokens % 2 == 0, channels % 2 == 0);
        std::vector<float> y(tokens * channels), tail(c.tail.size() + 1, 7);
        table().convolve(c.args(0, channels, 0, tokens, c.tail.data(), tail.data(), y.data()));
        for (size_t t = 0; t < tokens; ++t) {
          for (size_t i = 0; i < channels; ++i) {
            double magnitude = 0;
            const double expected = c.expected(t, i, magnitude);
            ASSERT_TRUE(close_to(y[t * channels + i], expected,
                                 kEpsilon * (magnitude * (static_cast<double>(width) + 14))));
          }
        }
        EXPECT_EQ(tail.back(), 7);
        std::vector<float> split_y(y.size()), from = c.tail, to = c.tail;
        for (size_t t = 0; t < tokens;) {
          const size_t n = std::min(tokens - t, 1 + random.below(4));
          for (size_t i = 0; i < channels;) {
            const size_t m = std::min(channels - i, 1 + random.below(33));
            table().convolve(c.args(i, m, t, n, from.data(), to.data(), split_y.data()));
            i += m;
          }
          std::swap(from, to);
          t += n;
        }
        ASSERT_TRUE(same_bits(split_y, y, y.size()));
        ASSERT_TRUE(same_bits(from, tail, from.size()));
      }
    }
  }
}

struct Memory {
  size_t n_keys, n_columns, n_tokens;
  bool by_key, corrects;
  std::vector<float> read, write, value, gain, fade, state;

  Memory(Random& random, size_t keys, size_t columns, size_t tokens, bool fades_by_key, bool corrected)
      : n_keys(keys),
        n_columns(columns),
        n_tokens(tokens),
        by_key(fades_by_key),
        corrects(corrected),
        read(random_floats(random, tokens * keys)),
        write(random_floats(random, tokens * keys)),
        value(random_floats(random, tokens * columns)),
        gain(random_floats(random, tokens)),
        fade(random_floats(random, tokens * keys)),
        state(random_floats(random, keys * columns)) {
    // Unit keys, gains and fades below 1: what a model has, so that nothing grows.
    for (size_t t = 0; t < tokens; ++t) {
      double square = 0;
      for (size_t k = 0; k < keys; ++k) square += double{write[t * keys + k]} * write[t * keys + k];
      for (size_t k = 0; k < keys; ++k) write[t * keys + k] /= static_cast<float>(std::sqrt(square) + 1e-6);
      gain[t] = 1 / (1 + std::fabs(gain[t]));
    }
    for (float& x : fade) x = 1 / (1 + 0.1f * std::fabs(x));
  }

  RecurrenceArgs args(size_t c, size_t n, size_t t, size_t tokens, const float* from, float* to, float* y) const {
    return {.read = read.data() + t * n_keys,
            .read_stride = n_keys,
            .write = write.data() + t * n_keys,
            .write_stride = n_keys,
            .value = value.data() + t * n_columns + c,
            .value_stride = n_columns,
            .gain = gain.data() + t,
            .gain_stride = 1,
            .fade = fade.data() + t * n_keys,
            .fade_stride = n_keys,
            .fades_by_key = by_key,
            .corrects = corrects,
            .n_tokens = tokens,
            .n_keys = n_keys,
            .n_columns = n_columns - c < n ? n_columns - c : n,
            .state = from + c,
            .state_stride = n_columns,
            .next_state = to + c,
            .y = y + t * n_columns + c,
            .y_stride = n_columns};
  }

  // y and the last state in double precision.
  std::pair<std::vector<double>, std::vector<double>> expected() const {
    std::vector<double> s(state.begin(), state.end()), y(n_tokens * n_columns);
    for (size_t t = 0; t < n_tokens; ++t) {
      const auto fade_of = [&](size_t k) { return double{fade[t * n_keys + (by_key ? k : 0)]}; };
      for (size_t c = 0; c < n_columns; ++c) {
        double answer = 0;
        for (size_t k = 0; corrects && k < n_keys; ++k)
          answer += s[k * n_columns + c] * fade_of(k) * double{write[t * n_keys + k]};
        const double change = double{gain[t]} * (double{value[t * n_columns + c]} - answer);
        for (size_t k = 0; k < n_keys; ++k) {
          double& cell = s[k * n_columns + c];
          cell = fade_of(k) * cell + double{write[t * n_keys + k]} * change;
          y[t * n_columns + c] += cell * double{read[t * n_keys + k]};
        }
      }
    }
    return {y, s};
  }
};

TEST_P(Recur, AgreesWithItsTwinInAnySplit) {
  Random random(5);
  for (const size_t keys : {1u, 3u, 16u, 33u}) {
    for (const size_t columns : {1u, 5u, 16u, 31u, 32u, 33u, 65u}) {
      for (const size_t tokens : {1u, 2u, 9u}) {
        const Memory m(random, keys, columns, tokens, columns % 2 == 0, keys % 2 == 1);
        std::vector<float> y(tokens * columns), last(m.state.size());
        table().recur(m.args(0, columns, 0, tokens, m.state.data(), last.data(), y.data()));
        const auto [expected_y, expected_state] = m.expected();
        double largest = 1;
        for (const double x : expected_y) largest = std::max(largest, std::fabs(x));
        for (size_t i = 0; i < y.size(); ++i)
          ASSERT_TRUE(close_to(y[i], expected_y[i], 64 * kEpsilon * largest * static_cast<double>(keys + tokens)));
        for (size_t i = 0; i < last.size(); ++i)
          ASSERT_TRUE(
              close_to(last[i], expected_state[i], 64 * kEpsilon * largest * static_cast<double>(keys + tokens)));

        std::vector<float> split_y(y.size()), from = m.state, to = m.state;
        for (size_t t = 0; t < tokens;) {
          const size_t n = std::min(tokens - t, 1 + random.below(4));
          for (size_t c = 0; c < columns;) {
            const size_t n_columns = std::min(columns - c, 1 + random.below(40));
            table().recur(m.args(c, n_columns, t, n, from.data(), to.data(), split_y.data()));
            c += n_columns;
          }
          std::swap(from, to);
          t += n;
        }
        ASSERT_TRUE(same_bits(split_y, y, y.size()));
        ASSERT_TRUE(same_bits(from, last, last.size()));
      }
    }
  }
}

TEST_P(Recur, WhatIsNotANumberStaysInItsColumn) {
  Random random(7);
  Memory m(random, 16, 33, 3, false, true);
  m.state[5] = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> y(3 * 33), last(m.state.size());
  table().recur(m.args(0, 33, 0, 3, m.state.data(), last.data(), y.data()));
  for (size_t c = 0; c < 33; ++c) EXPECT_EQ(std::isnan(y[c]), c == 5) << c;
}

INSTANTIATE_TEST_SUITE_P(Sets, Convolve, all_sets(), set_name);
INSTANTIATE_TEST_SUITE_P(Sets, Recur, all_sets(), set_name);

}  // namespace
}  // namespace kvfork::kernels
