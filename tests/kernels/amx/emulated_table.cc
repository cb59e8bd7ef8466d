// The set `amx` on emulated tiles, for machines without AMX.

#include "tests/kernels/amx/emulated_table.h"

#include "kernels/amx/table.h"
#include "tests/kernels/amx/emulated_tiles.h"

namespace kvfork::kernels {
namespace {

struct TwinTiles : EmulatedTiles {
  static __m512i round_pair(__m512 low, __m512 high) {
    const auto round = [](__m512 x) {
      const __mmask16 normal = _mm512_cmp_ps_mask(_mm512_abs_ps(x), _mm512_set1_ps(0x1p-126f), _CMP_NLT_UQ);
      return Avx512::round_bf16(_mm512_maskz_mov_ps(normal, x));
    };
    return Avx512::upper_halves(round(low), round(high));
  }
};

constexpr KernelTable kTable = make_tile_table<TwinTiles>("amx_emulated");

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
