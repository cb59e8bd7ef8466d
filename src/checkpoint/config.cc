// Reads config.json: the fields that all families share. What is special to one is read by its file of families/.
#include "checkpoint/config.h"

#include <array>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/json.h"
#include "checkpoint/activation.h"
#include "checkpoint/families/draft.h"
#include "checkpoint/families/family.h"
#include "checkpoint/json_fields.h"
#include "checkpoint/rotation.h"

namespace kvfork::checkpoint {
namespace {

using base::describe_json;
using base::fail;
using simdjson::dom::element;

// Fields that mean a different computation where a family has not read them, unless they are null, false, 0, or
// empty. The classes of Transformers that do not read such a field ignore it, so a file that has one was made for
// other code.
constexpr std::array<std::string_view, 35> kEffective = {"quantization_config",
                                                         "compression_config",
                                                         "is_encoder_decoder",
                                                         "add_cross_attention",
                                                         "pruned_heads",
                                                         "alibi",
                                                         "use_alibi",
                                                         "use_mrope",
                                                         "qk_norm",
                                                         "use_qk_norm",
                                                         "qk_layernorm",
                                                         "clip_qkv",
                                                         "no_rope_layers",
                                                         "attn_logit_softcapping",
                                                         "final_logit_softcapping",
                                                         "num_experts",
                                                         "num_local_experts",
                                                         "n_routed_experts",
                                                         "moe_num_experts",
                                                         "scale_emb",
                                                         "scale_depth",
                                                         "dim_model_base",
                                                         "embedding_multiplier",
                                                         "logits_scaling",
                                                         "residual_multiplier",
                                                         "attention_multiplier",
                                                         "logit_scale",
                                                         "use_cla",
                                                         "cross_layer_sharing",
                                                         "sliding_window",
                                                         "query_pre_attn_scalar",
                                                         "rope_local_base_freq",
                                                         "use_parallel_residual",
                                                         "num_kv_shared_layers",
                                                         "attn_output_gate"};

bool is_neutral(element value) {
  switch (value.type()) {
    case simdjson::dom::element_type::NULL_VALUE:
      return true;
    case simdjson::dom::element_type::BOOL:
      return !value.get_bool().value_unsafe();
    case simdjson::dom::element_type::OBJECT:
      return value.get_object().value_unsafe().size() == 0;
    case simdjson::dom::element_type::ARRAY:
      return value.get_array().value_unsafe().size() == 0;
    case simdjson::dom::element_type::STRING:
      return value.get_string().value_unsafe().empty();
    default:
      return value.get_double().value() == 0.0;
  }
}

const Family& read_family(const JsonFields& fields) {
  const auto model_type = fields.find_string("model_type");
  std::optional<std::string_view> class_name;
  if (const auto list = fields.find("architectures")) {
    simdjson::dom::array names;
    if (list->get(names) != simdjson::SUCCESS) fields.fail_type("architectures", "a list of names", *list);
    for (const element item : names) {
      std::string_view name;
      if (item.get(name) != simdjson::SUCCESS) fields.fail_type("architectures", "a list of names", item);
      if (!class_name) class_name = name;
    }
  }
  if (!model_type && !class_name)
    fail(ErrorCode::Corrupt,
         "{}: expected model_type or architectures, found neither; is it a model's config.json?", fields.subject());
  const Family* by_type = model_type ? find_family(*model_type) : nullptr;
  const Family* by_class = class_name ? find_family_of_class(*class_name) : nullptr;
  if (class_name && by_class == nullptr)
    fail(ErrorCode::Unsupported, "{}: architectures: expected one of {}, found {}", fields.subject(),
         list_families(), *class_name);
  if (model_type && by_type == nullptr)
    fail(ErrorCode::Unsupported, "{}: model_type: expected that of one of {}, found {}", fields.subject(),
         list_families(), *model_type);
  if (by_type != nullptr && by_class != nullptr && by_type != by_class)
    fail(ErrorCode::Unsupported, "{}: model_type {} and architectures {} name different models", fields.subject(),
         *model_type, *class_name);
  return by_type != nullptr ? *by_type : *by_class;
}

void refuse_effective_fields(const JsonFields& fields) {
  for (const std::string_view name : kEffective) {
    if (fields.was_read(name)) continue;
    const auto value = fields.find(name);
    if (value && !is_neutral(*value))
      fail(ErrorCode::Unsupported, "{}: {}: found {}, which kvfork does not implement", fields.subject(), name,
           describe_json(*value));
  }
  const auto refuse_unless = [&](std::string_view name, double neutral) {
    if (fields.was_read(name)) return;
    const auto value = fields.find_number(name);
    if (value && *value != neutral) fields.fail_unsupported(name, *fields.find(name), fmt::format("{}", neutral));
  };
  refuse_unless("partial_rotary_factor", 1);
  refuse_unless("rotary_pct", 1);
  // Above 1 the reference sums slices of each product, which gives other bits.
  refuse_unless("pretraining_tp", 1);
}

void read_sizes(const JsonFields& fields, const Family& family, ModelConfig& config) {
  const ConfigDefaults& defaults = family.defaults;
  const FieldNames& names = family.fields;
  config.vocab_size = fields.find_size("vocab_size").value_or(defaults.vocab_size);
  config.hidden_size = fields.find_size(names.hidden_size).value_or(defaults.hidden_size);
  config.intermediate_size = fields.find_size(names.intermediate_size).value_or(defaults.intermediate_size);
  config.num_hidden_layers = fields.find_size(names.num_hidden_layers).value_or(defaults.num_hidden_layers);
  config.num_attention_heads = fields.find_size(names.num_attention_heads).value_or(defaults.num_attention_heads);
  // A missing key and null differ here: null means "as many as attention heads" in every family.
  const size_t default_kv_heads = fields.has("num_key_value_heads") || defaults.num_key_value_heads == 0
                                      ? config.num_attention_heads
                                      : defaults.num_key_value_heads;
  config.num_key_value_heads = fields.find_size("num_key_value_heads").value_or(default_kv_heads);
  const size_t derived = config.num_attention_heads == 0 ? 0 : config.hidden_size / config.num_attention_heads;
  config.head_dim = fields.find_size("head_dim").value_or(defaults.head_dim != 0 ? defaults.head_dim : derived);
  config.max_position_embeddings =
      fields.find_size(names.max_position_embeddings).value_or(defaults.max_position_embeddings);
  config.rms_norm_eps = fields.find_number(names.norm_eps).value_or(defaults.rms_norm_eps);
}

void read_token_ids(const JsonFields& fields, const ConfigDefaults& defaults, ModelConfig& config) {
  config.bos_token_id = fields.has("bos_token_id") ? fields.find_token_id("bos_token_id") : defaults.bos_token_id;
  config.pad_token_id = fields.find_token_id("pad_token_id");
  if (fields.has("eos_token_id")) {
    config.eos_token_id = fields.find_token_ids("eos_token_id").value_or(std::vector<int32_t>{});
  } else if (defaults.eos_token_id) {
    config.eos_token_id = {*defaults.eos_token_id};
  }
}

std::string read_dtype_name(const JsonFields& fields) {
  auto name = fields.find_string("dtype");
  if (!name) name = fields.find_string("torch_dtype");
  if (!name) return "";
  constexpr std::string_view kPrefix = "torch.";
  if (name->substr(0, kPrefix.size()) == kPrefix) name->remove_prefix(kPrefix.size());
  return std::string(*name);
}

std::string read_activation(const JsonFields& fields, const Family& family) {
  const std::string_view field = family.fields.hidden_act;
  std::string name(fields.find_string(field).value_or(family.defaults.hidden_act));
  if (!find_activation(name))
    fields.fail_unsupported(field, *fields.find(field), "silu, gelu, gelu_pytorch_tanh, relu or relu2");
  // "swish" is another name of the same function in Transformers.
  return name == "swish" ? "silu" : name;
}

// Python writes a bare Infinity, which is not JSON, for a bound that there is not: null says the same.
std::string without_infinity(std::string_view json) {
  constexpr std::string_view kInfinity = "Infinity", kNull = "null    ";
  std::string text(json);
  bool is_inside = false;  // of a string
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '"') is_inside = !is_inside;
    if (is_inside && text[i] == '\\') ++i;
    if (!is_inside && text.compare(i, kInfinity.size(), kInfinity) == 0) text.replace(i, kInfinity.size(), kNull);
  }
  return text;
}

