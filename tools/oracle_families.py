#!/usr/bin/env python3
"""Agreement of kvfork with Transformers (float32, eager) for every family, on random checkpoints, live.

Runs with Transformers 4.57.3 and with 5: both write and read the checkpoints of tools/family_specs.py, each in its own spelling.
For each spec, stored as float32 and as bfloat16, and each kernel set:
  logits   `score --logits` at every position for lengths around 1, 64, the window and the original length, within 3e-5 of the
           reference relative to the row's range.
  loose    the same in bfloat16 mode, within 6e-2 or what the spec names; a mixture may choose other experts there, so it is shown only.
  bits     `score` with --chunks, --fork-at and --threads writes byte-identical files.
With --faults, one part at a time is switched off in a copy of the checkpoint, and the comparison must fail: that proves that the
part is active. With --blockspec FILE, that description of the families takes the place of kvfork.
A checkpoint that kvfork refuses is reported as 'not yet' with its message. The last line counts; exits 1 when a check failed or
nothing was compared.
"""

import argparse
import dataclasses
import filecmp
import importlib.util
import os
import pathlib
import subprocess
import sys
import tempfile
import warnings

import numpy
import torch
import transformers
from safetensors.numpy import load_file

import family_checkpoints
import family_specs
import machine

ROOT = pathlib.Path(__file__).resolve().parent.parent
TOLERANCE = 3e-5
MIXTURE_KEYS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")


class Refused(Exception):
    """The candidate does not run this checkpoint."""


@dataclasses.dataclass
class Report:
    passed: int = 0
    failed: int = 0
    not_yet: list = dataclasses.field(default_factory=list)

    def add(self, ok, line):
        self.passed += bool(ok)
        self.failed += not ok
        print(f"{'ok  ' if ok else 'FAIL'} {line}", flush=True)

    def refuse(self, name, message):
        self.not_yet.append(name)
        print(f"not yet {name}: {message}", flush=True)


class Kvfork:
    """The tool under test, run with one kernel set."""

    def __init__(self, tool, kernel_set):
        self.tool, self.name = tool, kernel_set

    def score(self, folder, ids, out, *more, threads=1):
        command = [self.tool, "score", "--model", str(folder), "--ids", ",".join(map(str, ids)), "--logits", str(out), "--json",
                   "--threads", str(threads), *map(str, more)]
        done = subprocess.run(command, env={**os.environ, "KVFORK_ISA": self.name}, capture_output=True, text=True)
        if done.returncode < 0:
            raise RuntimeError(f"score ended by signal {-done.returncode}")
        if done.returncode != 0:
            raise Refused(done.stderr.strip().removeprefix("kvfork: error: ").removeprefix(str(folder))[:300])
        return out

    def logits(self, folder, ids, scratch, *more):
        tensors = load_file(self.score(folder, ids, scratch / "logits.safetensors", *more))
        if tensors["ids"].tolist() != list(ids) or tensors["logits"].dtype != numpy.float32:
            raise RuntimeError("the file's ids are not those asked for, or its logits are not float32")
        return tensors["logits"]


class Blockspec:
    """The description of families that was compared before any engine; it proves that a spec is sane."""

    name = "blockspec"

    def __init__(self, path):
        loader = importlib.util.spec_from_file_location("blockspec", path)
        self.module = importlib.util.module_from_spec(loader)
        sys.modules["blockspec"] = self.module  # dataclasses look their module up by name
        loader.loader.exec_module(self.module)
        self.described = (None, None)

    def logits(self, folder, ids, scratch, *more):
        if self.described[0] != folder:
            self.described = (folder, self.module.describe(folder))
        with torch.no_grad():
            return self.module.forward(self.described[1], ids).float().numpy()


def worst_row(expected, found):
    """The largest difference of a row relative to its range; NaN, infinities and wrong shapes give infinity."""
    if expected.shape != found.shape or not numpy.isfinite(found).all():
        return float("inf")
    spread = expected.max(axis=1) - expected.min(axis=1)
    return float((numpy.abs(expected.astype(numpy.float64) - found).max(axis=1) / spread).max())


def lengths_of(spec, sizes):
    lengths = {1, 2, 17, 64, 65, 200, 300}
    if spec.window:
        lengths |= {spec.window - 1, spec.window, spec.window + 1, 2 * spec.window + 1}
    if spec.scaled:
        lengths |= {sizes.original - 1, sizes.original, sizes.original + 1}
    return sorted(lengths)


def references_of(spec, sizes, folder, seed):
    """{length: (ids, logits)}; a model whose rows hardly differ would prove nothing."""
    model = family_checkpoints.reference(folder)
    result = {}
    for n in lengths_of(spec, sizes):
        ids = family_checkpoints.draw_ids(sizes, n, seed)
        result[n] = (ids, family_checkpoints.reference_logits(model, ids))
    rows = result[max(result)][1]
    if float((rows.max(axis=1) - rows.min(axis=1)).min()) < 0.5 or len(set(rows.argmax(axis=1).tolist())) < 5:
        raise RuntimeError("the reference's rows are almost constant or alike: the spec's scales prove nothing")
    return result


def check_logits(report, candidate, label, folder, references, scratch):
    worst = {n: worst_row(expected, candidate.logits(folder, ids, scratch)) for n, (ids, expected) in references.items()}
    bad = {n: f"{error:.1e}" for n, error in worst.items() if not error <= TOLERANCE}
    report.add(not bad, f"{label}: {candidate.name}: logits, worst {max(worst.values()):.1e}" + (f"; by length {bad}" if bad else ""))
    return not bad


