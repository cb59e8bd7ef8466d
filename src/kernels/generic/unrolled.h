// Loops over registers. An array of them stays in registers only if every index is a constant before the compiler
// looks for memory that it can do without; a loop that it unrolls later leaves loads and stores behind.
#pragma once

/// After a lambda's parameters: part of its caller.
#define KVFORK_INLINE __attribute__((always_inline))

namespace kvfork::kernels {
namespace {

template <int kValue>
struct Constant {
  constexpr operator int() const { return kValue; }
};

/// body(Constant<0>) .. body(Constant<kEnd - 1>).
template <int kEnd, int kBegin = 0, class Body>
[[gnu::always_inline]] inline void unrolled(const Body& body) {
  if constexpr (kBegin < kEnd) {
    body(Constant<kBegin>{});
    unrolled<kEnd, kBegin + 1>(body);
  }
}

}  // namespace
}  // namespace kvfork::kernels
