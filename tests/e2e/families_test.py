"""Every family on a tiny checkpoint against the logits that Transformers computed for it, in any split of the work."""

import json
import pathlib
import struct
import unittest

import cli
from tiny_checkpoint import read_safetensors

GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "golden" / "families"
NAMES = sorted(path.name for path in GOLDEN.iterdir() if path.is_dir())
# Relative to the range of the reference's row: two paths of the reference itself differ by up to 5e-6.
TOLERANCE = 3e-5
SPLITS = [("--chunks", "5,17,3"), ("--chunks", ",".join(["1"] * 47)), ("--fork-at", 1), ("--fork-at", 23), ("--fork-at", 24),
          ("--fork-at", 47), ("--fork-at", 11, "--chunks", "2,1,20"), ("--threads", 2)]

# Families that are not run yet. The test fails when one of them runs, so that this list can only shrink.
NOT_YET = {
    "apertus", "phi3-longrope", "phi3-longrope-5",
}


def read_logits(path):
    """(ids, rows of logits)."""
    tensors = read_safetensors(path)
    ids = struct.unpack(f"<{tensors['ids'][1][0]}q", tensors["ids"][2])
    dtype, (rows, vocab), data = tensors["logits"]
    if dtype != "F32":
        raise ValueError(f"{path}: expected logits of F32, found {dtype}")
    numbers = struct.unpack(f"<{rows * vocab}f", data)
    return ids, [numbers[i:i + vocab] for i in range(0, len(numbers), vocab)]


def largest_difference(found, expected):
    """Over all rows, relative to the range of the expected row; infinite unless every value is close to something."""
    if [len(row) for row in found] != [len(row) for row in expected]:
        return float("inf")
    worst = 0.0
    for a, b in zip(found, expected):
        difference = [abs(x - y) / (max(b) - min(b)) for x, y in zip(a, b)]
        worst = max(worst, *difference) if all(d == d for d in difference) else float("inf")
    return worst


class Families(cli.CliTest):
    def test_there_are_goldens(self):
        self.assertGreaterEqual(len(NAMES), 50)
        self.assertLessEqual(set(NOT_YET), set(NAMES))
        for name in NAMES:
            facts = json.loads((GOLDEN / name / "golden.json").read_text())
            self.assertEqual(json.loads((GOLDEN / name / "config.json").read_text())["model_type"], facts["model_type"], name)

    def score(self, name, ids, path, *more, isa):
        return self.start("score", "--model", GOLDEN / name, "--ids", ",".join(map(str, ids)), "--logits", path, *more, isa=isa)

    def test_logits(self):
        path = self.write("logits.safetensors", b"")
        for name in NAMES:
            ids, expected = read_logits(GOLDEN / name / "logits.safetensors")
            for isa in cli.kernel_sets():
                with self.subTest(name=name, isa=isa):
                    done = self.score(name, ids, path, isa=isa)
                    if name in NOT_YET:
                        self.assertNotEqual(done.returncode, 0, f"{name} runs: take it out of NOT_YET")
                        continue
                    self.assertEqual(done.returncode, 0, done.stderr.decode(errors="replace"))
                    again, found = read_logits(path)
                    self.assertEqual(again, ids)
                    self.assertLessEqual(largest_difference(found, expected), TOLERANCE)

    def test_splits_give_the_same_bytes(self):
        isa = cli.kernel_sets()[-1]
        for name in sorted(set(NAMES) - set(NOT_YET)):
            ids, _ = read_logits(GOLDEN / name / "logits.safetensors")
            for dtype in ("float32", "bfloat16"):
                whole, other = self.write("whole.safetensors", b""), self.write("split.safetensors", b"")
                for split in [(), *SPLITS]:
                    with self.subTest(name=name, dtype=dtype, split=split):
                        if not split:
                            self.assertEqual(self.score(name, ids, whole, "--dtype", dtype, isa=isa).returncode, 0)
                            continue
                        done = self.score(name, ids, other, "--dtype", dtype, *split, isa=isa)
                        self.assertEqual(done.returncode, 0, done.stderr.decode(errors="replace"))
                        self.assertEqual(other.read_bytes(), whole.read_bytes())


class Comparison(unittest.TestCase):
    def test_nan_and_far_values_and_missing_rows_are_found(self):
        self.assertEqual(largest_difference([(1, 2), (3, 4)], [(1, 2), (3, 4)]), 0)
        self.assertEqual(largest_difference([(1, 2), (float("nan"), 4)], [(1, 2), (3, 4)]), float("inf"))
        self.assertEqual(largest_difference([(1, 2), (4, 4)], [(1, 2), (3, 4)]), 1)
        self.assertEqual(largest_difference([(1, 2)], [(1, 2), (3, 4)]), float("inf"))


if __name__ == "__main__":
    cli.main()
