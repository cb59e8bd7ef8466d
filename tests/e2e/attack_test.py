"""Hostile use through the command line: damaged files, odd streams, odd splits. Never a crash, always one clear answer."""

import json
import os
import pathlib
import random
import signal
import stat
import struct
import subprocess
import threading
import time
import unittest

import cli
from tiny_checkpoint import VOCAB_SIZE, read_safetensors, safetensors_bytes

GENERATION = {"eos_token_id": 265, "repetition_penalty": 1.1}
FILES = ["config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"]
ODD = [None, True, 0, -1, 2**31, 2**63, 2**64, 1e308, 0.5, "", "x", "\u0000", [], {}, [[]], [1, 2], {"a": 1}]


class Attack(cli.CliTest):
    def answer(self, model, *arguments, **options):
        return self.start("run", "--model", model, "--context", "hello the order", "--prompt", "hi", "--max-new-tokens", 3,
                          "--benchmark-repeats", 1, "--threads", 1, "--json", *arguments, **options)

    def expect_one_clear_end(self, done, shown):
        """Exit 0 with a document, or 1 or 3 with one error line and nothing else."""
        shown = f"{shown}: exit {done.returncode}, stdout {done.stdout[:200]!r}, stderr {done.stderr[:400]!r}"
        self.assertIn(done.returncode, (0, 1, 3), shown)
        if done.returncode == 0:
            json.loads(done.stdout)
            return
        self.assertEqual(done.stdout, b"", shown)
        lines = [line for line in done.stderr.decode(errors="replace").splitlines() if not line.startswith("kvfork: warning:")]
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
            data[at:at] = generator.choice([b"\0", b'"', b"{", b"[", b"9" * 20, b"null", b"\xff" * 7 + b"\x7f", b"\\u0000"])
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
                    (model / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + raw[8 + size:])
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
    COMMANDS = {"run": ["--prompt", "hi", "--max-new-tokens", "2"], "score": ["--ids", "1,2,3"], "tokenize": ["--text", "hello"]}

    def shell(self, line, *arguments):
        return subprocess.run(["bash", "-c", f'"$0" "$@" {line}', cli.TOOL, *map(str, arguments)], capture_output=True, timeout=120)

    def test_output_that_cannot_be_written_is_an_error(self):
        for command, more in self.COMMANDS.items():
            for line in (">/dev/full", ">&-", ">/dev/full 2>&1 | cat"):
                done = self.shell(line, command, "--model", self.model, *more)
                if "|" not in line:
                    self.assertEqual(done.returncode, 1, (command, line))
                    self.assertIn(b"kvfork: error: standard output: ", done.stderr, (command, line))

    def test_closed_input_and_errors_do_not_matter(self):
        for command, more in self.COMMANDS.items():
            for line in ("<&-", "2>&-", "<&- 2>&-"):
                self.assertEqual(self.shell(line, command, "--model", self.model, *more).returncode, 0, (command, line))




class Nesting(Attack):
    def test_deep_values_in_lines_and_configs(self):
        deep = "[" * 200_000 + "]" * 200_000
        for field in ("messages", "tools", "documents", "ids"):
            fields = {"messages": '[{"role": "user", "content": "a"}]', field: deep}
            line = "{" + ", ".join(f'"{name}": {value}' for name, value in fields.items()) + "}"
            done = self.start("tokenize", "--model", self.model, "--jsonl", stdin=line + '\n"ok"\n')
            self.assertEqual(done.returncode, 1, (field, done.stderr[:300]))
            self.assertEqual([set(json.loads(answer)) for answer in done.stdout.splitlines()], [{"error"}, {"ids", "text"}], field)
        for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
            model = self.checkpoint()
            text = (model / name).read_text()
            (model / name).write_text('{"unknown": ' + deep + ", " + text[1:])
            self.expect_one_clear_end(self.answer(model), name)


