// What may go wrong around a call: a callback that throws, memory that the system refuses, another floating-point
// environment.
#pragma once

#include <sys/resource.h>
#include <unistd.h>
#include <xmmintrin.h>

#include <cstddef>
#include <fstream>

namespace kvfork::test {

/// What a callback throws; nothing of kvfork's own.
struct Disturbance {};

/// Lets no new memory be mapped while it lives.
class RefusedMemory {
 public:
  RefusedMemory() {
    size_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    ::getrlimit(RLIMIT_AS, &before_);
    rlimit now = before_;
    now.rlim_cur = pages * static_cast<size_t>(::sysconf(_SC_PAGESIZE));
    ::setrlimit(RLIMIT_AS, &now);
  }
  RefusedMemory(const RefusedMemory&) = delete;
  RefusedMemory& operator=(const RefusedMemory&) = delete;
  ~RefusedMemory() { ::setrlimit(RLIMIT_AS, &before_); }

 private:
  rlimit before_{};
};

/// Another rounding mode (0 to 3), and denormal numbers as zeros, for the calling thread while it lives.
class ChangedFloatingPoint {
 public:
  explicit ChangedFloatingPoint(unsigned rounding) : before_(_mm_getcsr()) {
    constexpr unsigned kFlushToZero = 0x8000, kDenormalsAreZeros = 0x40, kRoundingBits = 0x6000;
    _mm_setcsr((before_ & ~kRoundingBits) | rounding << 13 | kFlushToZero | kDenormalsAreZeros);
  }
  ChangedFloatingPoint(const ChangedFloatingPoint&) = delete;
  ChangedFloatingPoint& operator=(const ChangedFloatingPoint&) = delete;
  ~ChangedFloatingPoint() { _mm_setcsr(before_); }

 private:
  unsigned before_;
};

}  // namespace kvfork::test
