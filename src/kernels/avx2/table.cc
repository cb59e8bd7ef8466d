// The kernel set `avx2`: the kernels of generic/ compiled for AVX2 with FMA.

#include "kernels/generic/table.h"

#include "kernels/avx2/vec.h"

namespace kvfork::kernels::avx2 {
namespace {

constexpr KernelTable kTable = make_table<Avx2>("avx2");

}  // namespace

const KernelTable& kernel_table() noexcept {
  return kTable;
}

}  // namespace kvfork::kernels::avx2
