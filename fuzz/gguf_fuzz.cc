// Any bytes either parse as GGUF, and then serve metadata, config and weights, or give a kvfork::Error.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "checkpoint/gguf.h"
#include "checkpoint/gguf_config.h"
#include "checkpoint/gguf_weights.h"
#include "kvfork/error.h"

namespace {

using namespace kvfork::checkpoint;

// Reads every byte, so that AddressSanitizer sees each.
unsigned sum_bytes(const void* data, size_t n) {
  unsigned sum = 0;
  for (size_t i = 0; i < n; ++i) sum += static_cast<unsigned>(static_cast<const std::byte*>(data)[i]);
  return sum;
}

template <typename Body>
void allow_error(const Body& body) {
  try {
    body();
  } catch (const kvfork::Error&) {
  }
}

void read_values(const GgufFile& file) {
  for (const GgufValue& value : file.values()) {
    if (file.find_value(value.key) != &value) std::abort();
    allow_error([&] { file.find_string(value.key); });
    allow_error([&] { file.find_integer(value.key); });
    allow_error([&] { file.find_number(value.key); });
    allow_error([&] { file.find_bool(value.key); });
    allow_error([&] { file.find_strings(value.key); });
    allow_error([&] { file.find_integers(value.key); });
    allow_error([&] { file.find_numbers(value.key); });
  }
}

void read_weights(const GgufFile& file) {
  const ModelConfig config = make_gguf_config(file);
  const GgufWeights loaded = load_gguf_weights(file, config, 1);
  for (const Weight& weight : loaded.weights) {
    const size_t n_bytes = static_cast<size_t>(*count_elements(weight.shape)) * dtype_bits(weight.dtype) / 8;
    if (sum_bytes(weight.data, n_bytes) > 255 * n_bytes) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  allow_error([&] {
    const auto file = GgufFile::parse(std::as_bytes(std::span(data, size)), "input");
    for (const GgufTensor& tensor : file.tensors()) {
      if (sum_bytes(tensor.data, tensor.n_bytes) > 255 * tensor.n_bytes) std::abort();
    }
    read_values(file);
    allow_error([&] { read_weights(file); });
  });
  return 0;
}
