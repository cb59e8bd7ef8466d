#include "checkpoint/architecture.h"

#include <fmt/format.h>

#include <array>

namespace kvfork::checkpoint {
namespace {

// Defaults: configuration_qwen2.py and configuration_llama.py of Transformers 4.57.3.
constexpr std::array kArchitectures = {
    Architecture{.model_type = "qwen2",
                 .class_name = "Qwen2ForCausalLM",
                 .vocab_size = 151936,
                 .hidden_size = 4096,
                 .intermediate_size = 22016,
                 .num_hidden_layers = 32,
                 .num_attention_heads = 32,
                 .num_key_value_heads = 32,
                 .max_position_embeddings = 32768,
                 .rms_norm_eps = 1e-6,
                 .bos_token_id = std::nullopt,
                 .eos_token_id = std::nullopt,
                 .has_qkv_bias = true,
                 .reads_attention_bias = false,
                 .has_sliding_window = true,
                 .gguf_permutes_qk = false},
    Architecture{.model_type = "llama",
                 .class_name = "LlamaForCausalLM",
                 .vocab_size = 32000,
                 .hidden_size = 4096,
                 .intermediate_size = 11008,
                 .num_hidden_layers = 32,
                 .num_attention_heads = 32,
                 .num_key_value_heads = 0,
                 .max_position_embeddings = 2048,
                 .rms_norm_eps = 1e-6,
                 .bos_token_id = 1,
                 .eos_token_id = 2,
                 .has_qkv_bias = false,
                 .reads_attention_bias = true,
                 .has_sliding_window = false,
                 .gguf_permutes_qk = true},
};

struct NamePair {
  std::string_view gguf;
  std::string_view hf;
};

// Names within a layer: gguf-py's tensor_mapping.py.
constexpr std::array kLayerNames = {
    NamePair{"attn_norm", "input_layernorm"},    NamePair{"attn_q", "self_attn.q_proj"},
    NamePair{"attn_k", "self_attn.k_proj"},      NamePair{"attn_v", "self_attn.v_proj"},
    NamePair{"attn_output", "self_attn.o_proj"}, NamePair{"ffn_norm", "post_attention_layernorm"},
    NamePair{"ffn_gate", "mlp.gate_proj"},       NamePair{"ffn_up", "mlp.up_proj"},
    NamePair{"ffn_down", "mlp.down_proj"},
};
constexpr std::array kTopNames = {
    NamePair{"token_embd", "model.embed_tokens"},
    NamePair{"output_norm", "model.norm"},
    NamePair{"output", "lm_head"},
};

template <size_t N>
std::optional<std::string_view> find_name(const std::array<NamePair, N>& pairs, std::string_view gguf) {
  for (const NamePair& pair : pairs) {
    if (pair.gguf == gguf) return pair.hf;
  }
  return std::nullopt;
}

bool is_digits(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

}  // namespace

const Architecture* find_architecture(std::string_view model_type) noexcept {
  for (const Architecture& architecture : kArchitectures) {
    if (architecture.model_type == model_type) return &architecture;
  }
  return nullptr;
}

const Architecture* find_architecture_of_class(std::string_view class_name) noexcept {
  for (const Architecture& architecture : kArchitectures) {
    if (architecture.class_name == class_name) return &architecture;
  }
  return nullptr;
}

std::string list_architectures() {
  std::string list;
  for (const Architecture& architecture : kArchitectures) {
    if (!list.empty()) list += ", ";
    list += architecture.class_name;
  }
  return list;
}

std::vector<ExpectedTensor> expected_tensors(const ModelConfig& config) {
  const uint64_t hidden = config.hidden_size;
  const uint64_t q = config.num_attention_heads * config.head_dim;
  const uint64_t kv = config.num_key_value_heads * config.head_dim;
  const uint64_t inner = config.intermediate_size;
  std::vector<ExpectedTensor> tensors;

  const auto add_linear = [&](const std::string& name, uint64_t out, uint64_t in, bool has_bias) {
    tensors.push_back({name + ".weight", {out, in}});
    if (has_bias) tensors.push_back({name + ".bias", {out}});
  };
  tensors.push_back({"model.embed_tokens.weight", {config.vocab_size, hidden}});
  for (size_t i = 0; i < config.num_hidden_layers; ++i) {
    const std::string layer = fmt::format("model.layers.{}.", i);
    tensors.push_back({layer + "input_layernorm.weight", {hidden}});
    add_linear(layer + "self_attn.q_proj", q, hidden, config.attention_qkv_bias);
    add_linear(layer + "self_attn.k_proj", kv, hidden, config.attention_qkv_bias);
    add_linear(layer + "self_attn.v_proj", kv, hidden, config.attention_qkv_bias);
    add_linear(layer + "self_attn.o_proj", hidden, q, config.attention_output_bias);
    tensors.push_back({layer + "post_attention_layernorm.weight", {hidden}});
    add_linear(layer + "mlp.gate_proj", inner, hidden, config.mlp_bias);
    add_linear(layer + "mlp.up_proj", inner, hidden, config.mlp_bias);
    add_linear(layer + "mlp.down_proj", hidden, inner, config.mlp_bias);
  }
  tensors.push_back({"model.norm.weight", {hidden}});
  if (!config.tie_word_embeddings) tensors.push_back({"lm_head.weight", {config.vocab_size, hidden}});
  return tensors;
}

bool is_ignorable_tensor(std::string_view name, const ModelConfig& config) {
  if (config.tie_word_embeddings && name == "lm_head.weight") return true;
  constexpr std::string_view kSuffix = "rotary_emb.inv_freq";
  return name.size() >= kSuffix.size() && name.substr(name.size() - kSuffix.size()) == kSuffix;
}

std::optional<std::string> find_hf_name(std::string_view gguf_name) {
  const size_t dot = gguf_name.rfind('.');
  if (dot == std::string_view::npos) return std::nullopt;
  const std::string_view stem = gguf_name.substr(0, dot);
  const std::string_view suffix = gguf_name.substr(dot);
  if (suffix != ".weight" && suffix != ".bias") return std::nullopt;
  if (const auto top = find_name(kTopNames, stem)) return fmt::format("{}{}", *top, suffix);

  constexpr std::string_view kBlock = "blk.";
  if (stem.substr(0, kBlock.size()) != kBlock) return std::nullopt;
  const std::string_view rest = stem.substr(kBlock.size());
  const size_t end = rest.find('.');
  if (end == std::string_view::npos || !is_digits(rest.substr(0, end))) return std::nullopt;
  const auto name = find_name(kLayerNames, rest.substr(end + 1));
  if (!name) return std::nullopt;
  return fmt::format("model.layers.{}.{}{}", rest.substr(0, end), *name, suffix);
}

}  // namespace kvfork::checkpoint
