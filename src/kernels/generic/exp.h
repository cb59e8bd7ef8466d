// The exponential function, without the C library: its last bits differ from one version to the next.
#pragma once

namespace kvfork::kernels {
namespace {

/// e^x to within 1 ulp or so (tests/kernels/exp_test.cc): x = n ln 2 + r with |r| <= ln 2 / 2, then a polynomial in
/// r. Exactly 1 at 0; 0 below -104 and at -infinity; infinity above 88.73; gradual underflow; NaN stays NaN. The
/// coefficients of (e^r - 1 - r) / r^2 interpolate it at Chebyshev nodes (relative error of e^r 1e-8). ln 2 is
/// split so that n times its first part is exact.
template <class V>
typename V::Reg exp(typename V::Reg x) {
  using Reg = typename V::Reg;
  const Reg bounded = V::max(V::broadcast(-104.0f), V::min(V::broadcast(89.0f), x));
  const Reg n = V::round_even(V::mul(bounded, V::broadcast(0x1.715476p+0f)));
  const Reg rough = V::fma(n, V::broadcast(-0.693359375f), bounded);
  const Reg r = V::fma(n, V::broadcast(2.12194440e-4f), rough);
  Reg p = V::broadcast(0x1.6d10fep-10f);
  p = V::fma(p, r, V::broadcast(0x1.120b64p-7f));
  p = V::fma(p, r, V::broadcast(0x1.55551ap-5f));
  p = V::fma(p, r, V::broadcast(0x1.5554dep-3f));
  p = V::fma(p, r, V::broadcast(0.5f));
  p = V::fma(V::mul(r, r), p, r);
  return V::scale(V::add(p, V::broadcast(1.0f)), n);
}

}  // namespace
}  // namespace kvfork::kernels
