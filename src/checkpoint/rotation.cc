// Reads a config's rotary settings and computes the frequencies they mean.
#include "checkpoint/rotation.h"

#include <algorithm>
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

double find_scaling_number(const JsonFields& fields, std::string_view name, double absent) {
  return fields.find_number(name).value_or(0) == 0 ? absent : get_scaling_number(fields, name);
}

void read_llama3(const JsonFields& fields, RopeScaling& scaling) {
  scaling.factor = get_scaling_number(fields, "factor");
  scaling.low_freq_factor = get_scaling_number(fields, "low_freq_factor");
  scaling.high_freq_factor = get_scaling_number(fields, "high_freq_factor");
  scaling.original_max_position_embeddings = get_scaling_number(fields, "original_max_position_embeddings");
  if (scaling.high_freq_factor <= scaling.low_freq_factor)
    fail(ErrorCode::Corrupt, "{}: expected high_freq_factor above low_freq_factor, found {} and {}",
         fields.subject(), scaling.high_freq_factor, scaling.low_freq_factor);
}

void read_yarn(const JsonFields& fields, double max_position_embeddings, RopeScaling& scaling) {
  scaling.factor = get_scaling_number(fields, "factor");
  scaling.original_max_position_embeddings =
      find_scaling_number(fields, "original_max_position_embeddings", max_position_embeddings);
  scaling.beta_fast = find_scaling_number(fields, "beta_fast", 32);
  scaling.beta_slow = find_scaling_number(fields, "beta_slow", 1);
  scaling.truncate = fields.find_bool("truncate").value_or(true);
  scaling.mscale = find_scaling_number(fields, "mscale", 0);
  scaling.mscale_all_dim = find_scaling_number(fields, "mscale_all_dim", 0);
  scaling.attention_factor = fields.find_number("attention_factor");
}

// `outer` may hold original_max_position_embeddings, which then also decides over the factor.
void read_longrope(const JsonFields& fields, const JsonFields& outer, double max_position_embeddings,
                   RopeScaling& scaling) {
  const auto inner = fields.find_number("original_max_position_embeddings");
  const auto original = outer.find_number("original_max_position_embeddings");
  scaling.original_max_position_embeddings = original ? *original : inner.value_or(max_position_embeddings);
  scaling.factor = original || inner ? max_position_embeddings / scaling.original_max_position_embeddings
                                     : fields.find_number("factor").value_or(1);
  scaling.attention_factor = fields.find_number("attention_factor");
  scaling.short_factor = fields.find_numbers("short_factor").value_or(std::vector<double>{});
  scaling.long_factor = fields.find_numbers("long_factor").value_or(std::vector<double>{});
  if (scaling.short_factor.empty() || scaling.long_factor.empty())
    fail(ErrorCode::Corrupt, "{}: expected short_factor and long_factor, found {} and {} numbers", fields.subject(),
         scaling.short_factor.size(), scaling.long_factor.size());
}

RopeScaling read_rope_scaling(const JsonFields& fields, const JsonFields& outer, double max_position_embeddings,
                              std::span<const std::string_view> more_keys) {
  // What other kinds read; files carry them along.
  constexpr std::array<std::string_view, 12> kIgnored = {"beta_fast",
                                                         "beta_slow",
                                                         "mscale",
                                                         "mscale_all_dim",
                                                         "type",
                                                         "rope_type",
                                                         "rope_theta",
                                                         "factor",
                                                         "low_freq_factor",
                                                         "high_freq_factor",
                                                         "original_max_position_embeddings",
                                                         "partial_rotary_factor"};
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
    read_llama3(fields, scaling);
  } else if (*type == "yarn") {
    scaling.kind = RopeScaling::Kind::Yarn;
    read_yarn(fields, max_position_embeddings, scaling);
  } else if (*type == "longrope" || *type == "su") {
    scaling.kind = RopeScaling::Kind::LongRope;
    read_longrope(fields, outer, max_position_embeddings, scaling);
  } else if (*type == "dynamic") {
    scaling.kind = RopeScaling::Kind::Dynamic;
    scaling.factor = find_scaling_number(fields, "factor", 1);
    scaling.alpha = find_scaling_number(fields, "alpha", 0);
  } else if (*type != "default") {
    fail(ErrorCode::Unsupported,
         "{}: rope_type: expected default, linear, llama3, yarn, longrope or dynamic, found \"{}\"",
         fields.subject(), *type);
  }
  for (const auto& [name, value] : fields.all()) {
    const bool is_ignored = std::find(kIgnored.begin(), kIgnored.end(), name) != kIgnored.end() ||
                            std::find(more_keys.begin(), more_keys.end(), name) != more_keys.end();
    if (!is_ignored && !fields.was_read(name) && !value.is_null())
      fail(ErrorCode::Unsupported, "{}: {}: found {}, which kvfork does not implement", fields.subject(), name,
           describe_json(value));
  }
  return scaling;
}

// rope_parameters of one kind of layer, or nothing.
std::optional<JsonFields> find_parameters(const JsonFields& fields, std::string_view layer_type) {
  const auto parameters = fields.find("rope_parameters");
  if (!parameters) return std::nullopt;
  const JsonFields all(*parameters, fields.subject() + ": rope_parameters");
  const bool is_by_layer = std::all_of(all.all().begin(), all.all().end(), [](const auto& field) {
    return field.second.is_object() || field.second.is_null();
  });
  if (!is_by_layer || all.all().empty()) return all;
  const auto own = all.find(layer_type);
  if (!own) return std::nullopt;
  return JsonFields(*own, all.subject() + ": " + std::string(layer_type));
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

// The frequencies 1 / theta^(2i / dim), each divided by a factor of its own where there is one.
std::vector<float> plain_frequencies(double theta, size_t dim, const std::vector<double>& divisors = {}) {
  std::vector<float> frequencies(dim / 2);
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(dim);
    const auto power = static_cast<float>(std::pow(theta, static_cast<double>(exponent)));
    frequencies[i] = 1.0f / (divisors.empty() ? power : static_cast<float>(divisors[i]) * power);
  }
  return frequencies;
}

