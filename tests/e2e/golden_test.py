"""The committed tiny checkpoints against what Transformers computed for them: logits, greedy ids, and rendered text."""

import json
import pathlib
import struct
import unittest

import cli
from tiny_checkpoint import read_safetensors

GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "golden"
NAMES = sorted(path.name for path in (GOLDEN / "checkpoints").iterdir())
# Relative to the range of the reference's row: two paths of the reference itself differ by up to 5e-6.
TOLERANCE = 3e-5


def largest_difference(found, expected, vocab):
    """Over all rows, relative to the row's range; infinite unless every value is close to something."""
    worst = 0.0
    for row in range(0, len(expected), vocab):
        reference = expected[row:row + vocab]
        scale = max(reference) - min(reference)
        for a, b in zip(found[row:row + vocab], reference):
            difference = abs(a - b) / scale
            worst = max(worst, difference) if difference == difference else float("inf")
    return worst


class Golden(cli.CliTest):
    def test_there_are_goldens(self):
        self.assertEqual(len(NAMES), 3)
        for part in ("logits", "greedy"):
            self.assertEqual(sorted(path.stem for path in (GOLDEN / part).iterdir()), NAMES)

    def test_logits(self):
        for name in NAMES:
            golden = read_safetensors(GOLDEN / "logits" / f"{name}.safetensors")
            ids = struct.unpack(f"<{golden['ids'][1][0]}q", golden["ids"][2])
            rows, vocab = golden["logits"][1]
            expected = struct.unpack(f"<{rows * vocab}f", golden["logits"][2])
            for isa in cli.kernel_sets():
                with self.subTest(name=name, isa=isa):
                    path = self.write("logits.safetensors", b"")
                    self.ok("score", "--model", GOLDEN / "checkpoints" / name, "--ids", ",".join(map(str, ids)), "--logits", path,
                            isa=isa)
                    dtype, shape, data = read_safetensors(path)["logits"]
                    self.assertEqual((dtype, shape), ("F32", [rows, vocab]))
                    self.assertLessEqual(largest_difference(struct.unpack(f"<{rows * vocab}f", data), expected, vocab), TOLERANCE)

    def test_greedy(self):
        for name in NAMES:
            golden = json.loads((GOLDEN / "greedy" / f"{name}.json").read_text())
            prompts = [argument for answer in golden["answers"] for argument in ("--prompt", answer["prompt"])]
            for isa in cli.kernel_sets():
                with self.subTest(name=name, isa=isa):
                    output = self.json("run", "--model", GOLDEN / "checkpoints" / name, "--context", golden["context"],
                                       "--max-new-tokens", golden["max_new_tokens"], *prompts, isa=isa)
                    self.assertEqual([answer["ids"] for answer in output["answers"]],
                                     [answer["ids"] for answer in golden["answers"]])

    def test_rendered_text_and_ids(self):
        for name in NAMES:
            golden = json.loads((GOLDEN / "greedy" / f"{name}.json").read_text())
            for answer in golden["answers"]:
                messages = [{"role": "system", "content": golden["context"]}, {"role": "user", "content": answer["prompt"]}]
                path = self.write("messages.json", json.dumps(messages))
                output = self.json("tokenize", "--model", GOLDEN / "checkpoints" / name, "--messages", path)
                self.assertEqual(output["text"], answer["text"])
                self.assertEqual(output["ids"], answer["prompt_ids"])


class Comparison(unittest.TestCase):
    def test_nan_and_far_values_are_found(self):
        self.assertEqual(largest_difference([1, 2, 3, 4], [1, 2, 3, 4], 2), 0)
        self.assertEqual(largest_difference([1, 2, float("nan"), 4], [1, 2, 3, 4], 2), float("inf"))
        self.assertEqual(largest_difference([1, 2, 4, 4], [1, 2, 3, 4], 2), 1)


if __name__ == "__main__":
    cli.main()
