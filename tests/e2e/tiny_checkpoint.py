"""Makes tiny random checkpoints with the standard library alone, so that tests can vary and break every file."""

import json
import math
import random
import struct

SPECIALS = ["<|end|>", "<|system|>", "<|user|>", "<|assistant|>", "<|begin|>"]
MERGES = [("h", "e"), ("l", "l"), ("he", "ll"), ("hell", "o"), ("Ġ", "t"), ("Ġt", "he"), ("o", "r"), ("d", "e"), ("e", "r")]
TEMPLATE = ("{% for message in messages %}<|{{ message.role }}|>\n{{ message.content }}<|end|>\n{% endfor %}"
            "{% if add_generation_prompt %}<|assistant|>\n{% endif %}")
LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "hidden_size": 32,
         "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
         "max_position_embeddings": 2048, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "rope_scaling": None,
         "attention_bias": False, "mlp_bias": False, "tie_word_embeddings": False, "bos_token_id": None}
QWEN2 = {**LLAMA, "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "use_sliding_window": False,
         "sliding_window": None, "max_window_layers": 2, "tie_word_embeddings": True}


def byte_alphabet():
    """The printable character that byte-level BPE writes for each byte."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    return {byte: chr(byte) for byte in plain} | {byte: chr(256 + i) for i, byte in enumerate(others)}


def tokenizer_json():
    vocabulary = [byte_alphabet()[byte] for byte in range(256)] + [left + right for left, right in MERGES]
    specials = {name: len(vocabulary) + i for i, name in enumerate(SPECIALS)}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    begin = specials["<|begin|>"]
    return {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [{"id": token, "content": name, **flags} for name, token in specials.items()],
        "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "post_processor": {"type": "TemplateProcessing",
                           "single": [{"SpecialToken": {"id": "<|begin|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                           "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
                           "special_tokens": {"<|begin|>": {"id": "<|begin|>", "ids": [begin], "tokens": ["<|begin|>"]}}},
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  "vocab": {token: i for i, token in enumerate(vocabulary)}, "merges": [" ".join(pair) for pair in MERGES]}}


VOCAB_SIZE = 256 + len(MERGES) + len(SPECIALS) + 3  # three ids beyond the tokenizer, as padded vocabularies have
END = 256 + len(MERGES)


def shapes(config):
    """Tensor names and shapes of a Llama or Qwen2 checkpoint."""
    hidden, inner, vocab = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    head_dim = config.get("head_dim") or hidden // config["num_attention_heads"]
    q, kv = config["num_attention_heads"] * head_dim, config["num_key_value_heads"] * head_dim
    result = {"model.embed_tokens.weight": [vocab, hidden], "model.norm.weight": [hidden]}
    if not config["tie_word_embeddings"]:
        result["lm_head.weight"] = [vocab, hidden]
    for layer in range(config["num_hidden_layers"]):
        parts = {"input_layernorm.weight": [hidden], "post_attention_layernorm.weight": [hidden],
                 "self_attn.q_proj.weight": [q, hidden], "self_attn.k_proj.weight": [kv, hidden],
                 "self_attn.v_proj.weight": [kv, hidden], "self_attn.o_proj.weight": [hidden, q],
                 "mlp.gate_proj.weight": [inner, hidden], "mlp.up_proj.weight": [inner, hidden],
                 "mlp.down_proj.weight": [hidden, inner]}
        if config["model_type"] == "qwen2":
            parts |= {f"self_attn.{name}_proj.bias": [size] for name, size in (("q", q), ("k", kv), ("v", kv))}
        result |= {f"model.layers.{layer}.{name}": shape for name, shape in parts.items()}
    return result


def values(name, shape, generator):
    count = math.prod(shape)
    if name.endswith("norm.weight"):
        return [1 + 0.3 * generator.gauss(0, 1) for _ in range(count)]
    scale = 0.5 if name.endswith("bias") else 0.3 if "embed" in name else 1.5 / shape[1] ** 0.5
    return [scale * generator.gauss(0, 1) for _ in range(count)]


def pack(numbers, dtype):
    data = struct.pack(f"<{len(numbers)}f", *numbers)
    return data if dtype == "F32" else b"".join(data[i + 2:i + 4] for i in range(0, len(data), 4))


def safetensors_bytes(tensors):
    """A safetensors file of {name: (dtype, shape, bytes)}."""
    header, data = {}, b""
    for name, (dtype, shape, raw) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def write_checkpoint(folder, family="llama", seed=1, template=TEMPLATE, generation=None, **changes):
    """Writes a checkpoint to folder and returns it. `changes` override config fields; generation is generation_config."""
    folder.mkdir(parents=True)
    config = {**(LLAMA if family == "llama" else QWEN2), "vocab_size": VOCAB_SIZE, "eos_token_id": END, **changes}
    dtype = "F32" if family == "llama" else "BF16"
    config["torch_dtype"] = "float32" if dtype == "F32" else "bfloat16"
    generator = random.Random(seed)
    tensors = {name: (dtype, shape, pack(values(name, shape, generator), dtype)) for name, shape in shapes(config).items()}
    (folder / "model.safetensors").write_bytes(safetensors_bytes(tensors))
    (folder / "config.json").write_text(json.dumps(config))
    if generation is not None:
        (folder / "generation_config.json").write_text(json.dumps(generation))
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer_json()))
    tokenizer_config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|end|>", "bos_token": "<|begin|>",
                        "clean_up_tokenization_spaces": False, "model_max_length": 512, "chat_template": template}
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer_config))
    return folder


def read_safetensors(path):
    """{name: (dtype, shape, bytes)} of a file."""
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__", None)
    return {name: (entry["dtype"], entry["shape"], data[8 + size:][slice(*entry["data_offsets"])]) for name, entry in header.items()}
