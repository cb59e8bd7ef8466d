// Computes the cosine and sine of each position with code of its own, so that their bits are the same everywhere.

#include "model/rope.h"

#include <cmath>
#include <cstdint>
#include <numbers>

namespace kvfork::model {
namespace {

// sum of coefficients[i] * x^i, by Horner.
template <size_t N>
double polynomial(const double (&coefficients)[N], double x) noexcept {
  double sum = coefficients[N - 1];
  for (size_t i = N - 1; i > 0; --i) sum = sum * x + coefficients[i - 1];
  return sum;
}

// Taylor series in r^2 on [-pi/4, pi/4]; what is left out is below 1e-16.
constexpr double kSine[] = {1.0,          -1.0 / 6,        1.0 / 120,          -1.0 / 5040,
                            1.0 / 362880, -1.0 / 39916800, 1.0 / 6227020800.0, -1.0 / 1307674368000.0};
constexpr double kCosine[] = {1.0,
                              -1.0 / 2,
                              1.0 / 24,
                              -1.0 / 720,
                              1.0 / 40320,
                              -1.0 / 3628800,
                              1.0 / 479001600.0,
                              -1.0 / 87178291200.0,
                              1.0 / 20922789888000.0};

}  // namespace

// Our own, so that a position's rotation is the same bits on every machine: a C library picks other code for other
// processors, and a context that was saved on one machine may be continued on another. The angle is reduced by
// multiples of pi/2 in three parts, of which the first two have 33 bits, so their products with n < 2^20 are exact.
SineCosine sine_cosine(double angle) noexcept {
  constexpr double kFirst = 0x1.921fb544p+0;
  constexpr double kSecond = 0x1.0b4611a6p-34;
  constexpr double kThird = 0x1.3198a2e037073p-69;
  const double n = std::floor(angle * (2 / std::numbers::pi) + 0.5);
  const double r = angle - n * kFirst - n * kSecond - n * kThird;
  const double sine = r * polynomial(kSine, r * r);
  const double cosine = polynomial(kCosine, r * r);
  switch (static_cast<int64_t>(n) & 3) {
    case 0:
      return {sine, cosine};
    case 1:
      return {cosine, -sine};
    case 2:
      return {-sine, -cosine};
    default:
      return {-cosine, sine};
  }
}

void rotate_position(const std::vector<float>& inverse_frequencies, float factor, size_t position, float* cos,
                     float* sin) noexcept {
  for (size_t i = 0; i < inverse_frequencies.size(); ++i) {
    // The angle is float32 in the reference; sine and cosine are taken in double here and rounded once.
    const SineCosine rotation = sine_cosine(static_cast<float>(position) * inverse_frequencies[i]);
    cos[i] = static_cast<float>(rotation.cosine) * factor;
    sin[i] = static_cast<float>(rotation.sine) * factor;
  }
}

}  // namespace kvfork::model
