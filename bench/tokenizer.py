#!/usr/bin/env python3
"""Times kvfork's tokenizer beside the `tokenizers` package, on one thread, in CPU time.

One megabyte of mixed text, 10,000 short prompts, decode of the text, and loading tokenizer.json. Best of REPEATS runs of
each, the two taking turns. Usage: bench/tokenizer.py --bench build/.../tokenizer_bench DIR [DIR...]
"""
import argparse
import json
import os
import platform
import random
import subprocess
import sys
import tempfile
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tools"))

import tokenizers  # noqa: E402

import oracle_tokenizer as oracle  # noqa: E402


def mixed_text(n_bytes):
    """Prose and code of this repository, and words of many scripts: about n_bytes of UTF-8."""
    rng = random.Random(7)
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    prose = []
    for folder, _, names in sorted(os.walk(root)):
        parts = os.path.relpath(folder, root).split(os.sep)
        if any(part in ("build", "golden", "corpus") or (part.startswith(".") and part != ".") for part in parts):
            continue
        for name in sorted(names):
            if name.endswith((".md", ".cc", ".h", ".py")) and name != "unicode_tables.cc":
                with open(os.path.join(folder, name), encoding="utf-8") as file:
                    prose += file.read().split("\n\n")
    parts, size = [], 0
    while size < n_bytes:
        kind = rng.random()
        if kind < 0.7:
            part = rng.choice(prose)
        elif kind < 0.9:
            part = " ".join(oracle.alphabetic_word(rng) for _ in range(20))
        else:
            part = oracle.make_text(rng, []).encode(errors="ignore").decode()
        parts.append(part)
        size += len(part.encode())
    return "\n\n".join(parts)


def short_prompts(count):
    rng = random.Random(8)
    return [oracle.english(rng).capitalize() + rng.choice(["?", ".", "!", " Order #%d." % rng.randrange(10**6)]) for _ in range(count)]


def best_ms(repeats, function):
    best = float("inf")
    for _ in range(repeats):
        start = time.process_time()
        function()
        best = min(best, (time.process_time() - start) * 1000)
    return best


def measure_package(directory, text, prompts, repeats):
    path = os.path.join(directory, "tokenizer.json")
    tokenizer = tokenizers.Tokenizer.from_file(path)
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    return {
        "load_ms": best_ms(min(repeats, 3), lambda: tokenizers.Tokenizer.from_file(path)),
        "encode_ms": best_ms(repeats, lambda: tokenizer.encode(text, add_special_tokens=False)),
        "prompts_ms": best_ms(repeats, lambda: [tokenizer.encode(p, add_special_tokens=False) for p in prompts]),
        "decode_ms": best_ms(repeats, lambda: tokenizer.decode(ids, skip_special_tokens=False)),
        "n_ids": len(ids),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directories", nargs="+")
    parser.add_argument("--bench", required=True)
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    text, prompts = mixed_text(1_000_000), short_prompts(10_000)
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, tokenizers {tokenizers.__version__}, "
          f"{len(text.encode())} bytes of text, {len(prompts)} prompts; CPU milliseconds, best of {args.repeats}")
    print(f"{'model':24} {'row':10} {'kvfork':>9} {'package':>9} {'ratio':>7}")
    with tempfile.TemporaryDirectory() as folder:
        text_file, prompts_file = os.path.join(folder, "text"), os.path.join(folder, "prompts")
        with open(text_file, "w", encoding="utf-8", newline="") as file:
            file.write(text)
        with open(prompts_file, "w", encoding="utf-8") as file:
            file.writelines(json.dumps(p) + "\n" for p in prompts)
        for directory in args.directories:
            command = [args.bench, directory, text_file, prompts_file, str(args.repeats)]
            ours = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
            theirs = measure_package(directory, text, prompts, args.repeats)
            again = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
            if ours["n_ids"] != theirs["n_ids"]:
                sys.exit(f"{directory}: {ours['n_ids']} ids, the package has {theirs['n_ids']}")
            for row in ("load_ms", "encode_ms", "prompts_ms", "decode_ms"):
                mine = min(ours[row], again[row])
                print(f"{os.path.basename(os.path.normpath(directory)):24} {row[:-3]:10} {mine:9.1f} {theirs[row]:9.1f} {theirs[row] / mine:6.1f}x")


if __name__ == "__main__":
    main()