// The fields of the model itself: those of text_config where an image model holds the text model inside, with what
// the outer file alone may say.
JsonFields text_fields(const JsonFields& outer) {
  const auto inner = outer.find("text_config");
  if (!inner) return outer;
  JsonFields fields(*inner, outer.subject() + ": text_config");
  fields.take_missing(outer, {"tie_word_embeddings", "eos_token_id", "bos_token_id", "pad_token_id", "dtype",
                              "torch_dtype", "quantization_config"});
  return fields;
}

}  // namespace

ModelConfig parse_config(std::string_view json, std::string_view subject, const TensorNames& names) {
  const auto document = base::JsonDocument::parse(without_infinity(json), subject);
  const JsonFields outer(document.root(), subject);
  const JsonFields fields = text_fields(outer);
  const Family& family = read_family(fields);

  ModelConfig config;
  config.model_type = family.model_type;
  config.architecture = family.class_name;
  config.spec.has_other_parts = outer.has("text_config");
  read_sizes(fields, family, config);
  config.tie_word_embeddings =
      fields.find_bool("tie_word_embeddings").value_or(family.defaults.tie_word_embeddings);
  config.hidden_act = read_activation(fields, family);
  config.torch_dtype = read_dtype_name(fields);
  read_token_ids(fields, family.defaults, config);
  check_config(config, subject);
  const RopeSettings rope = read_rope(fields,
                                      {.theta = family.defaults.rope_theta,
                                       .scaling = {},
                                       .partial_rotary_factor = {},
                                       .more_keys = family.rope_keys},
                                      config.max_position_embeddings);
  config.rope_theta = rope.theta;
  config.rope_scaling = rope.scaling;

  Draft draft(family, fields, names, config);
  family.describe(draft);
  refuse_effective_fields(fields);
  return config;
}

