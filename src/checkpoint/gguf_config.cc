// Translates the metadata of a GGUF file into the fields of config.json, so that one description serves both.
#include "checkpoint/gguf_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <numbers>

#include "base/error.h"
#include "checkpoint/families/family.h"

namespace kvfork::checkpoint {
namespace {

using base::fail;

// Metadata under the architecture's prefix ("llama.block_count").
class ArchitectureMetadata {
 public:
  explicit ArchitectureMetadata(const GgufFile& file)
      : file_(file), prefix_(std::string(file.architecture()) + ".") {}

  std::string key(std::string_view name) const { return prefix_ + std::string(name); }

  std::optional<size_t> find_size(std::string_view name) const {
    const auto value = file_.find_integer(key(name));
    if (!value) return std::nullopt;
    if (*value < 0) fail(ErrorCode::Corrupt, "{}: {}: found {}", file_.subject(), key(name), *value);
    return static_cast<size_t>(*value);
  }

  size_t get_size(std::string_view name) const {
    const auto value = find_size(name);
    if (!value) fail(ErrorCode::Corrupt, "{}: {} is missing", file_.subject(), key(name));
    return *value;
  }

  std::optional<double> find_number(std::string_view name) const { return file_.find_number(key(name)); }
  std::optional<std::string_view> find_string(std::string_view name) const { return file_.find_string(key(name)); }
  std::optional<bool> find_bool(std::string_view name) const { return file_.find_bool(key(name)); }
  const std::string& subject() const { return file_.subject(); }

