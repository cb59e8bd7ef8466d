// Measures the machine's ceilings: bytes read per second, products per second in registers and on tiles, clock.

#include "bench/kernels/probe.h"

#include <immintrin.h>

#include <chrono>
#include <cstdint>

#include "kernels/amx/tiles.h"

namespace kvfork::bench {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

template <class Value>
void keep(Value& value) {
  __asm__ volatile("" : : "g"(&value) : "memory");
}

__attribute__((target("avx2"))) void read_wide(const char* data, size_t bytes) {
  __m256i sums[4] = {};
  for (size_t i = 0; i + 128 <= bytes; i += 128) {
    for (size_t j = 0; j < 4; ++j) {
      const __m256i* at = reinterpret_cast<const __m256i*>(data + i + 32 * j);
      sums[j] = _mm256_xor_si256(sums[j], _mm256_loadu_si256(at));
    }
  }
  keep(sums);
}

void read_narrow(const char* data, size_t bytes) {
  __m128i sums[4] = {};
  for (size_t i = 0; i + 64 <= bytes; i += 64) {
    for (size_t j = 0; j < 4; ++j) {
      const __m128i* at = reinterpret_cast<const __m128i*>(data + i + 16 * j);
      sums[j] = _mm_xor_si128(sums[j], _mm_loadu_si128(at));
    }
  }
  keep(sums);
}

constexpr size_t kRounds = 1 << 18;
constexpr size_t kChains = 12;

__attribute__((target("avx512f"))) void multiply_add_512() {
  __m512 acc[kChains];
  for (auto& a : acc) a = _mm512_set1_ps(1.0f);
  const __m512 x = _mm512_set1_ps(0.999f);
  for (size_t i = 0; i < kRounds; ++i) {
#pragma GCC unroll 12
    for (auto& a : acc) a = _mm512_fmadd_ps(a, x, x);
  }
  keep(acc);
}

__attribute__((target("avx2,fma"))) void multiply_add_256() {
  __m256 acc[kChains];
  for (auto& a : acc) a = _mm256_set1_ps(1.0f);
  const __m256 x = _mm256_set1_ps(0.999f);
  for (size_t i = 0; i < kRounds; ++i) {
#pragma GCC unroll 12
    for (auto& a : acc) a = _mm256_fmadd_ps(a, x, x);
  }
  keep(acc);
}

void multiply_add_128() {
  __m128 acc[kChains];
  for (auto& a : acc) a = _mm_set1_ps(1.0f);
  const __m128 x = _mm_set1_ps(0.999f);
  for (size_t i = 0; i < kRounds; ++i) {
#pragma GCC unroll 12
    for (auto& a : acc) a = _mm_add_ps(_mm_mul_ps(a, x), x);
  }
  keep(acc);
}

__attribute__((target("avx512f,avx512bf16"))) void multiply_add_pairs() {
  __m512 acc[kChains];
  for (auto& a : acc) a = _mm512_set1_ps(1.0f);
  const __m512bh x = _mm512_cvtne2ps_pbh(_mm512_set1_ps(0.5f), _mm512_set1_ps(0.25f));
  for (size_t i = 0; i < kRounds; ++i) {
#pragma GCC unroll 12
    for (auto& a : acc) a = _mm512_dpbf16_ps(a, x, x);
  }
  keep(acc);
}

}  // namespace

double read_bytes_per_second(const void* data, size_t bytes) {
  const auto start = Clock::now();
  if (__builtin_cpu_supports("avx2")) {
    read_wide(static_cast<const char*>(data), bytes);
  } else {
    read_narrow(static_cast<const char*>(data), bytes);
  }
  return static_cast<double>(bytes) / seconds_since(start);
}

double register_flops_per_second(std::string_view kernel_set) {
  const auto start = Clock::now();
  size_t lanes = 4;
  if (kernel_set.starts_with("avx512") || kernel_set == "amx") {
    multiply_add_512();
    lanes = 16;
  } else if (kernel_set == "avx2") {
    multiply_add_256();
    lanes = 8;
  } else {
    multiply_add_128();
  }
  return static_cast<double>(2 * lanes * kRounds * kChains) / seconds_since(start);
}

double pair_flops_per_second() {
  if (!__builtin_cpu_supports("avx512bf16")) return 0;
  const auto start = Clock::now();
  multiply_add_pairs();
  return static_cast<double>(2 * 32 * kRounds * kChains) / seconds_since(start);
}

double tile_flops_per_second() {
  using Tiles = kernels::AmxTiles;
  alignas(64) static const char zeros[1024] = {};
  constexpr size_t kProducts = 16 * 16 * 32;
  Tiles::configure();
  Tiles::load<4>(zeros, 64);
  Tiles::load<5>(zeros, 64);
  Tiles::zero<0>();
  Tiles::zero<1>();
  Tiles::zero<2>();
  Tiles::zero<3>();
  const auto start = Clock::now();
  for (size_t i = 0; i < kRounds; ++i) {
    Tiles::multiply_add<0, 4, 5>();
    Tiles::multiply_add<1, 4, 5>();
    Tiles::multiply_add<2, 4, 5>();
    Tiles::multiply_add<3, 4, 5>();
  }
  const double seconds = seconds_since(start);
  Tiles::release();
  return static_cast<double>(2 * kProducts * 4 * kRounds) / seconds;
}

double clock_hertz() {
  constexpr size_t kSteps = size_t{1} << 20;
  const auto start = Clock::now();
  uint64_t sum = 1;
  for (size_t i = 0; i < kSteps; ++i) {
    __asm__ volatile(
        "add %0, %0\n\tadd %0, %0\n\tadd %0, %0\n\tadd %0, %0\n\t"
        "add %0, %0\n\tadd %0, %0\n\tadd %0, %0\n\tadd %0, %0"
        : "+r"(sum));
  }
  return static_cast<double>(8 * kSteps) / seconds_since(start);
}

}  // namespace kvfork::bench
