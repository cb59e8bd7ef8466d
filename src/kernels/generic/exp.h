// The exponential function and what is made of it, without the C library: its last bits differ from one version to
// the next.
#pragma once

namespace kvfork::kernels {
namespace {

/// e^x = 2^n * (1 + p), for bounded x: x = n ln 2 + r with |r| <= ln 2 / 2, and p = e^r - 1 from a polynomial in r.
/// The coefficients of (e^r - 1 - r) / r^2 interpolate it at Chebyshev nodes (relative error of e^r 1e-8). ln 2 is
/// split so that n times its first part is exact.
template <class V>
struct PowerOfE {
  typename V::Reg n, p;

  explicit PowerOfE(typename V::Reg x) : n(V::round_even(V::mul(x, V::broadcast(0x1.715476p+0f)))) {
    const auto rough = V::fma(n, V::broadcast(-0.693359375f), x);
    const auto r = V::fma(n, V::broadcast(2.12194440e-4f), rough);
    p = V::broadcast(0x1.6d10fep-10f);
    p = V::fma(p, r, V::broadcast(0x1.120b64p-7f));
    p = V::fma(p, r, V::broadcast(0x1.55551ap-5f));
    p = V::fma(p, r, V::broadcast(0x1.5554dep-3f));
    p = V::fma(p, r, V::broadcast(0.5f));
    p = V::fma(V::mul(r, r), p, r);
  }
};

/// The same as exp of x that is not above 89 or NaN, such as what a softmax takes.
template <class V>
typename V::Reg exp_up_to_one(typename V::Reg x) {
  const PowerOfE<V> power(V::max(V::broadcast(-104.0f), x));
  return V::scale(V::add(power.p, V::broadcast(1.0f)), power.n);
}

/// e^x to within 1 ulp or so (tests/kernels/exp_test.cc). Exactly 1 at 0; 0 below -104 and at -infinity; infinity
/// above 88.73; gradual underflow; NaN stays NaN.
template <class V>
typename V::Reg exp(typename V::Reg x) {
  return exp_up_to_one<V>(V::min(V::broadcast(89.0f), x));
}

/// 1 - e^-x for 0 <= x <= 50, with a small relative error near 0 too. Exactly 1 from 18 on: e^-18 is less than half
/// of the last place below 1.
template <class V>
typename V::Reg one_minus_exp(typename V::Reg x) {
  const auto one = V::broadcast(1.0f);
  const PowerOfE<V> power(V::sub(V::zero(), x));
  return V::sub(V::sub(one, V::scale(one, power.n)), V::scale(power.p, power.n));
}

/// min(|x|, limit).
template <class V>
typename V::Reg bounded_magnitude(typename V::Reg x, float limit) {
  return V::min(V::broadcast(limit), V::copy_sign(x, V::zero()));
}

/// The hyperbolic tangent to within a few ulp (tests/kernels/math_test.cc). With a = 1 - e^-2|x| it is a / (2 - a),
/// with the sign of x. Exactly 0 at 0 and +-1 from +-9.1 on, NaN stays NaN.
template <class V>
typename V::Reg tanh(typename V::Reg x) {
  const auto u = bounded_magnitude<V>(x, 10.0f);
  const auto a = one_minus_exp<V>(V::add(u, u));
  return V::copy_sign(V::div(a, V::sub(V::broadcast(2.0f), a)), x);
}

/// The error function to within a few ulp (tests/kernels/math_test.cc). With u = |x| it is 1 - e^-g, with the sign
/// of x, where g = -ln(1 - erf(u)) = u * (a polynomial in u) for u <= 4. Of all polynomials of degree 8 this one
/// makes the largest relative error of erf least, which is 4e-9 (least squares, reweighted until the errors' peaks
/// are equal), and 5e-8 with rounded coefficients. Exactly 0 at 0 and +-1 from +-4 on, NaN stays NaN.
template <class V>
typename V::Reg erf(typename V::Reg x) {
  const auto u = bounded_magnitude<V>(x, 4.0f);
  auto p = V::broadcast(-0x1.36a73ep-17f);
  p = V::fma(p, u, V::broadcast(0x1.ed7dccp-14f));
  p = V::fma(p, u, V::broadcast(-0x1.4bd13ap-11f));
  p = V::fma(p, u, V::broadcast(0x1.b5068ap-10f));
  p = V::fma(p, u, V::broadcast(-0x1.508dc2p-13f));
  p = V::fma(p, u, V::broadcast(-0x1.39cd9ap-6f));
  p = V::fma(p, u, V::broadcast(0x1.a4fa5cp-4f));
  p = V::fma(p, u, V::broadcast(0x1.45f2fap-1f));
  p = V::fma(p, u, V::broadcast(0x1.20dd76p+0f));
  return V::copy_sign(one_minus_exp<V>(V::mul(u, p)), x);
}

}  // namespace
}  // namespace kvfork::kernels
