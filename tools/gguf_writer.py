"""Writes a Hugging Face folder as a GGUF file, with the changes that llama.cpp's converter makes to each family.

The converter interleaves rows of q and k (llama, smollm3, granite), adds one to the norms of Gemma, stacks experts, cuts the fused
experts of gpt-oss and stores rotary factors as tensors; keys of the metadata say the rest. Vectors are stored as float32, matrices
as they are in the folder. `write_gguf(folder, out)` needs the `gguf` package; `python gguf_writer.py FOLDER OUT` calls it.
"""

import json
import math
import pathlib
import re
import sys

import gguf
import torch
from safetensors.torch import load_file

Arch = gguf.MODEL_ARCH
ARCHITECTURES = {"llama": Arch.LLAMA, "mistral": Arch.LLAMA, "mixtral": Arch.LLAMA, "qwen2": Arch.QWEN2, "qwen3": Arch.QWEN3,
                 "qwen3_moe": Arch.QWEN3MOE, "smollm3": Arch.SMOLLM3, "phi3": Arch.PHI3, "gemma": Arch.GEMMA, "gemma2": Arch.GEMMA2,
                 "gemma3_text": Arch.GEMMA3, "granite": Arch.GRANITE, "olmo2": Arch.OLMO2, "gpt_oss": Arch.GPT_OSS, "glm4": Arch.GLM4,
                 "starcoder2": Arch.STARCODER2}
PERMUTED = ("llama", "mistral", "mixtral", "smollm3", "granite")
# The name under which the converter looks stacked experts up.
EXPERTS = {"mixtral": (re.compile(r"model\.layers\.(\d+)\.block_sparse_moe\.experts\.(\d+)\.(w\d)\.weight"), "layers.{}.feed_forward.experts.{}"),
           "qwen3_moe": (re.compile(r"model\.layers\.(\d+)\.mlp\.experts\.(\d+)\.(\w+)\.weight"), "model.layers.{}.mlp.experts.{}")}


def find(config, *names):
    """The first of these keys that says something, in config.json or in the rope_parameters of Transformers 5."""
    for name in names:
        for place in (config, config.get("rope_parameters") or {}):
            if place.get(name) is not None:
                return place[name]
    return None


def permute(tensor, heads):
    """Of each head's rows the two halves alternate."""
    return tensor.reshape(heads, 2, tensor.shape[0] // heads // 2, *tensor.shape[1:]).swapaxes(1, 2).reshape(tensor.shape)


def stacked_experts(kind, tensors):
    """One tensor for all experts of a layer and role."""
    if kind not in EXPERTS:
        return tensors
    pattern, name = EXPERTS[kind]
    rest, groups = {}, {}
    for key, tensor in tensors.items():
        match = pattern.fullmatch(key)
        if match:
            groups.setdefault(name.format(match[1], match[3]) + ".weight", {})[int(match[2])] = tensor
        else:
            rest[key] = tensor
    return rest | {key: torch.stack([group[i] for i in sorted(group)]) for key, group in groups.items()}


def gpt_oss_experts(tensors):
    """gate and up alternate and are transposed in the folder."""
    result = {}
    for name, tensor in tensors.items():
        if name.endswith("experts.gate_up_proj_bias"):
            at = name.removesuffix("gate_up_proj_bias")
            result[at + "gate_proj.bias"], result[at + "up_proj.bias"] = tensor[:, ::2], tensor[:, 1::2]
        elif name.endswith("experts.gate_up_proj"):
            at = name.removesuffix("gate_up_proj")
            turned = tensor.transpose(1, 2)
            result[at + "gate_proj.weight"], result[at + "up_proj.weight"] = turned[:, ::2], turned[:, 1::2]
        elif name.endswith("experts.down_proj_bias"):
            result[name.removesuffix("_bias") + ".bias"] = tensor
        elif name.endswith("experts.down_proj"):
            result[name + ".weight"] = tensor.transpose(1, 2)
        else:
            result[name] = tensor
    return result


def changed(kind, config, tensors):
    """The tensors as the converter stores them, still under the folder's names."""
    tensors = gpt_oss_experts(tensors) if kind == "gpt_oss" else stacked_experts(kind, tensors)
    for name, tensor in tensors.items():
        if kind in PERMUTED and re.search(r"self_attn\.[qk]_proj\.", name):
            heads = config["num_attention_heads"] if "q_proj" in name else config["num_key_value_heads"]
            tensors[name] = permute(tensor, heads)
        elif kind.startswith("gemma") and name.endswith("norm.weight"):
            tensors[name] = tensor.float() + 1
    if config.get("tie_word_embeddings") or kind.startswith("gemma"):
        tensors.pop("lm_head.weight", None)
    return tensors


def head_dim_of(config):
    return config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]


def llama3_divisors(scaling, theta, dim):
    """What the converter stores as rope_freqs."""
    result = []
    low = scaling["original_max_position_embeddings"] / scaling["low_freq_factor"]
    high = scaling["original_max_position_embeddings"] / scaling["high_freq_factor"]
    for i in range(0, dim, 2):
        wavelength = 2 * math.pi * theta ** (i / dim)
        smooth = (scaling["original_max_position_embeddings"] / wavelength - scaling["low_freq_factor"]) / (
            scaling["high_freq_factor"] - scaling["low_freq_factor"])
        result.append(1.0 if wavelength < high else scaling["factor"] if wavelength > low else
                      1 / ((1 - smooth) / scaling["factor"] + smooth))
    return torch.tensor(result, dtype=torch.float32)


