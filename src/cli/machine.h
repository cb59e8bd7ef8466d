// What a measurement should be read with: the machine, and what else it was doing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace kvfork::cli {

struct Machine {
  std::string cpu;     ///< as the processor names itself
  size_t n_cores = 0;  ///< that this process may use
  uint64_t memory_bytes = 0;
  std::string system;    ///< operating system kernel and its version
  std::string governor;  ///< of the clock frequency; empty: unknown
};

/// Runnable processes, averaged over one and five minutes.
struct Load {
  double one_minute = 0;
  double five_minutes = 0;
};

Machine read_machine();
Load read_load();

/// "2031-01-05T06:07:08", local time.
std::string read_clock();

}  // namespace kvfork::cli
