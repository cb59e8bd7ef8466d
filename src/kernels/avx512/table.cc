// The kernel set `avx512`: the kernels of generic/ compiled for AVX-512.

#include "kernels/generic/table.h"

#include "kernels/avx512/vec.h"

namespace kvfork::kernels::avx512 {
namespace {

constexpr KernelTable kTable = make_table<Avx512>("avx512");

}  // namespace

const KernelTable& kernel_table() noexcept {
  return kTable;
}

}  // namespace kvfork::kernels::avx512
