"""A Qwen2 checkpoint as one GGUF file in bfloat16, for llama.cpp: peers_gguf.py MODEL OUT

Only what running it by token ids needs: the vocabulary is filled with names, and there is no chat template. Norms and biases
are float32, as llama.cpp wants them; everything else keeps its bits.
"""

import json
import pathlib
import sys

import gguf
import torch
from safetensors.torch import load_file

NAMES = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
         "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm",
         "post_attention_layernorm": "ffn_norm"}


def gguf_name(name):
    if name == "model.embed_tokens.weight":
        return "token_embd.weight"
    if name == "model.norm.weight":
        return "output_norm.weight"
    _, _, layer, rest = name.split(".", 3)
    part, kind = rest.rsplit(".", 1)
    return f"blk.{layer}.{NAMES[part]}.{kind}"


def main():
    folder, out = map(pathlib.Path, sys.argv[1:])
    config = json.loads((folder / "config.json").read_text())
    writer = gguf.GGUFWriter(out, "qwen2")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_BF16)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list([f"<{i}>" for i in range(config["vocab_size"])])
    writer.add_token_types([gguf.TokenType.NORMAL] * config["vocab_size"])
    writer.add_token_merges(["< 0"])
    for name, tensor in load_file(folder / "model.safetensors").items():
        if name == "lm_head.weight" and config["tie_word_embeddings"]:
            continue
        if tensor.ndim == 1:
            writer.add_tensor(gguf_name(name), tensor.float().numpy())
        else:
            writer.add_tensor(gguf_name(name), tensor.view(torch.uint8).numpy(), raw_dtype=gguf.GGMLQuantizationType.BF16)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