 private:
  const GgufFile& file_;
  std::string prefix_;
};

// Numbers that mean a different computation unless they are zero or absent.
void refuse_effective_fields(const ArchitectureMetadata& metadata, const Family& family) {
  constexpr std::array<std::string_view, 10> kEffective = {"expert_count",
                                                           "attention.sliding_window",
                                                           "attention.clamp_kqv",
                                                           "attention.scale",
                                                           "logit_scale",
                                                           "embedding_scale",
                                                           "residual_scale",
                                                           "attn_logit_softcapping",
                                                           "final_logit_softcapping",
                                                           "attention.max_alibi_bias"};
  for (const std::string_view name : kEffective) {
    const auto is_read = [&](const GgufField& field) { return field.gguf == name; };
    if (std::any_of(family.gguf_fields.begin(), family.gguf_fields.end(), is_read)) continue;
    const auto value = metadata.find_number(name);
    if (value && *value != 0)
      fail(ErrorCode::Unsupported, "{}: {}: found {}, which kvfork does not implement", metadata.subject(),
           metadata.key(name), *value);
  }
  if (!metadata.find_bool("attention.causal").value_or(true))
    fail(ErrorCode::Unsupported, "{}: {}: found false, which kvfork does not implement", metadata.subject(),
         metadata.key("attention.causal"));
}

size_t read_head_dim(const ArchitectureMetadata& metadata, size_t hidden, size_t n_heads) {
  const auto rotary = metadata.find_size("rope.dimension_count");
  const auto key = metadata.find_size("attention.key_length");
  const auto value = metadata.find_size("attention.value_length");
  const size_t head_dim = key ? *key : rotary ? *rotary : (n_heads == 0 ? 0 : hidden / n_heads);
  if (value.value_or(head_dim) != head_dim || rotary.value_or(head_dim) != head_dim)
    fail(ErrorCode::Unsupported,
         "{}: expected attention.key_length, attention.value_length and rope.dimension_count to be equal, found "
         "{}, {} "
         "and {}",
         metadata.subject(), head_dim, value.value_or(head_dim), rotary.value_or(head_dim));
  return head_dim;
}

// By what a converter divides the rotary frequency `frequency` under llama3 scaling.
double llama3_divisor(double frequency, const RopeScaling& scaling) {
  const double wavelength = 2 * std::numbers::pi / frequency;
  const double original = scaling.original_max_position_embeddings;
  if (wavelength < original / scaling.high_freq_factor) return 1;
  if (wavelength > original / scaling.low_freq_factor) return scaling.factor;
  const double smooth =
      (original / wavelength - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor);
  return 1 / ((1 - smooth) / scaling.factor + smooth);
}

// rope_freqs.weight holds one divisor per frequency and not the parameters that made them. Llama 3.1 and later use
// one set of parameters but for `factor`, so that set is tried, and must give every stored divisor again.
RopeScaling recover_rope_scaling(const GgufFile& file, const GgufTensor& tensor, size_t head_dim, double theta) {
  const size_t n = head_dim / 2;
  if (tensor.type == nullptr || tensor.type->name != "F32" || tensor.shape != std::vector<uint64_t>{n})
    fail(ErrorCode::Corrupt, "{}: rope_freqs.weight: expected F32 [{}], found {} {}", file.subject(), n,
         tensor.type == nullptr ? "an unknown type" : tensor.type->name, tensor.shape.size());
  std::vector<float> divisors(n);
  std::memcpy(divisors.data(), tensor.data, n * sizeof(float));
  if (std::all_of(divisors.begin(), divisors.end(), [](float x) { return x == 1.0f; })) return {};

  RopeScaling scaling;
  scaling.kind = RopeScaling::Kind::Llama3;
  scaling.factor = *std::max_element(divisors.begin(), divisors.end());
  scaling.low_freq_factor = 1;
  scaling.high_freq_factor = 4;
  scaling.original_max_position_embeddings = 8192;
  for (size_t i = 0; i < n; ++i) {
    const double frequency = std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(head_dim));
    const double expected = llama3_divisor(frequency, scaling);
    if (!(std::abs(divisors[i] - expected) <= 1e-4 * expected))
      fail(ErrorCode::Unsupported,
           "{}: rope_freqs.weight: expected llama3 scaling with the parameters of Llama 3, found other factors (at "
           "{}: {} "
           "instead of {}); use the original checkpoint instead of the GGUF",
           file.subject(), i, divisors[i], expected);
  }
  return scaling;
}

RopeScaling read_rope_scaling(const GgufFile& file, const ArchitectureMetadata& metadata, size_t head_dim,
                              double theta) {
  RopeScaling scaling;
  const std::string_view type = metadata.find_string("rope.scaling.type").value_or("none");
  if (type == "linear") {
    scaling.kind = RopeScaling::Kind::Linear;
    scaling.factor = metadata.find_number("rope.scaling.factor").value_or(1);
    if (!std::isfinite(scaling.factor) || scaling.factor <= 0)
      fail(ErrorCode::Corrupt, "{}: {}: expected a positive number, found {}", file.subject(),
           metadata.key("rope.scaling.factor"), scaling.factor);
  } else if (type != "none") {
    fail(ErrorCode::Unsupported, "{}: {}: expected none or linear, found \"{}\"", file.subject(),
         metadata.key("rope.scaling.type"), type);
  }
  const GgufTensor* divisors = file.find_tensor("rope_freqs.weight");
  if (divisors == nullptr) return scaling;
  const RopeScaling recovered = recover_rope_scaling(file, *divisors, head_dim, theta);
  if (scaling.kind != RopeScaling::Kind::None && recovered.kind != RopeScaling::Kind::None)
    fail(ErrorCode::Unsupported, "{}: both rope.scaling and rope_freqs.weight are there", file.subject());
  return scaling.kind != RopeScaling::Kind::None ? scaling : recovered;
}

size_t read_vocab_size(const GgufFile& file, const ArchitectureMetadata& metadata) {
  const GgufTensor* embeddings = file.find_tensor("token_embd.weight");
  if (embeddings == nullptr || embeddings->shape.size() != 2)
    fail(ErrorCode::Corrupt, "{}: token_embd.weight is missing or not a matrix", file.subject());
  const auto vocab_size = static_cast<size_t>(embeddings->shape[0]);
  const size_t stated = metadata.find_size("vocab_size").value_or(vocab_size);
  if (stated != vocab_size)
    fail(ErrorCode::Corrupt, "{}: {}: expected {} (the rows of token_embd.weight), found {}", file.subject(),
         metadata.key("vocab_size"), vocab_size, stated);
  return vocab_size;
}

// The fields of a config.json, written one after the other.
class ConfigText {
 public:
  void add(std::string_view key, std::string_view json) {
    text_ += fmt::format("{}\"{}\":{}", text_.empty() ? "{" : ",", key, json);
  }
  void add(std::string_view key, size_t value) { add(key, std::string_view(fmt::format("{}", value))); }
  // JSON has no infinity and no NaN; a number beyond the range of double is refused as one where it is read.
  void add(std::string_view key, double value) {
    add(key, std::string_view(std::isfinite(value) ? fmt::format("{}", value) : "-1"));
  }
  void add(std::string_view key, bool value) { add(key, std::string_view(value ? "true" : "false")); }
  std::string take() && { return std::move(text_) + "}"; }

