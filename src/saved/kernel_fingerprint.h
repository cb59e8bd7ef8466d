// What a kernel set computes in this build, as a fingerprint: it changes with every change of an order of
// operations.
#pragma once

#include <string>

#include "kernels/kernels.h"

namespace kvfork::saved {

/// SHA-256 over the results of every kernel, and of the rotary tables, on fixed inputs; of the kernels for layers
/// with a state only where a model has such layers. Takes well under a millisecond.
std::string fingerprint_kernels(const kernels::KernelTable& kernels, bool has_states = false);

}  // namespace kvfork::saved
