// The set `amx` on emulated tiles, for machines without AMX.

#include "tests/kernels/amx/emulated_table.h"

#include "kernels/amx/table.h"
#include "tests/kernels/amx/emulated_tiles.h"

namespace kvfork::kernels {
namespace {

constexpr KernelTable kTable = make_tile_table<EmulatedTiles>("amx_emulated");

}  // namespace

const KernelTable& emulated_amx_table() noexcept {
  return kTable;
}

void split_f16_weights(const uint16_t* weights, uint16_t* high, uint16_t* rest) noexcept {
  __m512i terms[2];
  split_f16(Avx512::load_bits(weights), terms[0], terms[1]);
  _mm512_storeu_si512(high, terms[0]);
  _mm512_storeu_si512(rest, terms[1]);
}

}  // namespace kvfork::kernels
