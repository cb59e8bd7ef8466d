"""Hostile use through the command line: damaged files, odd streams, odd splits. No crash, and one clear answer."""

import json
import random
import struct
import subprocess

import cli
from tiny_checkpoint import VOCAB_SIZE, read_safetensors, safetensors_bytes

GENERATION = {"eos_token_id": 265, "repetition_penalty": 1.1}
FILES = ["config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"]
ODD = [None, True, 0, -1, 2**31, 2**63, 2**64, 1e308, 0.5, "", "x", "\u0000", [], {}, [[]], [1, 2], {"a": 1}]


class Attack(cli.CliTest):
    def answer(self, model, *arguments, **options):
        return self.start("run", "--model", model, "--context", "hello the order", "--prompt", "hi", "--json",
                          "--max-new-tokens", 3, "--benchmark-repeats", 1, "--threads", 1, *arguments, **options)

    def expect_one_clear_end(self, done, shown):
        """Exit 0 with a document, or 1 or 3 with one error line and nothing else."""
        shown = f"{shown}: exit {done.returncode}, stdout {done.stdout[:200]!r}, stderr {done.stderr[:400]!r}"
        self.assertIn(done.returncode, (0, 1, 3), shown)
        if done.returncode == 0:
            json.loads(done.stdout)
            return
        self.assertEqual(done.stdout, b"", shown)
        lines = done.stderr.decode(errors="replace").splitlines()
        lines = [line for line in lines if not line.startswith("kvfork: warning:")]
        self.assertEqual(len(lines), 1, shown)
        self.assertTrue(lines[0].startswith("kvfork: error: "), shown)
        self.assertNotIn("internal", lines[0], shown)


class DamagedFiles(Attack):
    def damage(self, data, generator):
        data = bytearray(data)
        at = generator.randrange(min(len(data), 4000))
        kind = generator.randrange(4)
        if kind == 0:
            data[at] ^= 1 << generator.randrange(8)
        elif kind == 1:
            del data[generator.randrange(len(data)):]
        elif kind == 2:
            del data[at:at + generator.randrange(1, 20)]
        else:
            inserts = [b"\0", b'"', b"{", b"[", b"9" * 20, b"null", b"\xff" * 7 + b"\x7f", b"\\u0000"]
            data[at:at] = generator.choice(inserts)
        return bytes(data)

    def test_bytes(self):
        generator = random.Random(17)
        model = self.checkpoint(generation=GENERATION)
        for name in FILES:
            original = (model / name).read_bytes()
            for round_number in range(40):
                (model / name).write_bytes(self.damage(original, generator))
                self.expect_one_clear_end(self.answer(model), (name, round_number))
            (model / name).write_bytes(original)

    def replace_one_value(self, document, generator):
        places = []

        def collect(value, depth):
            keys = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
            for key in keys:
                places.append((value, key))
                if depth < 6:
                    collect(value[key], depth + 1)

        collect(document, 0)
        value, key = generator.choice(places)
        value[key] = generator.choice(ODD)

    def test_values(self):
        generator = random.Random(18)
        model = self.checkpoint(generation=GENERATION)
        for name in FILES[:4]:
            original = (model / name).read_text()
            for round_number in range(40):
                document = json.loads(original)
                self.replace_one_value(document, generator)
                (model / name).write_text(json.dumps(document))
                self.expect_one_clear_end(self.answer(model), (name, round_number))
            (model / name).write_text(original)


class Weights(Attack):
    def test_data_may_have_any_alignment(self):
        for family in ("llama", "qwen2"):
            model = self.checkpoint(family=family)
            raw = (model / "model.safetensors").read_bytes()
            size = struct.unpack("<Q", raw[:8])[0]
            for isa in cli.kernel_sets():
                found = set()
                for pad in range(8):
                    header = raw[8:8 + size].rstrip() + b" " * pad
                    data = struct.pack("<Q", len(header)) + header + raw[8 + size:]
                    (model / "model.safetensors").write_bytes(data)
                    path = self.write("logits.safetensors", b"")
                    self.ok("score", "--model", model, "--ids", "1,2,3,4,5,6,7", "--logits", path, isa=isa)
                    found.add(path.read_bytes())
                self.assertEqual(len(found), 1, (family, isa))

    def test_nan_is_an_error_of_run(self):
        model = self.checkpoint()
        tensors = read_safetensors(model / "model.safetensors")
        dtype, shape, raw = tensors["model.norm.weight"]
        tensors["model.norm.weight"] = (dtype, shape, b"\xff" * len(raw))
        (model / "model.safetensors").write_bytes(safetensors_bytes(tensors))
        for more in ([], ["--temperature", 1], ["--temperature", 1, "--top-k", 3, "--top-p", 0.5, "--min-p", 0.1]):
            self.fails(1, "run", "--model", model, "--prompt", "hi", *more, says="NaN")


class Splits(Attack):
    def test_forks_and_chunks_around_block_edges(self):
        generator = random.Random(19)
        model = self.checkpoint(family="qwen2", num_key_value_heads=1)
        ids = ",".join(str(generator.randrange(VOCAB_SIZE)) for _ in range(200))

        def logits(*arguments, isa):
            path = self.write("logits.safetensors", b"")
            self.ok("score", "--model", model, "--ids", ids, "--logits", path, *arguments, isa=isa)
            return path.read_bytes()

        for isa in cli.kernel_sets():
            for dtype in ("float32", "bfloat16"):
                whole = logits("--dtype", dtype, "--threads", 1, isa=isa)
                for fork_at in (1, 31, 32, 33, 63, 64, 65, 127, 128, 129, 199):
                    chunks = ",".join(str(generator.choice([1, 2, 7, 16, 31, 33, 64, 65, 100])) for _ in range(12))
                    threads = generator.randrange(1, 5)
                    arguments = ["--dtype", dtype, "--fork-at", fork_at, "--chunks", chunks, "--threads", threads]
                    self.assertEqual(logits(*arguments, isa=isa), whole, (isa, arguments))


class Streams(Attack):
    COMMANDS = {"run": ["--prompt", "hi", "--max-new-tokens", "2"], "score": ["--ids", "1,2,3"],
                "tokenize": ["--text", "hello"]}

    def shell(self, line, *arguments):
        command = ["bash", "-c", f'"$0" "$@" {line}', cli.TOOL, *map(str, arguments)]
        return subprocess.run(command, capture_output=True, timeout=120)

    def test_output_that_cannot_be_written_is_an_error(self):
        for command, more in self.COMMANDS.items():
            for line in (">/dev/full", ">&-"):
                done = self.shell(line, command, "--model", self.model, *more)
                self.assertEqual(done.returncode, 1, (command, line))
                self.assertIn(b"kvfork: error: standard output: ", done.stderr, (command, line))

    def test_closed_input_and_errors_do_not_matter(self):
        for command, more in self.COMMANDS.items():
            for line in ("<&-", "2>&-", "<&- 2>&-"):
                done = self.shell(line, command, "--model", self.model, *more)
                self.assertEqual(done.returncode, 0, (command, line))


if __name__ == "__main__":
    cli.main()
