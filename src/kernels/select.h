// Which kernel sets this build has and this machine runs, best first.
#pragma once

#include <span>
#include <string_view>

#include "kernels/kernels.h"

namespace kvfork::kernels {

/// The sets that are built in and that this CPU and operating system support, best first; never empty, the last is
/// "portable".
std::span<const KernelTable* const> supported_kernel_sets() noexcept;

/// The set of that name, or null when it is unknown or this machine cannot run it.
const KernelTable* find_kernel_set(std::string_view name) noexcept;

/// Gets what a set needs from the operating system: tile registers for amx, nothing for the others. To be called
/// before any function of the set runs. 0, or the errno of a refusal.
int prepare_kernel_set(const KernelTable& set) noexcept;

/// Names of the sets that this build contains, whether or not this machine runs them, best first.
std::span<const std::string_view> built_kernel_sets() noexcept;

}  // namespace kvfork::kernels
