// Every way to run a model on this machine: kernel sets times compute modes.
#pragma once

#include <string>
#include <vector>

#include "kernels/select.h"
#include "kvfork/model.h"

namespace kvfork::test {

struct Setup {
  std::string kernel_set;
  ComputeMode mode;

  std::string name() const { return kernel_set + "/" + compute_mode_name(mode); }
  ModelOptions options(size_t n_threads = 1) const {
    return {.mode = mode, .n_threads = n_threads, .kernel_set = kernel_set};
  }
};

inline std::vector<Setup> each_setup() {
  std::vector<Setup> setups;
  for (const auto* set : kernels::supported_kernel_sets()) {
    setups.push_back({set->name, ComputeMode::Float32});
    setups.push_back({set->name, ComputeMode::BFloat16});
  }
  return setups;
}

}  // namespace kvfork::test
