// A twin of AmxTiles (kernels/amx/tiles.h) in plain code, as Intel's manual (Software Developer's Manual, volume 2,
// TDPBF16PS) gives the operations. With it the kernels of the amx set run, and are tested, where the processor has
// no tiles.
#pragma once

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

namespace kvfork::kernels {
namespace {

struct EmulatedTiles {
  static constexpr int kTiles = 8;
  struct State {
    bool configured = false;
    bool written[kTiles] = {};
    unsigned char bytes[kTiles][16][64];
  };

  static void configure() {
    if (state().configured) abort();  // a kernel that forgot to release
    state().configured = true;
    for (bool& written : state().written) written = false;
  }
  static void release() {
    if (!state().configured) abort();
    state().configured = false;
  }
  template <int kTile>
  static void zero() {
    memset(write(kTile), 0, sizeof state().bytes[kTile]);
  }
  template <int kTile>
  static void load(const void* p, size_t stride) {
    unsigned char* tile = write(kTile);
    for (size_t row = 0; row < 16; ++row) memcpy(tile + row * 64, static_cast<const char*>(p) + row * stride, 64);
  }
  template <int kTile>
  static void load_passing(const void* p, size_t stride) {
    load<kTile>(p, stride);
  }
  template <int kTile>
  static void store(void* p, size_t stride) {
    const unsigned char* tile = read(kTile);
    for (size_t row = 0; row < 16; ++row) copy(static_cast<char*>(p) + row * stride, tile + row * 64);
  }
  template <int kSum, int kA, int kB>
  static void multiply_add() {
    const unsigned char *a = read(kA), *b = read(kB), *sum = read(kSum);
    float out[16][16];
    for (size_t m = 0; m < 16; ++m) {
      for (size_t n = 0; n < 16; ++n) {
        float even = 0, odd = 0;
        for (size_t k = 0; k < 16; ++k) {
          even = fused(half(a + m * 64 + k * 4), half(b + k * 64 + n * 4), even);
          odd = fused(half(a + m * 64 + k * 4 + 2), half(b + k * 64 + n * 4 + 2), odd);
        }
        float old;
        memcpy(&old, sum + m * 64 + n * 4, sizeof old);
        out[m][n] = flushed(flushed(old) + flushed(even + odd));
      }
    }
    memcpy(write(kSum), out, sizeof out);
  }
  static void keep_awake() { multiply_add<0, 4, 6>(); }

 private:
  static State& state() {
    static thread_local State state;
    return state;
  }
  static unsigned char* write(int tile) {
    if (!state().configured) abort();
    state().written[tile] = true;
    return state().bytes[tile][0];
  }
  static const unsigned char* read(int tile) {
    if (!state().configured || !state().written[tile]) abort();
    return state().bytes[tile][0];
  }
  /// Out of line: GCC 12 takes a tile's rows for writes beyond the first row of an array of rows.
  [[gnu::noinline]] static void copy(void* to, const void* from) { memcpy(to, from, 64); }
  /// Denormal numbers count as zero, coming in and going out.
  static float flushed(float x) { return fabsf(x) < 0x1p-126f ? copysignf(0, x) : x; }
  /// Too small is what is below the smallest normal number when rounded to 24 bits; fmaf alone would round to
  /// fewer, and up. In double the sum is exact wherever that makes a difference.
  static float fused(float a, float b, float c) {
    const double exact = static_cast<double>(a) * b + c;
    return fabs(exact) < 0x1p-126 - 0x1p-151 ? static_cast<float>(copysign(0, exact)) : fmaf(a, b, c);
  }
  static float half(const unsigned char* p) {
    uint16_t bits;
    memcpy(&bits, p, sizeof bits);
    const uint32_t wide = static_cast<uint32_t>(bits) << 16;
    float x;
    memcpy(&x, &wide, sizeof x);
    return flushed(x);
  }
};

}  // namespace
}  // namespace kvfork::kernels
