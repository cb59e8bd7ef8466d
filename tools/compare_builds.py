#!/usr/bin/env python3
"""Compares two builds of kvfork: what the new one computes must have the bits of what the old one computes.

    compare_builds.py OLD NEW [--quick] [--only TEXT]

OLD and NEW are kvfork binaries. For every model, kernel set of this machine and dtype:
  logits   `score --logits` of both builds writes byte-identical files; the new build's run is split with --chunks and --fork-at
           as well, which must change nothing either.
  saved    a context and a child of it that the old build saved answer the same ids in the new one, or are refused by an error
           that names a field of the file.
Models: tests/golden/checkpoints, tests/golden/gguf/*.gguf, one GGUF file of each stored type (tools/block_gguf.py), and,
unless --quick is given, the random checkpoints of tools/oracle_checkpoints.py (with a Python that has Transformers: this
one or the one that KVFORK_VENV names) and the file that KVFORK_SMOLLM2 names. A model that the old build refuses is left out.
Each check is one line; the last line is 'N equal, N differ'. Exits 1 when something differs or nothing was compared.
"""

import argparse
import concurrent.futures
import filecmp
import json
import os
import pathlib
import random
import re
import struct
import subprocess
import sys
import tempfile

import block_gguf
import machine

ROOT = pathlib.Path(__file__).resolve().parent.parent
GOLDEN = ROOT / "tests/golden"
DTYPES = ["float32", "bfloat16"]
SPLITS = ["--chunks", "1,3,64,17", "--fork-at", "29"]
CONTEXT = "Refunds are accepted within 30 days. Bring the order number."
PROMPTS = ["Hello!", "What do I need to request a refund?"]


class Build:
    """A kvfork binary that runs with one kernel set."""

    def __init__(self, binary, kernel_set, dtype):
        self.binary, self.kernel_set, self.dtype = binary, kernel_set, dtype

    def run(self, command, model, *arguments):
        line = [self.binary, command, "--model", model, "--dtype", self.dtype, "--threads", 2, "--quiet", *arguments]
        return subprocess.run([str(word) for word in line], capture_output=True, text=True,
                              env={**os.environ, "KVFORK_ISA": self.kernel_set})

    def score(self, model, ids, out, *more):
        """None, or what the build says when it cannot."""
        done = self.run("score", model, "--ids", ",".join(map(str, ids)), "--logits", out, "--json", *more)
        return None if done.returncode == 0 else said(done)

    def answer(self, model, *fixed_part):
        """The ids of the answers and None, or None and what the build says when it cannot."""
        prompts = [word for prompt in PROMPTS for word in ("--prompt", prompt)]
        done = self.run("run", model, *fixed_part, *prompts, "--max-new-tokens", 12, "--json")
        if done.returncode != 0:
            return None, said(done)
        return [answer["ids"] for answer in json.loads(done.stdout)["answers"]], None


def said(done):
    errors = [line for line in done.stderr.splitlines() if "error:" in line]
    return (errors or [f"exit status {done.returncode}: {done.stderr[-300:]}"])[-1]


def vocab_size(model):
    if (model / "config.json").exists():
        return json.loads((model / "config.json").read_text())["vocab_size"]
    return block_gguf.VOCAB if model.parent.name == "block-gguf" else 49152


def ids_for(model, count):
    generator = random.Random(7)
    return [generator.randrange(vocab_size(model)) for _ in range(count)]


