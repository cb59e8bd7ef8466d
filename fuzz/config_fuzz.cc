// Any text is a config.json, a generation_config.json or a shard index, or gives a kvfork::Error.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "checkpoint/config.h"
#include "checkpoint/dtype.h"
#include "checkpoint/generation_config.h"
#include "checkpoint/shard_index.h"
#include "kvfork/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace kvfork::checkpoint;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const ModelConfig config = parse_config(text, "input");
    for (const TensorSpec& tensor : config.spec.tensors) {
      if (!count_elements(tensor.shape)) std::abort();
    }
  } catch (const kvfork::Error&) {
  }
  try {
    parse_generation_config(text, "input");
  } catch (const kvfork::Error&) {
  }
  try {
    for (const auto& [name, file] : parse_shard_index(text, "input")) {
      if (file.find('/') != std::string::npos) std::abort();
    }
  } catch (const kvfork::Error&) {
  }
  return 0;
}
