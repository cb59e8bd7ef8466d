#!/usr/bin/env python3
"""Writes tests/golden: tiny checkpoints, the reference's logits and greedy ids for them, and dequantized GGUF blocks.

Run with Transformers 4.57.3, torch, tokenizers and gguf installed; the outputs are committed, so tests need none of
them. Each output says what made it. The same versions give the same files.
"""

import argparse
import datetime
import importlib.metadata
import json
import pathlib
import shutil

import gguf
import numpy
import tokenizers
import torch
import transformers
from safetensors.numpy import save_file

import oracle_checkpoints
from oracle_checkpoints import Spec, shape

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Seeds under which no greedy choice is near a tie: the smallest gap is printed.
SEEDS = {"qwen2-bf16-tied": 26, "llama-f32-llama3": 24, "llama-f16-sharded": 20}
SEED = 20
NEW_TOKENS = 32
CONTEXT = "Refunds are accepted within 30 days."
PROMPTS = ["Hello!", "What do I need to request a refund?", "", "  \n", "注文番号", "def f(x):\n    return x * 2"]

# Small enough to commit, and unlike each other: storage, tied or not, biases, grouping, head size, rotary scaling, shards.
SPECS = [
    Spec("qwen2-bf16-tied", "qwen2", shape(40, 4, 2, 2, 72, 352, True, rope_theta=1e6), "bfloat16",
         generation={"repetition_penalty": 1.1, "do_sample": True, "temperature": 0.7, "top_k": 20, "top_p": 0.8,
                     "eos_token_id": ["<|im_end|>", "<|endoftext|>"]}, tokenizer_vocab=320),
    Spec("llama-f32-llama3", "llama", shape(32, 4, 1, 2, 50, 352, False, head_dim=12, rope_theta=5e5, rms_norm_eps=1e-5,
                                            rope_scaling=oracle_checkpoints.LLAMA3_ROPE), tokenizer_vocab=320),
    Spec("llama-f16-sharded", "llama", shape(48, 3, 3, 2, 64, 352, False), "float16", shard="40KB",
         tokenizer_vocab=320),
]


def made_by():
    return {"made_by": "tools/make_goldens.py", "date": datetime.date.today().isoformat(),
            "transformers": transformers.__version__, "torch": torch.__version__.split("+")[0],
            "tokenizers": tokenizers.__version__, "reference": "float32, attn_implementation=eager"}


def in_one_key(facts):
    """As safetensors metadata; the library writes several keys in an order of its own."""
    return {"provenance": json.dumps(facts)}


def make_checkpoint_goldens(spec, golden):
    """The checkpoint, logits at each position of one sequence, and greedy continuations of chat prompts."""
    folder = golden / "checkpoints" / spec.name
    shutil.rmtree(folder, ignore_errors=True)
    oracle_checkpoints.make_checkpoint(spec, folder, SEEDS[spec.name])
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()

    generator = torch.Generator().manual_seed(SEED)
    ids = torch.randint(0, spec.config["vocab_size"], (1, 48), generator=generator)
    with torch.no_grad():
        logits = model(ids).logits[0]
    (golden / "logits").mkdir(exist_ok=True)
    save_file({"ids": ids[0].numpy(), "logits": logits.numpy()}, golden / "logits" / f"{spec.name}.safetensors",
              in_one_key(made_by()))

    answers = []
    for prompt in PROMPTS:
        messages = [{"role": "system", "content": CONTEXT}, {"role": "user", "content": prompt}]
        text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        prompt_ids = tokenizer(text, add_special_tokens=False, return_tensors="pt").input_ids
        with torch.no_grad():
            result = model.generate(prompt_ids, attention_mask=torch.ones_like(prompt_ids), do_sample=False,
                                    max_new_tokens=NEW_TOKENS, return_dict_in_generate=True, output_scores=True,
                                    temperature=None, top_p=None, top_k=None)
        gaps = [float(best[0] - best[1]) for best in (score[0].topk(2).values for score in result.scores)]
        answers.append({"prompt": prompt, "text": text, "prompt_ids": prompt_ids[0].tolist(),
                        "ids": result.sequences[0, prompt_ids.shape[1]:].tolist(), "smallest_gap": min(gaps)})
    (golden / "greedy").mkdir(exist_ok=True)
    document = made_by() | {"context": CONTEXT, "max_new_tokens": NEW_TOKENS, "answers": answers}
    (golden / "greedy" / f"{spec.name}.json").write_text(json.dumps(document, ensure_ascii=False, indent=1) + "\n")
    print(f"{spec.name}: {oracle_checkpoints.describe(folder)}; logits range {float(logits.max() - logits.min()):.1f}, "
          f"smallest greedy gap {min(answer['smallest_gap'] for answer in answers):.1e}")


# Byte positions of the half-precision fields of a block, whose random bits must not be infinities or NaN.
HALVES = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82], "Q3_K": [108],
          "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ4_NL": [0], "IQ4_XS": [0]}


def make_dequantization_golden(golden):
    """Random blocks of every quantized type and the `gguf` package's float32 for them."""
    random = numpy.random.default_rng(SEED)
    tensors = {}
    for name, halves in HALVES.items():
        kind = gguf.GGMLQuantizationType[name]
        n_elements, n_bytes = gguf.GGML_QUANT_SIZES[kind]
        n_blocks = 8 if n_elements == 32 else 3
        blocks = random.integers(0, 256, (n_blocks, n_bytes), dtype=numpy.uint8)
        for at in halves:
            # Exponents below 31; the first block's is 0, a subnormal half.
            blocks[:, at + 1] &= 0b10111111
            blocks[0, at + 1] &= 0b10000011
        tensors[f"{name}.blocks"] = blocks
        tensors[f"{name}.values"] = gguf.quants.dequantize(blocks, kind).reshape(-1)
    halves = numpy.arange(0, 65536, 7, dtype=numpy.uint16)
    halves = halves[(halves & 0x7C00) != 0x7C00]
    tensors["F16.blocks"] = halves.view(numpy.uint8)
    tensors["F16.values"] = gguf.quants.dequantize(halves, gguf.GGMLQuantizationType.F16)
    (golden / "gguf").mkdir(exist_ok=True)
    save_file(tensors, golden / "gguf" / "dequantize.safetensors",
              in_one_key({"made_by": "tools/make_goldens.py", "date": datetime.date.today().isoformat(),
                          "gguf": importlib.metadata.version("gguf"), "reference": "gguf.quants.dequantize"}))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "tests" / "golden")
    golden = parser.parse_args().out
    torch.set_num_threads(1)
    for part in ["checkpoints", "logits", "greedy", "gguf"]:
        (golden / part).mkdir(parents=True, exist_ok=True)
    for spec in SPECS:
        make_checkpoint_goldens(spec, golden)
    make_dequantization_golden(golden)


if __name__ == "__main__":
    main()