class Lines(Attack):
    def test_ids_are_whole_numbers_in_range(self):
        for ids in ("[4294967297]", "[1.5]", "[true]", "[-4294967295]", "[1e30]", "[18446744073709551615]", "[null]", '["1"]', "{}"):
            done = self.start("tokenize", "--model", self.model, "--jsonl", stdin='{"ids": %s}' % ids)
            self.assertEqual(done.returncode, 1, ids)
            self.assertEqual(set(json.loads(done.stdout)), {"error"}, ids)


class Numbers(Attack):
    def broken(self, value):
        model = self.checkpoint()
        tensors = read_safetensors(model / "model.safetensors")
        dtype, shape, raw = tensors["lm_head.weight"]
        tensors["lm_head.weight"] = (dtype, shape, struct.pack("<f", value) + raw[4:])
        (model / "model.safetensors").write_bytes(safetensors_bytes(tensors))
        return model

    def test_scores_are_numbers_or_an_error(self):
        path = self.write("logits.safetensors", b"as before")
        for value in (float("nan"), float("inf")):
            self.fails(1, "score", "--model", self.broken(value), "--text", "hello there", "--logits", path, says="logits")
        self.assertEqual(path.read_bytes(), b"as before")

    def test_answers_come_from_finite_logits(self):
        for more in ([], ["--temperature", 1]):
            self.fails(1, "run", "--model", self.broken(float("inf")), "--prompt", "hi", *more, says="logits")


class LogitsFile(Attack):
    def score(self, path, **options):
        return self.start("score", "--model", self.model, "--ids", "1,2,3", "--logits", path, **options)

    def test_what_is_no_file_stays_what_it_is(self):
        path = self.folder / "pipe"
        os.mkfifo(path)
        read = []
        reader = threading.Thread(target=lambda: read.append(path.read_bytes()), daemon=True)
        reader.start()
        done = self.score(path)
        self.assertTrue(stat.S_ISFIFO(path.lstat().st_mode))
        if done.returncode == 0:
            reader.join(10)
            self.assertGreater(len(read[0]), 3 * 4 * VOCAB_SIZE)

    def test_a_link_stays_a_link(self):
        target, link = self.write("target", b"old"), self.folder / "link"
        link.symlink_to(target)
        self.assertEqual(self.score(link).returncode, 0)
        self.assertTrue(link.is_symlink())
        self.assertGreater(len(target.read_bytes()), 3 * 4 * VOCAB_SIZE)

    def test_a_file_size_limit_is_an_error(self):
        ids = ",".join(["5"] * 200)
        path = self.folder / "limited"
        done = subprocess.run(["bash", "-c", 'ulimit -f 1; "$0" score --model "$1" --ids "$2" --logits "$3"', cli.TOOL,
                               str(self.model), ids, str(path)], capture_output=True, timeout=60)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn(b"kvfork: error: ", done.stderr)
        self.assertEqual([entry.name for entry in self.folder.glob("*limited*")], [])

    @staticmethod
    def has_open(process, folder):
        """Whether the process has a file of the folder open."""
        for link in pathlib.Path(f"/proc/{process.pid}/fd").glob("*"):
            try:
                if str(folder) in os.readlink(link):
                    return True
            except FileNotFoundError:  # closed meanwhile
                pass
        return False

    def test_an_interrupt_leaves_nothing_and_the_old_file(self):
        folder = self.write("logits", b"as before").parent
        ids = ",".join(["5"] * 20000)
        model = self.checkpoint(max_position_embeddings=40000)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
            process = subprocess.Popen([cli.TOOL, "score", "--model", model, "--ids", ids, "--logits", folder / "logits"],
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            deadline = time.monotonic() + 60  # until it has the file open
            while time.monotonic() < deadline and not self.has_open(process, folder):
                self.assertIsNone(process.poll())
            process.send_signal(number)
            self.assertEqual(process.wait(), -number, "it was done too soon to show anything")
            self.assertEqual([(entry.name, entry.read_bytes()) for entry in folder.iterdir()], [("logits", b"as before")])


class Reports(Attack):
    """--html and --junit take their names as --logits does."""

    def report(self, path, command):
        option = {"bench": "--html", "verify": "--junit"}[command]
        more = {"bench": ["--prefix-lengths", 5, "--repeats", 1, "--max-new-tokens", 1], "verify": ["--prompt", "a", "--limit-seconds", 0]}
        return self.start(command, "--model", self.model, "--context", "hello", *more[command], option, path)

    def test_a_pipe_is_written_to_and_a_link_stays_a_link(self):
        for command in ("bench", "verify"):
            target, link, pipe = self.write("target", b"old"), self.folder / f"{command}-link", self.folder / f"{command}-pipe"
            link.symlink_to(target)
            done = self.report(link, command)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertTrue(link.is_symlink())
            self.assertTrue(target.read_bytes().startswith(b"<"), target.read_bytes()[:40])
            os.mkfifo(pipe)
            read = []
            reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()), daemon=True)
            reader.start()
            self.assertEqual(self.report(pipe, command).returncode, 0)
            reader.join(10)
            self.assertTrue(read[0].startswith(b"<"))

    def test_a_place_that_cannot_be_written_to_is_found_out_before_any_work(self):
        for command, option in (("bench", "--html"), ("verify", "--junit")):
            for place in (self.folder / "no" / "where", self.folder, f"{self.folder}/absent/"):
                done = self.start(command, "--model", "/absent", option, place)
                self.assertEqual(done.returncode, 1)
                self.assertIn(f"{place}: cannot", done.stderr.decode())