def metadata_keys(path):
    """The names of the fields of a saved context."""
    with path.open("rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
    return list(header["__metadata__"])


def compare_logits(old, new, model, folder, count):
    """Yields (equal, what was compared)."""
    ids = ids_for(model, count)
    before, after = folder / "before", folder / "after"
    if old.score(model, ids, before) is not None:
        return
    for more in ([], SPLITS):
        problem = new.score(model, ids, after, *more)
        if problem is None and not filecmp.cmp(before, after, shallow=False):
            problem = "the files differ"
        yield problem is None, " ".join(["logits", *more]) + (f": {problem}" if problem else "")
        after.unlink(missing_ok=True)


def compare_saved(old, new, model, folder):
    """Yields (equal, what was compared) for a context and its child."""
    context, child = folder / "context", folder / "child"
    if old.run("save", model, "--context", CONTEXT, "--out", context).returncode != 0:
        return
    messages = folder / "messages.json"
    messages.write_text('[{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yes?"}]')
    saved = [context]
    if old.run("save", model, "--load", context, "--messages", messages, "--out", child).returncode == 0:
        saved.append(child)
    for path in saved:
        expected, problem = old.answer(model, "--load", path)
        if problem:
            continue
        found, problem = new.answer(model, "--load", path)
        if problem is None:
            yield found == expected, f"saved {path.name}" + ("" if found == expected else ": the answers differ")
        else:
            names_field = any(re.search(rf"\b{re.escape(key)}\b", problem) for key in metadata_keys(path))
            yield names_field, f"saved {path.name}: {'refused' if names_field else 'expected a field'}: {problem}"


def make_checkpoints(folder):
    """Run by a Python that has Transformers: the random checkpoints, each made once."""
    import oracle_checkpoints
    for spec in oracle_checkpoints.SPECS:
        if not (folder / spec.name / "config.json").exists():
            oracle_checkpoints.make_checkpoint(spec, folder / spec.name, 11)


def models(quick, scratch):
    found = sorted((GOLDEN / "checkpoints").iterdir()) + sorted((GOLDEN / "gguf").glob("*.gguf"))
    (scratch / "block-gguf").mkdir()
    found += [block_gguf.write_gguf(scratch / "block-gguf" / f"{name}.gguf", name) for name in block_gguf.TYPES]
    if quick:
        return found
    kept = ROOT / ".cache/compare_builds"
    python = f"{os.environ['KVFORK_VENV']}/bin/python" if "KVFORK_VENV" in os.environ else sys.executable
    made = subprocess.run([python, __file__, "--make", kept], capture_output=True, text=True)
    if made.returncode == 0:
        found += sorted(path for path in kept.iterdir() if path.is_dir())
    else:
        print(f"left out: tools/oracle_checkpoints.py needs a Python with Transformers: {made.stderr.strip()[-200:]}")
    smollm2 = os.environ.get("KVFORK_SMOLLM2")
    return found + ([pathlib.Path(smollm2)] if smollm2 else [])


def compare(job):
    binaries, model, kernel_set, dtype, quick, scratch = job
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        folder = pathlib.Path(folder)
        old, new = (Build(binary, kernel_set, dtype) for binary in binaries)
        checks = list(compare_logits(old, new, model, folder, 70 if quick or model.name.startswith("SmolLM2") else 330))
        if model.is_dir():
            checks += compare_saved(old, new, model, folder)
    return [(equal, f"{model.name} {kernel_set} {dtype} {what}") for equal, what in checks]


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", nargs="?", type=pathlib.Path)
    parser.add_argument("new", nargs="?", type=pathlib.Path)
    parser.add_argument("--quick", action="store_true", help="short sequences, and only the models that need no other package")
    parser.add_argument("--only", default="", help="only models whose name contains this text")
    parser.add_argument("--make", type=pathlib.Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.make is None and (arguments.old is None or arguments.new is None):
        parser.error("expected two binaries, OLD and NEW")
    return arguments


def main():
    arguments = parse_arguments()
    if arguments.make:
        return make_checkpoints(arguments.make)
    binaries = [path.resolve(strict=True) for path in (arguments.old, arguments.new)]
    n_equal = n_different = 0
    with tempfile.TemporaryDirectory() as scratch, concurrent.futures.ThreadPoolExecutor(2) as pool:
        scratch = pathlib.Path(scratch)
        jobs = [(binaries, model, kernel_set, dtype, arguments.quick, scratch)
                for model in models(arguments.quick, scratch) if arguments.only in model.name
                for kernel_set in machine.kernel_sets() for dtype in DTYPES]
        for job, checks in zip(jobs, pool.map(compare, jobs)):
            if not checks:
                print(f"left out: {job[1].name} {job[2]} {job[3]}: the old build does not run it")
            for equal, line in checks:
                n_equal, n_different = n_equal + equal, n_different + (not equal)
                print(f"{'ok  ' if equal else 'FAIL'} {line}", flush=True)
    print(f"{n_equal} equal, {n_different} differ")
    return 1 if n_different or not n_equal else 0


if __name__ == "__main__":
    sys.exit(main())
