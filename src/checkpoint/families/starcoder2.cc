// StarCoder2: layer norms with biases, one word for all other biases, a feed-forward without gate. Defaults:
// configuration_starcoder2.py of Transformers 4.57.3.
#include <array>

#include "checkpoint/families/draft.h"
#include "checkpoint/families/family.h"

namespace kvfork::checkpoint {
namespace {

constexpr std::array kTensors = {
    TensorRow{Role::Embedding, "embed_tokens", "token_embd"},
    TensorRow{Role::AttentionNorm, "input_layernorm", "attn_norm", Bias::Always},
    TensorRow{Role::Q, "self_attn.q_proj", "attn_q", Bias::AttentionInput},
    TensorRow{Role::K, "self_attn.k_proj", "attn_k", Bias::AttentionInput},
    TensorRow{Role::V, "self_attn.v_proj", "attn_v", Bias::AttentionInput},
    TensorRow{Role::Output, "self_attn.o_proj", "attn_output", Bias::AttentionOutput},
    TensorRow{Role::MlpNorm, "post_attention_layernorm", "ffn_norm", Bias::Always},
    TensorRow{Role::Up, "mlp.c_fc", "ffn_up", Bias::Mlp},
    TensorRow{Role::Down, "mlp.c_proj", "ffn_down", Bias::Mlp},
    TensorRow{Role::FinalNorm, "norm", "output_norm", Bias::Always},
    TensorRow{Role::Head, "lm_head", "output"},
};

void describe(Draft& draft) {
  ModelConfig& config = draft.config();
  config.attention_qkv_bias = config.attention_output_bias = config.mlp_bias = draft.flag("use_bias", true);
  draft.assemble({.norm = NormSpec::Kind::Layer});
  draft.set_window(draft.size("sliding_window", 0));
}

}  // namespace

const Family kStarcoder2 = {
    .model_type = "starcoder2",
    .class_name = "Starcoder2ForCausalLM",
    .gguf_architecture = "",
    .defaults = {.vocab_size = 49152,
                 .hidden_size = 3072,
                 .intermediate_size = 12288,
                 .num_hidden_layers = 30,
                 .num_attention_heads = 24,
                 .num_key_value_heads = 2,
                 .max_position_embeddings = 4096,
                 .rms_norm_eps = 1e-5,
                 .hidden_act = "gelu_pytorch_tanh",
                 .tie_word_embeddings = true,
                 .bos_token_id = 50256,
                 .eos_token_id = 50256},
    .fields = {.norm_eps = "norm_epsilon"},
    .tensors = kTensors,
    .describe = describe,
};

}  // namespace kvfork::checkpoint
