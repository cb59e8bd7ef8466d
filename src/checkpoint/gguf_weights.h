// Turns the tensors of a GGUF file into weights under Hugging Face names.
#pragma once

#include <cstddef>
#include <vector>

#include "base/memory_region.h"
#include "checkpoint/config.h"
#include "checkpoint/gguf.h"
#include "checkpoint/weight.h"

namespace kvfork::checkpoint {

struct GgufWeights {
  std::vector<Weight> weights;  ///< pointing into the file or into `memory`
  base::MemoryRegion memory;    ///< read-only: what had to be dequantized or reordered
};

/// F32, F16 and BF16 tensors are used where they lie; the others become float32. Converters interleave the two
/// halves of each rotary head of llama's q and k; they are put back here. Throws Error{Corrupt, Unsupported} naming
/// every missing, unexpected or misshapen tensor, and Error{Limit} when memory does not suffice.
GgufWeights load_gguf_weights(const GgufFile& file, const ModelConfig& config, size_t n_threads);

}  // namespace kvfork::checkpoint
