// Any bytes either parse as safetensors, with every tensor inside them, or give a kvfork::Error.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <numeric>

#include "checkpoint/safetensors.h"
#include "kvfork/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace kvfork::checkpoint;
  try {
    const auto file = Safetensors::parse(std::as_bytes(std::span(data, size)), "input");
    size_t n_bytes = 0;
    unsigned sum = 0;
    for (const TensorView& tensor : file.tensors()) {
      n_bytes += tensor.n_bytes;
      for (size_t i = 0; i < tensor.n_bytes; ++i) sum += static_cast<unsigned>(tensor.data[i]);
      if (file.find_tensor(tensor.name) != &tensor) std::abort();
    }
    if (n_bytes > size || sum > 255 * size) std::abort();
  } catch (const kvfork::Error&) {
  }
  return 0;
}