def check_loose(report, kvfork, spec, label, folder, references, scratch, mixture):
    ids, expected = references[65]
    error = worst_row(expected, kvfork.logits(folder, ids, scratch, "--dtype", "bfloat16"))
    report.add(mixture and numpy.isfinite(error) or error <= spec.loose, f"{label}: {kvfork.name}: bfloat16 mode, {error:.1e}")


def check_bits(report, kvfork, label, folder, references, scratch):
    ids = references[65][0]
    splits = [("--chunks", "5,17,21"), ("--chunks", ",".join(["1"] * 64)), ("--fork-at", 1), ("--fork-at", 24), ("--fork-at", 64),
              ("--fork-at", 23, "--chunks", "7,1,1,20")]
    for dtype in ("float32", "bfloat16"):
        whole = kvfork.score(folder, ids, scratch / "whole.safetensors", "--dtype", dtype)
        differ = [" ".join(map(str, split)) for i, split in enumerate(splits)
                  if not filecmp.cmp(whole, kvfork.score(folder, ids, scratch / "split.safetensors", "--dtype", dtype, *split,
                                                         threads=1 + i % 2), shallow=False)]
        report.add(not differ, f"{label}: {kvfork.name}: {dtype}: bits over {len(splits)} splits" + (f"; differ: {differ}" if differ else ""))


def check_faults(report, candidate, spec, label, folder, references, scratch):
    for name, fault in spec.faults.items():
        copy = family_checkpoints.damaged(folder, scratch / f"fault-{file_name(name)}", fault)
        try:
            worst = max(worst_row(expected, candidate.logits(copy, ids, scratch)) for ids, expected in references.values())
            report.add(not worst <= TOLERANCE, f"{label}: {candidate.name}: fault '{name}' is seen, {worst:.1e}")
        except Refused as refusal:
            report.refuse(f"{label} with fault '{name}'", refusal)


def file_name(text):
    return "".join(c if c.isalnum() else "-" for c in text)


def check_spec(report, args, spec, dtype, candidates, scratch):
    sizes, label = family_specs.LARGE, f"{spec.name} {dtype}"
    try:
        config = family_checkpoints.config_of(spec, sizes)
    except (KeyError, ValueError) as error:
        print(f"     {label}: Transformers {transformers.__version__} has no such model: {error}"[:200])
        return
    home = pathlib.Path(args.keep) if args.keep else scratch
    folder = family_checkpoints.make(spec, sizes, home / f"{spec.name}-{dtype}-{transformers.__version__}", dtype, args.seed)
    references = references_of(spec, sizes, folder, args.seed)
    mixture = any(getattr(config, key, 0) for key in MIXTURE_KEYS)
    for candidate in candidates:
        try:
            if args.faults:
                check_faults(report, candidate, spec, label, folder, references, scratch)
                continue
            right = check_logits(report, candidate, label, folder, references, scratch)
            if right and isinstance(candidate, Kvfork):
                check_loose(report, candidate, spec, label, folder, references, scratch, mixture)
                check_bits(report, candidate, label, folder, references, scratch)
        except Refused as refusal:
            report.refuse(label, refusal)
            break


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kvfork", default=str(ROOT / "build" / "release" / "kvfork"), help="the tool to test")
    parser.add_argument("--blockspec", help="test this description instead of kvfork")
    parser.add_argument("--only", action="append", default=[], help="only specs whose name begins with this (repeatable)")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), help="only checkpoints stored so")
    parser.add_argument("--kernel-set", action="append", help="only this kernel set (repeatable); 'all' for every one")
    parser.add_argument("--faults", action="store_true", help="switch parts off and expect the comparison to fail")
    parser.add_argument("--keep", help="leave the checkpoints in this folder")
    parser.add_argument("--seed", type=int, default=0, help="draws other weights and ids")
    parser.add_argument("--list", action="store_true", help="the names of the specs")
    args = parser.parse_args()
    if args.list:
        print("\n".join(f"{spec.name}  ({spec.kind}; faults: {', '.join(spec.faults)})" for spec in family_specs.SPECS))
        return
    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    sets = machine.kernel_sets()
    chosen = sets if args.kernel_set == ["all"] else args.kernel_set or [sets[-1]]
    candidates = [Blockspec(args.blockspec)] if args.blockspec else [Kvfork(args.kvfork, name) for name in chosen]
    print(f"     Transformers {transformers.__version__}, {', '.join(candidate.name for candidate in candidates)}, seed {args.seed}")
    report = Report()
    with tempfile.TemporaryDirectory() as temporary:
        for spec in family_specs.SPECS:
            if args.only and not spec.name.startswith(tuple(args.only)):
                continue
            for dtype in [args.dtype] if args.dtype else ["float32", "bfloat16"]:
                try:
                    check_spec(report, args, spec, dtype, candidates, pathlib.Path(temporary))
                except Exception as error:  # one spec's failure must not hide the others
                    report.add(False, f"{spec.name} {dtype}: {type(error).__name__}: {str(error)[:300]}")
    print(f"{report.passed} passed, {report.failed} failed, {len(report.not_yet)} not yet")
    sys.exit(1 if report.failed or report.passed == 0 else 0)


if __name__ == "__main__":
    main()