def add_rotation(writer, kind, config, extra):
    """Keys of the rotation, and tensors that stand for some of them."""
    scaling = find(config, "rope_scaling") or config.get("rope_parameters") or {}
    theta = find(config, "rope_theta") or 10000.0
    rotated = int(head_dim_of(config) * (find(config, "partial_rotary_factor") or 1))
    writer.add_rope_freq_base(theta)
    if kind in PERMUTED + ("phi3", "glm4"):
        writer.add_rope_dimension_count(rotated)
    if kind == "gemma3_text":
        writer.add_rope_freq_base_swa(find(config, "rope_local_base_freq") or 10000.0)
    scheme = scaling.get("rope_type", scaling.get("type"))
    if scheme == "llama3":
        extra["rope_freqs.weight"] = llama3_divisors(scaling, theta, rotated)
    elif scheme == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(scaling["factor"])
    elif scheme == "yarn":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(scaling["factor"])
        writer.add_rope_scaling_orig_ctx_len(scaling["original_max_position_embeddings"])
        if scaling.get("beta_fast"):
            writer.add_rope_scaling_yarn_beta_fast(scaling["beta_fast"])
            writer.add_rope_scaling_yarn_beta_slow(scaling["beta_slow"])
    elif scheme == "longrope":
        original = find(config, "original_max_position_embeddings")
        ratio = config["max_position_embeddings"] / original
        writer.add_rope_scaling_orig_ctx_len(original)
        writer.add_rope_scaling_attn_factors(1.0 if ratio <= 1 else math.sqrt(1 + math.log(ratio) / math.log(original)))
        extra["rope_factors_long.weight"] = torch.tensor(scaling["long_factor"], dtype=torch.float32)
        extra["rope_factors_short.weight"] = torch.tensor(scaling["short_factor"], dtype=torch.float32)


def add_sizes(writer, kind, config):
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_vocab_size(config["vocab_size"])
    if config.get("head_dim"):
        writer.add_key_length(config["head_dim"])
        writer.add_value_length(config["head_dim"])
    if kind == "starcoder2":
        writer.add_layer_norm_eps(config["norm_epsilon"])
    else:
        writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    experts = find(config, "num_local_experts", "num_experts")
    if experts and kind in ("mixtral", "qwen3_moe", "gpt_oss"):
        writer.add_expert_count(experts)
        writer.add_expert_used_count(config["num_experts_per_tok"])
        if kind != "mixtral":
            writer.add_expert_feed_forward_length(find(config, "moe_intermediate_size", "intermediate_size"))


def add_parts(writer, kind, config):
    if kind in ("gemma2", "gemma3_text", "phi3", "gpt_oss") and config.get("sliding_window"):
        writer.add_sliding_window(config["sliding_window"])
    if kind == "gemma2":
        writer.add_attn_logit_softcapping(config["attn_logit_softcapping"])
        writer.add_final_logit_softcapping(config["final_logit_softcapping"])
    if kind == "granite":
        writer.add_attention_scale(config["attention_multiplier"])
        writer.add_embedding_scale(config["embedding_multiplier"])
        writer.add_residual_scale(config["residual_multiplier"])
        writer.add_logit_scale(config["logits_scaling"])


def add_vocabulary(writer, config):
    """Tokens without meaning: what is compared is ids and logits."""
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list([f"<{i}>" for i in range(config["vocab_size"])])
    writer.add_token_types([gguf.TokenType.NORMAL] * config["vocab_size"])
    writer.add_token_merges(["< 0"])


def stored(tensor):
    """(numpy array, GGUF type): vectors as float32, matrices as they are."""
    if tensor.ndim == 1 or tensor.dtype == torch.float32:
        return tensor.float().contiguous().numpy(), gguf.GGMLQuantizationType.F32
    if tensor.dtype == torch.bfloat16:
        return tensor.contiguous().view(torch.uint8).numpy(), gguf.GGMLQuantizationType.BF16
    return tensor.contiguous().numpy(), gguf.GGMLQuantizationType.F16


def write_gguf(folder, out):
    """Writes the checkpoint of `folder` to the GGUF file `out`."""
    config = json.loads((pathlib.Path(folder) / "config.json").read_text())
    kind = config["model_type"]
    if kind not in ARCHITECTURES:
        raise ValueError(f"{folder}: model_type {kind} has no GGUF form here")
    arch = ARCHITECTURES[kind]
    writer = gguf.GGUFWriter(out, gguf.MODEL_ARCH_NAMES[arch])
    tensors = {name: tensor for path in sorted(pathlib.Path(folder).glob("*.safetensors")) if path.name != "logits.safetensors"
               for name, tensor in load_file(path).items()}
    names = gguf.get_tensor_name_map(arch, config["num_hidden_layers"])
    extra = {}
    add_sizes(writer, kind, config)
    add_rotation(writer, kind, config, extra)
    add_parts(writer, kind, config)
    add_vocabulary(writer, config)
    for name, tensor in changed(kind, config, tensors).items():
        key = names.get_name(name, try_suffixes=(".weight", ".bias"))
        if key is None:
            raise ValueError(f"{folder}: {name} has no name in GGUF files of {kind}")
        extra[key + ".weight" if name.endswith("sinks") and not key.endswith(".weight") else key] = tensor
    for key, tensor in extra.items():
        data, dtype = stored(tensor)
        writer.add_tensor(key, data, raw_dtype=dtype)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return out


if __name__ == "__main__":
    write_gguf(sys.argv[1], sys.argv[2])
