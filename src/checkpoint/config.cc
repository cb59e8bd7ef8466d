#include "checkpoint/config.h"

#include <array>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/json.h"
#include "checkpoint/architecture.h"
#include "checkpoint/json_fields.h"

namespace kvfork::checkpoint {
namespace {

using base::describe_json;
using base::fail;
using simdjson::dom::element;

// Fields that mean a different computation whatever else the file says, unless null, false, 0, or empty. The
// classes of Transformers that run here ignore most of them, so a file that has one was made for other code.
constexpr std::array<std::string_view, 27> kEffective = {"quantization_config",
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
                                                         "scale_emb",
                                                         "scale_depth",
                                                         "dim_model_base",
                                                         "embedding_multiplier",
                                                         "logits_scaling",
                                                         "residual_multiplier",
                                                         "attention_multiplier",
                                                         "use_cla",
                                                         "cross_layer_sharing"};

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

const Architecture& read_architecture(const JsonFields& fields) {
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
  const Architecture* by_type = model_type ? find_architecture(*model_type) : nullptr;
  const Architecture* by_class = class_name ? find_architecture_of_class(*class_name) : nullptr;
  if (class_name && by_class == nullptr)
    fail(ErrorCode::Unsupported, "{}: architectures: expected one of {}, found {}", fields.subject(),
         list_architectures(), *class_name);
  if (model_type && by_type == nullptr)
    fail(ErrorCode::Unsupported, "{}: model_type: expected that of one of {}, found {}", fields.subject(),
         list_architectures(), *model_type);
  if (by_type != nullptr && by_class != nullptr && by_type != by_class)
    fail(ErrorCode::Unsupported, "{}: model_type {} and architectures {} name different models", fields.subject(),
         *model_type, *class_name);
  return by_type != nullptr ? *by_type : *by_class;
}

void refuse_effective_fields(const JsonFields& fields) {
  for (const std::string_view name : kEffective) {
    const auto value = fields.find(name);
    if (value && !is_neutral(*value))
      fail(ErrorCode::Unsupported, "{}: {}: found {}, which kvfork does not implement", fields.subject(), name,
           describe_json(*value));
  }
  const auto refuse_unless = [&](std::string_view name, double neutral) {
    const auto value = fields.find_number(name);
    if (value && *value != neutral) fields.fail_unsupported(name, *fields.find(name), fmt::format("{}", neutral));
  };
  refuse_unless("partial_rotary_factor", 1);
  refuse_unless("rotary_pct", 1);
  // Above 1 the reference sums slices of each product, which gives other bits.
  refuse_unless("pretraining_tp", 1);
}

void refuse_sliding_window(const JsonFields& fields, const Architecture& architecture, size_t n_layers) {
  if (const auto types = fields.find("layer_types")) {
    simdjson::dom::array list;
    if (types->get(list) != simdjson::SUCCESS) fields.fail_type("layer_types", "a list", *types);
    for (const element item : list) {
      std::string_view type;
      if (item.get(type) != simdjson::SUCCESS) fields.fail_type("layer_types", "a list of names", item);
      if (type != "full_attention") fields.fail_unsupported("layer_types", item, "only \"full_attention\"");
    }
    if (list.size() != n_layers)
      fail(ErrorCode::Corrupt, "{}: layer_types: expected {} entries (num_hidden_layers), found {}",
           fields.subject(), n_layers, list.size());
  }
  const auto window = fields.find_integer("sliding_window");
  if (!window) return;
  // Qwen2 ships sliding_window with use_sliding_window false: the window is then off.
  const bool is_on =
      architecture.has_sliding_window ? fields.find_bool("use_sliding_window").value_or(false) : true;
  if (is_on)
    fail(ErrorCode::Unsupported,
         "{}: sliding_window {} is switched on{}; kvfork does not implement sliding windows yet", fields.subject(),
         *window, architecture.has_sliding_window ? " by use_sliding_window" : "");
}

void refuse_default_sliding_window(const JsonFields& fields, const Architecture& architecture) {
  if (architecture.has_sliding_window && !fields.has("sliding_window") &&
      fields.find_bool("use_sliding_window").value_or(false))
    fail(ErrorCode::Unsupported, "{}: use_sliding_window is true; kvfork does not implement sliding windows yet",
         fields.subject());
}

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

// rope_theta and rope_scaling, or rope_parameters, in which Transformers 5 writes both.
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

void read_sizes(const JsonFields& fields, const Architecture& architecture, ModelConfig& config) {
  config.vocab_size = fields.find_size("vocab_size").value_or(architecture.vocab_size);
  config.hidden_size = fields.find_size("hidden_size").value_or(architecture.hidden_size);
  config.intermediate_size = fields.find_size("intermediate_size").value_or(architecture.intermediate_size);
  config.num_hidden_layers = fields.find_size("num_hidden_layers").value_or(architecture.num_hidden_layers);
  config.num_attention_heads = fields.find_size("num_attention_heads").value_or(architecture.num_attention_heads);
  // A missing key and null differ here: null means "as many as attention heads" in every family.
  const size_t default_kv_heads = fields.has("num_key_value_heads") || architecture.num_key_value_heads == 0
                                      ? config.num_attention_heads
                                      : architecture.num_key_value_heads;
  config.num_key_value_heads = fields.find_size("num_key_value_heads").value_or(default_kv_heads);
  const size_t derived = config.num_attention_heads == 0 ? 0 : config.hidden_size / config.num_attention_heads;
  config.head_dim = fields.find_size("head_dim").value_or(derived);
  config.max_position_embeddings =
      fields.find_size("max_position_embeddings").value_or(architecture.max_position_embeddings);
  config.rms_norm_eps = fields.find_number("rms_norm_eps").value_or(architecture.rms_norm_eps);
}

void read_token_ids(const JsonFields& fields, const Architecture& architecture, ModelConfig& config) {
  config.bos_token_id =
      fields.has("bos_token_id") ? fields.find_token_id("bos_token_id") : architecture.bos_token_id;
  config.pad_token_id = fields.find_token_id("pad_token_id");
  if (fields.has("eos_token_id")) {
    config.eos_token_id = fields.find_token_ids("eos_token_id").value_or(std::vector<int32_t>{});
  } else if (architecture.eos_token_id) {
    config.eos_token_id = {*architecture.eos_token_id};
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

}  // namespace

ModelConfig parse_config(std::string_view json, std::string_view subject) {
  const auto document = base::JsonDocument::parse(json, subject);
  const JsonFields fields(document.root(), subject);
  const Architecture& architecture = read_architecture(fields);
  refuse_effective_fields(fields);

  ModelConfig config;
  config.model_type = architecture.model_type;
  config.architecture = architecture.class_name;
  read_sizes(fields, architecture, config);
  refuse_sliding_window(fields, architecture, config.num_hidden_layers);
  refuse_default_sliding_window(fields, architecture);
  read_rope(fields, config);
  config.tie_word_embeddings = fields.find_bool("tie_word_embeddings").value_or(false);
  const bool reads_bias = architecture.reads_attention_bias;
  const bool attention_bias = reads_bias && fields.find_bool("attention_bias").value_or(false);
  config.attention_qkv_bias = architecture.has_qkv_bias || attention_bias;
  config.attention_output_bias = attention_bias;
  config.mlp_bias = reads_bias && fields.find_bool("mlp_bias").value_or(false);
  config.hidden_act = fields.find_string("hidden_act").value_or("silu");
  // "swish" is another name of the same function in Transformers.
  if (config.hidden_act == "swish") config.hidden_act = "silu";
  if (config.hidden_act != "silu") fields.fail_unsupported("hidden_act", *fields.find("hidden_act"), "\"silu\"");
  config.torch_dtype = read_dtype_name(fields);
  read_token_ids(fields, architecture, config);
  check_config(config, subject);
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
  if (!std::isfinite(config.rope_theta) || config.rope_theta <= 0)
    fail(ErrorCode::Corrupt, "{}: rope_theta: expected a number > 0, found {}", subject, config.rope_theta);
}

}  // namespace kvfork::checkpoint
