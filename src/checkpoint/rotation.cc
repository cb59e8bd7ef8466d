// Reads a config's rotary settings and computes the frequencies they mean.
#include "checkpoint/rotation.h"

#include <array>
#include <cmath>
#include <numbers>

#include "base/error.h"

namespace kvfork::checkpoint {
namespace {

using base::describe_json;
using base::fail;

double get_scaling_number(const JsonFields& fields, std::string_view name) {
  const auto value = fields.find_number(name);
  if (!value) fail(ErrorCode::Corrupt, "{}: {} is missing", fields.subject(), name);
  if (!std::isfinite(*value) || *value <= 0) fields.fail_type(name, "a positive number", *fields.find(name));
  return *value;
}

RopeScaling read_rope_scaling(const JsonFields& fields) {
  constexpr std::array<std::string_view, 7> kKnown = {"type",
                                                      "rope_type",
                                                      "rope_theta",
                                                      "factor",
                                                      "low_freq_factor",
                                                      "high_freq_factor",
                                                      "original_max_position_embeddings"};
  // Transformers lets the older spelling win where both are there.
  const auto old_type = fields.find_string("type");
  const auto type = old_type ? old_type : fields.find_string("rope_type");
  if (!type) fail(ErrorCode::Corrupt, "{}: expected rope_type, found none", fields.subject());
  RopeScaling scaling;
  if (*type == "linear") {
    scaling.kind = RopeScaling::Kind::Linear;
    scaling.factor = get_scaling_number(fields, "factor");
  } else if (*type == "llama3") {
    scaling.kind = RopeScaling::Kind::Llama3;
    scaling.factor = get_scaling_number(fields, "factor");
    scaling.low_freq_factor = get_scaling_number(fields, "low_freq_factor");
    scaling.high_freq_factor = get_scaling_number(fields, "high_freq_factor");
    scaling.original_max_position_embeddings = get_scaling_number(fields, "original_max_position_embeddings");
    if (scaling.high_freq_factor <= scaling.low_freq_factor)
      fail(ErrorCode::Corrupt, "{}: expected high_freq_factor above low_freq_factor, found {} and {}",
           fields.subject(), scaling.high_freq_factor, scaling.low_freq_factor);
  } else if (*type != "default") {
    fail(ErrorCode::Unsupported, "{}: rope_type: expected default, linear or llama3, found \"{}\"",
         fields.subject(), *type);
  }
  for (const auto& [name, value] : fields.all()) {
    if (std::find(kKnown.begin(), kKnown.end(), name) == kKnown.end() && !value.is_null())
      fail(ErrorCode::Unsupported, "{}: {}: found {}, which kvfork does not implement", fields.subject(), name,
           describe_json(value));
  }
  return scaling;
}

// Long wavelengths are divided by `factor`, short ones kept, those between blended (Llama 3.1). Computed in float32
// in the reference's order, so that the same frequencies come out.
float scale_llama3(float frequency, const RopeScaling& scaling) {
  const auto factor = static_cast<float>(scaling.factor);
  const auto low = static_cast<float>(scaling.low_freq_factor);
  const auto high = static_cast<float>(scaling.high_freq_factor);
  const auto original = static_cast<float>(scaling.original_max_position_embeddings);
  const float wavelength = static_cast<float>(2 * std::numbers::pi) / frequency;
  if (wavelength > original / low) return frequency / factor;
  if (wavelength < original / high) return frequency;
  const float smooth = (original / wavelength - low) / (high - low);
  return (1 - smooth) * (frequency / factor) + smooth * frequency;
}

}  // namespace

void read_rope(const JsonFields& fields, ModelConfig& config) {
  config.rope_theta = fields.find_number("rope_theta").value_or(10000.0);
  if (const auto scaling = fields.find("rope_scaling"))
    config.rope_scaling = read_rope_scaling(JsonFields(*scaling, fields.subject() + ": rope_scaling"));
  if (const auto parameters = fields.find("rope_parameters")) {
    const JsonFields inner(*parameters, fields.subject() + ": rope_parameters");
    const auto theta = inner.find_number("rope_theta");
    if (!fields.find("rope_theta") && theta) config.rope_theta = *theta;
    if (!fields.find("rope_scaling")) config.rope_scaling = read_rope_scaling(inner);
  }
}

RotationSpec make_rotation(double theta, const RopeScaling& scaling, size_t dim) {
  RotationSpec rotation;
  rotation.inverse_frequencies.resize(dim / 2);
  for (size_t i = 0; i < dim / 2; ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(dim);
    const auto power = static_cast<float>(std::pow(theta, static_cast<double>(exponent)));
    float& frequency = rotation.inverse_frequencies[i];
    frequency = 1.0f / power;
    switch (scaling.kind) {
      case RopeScaling::Kind::None:
        break;
      case RopeScaling::Kind::Linear:
        frequency /= static_cast<float>(scaling.factor);
        break;
      case RopeScaling::Kind::Llama3:
        frequency = scale_llama3(frequency, scaling);
        break;
    }
  }
  return rotation;
}

}  // namespace kvfork::checkpoint
