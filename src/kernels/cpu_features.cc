// Asks the processor and the operating system which kernel sets can run.

#include "kernels/cpu_features.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

namespace kvfork::kernels {
namespace {

struct Leaf {
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
};

constexpr bool all(uint64_t word, uint64_t bits) {
  return (word & bits) == bits;
}

constexpr uint64_t bit(int n) {
  return uint64_t{1} << n;
}

Leaf cpuid(uint32_t leaf, uint32_t part = 0) {
  Leaf out;
  // Fails, leaving zeros, where the processor has no such leaf.
  __get_cpuid_count(leaf, part, &out.eax, &out.ebx, &out.ecx, &out.edx);
  return out;
}

/// XCR0: which register states the operating system saves; 0 when it saves none of the extended ones.
uint64_t saved_state() {
  const uint64_t osxsave = bit(27);
  if (!all(cpuid(1).ecx, osxsave)) return 0;
  uint32_t low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return uint64_t{high} << 32 | low;
}

bool detect_avx2() {
  const uint64_t fma = bit(12), avx = bit(28), f16c = bit(29), avx2 = bit(5);
  const uint64_t sse_and_ymm = bit(1) | bit(2);
  return all(cpuid(1).ecx, fma | avx | f16c) && all(cpuid(7).ebx, avx2) && all(saved_state(), sse_and_ymm);
}

bool detect_avx512() {
  const uint64_t f = bit(16), dq = bit(17), bw = bit(30), vl = bit(31);
  const uint64_t opmask_and_zmm = bit(5) | bit(6) | bit(7);
  return detect_avx2() && all(cpuid(7).ebx, f | dq | bw | vl) && all(saved_state(), opmask_and_zmm);
}

bool has_avx512_bf16() {
  return detect_avx512() && cpuid(7).eax >= 1 && all(cpuid(7, 1).eax, bit(5));
}

// Elsewhere the products of pairs are no faster than those of float32 numbers.
bool detect_avx512_bf16() {
  const uint32_t auth = 0x68747541;  // the first letters of "AuthenticAMD"
  return has_avx512_bf16() && cpuid(0).ebx == auth;
}

bool detect_amx() {
  const uint64_t bf16 = bit(22), tile = bit(24);
  const uint64_t tile_config_and_data = bit(17) | bit(18);
  return has_avx512_bf16() && all(cpuid(7).edx, bf16 | tile) && all(saved_state(), tile_config_and_data);
}

}  // namespace

bool cpu_runs_avx2() noexcept {
  static const bool runs = detect_avx2();
  return runs;
}

bool cpu_runs_avx512() noexcept {
  static const bool runs = detect_avx512();
  return runs;
}

bool cpu_runs_avx512_bf16() noexcept {
  static const bool runs = detect_avx512_bf16();
  return runs;
}

bool cpu_runs_amx() noexcept {
  static const bool runs = detect_amx();
  return runs;
}

int request_tiles() noexcept {
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0 ? 0 : errno;
}

}  // namespace kvfork::kernels
