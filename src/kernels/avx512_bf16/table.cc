// The kernel set `avx512_bf16`: `avx512` with products of bfloat16 pairs.

#include "kernels/generic/table.h"

#include "kernels/avx512_bf16/vec.h"

namespace kvfork::kernels::avx512_bf16 {
namespace {

constexpr KernelTable kTable = make_table<Avx512Bf16>("avx512_bf16");

}  // namespace

const KernelTable& kernel_table() noexcept {
  return kTable;
}

}  // namespace kvfork::kernels::avx512_bf16
