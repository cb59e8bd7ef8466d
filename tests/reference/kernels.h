// Slow and obvious twins of the kernels, in double precision, with no blocking and no vectors.
#pragma once

#include <cmath>
#include <cstddef>
#include <vector>

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

inline Row rms_norm(const Row& x, const Row& weight, double eps) {
  double squares = 0;
  for (double v : x) squares += v * v;
  const double scale = 1 / std::sqrt(squares / static_cast<double>(x.size()) + eps);
  Row y(x.size());
  for (size_t i = 0; i < x.size(); ++i) y[i] = weight[i] * x[i] * scale;
  return y;
}

inline Row rope(const Row& head, const Row& cos, const Row& sin) {
  const size_t half = head.size() / 2;
  Row y = head;
  for (size_t i = 0; i < half; ++i) {
    y[i] = head[i] * cos[i] - head[i + half] * sin[i];
    y[i + half] = head[i + half] * cos[i] + head[i] * sin[i];
  }
  return y;
}

inline double silu_mul(double gate, double up) {
  return gate / (1 + std::exp(-gate)) * up;
}

struct Attention {
  double max;
  double sum;
  Row out;  // not divided by sum
};

/// Over all the given keys and values.
inline Attention attention(const Row& q, const std::vector<Row>& keys, const std::vector<Row>& values,
                           double scale) {
  Row scores;
  for (const Row& key : keys) scores.push_back(scale * dot(q, key, 0).value);
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