void check_config(const ModelConfig& config, std::string_view subject) {
  struct Bound {
    std::string_view name;
    size_t value;
    size_t max;
  };
  const Bound bounds[] = {
      {"hidden_size", config.hidden_size, size_t{1} << 20},
      {"intermediate_size", config.intermediate_size, size_t{1} << 22},
      {"num_hidden_layers", config.num_hidden_layers, size_t{1} << 12},
      {"num_attention_heads", config.num_attention_heads, size_t{1} << 14},
      {"num_key_value_heads", config.num_key_value_heads, size_t{1} << 14},
      {"head_dim", config.head_dim, size_t{1} << 14},
      {"vocab_size", config.vocab_size, size_t{std::numeric_limits<int32_t>::max()}},
      {"max_position_embeddings", config.max_position_embeddings, size_t{std::numeric_limits<int32_t>::max()}},
  };
  for (const Bound& bound : bounds) {
    if (bound.value == 0 || bound.value > bound.max)
      fail(ErrorCode::Corrupt, "{}: {}: expected 1 to {}, found {}", subject, bound.name, bound.max, bound.value);
  }
  if (config.num_attention_heads % config.num_key_value_heads != 0)
    fail(ErrorCode::Corrupt, "{}: num_key_value_heads: expected a divisor of num_attention_heads ({}), found {}",
         subject, config.num_attention_heads, config.num_key_value_heads);
  if (config.head_dim % 2 != 0)
    fail(ErrorCode::Corrupt, "{}: head_dim: expected an even number, found {}", subject, config.head_dim);
  if (!std::isfinite(config.rms_norm_eps) || config.rms_norm_eps < 0)
    fail(ErrorCode::Corrupt, "{}: rms_norm_eps: expected a number >= 0, found {}", subject, config.rms_norm_eps);
}

}  // namespace kvfork::checkpoint
