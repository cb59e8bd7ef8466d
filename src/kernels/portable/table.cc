// The kernel set `portable`: plain C++, the specification that other sets are tested against.

#include "kernels/generic/table.h"

#include "kernels/portable/vec.h"

namespace kvfork::kernels::portable {
namespace {

constexpr KernelTable kTable = make_table<Portable>("portable");

}  // namespace

const KernelTable& kernel_table() noexcept {
  return kTable;
}

}  // namespace kvfork::kernels::portable
