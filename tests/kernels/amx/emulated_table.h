// The amx set on emulated tiles; runs where avx512 does.
#pragma once

#include "kernels/kernels.h"

namespace kvfork::kernels {

const KernelTable& emulated_amx_table() noexcept;

}  // namespace kvfork::kernels
