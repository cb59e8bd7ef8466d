// Slow and obvious twins of the kernels, in double precision, with no blocking and no vectors.
#pragma once

#include <cmath>
#include <cstddef>
#include <vector>

#include "kernels/kernels.h"

namespace kvfork::reference {

using Row = std::vector<double>;

struct Product {
  double value;
  double magnitude;  // sum of |x * w| and |bias|, which rounding errors scale with
};

inline Product dot(const Row& x, const Row& weight, double bias) {
  Product sum{bias, std::fabs(bias)};
  for (size_t k = 0; k < x.size(); ++k) {
    sum.value += x[k] * weight[k];
    sum.magnitude += std::fabs(x[k] * weight[k]);
  }
  return sum;
}

/// Empty weight or bias: there is none.
inline Row norm(const Row& x, const Row& weight, const Row& bias, double eps, bool subtracts_mean) {
  const double n = static_cast<double>(x.size());
  double mean = 0, squares = 0;
  for (double v : x) mean += subtracts_mean ? v / n : 0;
  for (double v : x) squares += (v - mean) * (v - mean);
  const double scale = 1 / std::sqrt(squares / n + eps);
  Row y(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    y[i] = (x[i] - mean) * scale * (weight.empty() ? 1 : weight[i]) + (bias.empty() ? 0 : bias[i]);
  }
  return y;
}

inline Row rope(const Row& head, const Row& cos, const Row& sin, bool neighbours) {
  const size_t n_pairs = cos.size();
  Row y = head;
  for (size_t i = 0; i < n_pairs; ++i) {
    const size_t a = neighbours ? 2 * i : i, b = neighbours ? 2 * i + 1 : i + n_pairs;
    y[a] = head[a] * cos[i] - head[b] * sin[i];
    y[b] = head[b] * cos[i] + head[a] * sin[i];
  }
  return y;
}

inline double activation(kernels::Activation activation, double x) {
  const double kPi = std::acos(-1.0);
  switch (activation) {
    case kernels::Activation::Silu:
      return x / (1 + std::exp(-x));
    case kernels::Activation::Gelu:
      return x / 2 * std::erfc(-x / std::sqrt(2.0));
    case kernels::Activation::GeluTanh:
      return x / 2 * (1 + std::tanh(std::sqrt(2 / kPi) * (x + 0.044715 * x * x * x)));
    case kernels::Activation::Relu:
      return std::fmax(x, 0);
    case kernels::Activation::ReluSquared:
      return std::fmax(x, 0) * std::fmax(x, 0);
    case kernels::Activation::Sigmoid:
      return 1 / (1 + std::exp(-x));
    case kernels::Activation::SwishClamped:
      return x / (1 + std::exp(-1.702 * x));
  }
  return std::nan("");
}

inline double gated(kernels::Activation chosen, double clamp, double gate, double up) {
  if (chosen != kernels::Activation::SwishClamped) return activation(chosen, gate) * up;
  return activation(chosen, std::fmin(gate, clamp)) * (std::fmax(-clamp, std::fmin(up, clamp)) + 1);
}

struct Attention {
  double max;
  double sum;
  Row out;  // not divided by sum
};

/// Over all the given keys and values.
inline Attention attention(const Row& q, const std::vector<Row>& keys, const std::vector<Row>& values, double scale,
                           double cap = 0) {
  Row scores;
  for (const Row& key : keys) {
    const double score = scale * dot(q, key, 0).value;
    scores.push_back(cap == 0 ? score : cap * std::tanh(score / cap));
  }
  Attention result{scores.at(0), 0, Row(q.size(), 0)};
  for (double score : scores) result.max = std::fmax(result.max, score);
  for (size_t t = 0; t < scores.size(); ++t) {
    const double p = std::exp(scores[t] - result.max);
    result.sum += p;
    for (size_t d = 0; d < q.size(); ++d) result.out[d] += p * values[t][d];
  }
  return result;
}

}  // namespace kvfork::reference
