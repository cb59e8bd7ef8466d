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

}  // namespace kvfork::kernels
