// Arcee (AFM): Llama with a feed-forward of squared relu without gate. Defaults: configuration_arcee.py of
// Transformers 4.57.3.
#include <array>

#include "checkpoint/families/draft.h"
#include "checkpoint/families/family.h"

namespace kvfork::checkpoint {
namespace {

constexpr std::array kTensors = {
    TensorRow{Role::Embedding, "embed_tokens", "token_embd"},
    TensorRow{Role::AttentionNorm, "input_layernorm", "attn_norm"},
    TensorRow{Role::Q, "self_attn.q_proj", "attn_q", Bias::AttentionInput},
    TensorRow{Role::K, "self_attn.k_proj", "attn_k", Bias::AttentionInput},
    TensorRow{Role::V, "self_attn.v_proj", "attn_v", Bias::AttentionInput},
    TensorRow{Role::Output, "self_attn.o_proj", "attn_output", Bias::AttentionOutput},
    TensorRow{Role::MlpNorm, "post_attention_layernorm", "ffn_norm"},
    TensorRow{Role::Up, "mlp.up_proj", "ffn_up", Bias::Mlp},
    TensorRow{Role::Down, "mlp.down_proj", "ffn_down", Bias::Mlp},
    TensorRow{Role::FinalNorm, "norm", "output_norm"},
    TensorRow{Role::Head, "lm_head", "output"},
};

void describe(Draft& draft) {
  draft.read_attention_bias();
  draft.read_mlp_bias();
  draft.assemble({});
}

}  // namespace

const Family kArcee = {
    .model_type = "arcee",
    .class_name = "ArceeForCausalLM",
    .gguf_architecture = "",
    .defaults = {.vocab_size = 32000,
                 .hidden_size = 2560,
                 .intermediate_size = 18432,
                 .num_hidden_layers = 32,
                 .num_attention_heads = 32,
                 .max_position_embeddings = 4096,
                 .rms_norm_eps = 1e-5,
                 .hidden_act = "relu2",
                 .bos_token_id = 128000,
                 .eos_token_id = 128001},
    .tensors = kTensors,
    .gguf_permutes_qk = true,
    .describe = describe,
};

}  // namespace kvfork::checkpoint
