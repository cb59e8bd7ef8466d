"""Writes GGUF models whose matrices are made of the golden blocks of one stored type, with the standard library alone."""

import json
import pathlib
import random
import struct

GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "tests/golden/gguf/dequantize.safetensors"
# GGML's number of each type, and the numbers that one block holds.
TYPES = {"F32": (0, 1), "F16": (1, 1), "BF16": (30, 1), "Q4_0": (2, 32), "Q4_1": (3, 32), "Q5_0": (6, 32), "Q5_1": (7, 32),
         "Q8_0": (8, 32), "Q2_K": (10, 256), "Q3_K": (11, 256), "Q4_K": (12, 256), "Q5_K": (13, 256), "Q6_K": (14, 256),
         "IQ4_NL": (20, 32), "IQ4_XS": (23, 256)}
HIDDEN, INNER, HEADS, KV_HEADS, LAYERS, VOCAB, POSITIONS = 256, 512, 4, 2, 2, 320, 2048
UINT32, FLOAT32, STRING, ARRAY, INT32 = 4, 6, 8, 9, 5


def read_golden_blocks(type_name):
    """The blocks of a type as a list of bytes; plain types have none in the golden file."""
    data = GOLDEN.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    entry = json.loads(data[8:8 + size]).get(f"{type_name}.blocks")
    if entry is None or len(entry["shape"]) != 2:
        return []
    blocks = data[8 + size:][slice(*entry["data_offsets"])]
    width = entry["shape"][1]
    return [blocks[i:i + width] for i in range(0, len(blocks), width)]


def plain(number, type_name):
    raw = struct.pack("<f", number)
    return {"F32": raw, "BF16": raw[2:], "F16": struct.pack("<e", number)}[type_name]


def text(value):
    return struct.pack("<Q", len(value)) + value.encode()


def metadata():
    numbers = {"context_length": POSITIONS, "embedding_length": HIDDEN, "block_count": LAYERS, "feed_forward_length": INNER,
               "attention.head_count": HEADS, "attention.head_count_kv": KV_HEADS}
    values = [("general.architecture", STRING, text("qwen2"))]
    values += [(f"qwen2.{key}", UINT32, struct.pack("<I", number)) for key, number in numbers.items()]
    values += [("qwen2.rope.freq_base", FLOAT32, struct.pack("<f", 10000.0)),
               ("qwen2.attention.layer_norm_rms_epsilon", FLOAT32, struct.pack("<f", 1e-6)),
               ("tokenizer.ggml.model", STRING, text("gpt2")), ("tokenizer.ggml.pre", STRING, text("qwen2"))]
    tokens = [text(f"<{i}>") for i in range(VOCAB)]
    values += [("tokenizer.ggml.tokens", ARRAY, struct.pack("<IQ", STRING, VOCAB) + b"".join(tokens)),
               ("tokenizer.ggml.token_type", ARRAY, struct.pack("<IQ", INT32, VOCAB) + struct.pack("<i", 1) * VOCAB),
               ("tokenizer.ggml.merges", ARRAY, struct.pack("<IQ", STRING, 1) + text("< 0"))]
    return len(values), b"".join(text(key) + struct.pack("<I", kind) + value for key, kind, value in values)


def shapes():
    """Names and shapes, rows first."""
    q, kv = HIDDEN, HIDDEN // HEADS * KV_HEADS
    result = {"token_embd.weight": (VOCAB, HIDDEN), "output_norm.weight": (HIDDEN,), "output.weight": (VOCAB, HIDDEN)}
    layer = {"attn_norm.weight": (HIDDEN,), "ffn_norm.weight": (HIDDEN,), "attn_q.weight": (q, HIDDEN), "attn_q.bias": (q,),
             "attn_k.weight": (kv, HIDDEN), "attn_k.bias": (kv,), "attn_v.weight": (kv, HIDDEN), "attn_v.bias": (kv,),
             "attn_output.weight": (HIDDEN, q), "ffn_gate.weight": (INNER, HIDDEN), "ffn_up.weight": (INNER, HIDDEN),
             "ffn_down.weight": (HIDDEN, INNER)}
    return result | {f"blk.{i}.{name}": shape for i in range(LAYERS) for name, shape in layer.items()}


def tensor_bytes(shape, type_name, blocks, generator):
    if len(shape) == 1:
        return b"".join(plain(1 + 0.3 * generator.gauss(0, 1), "F32") for _ in range(shape[0]))
    if blocks:
        return b"".join(generator.choice(blocks) for _ in range(shape[0] * shape[1] // TYPES[type_name][1]))
    return b"".join(plain(generator.gauss(0, 1) / shape[1] ** 0.5, type_name) for _ in range(shape[0] * shape[1]))


def write_gguf(path, type_name, seed=1):
    """Writes a Qwen2 model of two layers to `path`, with every matrix in the named type, and returns the path."""
    generator = random.Random(seed)
    blocks = read_golden_blocks(type_name)
    infos, data = b"", b""
    for name, shape in shapes().items():
        kind = TYPES["F32" if len(shape) == 1 else type_name][0]
        data += b"\0" * (-len(data) % 32)
        infos += text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *reversed(shape), kind, len(data))
        data += tensor_bytes(shape, type_name, blocks, generator)
    count, values = metadata()
    head = b"GGUF" + struct.pack("<IQQ", 3, len(shapes()), count) + values + infos
    path.write_bytes(head + b"\0" * (-len(head) % 32) + data)
    return path
