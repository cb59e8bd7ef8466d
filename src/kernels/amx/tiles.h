// The tile registers of AMX: eight, each 16 rows of 64 bytes. Kernels take this class as a template argument, so
// that a program's twin of it can stand in where the processor has none (tests/kernels/amx).
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace kvfork::kernels {
namespace {

struct TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(TileConfig) == 64);

/// Tile numbers are part of the instruction. Statements are volatile and touch memory, so they stay in order.
struct AmxTiles {
  /// All eight tiles at full size, for this thread, until `release`.
  static void configure() {
    static constexpr TileConfig kConfig;
    __asm__ volatile("ldtilecfg %0" : : "m"(kConfig) : "memory");
  }
  /// A thread that holds no tile state has less to save when the system switches to another.
  static void release() { __asm__ volatile("tilerelease" : : : "memory"); }

  template <int kTile>
  static void zero() {
    __asm__ volatile("tilezero %%tmm%c0" : : "i"(kTile) : "memory");
  }
  /// 16 rows of 64 bytes, `stride` bytes apart.
  template <int kTile>
  static void load(const void* p, size_t stride) {
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(p), "r"(stride), "i"(kTile) : "memory");
  }
  /// The same of what is read once while other data should stay in the first-level cache.
  template <int kTile>
  static void load_passing(const void* p, size_t stride) {
    __asm__ volatile("tileloaddt1 (%0,%1,1), %%tmm%c2" : : "r"(p), "r"(stride), "i"(kTile) : "memory");
  }
  template <int kTile>
  static void store(void* p, size_t stride) {
    __asm__ volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(p), "r"(stride), "i"(kTile) : "memory");
  }
  /// sum[m][n] += a[m][2k] * b[k][2n] + a[m][2k + 1] * b[k][2n + 1] over 16 k: bf16 pairs into float32. What is
  /// added to an element depends on its row of a and its column of b alone.
  template <int kSum, int kA, int kB>
  static void multiply_add() {
    __asm__ volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSum), "i"(kA), "i"(kB) : "memory");
  }
  /// The unit that multiplies tiles sleeps after some 1000 cycles without a product, and takes some 800 to wake. A
  /// product whose sum nobody reads keeps it awake; loads do not.
  static void keep_awake() { multiply_add<0, 4, 6>(); }
};

}  // namespace
}  // namespace kvfork::kernels
