"""`kvfork save`, `--load` and `kvfork inspect`: saved contexts as a user meets them.

KVFORK_KILLS sets how often the kill test kills (default 12).
"""

import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

import cli
from context_reader import Damaged, SavedContext, weights_fingerprint
from tiny_checkpoint import TEMPLATE, read_safetensors, safetensors_bytes, write_checkpoint

CONTEXT = "hello the order: " + "the order is here, and there is the other. " * 12
MESSAGES = [{"role": "system", "content": CONTEXT}, {"role": "user", "content": "hello"}, {"role": "assistant", "content": "the"}]
CLOCK_TEMPLATE = "{{ strftime_now('%Y-%m-%d') }}\n" + TEMPLATE
# Greedy results of tiny models often end at once; these options keep them going and short.
RUN = ("--max-new-tokens", 12, "--benchmark-repeats", 1)


class SaveTest(cli.CliTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        os.environ["XDG_CACHE_HOME"] = str(cls.folder / "cache")

    def out(self, name="context.kvfork"):
        return pathlib.Path(tempfile.mkdtemp(dir=self.folder)) / name

    def save(self, *arguments, model=None, out=None, **options):
        """The file and the report of a save of CONTEXT, or of what the arguments name."""
        out = out or self.out()
        fixed = () if any(name in arguments for name in ("--context", "--messages", "--load")) else ("--context", CONTEXT)
        return out, self.json("save", "--model", model or self.model, *fixed, "--out", out, *arguments, **options)

    def answers(self, *arguments, model=None, **options):
        output = self.json("run", "--model", model or self.model, *RUN, "--prompt", "hello", "--prompt", "", *arguments, **options)
        return [(answer["prompt"], answer["ids"], answer["cached_tokens"], answer["request_tokens"]) for answer in output["answers"]]


class RoundTrip(SaveTest):
    def test_answers_are_those_of_a_context_that_was_never_saved(self):
        messages = self.write("messages.json", json.dumps(MESSAGES))
        for fixed in (["--context", CONTEXT], ["--messages", messages], ["--context", CONTEXT, "--boundary", "probe"],
                      ["--context", CONTEXT, "--boundary", "longest"], ["--context", CONTEXT, "--raw"],
                      ["--context", CONTEXT, "--raw", "--add-special-tokens"]):
            out, report = self.save(*fixed)
            expected = self.answers(*fixed)
            self.assertEqual(self.answers("--load", out), expected, fixed)
            self.assertEqual(report["tokens"], expected[0][2])
            self.assertEqual(report["bytes"], out.stat().st_size)

    def test_every_kernel_set_and_mode(self):
        for isa in cli.kernel_sets():
            for dtype in ("float32", "bfloat16"):
                out, _ = self.save("--dtype", dtype, isa=isa)
                options = ("--dtype", dtype)
                self.assertEqual(self.answers("--load", out, *options, isa=isa), self.answers("--context", CONTEXT, *options, isa=isa))

    def test_tools_documents_variables_clock_and_template_come_from_the_file(self):
        template = self.write("template.jinja", "{{ tools }}{{ documents }}{{ mood }}" + CLOCK_TEMPLATE)
        tools = self.write("tools.json", '[{"type": "function", "function": {"name": "f"}}]')
        documents = self.write("documents.json", '[{"title": "a", "text": "b"}]')
        fixed = ["--context", CONTEXT, "--template", template, "--tools", tools, "--documents", documents, "--var", 'mood="good"',
                 "--now", "2031-01-05T06:07:08"]
        out, _ = self.save(*fixed)
        expected = self.answers(*fixed)
        self.assertEqual(self.answers("--load", out), expected)
        # Saying the same again is no contradiction.
        self.assertEqual(self.answers("--load", out, *fixed[2:]), expected)

    def test_the_same_context_gives_the_same_file(self):
        first, report = self.save()
        second, again = self.save()
        self.assertEqual(first.read_bytes(), second.read_bytes())
        self.assertEqual(report["id"], again["id"])

    def test_a_read_only_file_opens(self):
        out, _ = self.save()
        out.chmod(0o444)
        out.parent.chmod(0o555)
        self.assertEqual(len(self.answers("--load", out)), 2)
        out.parent.chmod(0o755)

    def test_options_that_name_another_fixed_part_are_usage_errors(self):
        out, _ = self.save()
        messages = self.write("messages.json", json.dumps(MESSAGES))
        for option in (["--context", "x"], ["--context-file", messages], ["--messages", messages], ["--raw"], ["--boundary", "probe"]):
            self.fails(2, "run", "--model", self.model, "--load", out, "--prompt", "hello", *option)


class Reader(SaveTest):
    """The file against docs/cache-file.md, read without kvfork."""

    def test_ids_text_and_logits_are_those_of_the_other_commands(self):
        for dtype in ("float32", "bfloat16"):
            out, report = self.save("--dtype", dtype)
            saved = SavedContext(out)
            system = self.write("system.json", json.dumps(MESSAGES[:1]))
            tokens = self.json("tokenize", "--model", self.model, "--messages", system, "--no-generation-prompt")
            self.assertEqual(saved.ids, tokens["ids"])
            self.assertEqual(saved.text, tokens["text"])
            logits = self.out("logits.safetensors")
            self.json("score", "--model", self.model, "--ids", ",".join(map(str, saved.ids)), "--logits", logits, "--dtype", dtype)
            _, (rows, vocab), data = read_safetensors(logits)["logits"]
            self.assertEqual(saved.tensors["logits"][1], [vocab])
            self.assertEqual(saved.tensors["logits"][2], data[(rows - 1) * vocab * 4:])
            self.assertEqual(saved.metadata["id"], report["id"])
            self.assertEqual(saved.metadata["weights"], weights_fingerprint([self.model / "model.safetensors"]))

    def test_keys_and_values_lie_where_the_page_says(self):
        # One layer, so that values are plain products of the embedding, norm and projection; a second position has other ones.
        model = self.checkpoint(num_hidden_layers=1)
        out, _ = self.save(model=model)
        saved = SavedContext(out)
        weights = {name: (shape, __import__("struct").unpack(f"<{len(raw) // 4}f", raw))
                   for name, (_, shape, raw) in read_safetensors(model / "model.safetensors").items()}
        config = json.loads((model / "config.json").read_text())
        hidden, head_dim = config["hidden_size"], config["hidden_size"] // config["num_attention_heads"]
        embed, norm = weights["model.embed_tokens.weight"][1], weights["model.layers.0.input_layernorm.weight"][1]
        v_proj = weights["model.layers.0.self_attn.v_proj.weight"][1]
        for position in (0, 5, 63, 64, len(saved.ids) - 1):
            x = embed[saved.ids[position] * hidden:][:hidden]
            scale = 1 / (sum(a * a for a in x) / hidden + config["rms_norm_eps"]) ** 0.5
            x = [a * scale * b for a, b in zip(x, norm)]
            for head in range(config["num_key_value_heads"]):
                for d in range(head_dim):
                    row = v_proj[(head * head_dim + d) * hidden:][:hidden]
                    self.assertAlmostEqual(saved.value(0, head, position, d), sum(a * b for a, b in zip(x, row)), places=4)
        # At position 0 the rotation is the identity.
        k_proj = weights["model.layers.0.self_attn.k_proj.weight"][1]
        x = embed[saved.ids[0] * hidden:][:hidden]
        scale = 1 / (sum(a * a for a in x) / hidden + config["rms_norm_eps"]) ** 0.5
        for head in range(config["num_key_value_heads"]):
            for d in range(head_dim):
                row = k_proj[(head * head_dim + d) * hidden:][:hidden]
                self.assertAlmostEqual(saved.key(0, head, 0, d), sum(a * scale * b * c for a, b, c in zip(x, norm, row)), places=4)

    def test_damage_is_found_by_the_reader_too(self):
        out, _ = self.save()
        sound = out.read_bytes()
        for position in random.Random(1).sample(range(len(sound)), 12):
            out.write_bytes(sound[:position] + bytes([sound[position] ^ 16]) + sound[position + 1:])
            with self.assertRaises((Damaged, ValueError, KeyError, UnicodeDecodeError), msg=position):
                SavedContext(out)


class Damage(SaveTest):
    def refused(self, path, data, what):
        path.write_bytes(data)
        self.fails(1, "inspect", "--check", path)
        message = self.fails(1, "run", "--model", self.model, "--load", path, "--prompt", "hello", *RUN)
        self.assertIn(str(path), message, what)

    def test_any_change_is_refused_by_run_and_by_inspect(self):
        out, _ = self.save()
        sound = out.read_bytes()
        self.ok("inspect", "--check", out)
        generator = random.Random(2)
        positions = [0, 7, 8, 9, len(sound) - 1] + [generator.randrange(len(sound)) for _ in range(25)]
        for position in positions:
            self.refused(out, sound[:position] + bytes([sound[position] ^ 1 << generator.randrange(8)]) + sound[position + 1:], position)
        for size in (0, 1, 8, 100, 4096, len(sound) // 2, len(sound) - 1):
            self.refused(out, sound[:size], f"cut to {size}")
        self.refused(out, sound + b"\0", "appended to")
        self.refused(out, sound + sound, "doubled")

    def test_another_safetensors_file_is_refused(self):
        self.fails(1, "run", "--model", self.model, "--load", self.model / "model.safetensors", "--prompt", "hello", says="model.safetensors")
        self.fails(1, "run", "--model", self.model, "--load", self.folder / "nothing", "--prompt", "hello")
        self.fails(1, "run", "--model", self.model, "--load", self.folder, "--prompt", "hello")


class Identity(SaveTest):
    def refused(self, out, field, *arguments, model=None, **options):
        message = self.fails(1, "run", "--model", model or self.model, "--load", out, "--prompt", "hello", *RUN, *arguments,
                             says=[field, "expected", "found"], **options)
        self.assertRegex(message, rf"{field}[^:]*: expected \S+.*found \S+")

    def changed(self, name, change):
        """A copy of the checkpoint with one file changed."""
        copy = pathlib.Path(tempfile.mkdtemp(dir=self.folder)) / "copy"
        shutil.copytree(self.model, copy)
        (copy / name).write_bytes(change((copy / name).read_bytes()))
        return copy

    def test_a_copy_of_the_model_is_the_same_model(self):
        out, _ = self.save()
        copy = self.changed("config.json", lambda data: data)
        self.assertEqual(self.answers("--load", out, model=copy), self.answers("--load", out))

    def test_each_field_is_named(self):
        out, _ = self.save()
        flipped = lambda data: data[:-1] + bytes([data[-1] ^ 1])
        self.refused(out, "weights", model=self.changed("model.safetensors", flipped))
        self.refused(out, "config", model=self.changed("config.json", lambda data: data.replace(b"1e-05", b"2e-05")))
        self.refused(out, "tokenizer", model=self.changed("tokenizer.json", lambda data: data.replace(b'"he ll", ', b'')))
        self.refused(out, "template", model=self.changed("tokenizer_config.json", lambda data: data.replace(b"<|end|>\\n", b"<|end|> ")))
        self.refused(out, "dtype", "--dtype", "bfloat16")
        for isa in cli.kernel_sets():
            if isa != self.json("inspect", out)["identity"]["kernel_set"]:
                self.refused(out, "kernel_set", isa=isa)

    def test_each_template_option_is_named(self):
        template = self.write("template.jinja", "{{ mood }}" + CLOCK_TEMPLATE)
        tools = self.write("tools.json", '[{"type": "function", "function": {"name": "f"}}]')
        out, _ = self.save("--template", template, "--var", 'mood="good"', "--now", "2031-01-05T06:07:08")
        self.refused(out, "mood", "--var", 'mood="bad"')
        self.refused(out, "clock", "--now", "2031-01-06T06:07:08")
        self.refused(out, "tools", "--tools", tools)
        self.refused(out, "documents", "--documents", tools)
        self.refused(out, "template", "--template", self.write("other.jinja", TEMPLATE))

    def test_a_newer_format_is_refused_by_its_version(self):
        out, _ = self.save()
        data = out.read_bytes()
        self.assertEqual(data.count(b'"format_version":"1"'), 1)
        out.write_bytes(data.replace(b'"format_version":"1"', b'"format_version":"2"'))
        self.refused(out, "format_version")


class Writing(SaveTest):
    def test_a_file_is_replaced_whole_and_leaves_no_other(self):
        out, _ = self.save()
        self.save("--context", "hello", out=out)
        self.assertEqual(len(SavedContext(out).ids), self.json("inspect", out)["tokens"])
        self.assertEqual(list(out.parent.iterdir()), [out])

    def test_places_that_cannot_be_written_are_errors_before_the_work(self):
        self.fails(1, "save", "--model", self.model, "--context", "x", "--out", self.folder / "nowhere" / "file", says="nowhere")
        self.fails(1, "save", "--model", self.model, "--context", "x", "--out", self.folder, says=self.folder)
        self.fails(2, "save", "--model", self.model, "--context", "x")

    def test_a_full_disk_keeps_the_old_file(self):
        out, _ = self.save("--context", "hello")
        before = out.read_bytes()
        limit = f"ulimit -f {len(before) // 1024}; exec \"$@\""
        done = subprocess.run(["bash", "-c", limit, "-", cli.TOOL, "save", "--model", str(self.model), "--context", CONTEXT * 4, "--out", str(out)],
                              capture_output=True, preexec_fn=lambda: signal.signal(signal.SIGXFSZ, signal.SIG_IGN))
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn(str(out).encode(), done.stderr)
        self.assertEqual(out.read_bytes(), before)
        self.assertEqual(list(out.parent.iterdir()), [out])

    def test_a_full_file_system_keeps_the_old_file(self):
        disk, kept = self.out().parent, self.out("kept")
        small, _ = self.save("--context", "hello")
        before = small.read_bytes()
        done = self.in_own_mounts('mount -t tmpfs -o size="$1" none "$2" && cp "$3" "$2/c" && "$TOOL" save --model "$4" --context "$5" --out "$2/c"; '
                                  'code=$?; cp "$2/c" "$6"; ls -A "$2"; exit $code',
                                  len(before) + 65536, disk, small, self.model, CONTEXT * 4, kept)
        self.assertEqual((done.returncode, done.stdout), (1, b"c\n"), done.stderr)
        self.assertRegex(done.stderr.decode(), rf"{disk}/c: cannot .*: No space left")
        self.assertEqual(kept.read_bytes(), before)

    def test_a_read_only_file_system_is_read_and_not_written_to(self):
        out, _ = self.save()
        expected = self.answers("--load", out)
        mount = 'mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" && export XDG_CACHE_HOME="$1/cache" && shift && "$TOOL" "$@"'
        run = ["run", "--model", self.model, *RUN, "--prompt", "hello", "--prompt", "", "--load", out, "--json"]
        done = self.in_own_mounts(mount, out.parent, *run)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual([answer["ids"] for answer in json.loads(done.stdout)["answers"]], [ids for _, ids, _, _ in expected])
        self.assertEqual(self.in_own_mounts(mount, out.parent, "inspect", "--check", out).returncode, 0)
        before = out.read_bytes()
        for name in ("other", out.name):
            done = self.in_own_mounts(mount, out.parent, "save", "--model", self.model, "--context", "x", "--out", out.parent / name)
            self.assertEqual((done.returncode, done.stdout), (1, b""))
            self.assertRegex(done.stderr.decode(), rf"{out.parent}/{name}: .*Read-only file system")
        self.assertEqual((out.read_bytes(), list(out.parent.iterdir())), (before, [out]))

    def test_two_savers_of_one_name_both_succeed(self):
        out = self.out()
        command = [cli.TOOL, "save", "--model", str(self.model), "--out", str(out), "--context"]
        processes = [subprocess.Popen([*command, context], stdout=subprocess.DEVNULL) for context in (CONTEXT, "hello", CONTEXT * 2)]
        self.assertEqual([process.wait() for process in processes], [0, 0, 0])
        SavedContext(out)
        self.assertEqual(list(out.parent.iterdir()), [out])

    def test_kill_leaves_the_old_file_or_the_new(self):
        out, old = self.save("--context", "hello")
        begin = time.monotonic()
        new = self.save("--context", CONTEXT * 3)[1]
        duration = time.monotonic() - begin
        generator = random.Random(3)
        seen = set()
        for _ in range(int(os.environ.get("KVFORK_KILLS", "12"))):
            process = subprocess.Popen([cli.TOOL, "save", "--model", str(self.model), "--out", str(out), "--context", CONTEXT * 3],
                                       stdout=subprocess.DEVNULL)
            time.sleep(generator.uniform(0, 1.2 * duration))
            process.kill()
            process.wait()
            seen.add(SavedContext(out).metadata["id"])
        self.assertLessEqual(seen, {old["id"], new["id"]})


class Nesting(SaveTest):
    def setUp(self):
        self.parent, self.parent_report = self.save(out=self.out("policy.kvfork"))
        self.more = self.write("more.json", json.dumps(MESSAGES[1:], separators=(",", ":")))
        self.whole = self.write("whole.json", json.dumps(MESSAGES, separators=(",", ":")))

    def child(self, *arguments, out=None):
        return self.save("--load", self.parent, "--messages", self.more, *arguments, out=out or self.parent.parent / "child.kvfork")

    def test_a_child_answers_like_the_whole_and_holds_only_its_part(self):
        child, report = self.child()
        self.assertEqual(self.answers("--load", child), self.answers("--messages", self.whole))
        self.assertLess(child.stat().st_size, self.parent.stat().st_size)
        self.assertEqual(report["parent"], self.parent_report["id"])
        flat, _ = self.child("--flatten", out=self.out())
        self.assertEqual(flat.read_bytes(), self.save("--messages", self.whole)[0].read_bytes())
        self.assertEqual(self.json("inspect", child)["parent"]["id"], self.parent_report["id"])
        grandchild = self.save("--load", child, "--messages", self.more, out=child.parent / "grandchild.kvfork")[0]
        self.assertEqual(self.answers("--load", grandchild), self.answers("--messages", self.write("m.json", json.dumps(MESSAGES + MESSAGES[1:]))))

    def test_a_child_does_not_take_the_place_of_what_it_names(self):
        child, _ = self.child()
        before = self.parent.read_bytes()
        self.fails(2, "save", "--model", self.model, "--load", self.parent, "--messages", self.more, "--out", self.parent, says="--out")
        self.fails(2, "save", "--model", self.model, "--load", child, "--messages", self.more, "--out", self.parent, says="--out")
        self.assertEqual(self.parent.read_bytes(), before)

    def test_plain_text_nests_too(self):
        parent, _ = self.save("--raw")
        child, _ = self.save("--load", parent, "--context", " and the rest of it. ", out=parent.parent / "child.kvfork")
        self.assertEqual(self.answers("--load", child), self.answers("--raw", "--context", CONTEXT + " and the rest of it. "))

    def test_the_parent_is_found_by_what_it_holds(self):
        child, _ = self.child()
        expected = self.answers("--load", child)
        moved = self.parent.rename(self.parent.parent / "renamed")
        self.assertEqual(self.answers("--load", child), expected)
        away = pathlib.Path(shutil.move(moved, self.out()))
        self.fails(1, "run", "--model", self.model, "--load", child, "--prompt", "hello", says=["parent", self.parent_report["id"]])
        self.assertEqual(self.answers("--load", child, "--parent", away), expected)
        data = bytearray(away.read_bytes())
        data[len(data) // 3] ^= 1
        away.write_bytes(data)
        self.fails(1, "run", "--model", self.model, "--load", child, "--parent", away, "--prompt", "hello", says=away)

    def grandchild(self):
        child, _ = self.child()
        return child, self.save("--load", child, "--messages", self.more, out=child.parent / "grandchild.kvfork")[0]

    def refused_alike(self, path, says, *options):
        """--check and --load refuse a file for the same reason; the list of ancestors, which is printed all the same."""
        message = self.fails(1, "run", "--model", self.model, "--load", path, "--prompt", "hello", *options, says=says)
        done = self.start("inspect", "--check", path, "--json", *options)
        self.assertEqual((done.returncode, done.stderr.decode()), (1, message))
        found = json.loads(done.stdout)
        self.assertEqual(message, f"kvfork: error: {found['ancestors'][-1]['problem']}\n")
        self.assertEqual([ancestor["problem"] for ancestor in found["ancestors"][:-1]], [None] * (len(found["ancestors"]) - 1))
        done = self.start("inspect", "--check", path, *options)
        self.assertEqual((done.returncode, done.stderr.decode()), (1, message))
        self.assertIn(": cannot be used", done.stdout.decode())
        return found["ancestors"]

    @staticmethod
    def flipped(data, at):
        return data[:at] + bytes([data[at] ^ 1]) + data[at + 1:]

    def test_check_follows_the_chain(self):
        child, grandchild = self.grandchild()
        found = self.json("inspect", grandchild, "--check")["ancestors"]
        facts = [self.json("inspect", path) for path in (child, self.parent)]
        self.assertEqual(found, [{key: fact.get(key) for key in ("id", "file", "bytes", "tokens", "problem")} for fact in facts])
        text = self.ok("inspect", grandchild, "--check")
        for path in (child, self.parent):
            self.assertIn(f"ancestor       {path}: every byte has its checksum", text)
        self.assertEqual(self.json("inspect", self.parent, "--check")["ancestors"], [])
        self.assertIsNone(self.json("inspect", grandchild)["ancestors"])
        self.fails(2, "inspect", grandchild, "--parent", child, says="--check")

    def test_check_refuses_what_load_refuses(self):
        child, grandchild = self.grandchild()
        sound, data = self.parent.read_bytes(), len(self.parent.read_bytes()) // 2
        files = lambda ancestors: [(ancestor["id"], ancestor["file"]) for ancestor in ancestors]
        above = [(self.json("inspect", child)["id"], str(child))]
        for harm in (self.flipped(sound, data), self.flipped(sound, 300), sound[:data], b""):
            self.parent.write_bytes(harm)
            found = self.refused_alike(grandchild, [child, self.parent])
            self.assertEqual(files(found), above + [(self.parent_report["id"], str(self.parent))])
        # A copy beside it will do, under any name.
        copy = self.parent.parent / "copy"
        copy.write_bytes(sound)
        self.assertEqual(self.json("inspect", grandchild, "--check")["ancestors"][-1]["file"], str(copy))
        self.assertEqual(len(self.answers("--load", grandchild)), 2)
        away = pathlib.Path(shutil.move(copy, self.out()))
        self.save("--context", "hello", out=self.parent)
        found = self.refused_alike(grandchild, [child, self.parent_report["id"], "another context"])
        self.assertEqual(files(found), above + [(self.parent_report["id"], None)])
        self.parent.unlink()
        self.refused_alike(grandchild, [child, self.parent_report["id"], self.parent.name])
        self.refused_alike(child, [self.parent_report["id"], self.parent.name, "--parent"])
        # Named by hand.
        self.assertEqual(self.json("inspect", child, "--check", "--parent", away)["ancestors"][0]["file"], str(away))
        self.refused_alike(child, [self.parent_report["id"], grandchild], "--parent", grandchild)
        away.write_bytes(self.flipped(sound, data))
        self.refused_alike(child, [away], "--parent", away)
        # The child's own damage is an error as before, and nothing is printed.
        child.write_bytes(self.flipped(child.read_bytes(), child.stat().st_size // 2))
        self.fails(1, "inspect", "--check", child, says=child)

    def test_a_parent_that_another_template_made_is_passed_over(self):
        copy = pathlib.Path(tempfile.mkdtemp(dir=self.folder)) / "copy"
        shutil.copytree(self.model, copy)
        config = copy / "tokenizer_config.json"
        config.write_text(json.dumps({**json.loads(config.read_text()), "chat_template": "{# Other words, the same text. #}" + TEMPLATE}))
        child, _ = self.child()
        expected = self.answers("--load", child)
        sound = self.parent.rename(self.parent.parent / "sound")
        other = self.save(out=self.parent, model=copy)[1]
        self.assertEqual(other["id"], self.parent_report["id"])
        self.assertEqual(self.answers("--load", child), expected)
        self.assertEqual(self.json("inspect", child, "--check")["ancestors"][0]["file"], str(sound))
        sound.unlink()
        message = self.fails(1, "run", "--model", self.model, "--load", child, "--prompt", "hello", says=[self.parent, "template: expected"])
        self.assertIn(other["identity"]["template"], message)
        self.assertIn(f"{self.parent}: template: expected", self.start("inspect", "--check", child).stderr.decode())

    def test_needs_something_to_add(self):
        self.fails(2, "save", "--model", self.model, "--load", self.parent, "--out", self.out())


class Inspect(SaveTest):
    def test_a_saved_context(self):
        out, report = self.save()
        facts = self.json("inspect", out)
        self.assertEqual((facts["kind"], facts["tokens"], facts["id"]), ("context", report["tokens"], report["id"]))
        self.assertEqual(facts["identity"], report["identity"])
        self.assertEqual(facts["origin"]["messages"], MESSAGES[:1])
        self.assertIn(report["id"], self.ok("inspect", out))
        self.assertIn("every byte", self.ok("inspect", out, "--check"))

    def test_a_directory(self):
        facts = self.json("inspect", self.model)
        config = json.loads((self.model / "config.json").read_text())
        self.assertEqual((facts["kind"], facts["runs"], facts["architecture"]), ("model", True, "LlamaForCausalLM"))
        self.assertEqual(facts["context_limit"], config["max_position_embeddings"])
        per_token = 2 * config["num_hidden_layers"] * config["num_key_value_heads"] * config["hidden_size"] // config["num_attention_heads"]
        self.assertEqual(facts["kv_bytes_per_token"], {"float32": 4 * per_token, "bfloat16": 2 * per_token})
        tensors = read_safetensors(self.model / "model.safetensors")
        self.assertEqual(facts["parameters"], sum(len(raw) for _, _, raw in tensors.values()) // 4)
        self.assertEqual(facts["weights"]["bytes"], (self.model / "model.safetensors").stat().st_size)
        self.assertEqual(facts["weights"]["bytes_by_dtype"], {"F32": 4 * facts["parameters"]})
        self.assertEqual(facts["template"] | {"names": 0}, {"names": 0, "system_role": True, "default_system_text": None, "uses_clock": False,
                                                            "boundary": "message", "safe_for_any_request": False, "problem": None})
        self.assertIn("runs           yes", self.ok("inspect", self.model))

    def test_template_facts(self):
        facts = lambda template: self.json("inspect", self.checkpoint(template=template))["template"]
        self.assertTrue(facts(CLOCK_TEMPLATE)["uses_clock"])
        default = "{% if messages[0].role != 'system' %}<|system|>\nBe brief.<|end|>\n{% endif %}" + TEMPLATE
        self.assertEqual(facts(default)["default_system_text"], "Be brief.")
        no_system = "{% if messages[0].role == 'system' %}{{ raise_exception('no system role') }}{% endif %}" + TEMPLATE
        self.assertIs(facts(no_system)["system_role"], False)
        self.assertIsNone(facts(no_system)["problem"])
        late = "{% for message in messages %}{{ message.content }}{% endfor %}{% if add_generation_prompt %}x{% else %}<|end|>{% endif %}"
        self.assertNotEqual(facts(late)["boundary"], "message")

    def test_without_weights_and_with_a_model_that_kvfork_does_not_run(self):
        model = self.checkpoint()
        (model / "model.safetensors").unlink()
        facts = self.json("inspect", model)
        self.assertEqual((facts["runs"], facts["weights"]["present"]), (True, False))
        self.assertEqual(facts["parameters"], self.json("inspect", self.model)["parameters"])
        config = json.loads((model / "config.json").read_text())
        (model / "config.json").write_text(json.dumps({**config, "model_type": "mamba", "architectures": ["MambaForCausalLM"]}))
        facts = self.json("inspect", model)
        self.assertEqual((facts["runs"], facts["architecture"], facts["family"]), (False, "MambaForCausalLM", "mamba"))
        self.assertIn("mamba", facts["problem"].lower())
        self.fails(1, "inspect", self.folder / "nothing")


if __name__ == "__main__":
    cli.main()