 private:
  std::string text_;
};

// Absent where the file says nothing. Some converters write -1 (as 2^32 - 1 too) for "none", which is null.
void add_token_id(const GgufFile& file, std::string_view key, std::string_view name, ConfigText& config) {
  if (file.find_value(key) == nullptr) return;
  const auto id = file.find_integer(key);
  const bool is_id = id && *id >= 0 && *id <= std::numeric_limits<int32_t>::max();
  config.add(name, std::string_view(is_id ? fmt::format("{}", *id) : "null"));
}

std::string rope_scaling_json(const RopeScaling& scaling) {
  ConfigText json;
  switch (scaling.kind) {
    case RopeScaling::Kind::None:
      return "null";
    case RopeScaling::Kind::Linear:
      json.add("rope_type", std::string_view("\"linear\""));
      json.add("factor", scaling.factor);
      break;
    case RopeScaling::Kind::Llama3:
      json.add("rope_type", std::string_view("\"llama3\""));
      json.add("factor", scaling.factor);
      json.add("low_freq_factor", scaling.low_freq_factor);
      json.add("high_freq_factor", scaling.high_freq_factor);
      json.add("original_max_position_embeddings", scaling.original_max_position_embeddings);
      break;
    default:
      break;  // not read from GGUF files
  }
  return std::move(json).take();
}

std::string config_json(const GgufFile& file, const Family& family) {
  const ArchitectureMetadata metadata(file);
  refuse_effective_fields(metadata, family);
  const size_t hidden = metadata.get_size("embedding_length");
  const size_t inner = metadata.get_size("feed_forward_length");
  const size_t n_layers = metadata.get_size("block_count");
  const size_t n_heads = metadata.get_size("attention.head_count");
  const size_t head_dim = read_head_dim(metadata, hidden, n_heads);
  const double theta = metadata.find_number("rope.freq_base").value_or(10000.0);

  ConfigText config;
  config.add("model_type", std::string_view(fmt::format("\"{}\"", family.model_type)));
  config.add("hidden_size", hidden);
  config.add("intermediate_size", inner);
  config.add("num_hidden_layers", n_layers);
  config.add("num_attention_heads", n_heads);
  config.add("num_key_value_heads", metadata.find_size("attention.head_count_kv").value_or(n_heads));
  config.add("head_dim", head_dim);
  config.add("vocab_size", read_vocab_size(file, metadata));
  config.add("max_position_embeddings", metadata.get_size("context_length"));
  auto eps = metadata.find_number("attention.layer_norm_rms_epsilon");
  if (!eps) eps = metadata.find_number("attention.layer_norm_epsilon");
  if (eps) config.add(family.fields.norm_eps, *eps);
  for (const GgufField& field : family.gguf_fields) {
    if (const auto value = metadata.find_number(field.gguf)) config.add(field.config, *value);
  }
  config.add("rope_theta", theta);
  config.add("rope_scaling",
             std::string_view(rope_scaling_json(read_rope_scaling(file, metadata, head_dim, theta))));
  config.add("tie_word_embeddings", file.find_tensor("output.weight") == nullptr);
  add_token_id(file, "tokenizer.ggml.bos_token_id", "bos_token_id", config);
  add_token_id(file, "tokenizer.ggml.eos_token_id", "eos_token_id", config);
  add_token_id(file, "tokenizer.ggml.padding_token_id", "pad_token_id", config);
  return std::move(config).take();
}

}  // namespace

ModelConfig make_gguf_config(const GgufFile& file) {
  const Family* family = find_family_of_gguf(file.architecture());
  if (family == nullptr)
    fail(ErrorCode::Unsupported, "{}: general.architecture: expected that of one of {}, found \"{}\"",
         file.subject(), list_families(), file.architecture());
  TensorNames names{.spelling = TensorNames::Spelling::Gguf, .names = {}};
  for (const GgufTensor& tensor : file.tensors()) names.names.insert(tensor.name);
  return parse_config(config_json(file, *family), file.subject(), names);
}

}  // namespace kvfork::checkpoint
