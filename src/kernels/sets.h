// The one symbol that each kernel set exports. A set may be called only where cpu_features.h says that it runs.
#pragma once

#include "kernels/kernels.h"

namespace kvfork::kernels {

namespace portable {
const KernelTable& kernel_table() noexcept;
}
namespace avx2 {
const KernelTable& kernel_table() noexcept;
}
namespace avx512 {
const KernelTable& kernel_table() noexcept;
}
namespace avx512_bf16 {
const KernelTable& kernel_table() noexcept;
}
namespace amx {
const KernelTable& kernel_table() noexcept;
}

}  // namespace kvfork::kernels