double yarn_gain(double factor, double mscale) {
  return factor <= 1 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

void scale_yarn(double theta, const RopeScaling& scaling, size_t dim, RotationSpec& rotation) {
  const bool has_both = scaling.mscale != 0 && scaling.mscale_all_dim != 0;
  const double gain =
      has_both ? yarn_gain(scaling.factor, scaling.mscale) / yarn_gain(scaling.factor, scaling.mscale_all_dim)
               : yarn_gain(scaling.factor, 1);
  rotation.factor = static_cast<float>(scaling.attention_factor.value_or(gain));
  // The pair that turns so many times within the original length.
  const auto pair_of = [&](double turns) {
    return static_cast<double>(dim) *
           std::log(scaling.original_max_position_embeddings / (turns * 2 * std::numbers::pi)) /
           (2 * std::log(theta));
  };
  double low = pair_of(scaling.beta_fast), high = pair_of(scaling.beta_slow);
  if (scaling.truncate) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(dim) - 1);
  if (low == high) high += 0.001;
  for (size_t i = 0; i < dim / 2; ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(dim);
    const auto power = static_cast<float>(std::pow(theta, static_cast<double>(exponent)));
    const float ramp =
        std::clamp((static_cast<float>(i) - static_cast<float>(low)) / static_cast<float>(high - low), 0.0f, 1.0f);
    const float kept = 1 - ramp;
    rotation.inverse_frequencies[i] =
        1.0f / (static_cast<float>(scaling.factor) * power) * (1 - kept) + 1.0f / power * kept;
  }
}

void scale_long(double theta, const RopeScaling& scaling, size_t dim, RotationSpec& rotation) {
  if (scaling.short_factor.size() != dim / 2 || scaling.long_factor.size() != dim / 2)
    fail(ErrorCode::Corrupt, "longrope: expected short_factor and long_factor of {} numbers, found {} and {}",
         dim / 2, scaling.short_factor.size(), scaling.long_factor.size());
  const double original = scaling.original_max_position_embeddings;
  const double gain = scaling.factor <= 1 ? 1.0 : std::sqrt(1 + std::log(scaling.factor) / std::log(original));
  rotation.factor = static_cast<float>(scaling.attention_factor.value_or(gain));
  rotation.inverse_frequencies = plain_frequencies(theta, dim, scaling.short_factor);
  rotation.long_inverse_frequencies = plain_frequencies(theta, dim, scaling.long_factor);
  rotation.switch_length = static_cast<size_t>(original);
}

}  // namespace

RopeSettings read_rope(const JsonFields& fields, const RopeSettings& defaults, size_t max_position_embeddings,
                       std::string_view layer_type) {
  const auto limit = static_cast<double>(max_position_embeddings);
  RopeSettings settings = defaults;
  const auto theta = fields.find_number("rope_theta");
  settings.theta = theta.value_or(defaults.theta);
  if (defaults.partial_rotary_factor)
    settings.partial_rotary_factor =
        fields.find_number("partial_rotary_factor").value_or(*defaults.partial_rotary_factor);
  const auto scaling = fields.find("rope_scaling");
  if (scaling)
    settings.scaling = read_rope_scaling(JsonFields(*scaling, fields.subject() + ": rope_scaling"), fields, limit,
                                         defaults.more_keys);
  if (const auto inner = find_parameters(fields, layer_type)) {
    if (!theta) settings.theta = inner->find_number("rope_theta").value_or(defaults.theta);
    if (!scaling) settings.scaling = read_rope_scaling(*inner, fields, limit, defaults.more_keys);
    const auto part = inner->find_number("partial_rotary_factor");
    if (part) settings.partial_rotary_factor = part;
  }
  if (!std::isfinite(settings.theta) || settings.theta <= 0)
    fail(ErrorCode::Corrupt, "{}: rope_theta: expected a number > 0, found {}", fields.subject(), settings.theta);
  return settings;
}

RotationSpec make_rotation(double theta, const RopeScaling& scaling, size_t dim) {
  RotationSpec rotation;
  rotation.inverse_frequencies = plain_frequencies(theta, dim);
  switch (scaling.kind) {
    case RopeScaling::Kind::None:
      break;
    case RopeScaling::Kind::Linear:
      for (float& frequency : rotation.inverse_frequencies) frequency /= static_cast<float>(scaling.factor);
      break;
    case RopeScaling::Kind::Llama3:
      for (float& frequency : rotation.inverse_frequencies) frequency = scale_llama3(frequency, scaling);
      break;
    case RopeScaling::Kind::Yarn:
      scale_yarn(theta, scaling, dim, rotation);
      break;
    case RopeScaling::Kind::LongRope:
      scale_long(theta, scaling, dim, rotation);
      break;
    case RopeScaling::Kind::Dynamic:
      if (scaling.alpha != 0) {
        const auto n = static_cast<double>(dim);
        rotation.inverse_frequencies = plain_frequencies(theta * std::pow(scaling.alpha, n / (n - 2)), dim);
      }
      break;
  }
  return rotation;
}

}  // namespace kvfork::checkpoint
