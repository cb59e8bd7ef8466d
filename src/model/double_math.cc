// The exponential function and its relatives in double precision.
#include "model/double_math.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace kvfork::model {

// x = n ln 2 + r, then the Taylor series in r.
double exponential(double x) noexcept {
  if (!(x > -700)) return x <= -700 ? 0.0 : x;  // NaN stays
  if (x > 700) return std::numeric_limits<double>::infinity();
  const double n = std::floor(x * 1.4426950408889634 + 0.5);
  const double r = x - n * 0x1.62e42fee00000p-1 - n * 0x1.a39ef35793c76p-33;
  double sum = 1;
  for (int i = 14; i > 0; --i) sum = 1 + sum * r / i;
  return sum * std::bit_cast<double>(static_cast<uint64_t>(1023 + static_cast<int64_t>(n)) << 52);
}

// max(x, 0) + ln(1 + u) with u = e^-|x| in (0, 1]. ln(1 + u) = 2 artanh(u / (2 + u)), whose argument is at most
// 1/3.
double softplus(double x) noexcept {
  const double u = exponential(-std::fabs(x));
  const double s = u / (2 + u);
  const double square = s * s;
  double sum = 0;
  for (int i = 33; i > 1; i -= 2) sum = (sum + 1.0 / i) * square;
  const double log = 2 * s * (1 + sum);
  return x > 0 ? x + log : x <= 0 ? log : x;
}

float sigmoid(float x) noexcept {
  return static_cast<float>(1 / (1 + exponential(-static_cast<double>(x))));
}

}  // namespace kvfork::model
