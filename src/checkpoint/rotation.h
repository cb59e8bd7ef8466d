// The rotary frequencies that a config means, in the order of operations of Transformers' modeling_rope_utils.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>

#include "checkpoint/config.h"
#include "checkpoint/json_fields.h"
#include "checkpoint/model_spec.h"

namespace kvfork::checkpoint {

/// What a config says of the rotation of one kind of layer.
struct RopeSettings {
  double theta = 10000;
  RopeScaling scaling;
  /// The part of each head that turns; nothing: the family knows no such part. Without it only rope_parameters is
  /// asked, so that a family that reads no such field can refuse it.
  std::optional<double> partial_rotary_factor;
  /// Keys beside those of the rotation: what the family reads itself, or what means nothing to text.
  std::span<const std::string_view> more_keys = {};
};

/// Reads rope_theta, rope_scaling and the rest of older files, or rope_parameters, in which Transformers 5 writes
/// them together, for all layers or per kind of layer. `defaults` hold where the config is silent. `layer_type`:
/// the kind of layer, e.g. "sliding_attention"; files that do not tell kinds apart serve every kind. Throws
/// Error{Corrupt, Unsupported}.
RopeSettings read_rope(const JsonFields& fields, const RopeSettings& defaults, size_t max_position_embeddings,
                       std::string_view layer_type = "full_attention");

/// The rotation of heads of which `dim` components turn.
RotationSpec make_rotation(double theta, const RopeScaling& scaling, size_t dim);

}  // namespace kvfork::checkpoint
