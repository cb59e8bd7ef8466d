// A weight of the model, and the check of a checkpoint's tensors against what its config implies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/dtype.h"
#include "checkpoint/model_spec.h"

namespace kvfork::checkpoint {

/// Row-major, outermost dimension first: [out, in] for matrices. `data` may have any alignment.
struct Weight {
  std::string name;          ///< Hugging Face spelling, e.g. model.layers.0.self_attn.q_proj.weight
  DType dtype = DType::F32;  ///< F32, F16 or BF16
  std::vector<uint64_t> shape;
  const void* data = nullptr;
};

/// Whether a checkpoint may hold this tensor although the model does not use it, as Transformers has it: the head
/// beside a tied embedding, buffers, parts of an image model beside the text, and layers for drafting. `file_name`
/// as in the file.
bool is_ignorable_tensor(std::string_view file_name, const ModelSpec& spec);

/// A tensor that a checkpoint has, described for the check.
struct FoundTensor {
  std::string_view file_name;  ///< spelling in the file
  std::vector<uint64_t> shape;
  std::string_view type;  ///< "BF16", "Q4_1"
  bool is_supported_type = true;
};

/// Checks that `found` is exactly what `spec` needs, but for tensors that may be ignored. `model` names the
/// architecture. Throws one Error{Corrupt} (Error{Unsupported} when only types are wrong) that names everything
/// missing, unexpected, misshapen or of a wrong type, cut off after 20.
void check_tensors(const std::vector<FoundTensor>& found, const ModelSpec& spec, std::string_view model,
                   std::string_view subject);

}  // namespace kvfork::checkpoint
