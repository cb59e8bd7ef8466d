// The kernel set `amx`: products and attention on tiles, everything else as in `avx512`.

#include "kernels/amx/table.h"

#include "kernels/amx/tiles.h"

namespace kvfork::kernels::amx {
namespace {

struct Tiles : AmxTiles {
  /// 32 numbers rounded to bf16, those of `low` first; a denormal number counts as zero.
  static __m512i round_pair(__m512 low, __m512 high) {
    __m512i pair;
    __asm__("vcvtne2ps2bf16 %2, %1, %0" : "=v"(pair) : "v"(high), "v"(low));
    return pair;
  }
};

constexpr KernelTable kTable = make_tile_table<Tiles>("amx");

}  // namespace

const KernelTable& kernel_table() noexcept {
  return kTable;
}

}  // namespace kvfork::kernels::amx