class Paths(Attack):
    def test_pipes_in_a_checkpoint_are_refused_at_once(self):
        for name in FILES:
            model = self.checkpoint()
            (model / name).unlink(missing_ok=True)
            os.mkfifo(model / name)
            done = subprocess.run([cli.TOOL, "run", "--model", str(model), "--prompt", "hi"], capture_output=True, timeout=30)
            self.assertEqual(done.returncode, 1, name)
            self.assertIn(name.encode(), done.stderr)

    def test_a_path_that_is_too_long_is_named(self):
        for option in ("--context-file", "--prompt-file", "--messages", "--tools", "--documents"):
            message = self.fails(1, "run", "--model", self.model, "--prompt", "hi", option, "x" * 5000)
            self.assertNotIn("internal", message)

    def test_an_empty_path_has_a_name_in_its_error(self):
        for arguments in (["tokenize", "--model", "", "--text", "a"], ["run", "--model", self.model, "--prompt", "a", "--context-file", ""]):
            self.assertNotIn("error: :", self.fails(2, *arguments))


class Usage(Attack):
    def test_standard_input_is_read_once(self):
        for more in (["--context-file", "-"], ["--context-file", "-", "--prompt-file", "-"], ["--prompt-file", "-", "--messages", "-"]):
            self.fails(2, "run", "--model", self.model, *more, stdin="hello")

    def test_numbers_are_not_wrapped(self):
        for option in ("--seed", "--top-k"):
            self.fails(2, "run", "--model", self.model, "--prompt", "hi", option, "-1")

    def test_a_range_is_shown_in_few_digits(self):
        self.assertLess(len(self.fails(2, "run", "--model", self.model, "--prompt", "hi", "--max-new-tokens", "0")), 200)

    def test_version_that_cannot_be_written(self):
        with open("/dev/full", "wb") as full:
            self.assertEqual(subprocess.run([cli.TOOL, "--version"], stdout=full, stderr=subprocess.PIPE).returncode, 1)


class Fixed(Attack):
    def test_numbers_in_messages_survive(self):
        path = self.write("m.json", '[{"role": "system", "content": 123456789012345678901234567890}]')
        self.json("run", "--model", self.model, "--messages", path, "--prompt", "hi", "--max-new-tokens", 2)


if __name__ == "__main__":
    cli.main()
