// The rotary frequencies that a config means, in the order of operations of Transformers' modeling_rope_utils.
#pragma once

#include <cstddef>
#include <string_view>

#include "checkpoint/config.h"
#include "checkpoint/json_fields.h"
#include "checkpoint/model_spec.h"

namespace kvfork::checkpoint {

/// Reads rope_theta and rope_scaling, or rope_parameters, in which Transformers 5 writes both. Throws
/// Error{Corrupt, Unsupported}.
void read_rope(const JsonFields& fields, ModelConfig& config);

/// The rotation of heads of which `dim` components turn.
RotationSpec make_rotation(double theta, const RopeScaling& scaling, size_t dim);

}  // namespace kvfork::checkpoint
