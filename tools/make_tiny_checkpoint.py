#!/usr/bin/env python3
"""Writes one random-weight Qwen2 or Llama checkpoint in Hugging Face layout, with Transformers' own classes.

    make_tiny_checkpoint.py OUT --family llama --hidden 64 --heads 4 --kv-heads 2 --head-dim 20 --layers 2 \\
        --dtype bfloat16 --rope-scaling llama3 --shard 64KB --seed 7

The weights are scaled so that logits have spread (tools/oracle_checkpoints.py). Without --tokenizer-from a small byte-level
BPE and a chat template with a system role are made; with it, that directory's tokenizer and template are copied.
"""

import argparse
import pathlib
import shutil

import oracle_checkpoints

ROPE_SCALING = {"none": None, "llama3": oracle_checkpoints.LLAMA3_ROPE, "linear": {"rope_type": "linear", "factor": 4.0}}
TOKENIZER_FILES = ["tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja",
                   "vocab.json", "merges.txt", "added_tokens.json"]


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--family", choices=["qwen2", "llama"], default="llama")
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--intermediate", type=int, default=176)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--kv-heads", type=int, default=2)
    parser.add_argument("--head-dim", type=int, help="default: hidden / heads")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--vocab", type=int, default=640)
    parser.add_argument("--tokenizer-vocab", type=int, default=560, help="of the tokenizer that is made, before special tokens")
    parser.add_argument("--max-positions", type=int, default=2048)
    parser.add_argument("--rope-theta", type=float, default=10000.0)
    parser.add_argument("--rope-scaling", choices=ROPE_SCALING, default="none")
    parser.add_argument("--attention-bias", action="store_true", help="llama: biases on q, k, v and o")
    parser.add_argument("--mlp-bias", action="store_true", help="llama: biases in the MLP")
    parser.add_argument("--dtype", choices=["float32", "float16", "bfloat16"], default="float32")
    parser.add_argument("--tied", action="store_true")
    parser.add_argument("--shard", default="5GB", help="largest shard, e.g. 64KB")
    parser.add_argument("--repetition-penalty", type=float)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tokenizer-from", type=pathlib.Path, help="directory whose tokenizer and chat template are copied")
    return parser.parse_args()


def make_spec(arguments):
    more = {"rope_theta": arguments.rope_theta, "rope_scaling": ROPE_SCALING[arguments.rope_scaling],
            "max_position_embeddings": arguments.max_positions}
    if arguments.head_dim:
        more["head_dim"] = arguments.head_dim
    if arguments.family == "llama":
        more |= {"attention_bias": arguments.attention_bias, "mlp_bias": arguments.mlp_bias}
    config = oracle_checkpoints.shape(arguments.hidden, arguments.heads, arguments.kv_heads, arguments.layers,
                                      arguments.intermediate, arguments.vocab, arguments.tied) | more
    penalty = arguments.repetition_penalty
    return oracle_checkpoints.Spec(arguments.out.name, arguments.family, config, arguments.dtype, arguments.shard,
                                   {"repetition_penalty": penalty} if penalty else {}, arguments.tokenizer_vocab)


def main():
    arguments = parse_arguments()
    folder = oracle_checkpoints.make_checkpoint(make_spec(arguments), arguments.out, arguments.seed)
    if arguments.tokenizer_from:
        for name in TOKENIZER_FILES:
            (folder / name).unlink(missing_ok=True)
            if (arguments.tokenizer_from / name).exists():
                shutil.copy(arguments.tokenizer_from / name, folder / name)
    print(f"{folder}: {oracle_checkpoints.describe(folder)}")


if __name__ == "__main__":
    main()
