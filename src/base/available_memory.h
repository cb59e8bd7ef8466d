// How much memory this process may still take.
#pragma once

#include <cstddef>

namespace kvfork::base {

/// Bytes that the system has available (page cache that can be dropped included), cut by the limits of the cgroup
/// and of the process's address space. SIZE_MAX where nothing is known.
size_t available_memory();

}  // namespace kvfork::base
