"""`kvfork score`: figures per position, and the same bits in any split of the work."""

import json
import math
import struct

import cli
from tiny_checkpoint import VOCAB_SIZE, read_safetensors, safetensors_bytes, write_checkpoint

IDS = [(i * 37 + i * i) % VOCAB_SIZE for i in range(90)]


def listed(ids):
    return ",".join(map(str, ids))


class Score(cli.CliTest):
    def logits_file(self, *arguments, model=None, isa=None):
        path = self.write("logits.safetensors", b"")
        self.ok("score", "--model", model or self.model, "--ids", listed(IDS), "--logits", path, *arguments, isa=isa)
        return path

    def test_logits_file_has_the_tensors_of_the_contract(self):
        tensors = read_safetensors(self.logits_file())
        self.assertEqual({name: tensors[name][:2] for name in tensors},
                         {"logits": ("F32", [len(IDS), VOCAB_SIZE]), "ids": ("I64", [len(IDS)])})
        self.assertEqual(list(struct.unpack(f"<{len(IDS)}q", tensors["ids"][2])), IDS)
        logits = struct.unpack(f"<{len(IDS) * VOCAB_SIZE}f", tensors["logits"][2])
        self.assertTrue(all(map(math.isfinite, logits)))
        self.assertGreater(max(logits) - min(logits), 3)

    def test_json_agrees_with_the_logits(self):
        path = self.write("logits.safetensors", b"")
        output = self.json("score", "--model", self.model, "--ids", listed(IDS), "--logits", path)
        logits = struct.unpack(f"<{len(IDS) * VOCAB_SIZE}f", read_safetensors(path)["logits"][2])
        positions = output["positions"]
        self.assertEqual([position["id"] for position in positions], IDS)
        self.assertIsNone(positions[0]["logprob"])
        for i in range(1, len(IDS)):
            row = logits[(i - 1) * VOCAB_SIZE:i * VOCAB_SIZE]
            total = math.log(sum(math.exp(value - max(row)) for value in row)) + max(row)
            self.assertAlmostEqual(positions[i]["logprob"], row[IDS[i]] - total, places=4)
            best = sorted(range(VOCAB_SIZE), key=lambda token: (-row[token], token))[:5]
            self.assertEqual([top["id"] for top in positions[i]["top"]], best)

    def test_splits_give_the_same_bytes(self):
        for isa in cli.kernel_sets():
            for dtype in ("float32", "bfloat16"):
                whole = self.logits_file("--dtype", dtype, "--threads", 1, isa=isa).read_bytes()
                for split in (["--chunks", "5,17,40"], ["--chunks", listed([1] * 90)], ["--chunks", "64,1"], ["--fork-at", 1],
                              ["--fork-at", 64], ["--fork-at", 89], ["--fork-at", 33, "--chunks", "3,1,20"], ["--threads", 2],
                              ["--threads", 3], ["--threads", 4, "--fork-at", 50]):
                    found = self.logits_file("--dtype", dtype, *split, isa=isa).read_bytes()
                    self.assertTrue(found == whole, f"{isa} {dtype} {split}")

    def test_modes_differ(self):
        self.assertNotEqual(self.logits_file().read_bytes(), self.logits_file("--dtype", "bfloat16").read_bytes())

    def test_logits_before_a_position_do_not_see_what_follows(self):
        row = VOCAB_SIZE * 4
        whole = read_safetensors(self.logits_file())["logits"][2]
        path = self.write("part.safetensors", b"")
        self.ok("score", "--model", self.model, "--ids", listed(IDS[:41]), "--logits", path)
        self.assertTrue(read_safetensors(path)["logits"][2] == whole[:41 * row])

    def test_text_and_messages_are_scored_as_tokenized(self):
        messages = self.write("m.json", json.dumps([{"role": "user", "content": "hello"}]))
        for source in (["--text", "hello the order"], ["--messages", messages]):
            ids = self.json("tokenize", "--model", self.model, *source)["ids"]
            self.assertEqual([p["id"] for p in self.json("score", "--model", self.model, *source)["positions"]], ids)

    def test_f16_weights_run(self):
        """float16 of float32 weights that float16 holds exactly gives the float32 logits."""
        tensors = read_safetensors(self.model / "model.safetensors")
        exact, halves = {}, {}
        for name, (_, shape, raw) in tensors.items():
            half = struct.pack(f"<{len(raw) // 4}e", *struct.unpack(f"<{len(raw) // 4}f", raw))
            halves[name] = ("F16", shape, half)
            exact[name] = ("F32", shape, struct.pack(f"<{len(raw) // 4}f", *struct.unpack(f"<{len(raw) // 4}e", half)))
        files = []
        for name, contents in (("f16", halves), ("f32", exact)):
            model = write_checkpoint(self.folder / name)
            (model / "model.safetensors").write_bytes(safetensors_bytes(contents))
            files.append(self.logits_file(model=model))
        one, other = (struct.unpack(f"<{len(IDS) * VOCAB_SIZE}f", read_safetensors(f)["logits"][2]) for f in files)
        self.assertTrue(all(abs(a - b) <= 1e-4 for a, b in zip(one, other)))

    def test_bad_arguments(self):
        self.fails(1, "score", "--model", self.model, "--ids", VOCAB_SIZE, says=VOCAB_SIZE)
        self.fails(1, "score", "--model", self.model, "--ids", "-1", says="-1")
        self.fails(1, "score", "--model", self.model, "--ids", listed([1] * 2049), says="2048")
        self.fails(2, "score", "--model", self.model, "--ids", "1,x", says="--ids")
        self.fails(2, "score", "--model", self.model, "--ids", "1,2", "--chunks", "0", says="--chunks")
        self.fails(2, "score", "--model", self.model, "--ids", "1,2", "--chunks", "a", says="--chunks")

    def test_a_logits_file_that_cannot_be_written_is_an_error(self):
        self.fails(1, "score", "--model", self.model, "--ids", "1,2", "--logits", self.folder / "no" / "such" / "x.safetensors",
                   says="x.safetensors")


if __name__ == "__main__":
    cli.main()
