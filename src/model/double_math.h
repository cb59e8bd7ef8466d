// Functions of single numbers in double precision that decide bits, without the C library: its last bits differ
// from one version to the next.
#pragma once

namespace kvfork::model {

/// e^x to a few units of the last place; NaN stays NaN.
double exponential(double x) noexcept;

/// ln(1 + e^x) to a few units of the last place; NaN stays NaN.
double softplus(double x) noexcept;

/// 1 / (1 + e^-x).
float sigmoid(float x) noexcept;

}  // namespace kvfork::model
