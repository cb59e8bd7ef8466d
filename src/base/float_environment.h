// The floating-point environment that every bit depends on: rounding to nearest, denormal numbers kept.
//
// A thread of the caller's may have another one. Work of the library sets this one for its own time and gives the
// caller's back.
#pragma once

#include <xmmintrin.h>

namespace kvfork::base {

class FloatEnvironment {
 public:
  // What is computed from memory and goes to memory stays between the two: the compiler does not know that
  // arithmetic depends on the environment.
  FloatEnvironment() noexcept : saved_(_mm_getcsr()) {
    _mm_setcsr(kDefault);
    asm volatile("" ::: "memory");
  }
  ~FloatEnvironment() {
    asm volatile("" ::: "memory");
    _mm_setcsr(saved_);
  }
  FloatEnvironment(const FloatEnvironment&) = delete;
  FloatEnvironment& operator=(const FloatEnvironment&) = delete;

 private:
  static constexpr unsigned kDefault = 0x1f80;  // to nearest, all exceptions masked, no flush to zero
  unsigned saved_;
};

}  // namespace kvfork::base
