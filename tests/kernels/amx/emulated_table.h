// The amx set on emulated tiles; runs where avx512 does.
#pragma once

#include <stdint.h>

#include "kernels/kernels.h"

namespace kvfork::kernels {

const KernelTable& emulated_amx_table() noexcept;

/// The bfloat16 terms in which the set takes 32 float16 weights.
void split_f16_weights(const uint16_t* weights, uint16_t* high, uint16_t* rest) noexcept;

}  // namespace kvfork::kernels
