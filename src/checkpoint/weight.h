// A weight of the model, and the check of a checkpoint's tensors against what its config implies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/config.h"
#include "checkpoint/dtype.h"

namespace kvfork::checkpoint {

/// Row-major, outermost dimension first: [out, in] for matrices. `data` may have any alignment.
struct Weight {
  std::string name;          ///< Hugging Face spelling, e.g. model.layers.0.self_attn.q_proj.weight
  DType dtype = DType::F32;  ///< F32, F16 or BF16
  std::vector<uint64_t> shape;
  const void* data = nullptr;
};

/// A tensor that a checkpoint has, described for the check.
struct FoundTensor {
  std::string_view name;       ///< Hugging Face spelling
  std::string_view file_name;  ///< spelling in the file, for messages
  std::vector<uint64_t> shape;
  std::string_view type;  ///< "BF16", "Q4_1"
  bool is_supported_type = true;
};

/// Checks that `found` is exactly what `config` needs, but for tensors that may be ignored. Throws one
/// Error{Corrupt} (Error{Unsupported} when only types are wrong) that names everything missing, unexpected,
/// misshapen or of a wrong type, cut off after 20.
void check_tensors(const std::vector<FoundTensor>& found, const ModelConfig& config, std::string_view subject);

}  // namespace kvfork::checkpoint
