// The kernel set `amx`: products and attention on tiles, everything else as in `avx512`.

#include "kernels/amx/table.h"

#include "kernels/amx/tiles.h"

namespace kvfork::kernels::amx {
namespace {

constexpr KernelTable kTable = make_tile_table<AmxTiles>("amx");

}  // namespace

const KernelTable& kernel_table() noexcept {
  return kTable;
}

}  // namespace kvfork::kernels::amx
