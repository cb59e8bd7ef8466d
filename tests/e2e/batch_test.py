"""`kvfork batch`: lines of requests to lines of answers, each as `run` gives it, in any company and after any kill.

KVFORK_KILLS sets how often the kill test kills (default 4), KVFORK_KILL_LINES how many requests it has (default 40).
"""

import json
import os
import random
import signal
import struct
import subprocess
import time

import cli

CONTEXT = "hello the order"
PROMPTS = ["hello", "the order", "", "hello hello the order 123", "a", "order the", "hell", "\u00e9t\u00e9 \u4e2d"]


def lines_of(data):
    assert data == b"" or data.endswith(b"\n"), data[-80:]
    return [json.loads(line) for line in data.decode().splitlines()]


class BatchTest(cli.CliTest):
    def arguments(self, requests, out, *more):
        if not isinstance(requests, (str, os.PathLike)):
            requests = self.write("in.jsonl", "".join(json.dumps(request) + "\n" for request in requests))
        options = [] if "--max-new-tokens" in more else ["--max-new-tokens", 8]
        return ["batch", "--model", self.model, "--context", CONTEXT, "--in", requests, "--out", out, *options, *more]

    def new_out(self):
        return self.write("out.jsonl", b"")

    def batch(self, requests, *more, code=0):
        """The answers to requests."""
        out = self.new_out()
        done = self.start(*self.arguments(requests, out, *more))
        self.assertEqual(done.returncode, code, done.stderr.decode())
        return lines_of(out.read_bytes())

    def answer_of(self, prompt, *more):
        (answer,) = self.run_json("--context", CONTEXT, f"--prompt={prompt}", "--benchmark-repeats", 1, *more)["answers"]
        return answer


class Answers(BatchTest):
    def test_each_is_that_of_run(self):
        answers = self.batch([{"id": i, "prompt": prompt} for i, prompt in enumerate(PROMPTS)])
        self.assertEqual([answer["id"] for answer in answers], list(range(len(PROMPTS))))
        for prompt, answer in zip(PROMPTS, answers):
            expected = self.answer_of(prompt)
            for key in ("ids", "text", "stop", "cached_tokens", "request_tokens"):
                self.assertEqual(answer[key], expected[key], (prompt, key))
            self.assertNotIn("timings", answer)

    def test_options_of_a_line_are_those_of_run(self):
        requests = [{"prompt": "hello", "max_new_tokens": 3}, {"prompt": "hello", "temperature": 1.5, "seed": 7},
                    {"prompt": "hello", "temperature": 2, "top_k": 5, "seed": 2**64 - 1},
                    {"prompt": "hello", "temperature": 1.2, "top_p": 0.8, "min_p": 0.02, "seed": 3},
                    {"prompt": "the order", "repetition_penalty": 1.4}, {"prompt": "a", "seed": None, "stop": None}]
        for request, answer in zip(requests, self.batch([{"id": str(i), **request} for i, request in enumerate(requests)])):
            options = [text for key, value in request.items() if key != "prompt" and value is not None
                       for text in ("--" + key.replace("_", "-"), value)]
            self.assertEqual(answer["ids"], self.answer_of(request["prompt"], *options)["ids"], request)

    def test_options_of_the_command_hold_where_a_line_has_none(self):
        answers = self.batch([{"id": 1, "prompt": "hello"}, {"id": 2, "prompt": "hello", "seed": 4}], "--temperature", 1.5, "--seed", 9)
        for answer, seed in zip(answers, (9, 4)):
            self.assertEqual(answer["ids"], self.answer_of("hello", "--temperature", 1.5, "--seed", seed)["ids"])

    def test_messages_are_a_whole_conversation(self):
        messages = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "the"}, {"role": "user", "content": "order"}]
        one, two = self.batch([{"id": 1, "messages": messages[:1]}, {"id": 2, "messages": messages}])
        self.assertEqual(one["ids"], self.answer_of("hello")["ids"])
        self.assertGreater(two["request_tokens"], one["request_tokens"])

    def test_messages_reach_the_template_as_they_are_written(self):
        # What nlohmann's reader would refuse or spell in another way, and a line's last value of a name counts.
        template = ("{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{{ m.n }}<|end|>{% endfor %}"
                    "{% if add_generation_prompt %}<|assistant|>{% endif %}")
        model = self.checkpoint(template=template)
        written = [('"hello", "n": NaN', "hellonan"), ('"hello", "n": 1.50', "hello1.5"), ('"hello", "n": 12345678901234567890', "hello12345678901234567890")]
        lines = [f'{{"id": 0, "id": 1, "messages": [{{"role": "user", "content": {text}}}]}}' for text, _ in written]
        plain = [json.dumps({"id": 1, "prompt": text}) for _, text in written]
        outs = [self.new_out(), self.new_out()]
        for out, content in zip(outs, (lines, plain)):
            self.ok("batch", "--model", model, "--context", CONTEXT, "--in", self.write("in.jsonl", "\n".join(content)), "--out", out,
                    "--max-new-tokens", 4)
        self.assertEqual(outs[0].read_bytes(), outs[1].read_bytes())

    def test_width_changes_nothing(self):
        requests = [{"id": i, "prompt": random.Random(i).choice(PROMPTS), "temperature": i % 2, "seed": i,
                     "max_new_tokens": 1 + i * 7 % 12} for i in range(23)]
        expected = self.batch(requests, "--width", 1)
        for width in (2, 3, 7, 16, 32):
            self.assertEqual(self.batch(requests, "--width", width), expected, width)

    def test_stop_strings_end_an_answer_and_are_cut(self):
        plain, = self.batch([{"id": 1, "prompt": "hello", "max_new_tokens": 30}])
        self.assertGreater(len(plain["text"]), 6)
        stop = plain["text"][3:5]
        cut = plain["text"].index(stop)
        for value in (stop, [stop], ["never there", stop]):
            answer, = self.batch([{"id": 1, "prompt": "hello", "max_new_tokens": 30, "stop": value}])
            self.assertEqual((answer["text"], answer["stop"]), (plain["text"][:cut], "stop"))
            self.assertEqual(answer["ids"], plain["ids"][:len(answer["ids"])])
            self.assertLess(len(answer["ids"]), 30)

    def test_logprobs_are_numbers_one_per_id(self):
        answer, = self.batch([{"id": 1, "prompt": "hello"}], "--logprobs")
        self.assertEqual(len(answer["logprobs"]), len(answer["ids"]))
        self.assertTrue(all(value <= 0 for value in answer["logprobs"]))

    def test_ids_are_kept(self):
        ids = ["a", "", 0, -5, 2**63, 2**64 - 1, "\u00e9\u4e2d\"\\\n", "a"]
        self.assertEqual([answer["id"] for answer in self.batch([{"id": name, "prompt": "a"} for name in ids])], ids)

    def test_requests_come_from_standard_input_with_any_line_ends(self):
        out = self.new_out()
        data = b"\xef\xbb\xbf" + b"\r\n\r\n  \n".join(json.dumps({"id": i, "prompt": "a"}).encode() for i in range(3))
        self.ok(*self.arguments("-", out), stdin=data)
        self.assertEqual([answer["id"] for answer in lines_of(out.read_bytes())], [0, 1, 2])

    def test_no_requests_are_no_answers(self):
        self.assertEqual(self.batch([]), [])

    def test_json_summary(self):
        summary = self.json(*self.arguments([{"id": 1, "prompt": "a"}, {"id": 2, "prompt": "hello"}], self.new_out()))
        self.assertEqual((summary["requests"], summary["errors"], summary["resumed"]), (2, 0, 0))
        self.assertGreaterEqual(summary["new_tokens"], 2)


class Trust(BatchTest):
    """Output of another run, or changed by hand, is not gone on with."""

    def test_changed_lines_and_other_tokenizers_are_refused(self):
        model = self.checkpoint()
        path = self.write("in.jsonl", "".join(json.dumps({"id": i, "prompt": "hello"}) + "\n" for i in range(3)))
        out = self.new_out()
        arguments = ("batch", "--model", model, "--in", path, "--out", out, "--max-new-tokens", 4)
        self.ok(*arguments)
        whole = out.read_text()
        lines = whole.splitlines(keepends=True)
        first = json.loads(lines[0])
        changes = [lines[0].replace('"id":0', '"id":0.0'), lines[0].replace("\n", "\r\n"), lines[0].replace('"stop":"', '"stop":"x'),
                   lines[0].replace('"text":"', '"text":"x'), '{"id":0,"error":"x"}\n',
                   lines[0].replace('"ids":[' + str(first["ids"][0]), '"ids":[' + str(first["ids"][0] + 1)), lines[0].replace(",", ", ", 1)]
        for changed in changes:
            self.assertNotEqual(changed, lines[0])
            out.write_text(changed + lines[1])
            self.fails(1, *arguments, says="line 1 is not the answer")
            self.assertEqual(out.read_text().replace("\r", ""), (changed + lines[1]).replace("\r", ""))
        out.write_text(lines[0])
        tokenizer = json.loads((model / "tokenizer.json").read_text())
        tokenizer["decoder"] = {"type": "Fuse"}
        saved = (model / "tokenizer.json").read_text()
        (model / "tokenizer.json").write_text(json.dumps(tokenizer))
        self.fails(1, *arguments, says="line 1 is not the answer")
        (model / "tokenizer.json").write_text(saved)
        self.ok(*arguments)
        self.assertEqual(out.read_text(), whole)

    def test_an_input_of_another_kind_is_refused_before_anything_is_written(self):
        for content in ("May I return a tent?\n", "[1]\n", '"a"\n', b"\x89PNG\r\n"):
            path = self.write("questions", content)
            out = self.new_out()
            self.fails(2, "batch", "--model", self.model, "--in", path, "--out", out, says=["JSON object", "line 1"])
            self.assertEqual(out.read_bytes(), b"")

    def test_the_first_error_is_shown(self):
        path = self.write("in.jsonl", '{"id": 1, "prompt": "hello"}\n{"id": 2, "prompt": "a", "temperature": -1}\n')
        done = self.start("batch", "--model", self.model, "--in", path, "--out", self.new_out(), "--max-new-tokens", 2)
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"the first is: line 2: temperature: ", done.stderr)


class ProgressBar(BatchTest):
    def on_terminal(self, *more):
        """What a batch of 2000 requests, enough for a second or so, draws where standard error is a terminal."""
        import pty
        requests = [{"id": i, "prompt": PROMPTS[i % len(PROMPTS)]} for i in range(2000)]
        terminal, end = pty.openpty()
        process = subprocess.Popen([cli.TOOL, *map(str, self.arguments(requests, self.new_out(), "--max-new-tokens", 100, *more))],
                                   stdout=subprocess.PIPE, stderr=end)
        os.close(end)
        drawn = b""
        while True:
            try:
                drawn += os.read(terminal, 65536)
            except OSError:  # the other end is closed
                break
        os.close(terminal)
        self.assertEqual((process.communicate()[0], process.returncode), (b"", 0))
        return drawn.decode()

    def test_shows_requests_rate_and_time_left_and_goes_away(self):
        drawn = self.on_terminal()
        self.assertRegex(drawn, r"batch \[#*\.*\] \d+/2000, \d+\.\d tokens/s, \d+:\d\d:\d\d left")
        self.assertRegex(drawn, r"\r\x1b\[K[^\x1b]*2000 requests")  # erased before the last line

    def test_not_with_quiet(self):
        self.assertNotIn("\r", self.on_terminal("--quiet").replace("\r\n", "\n"))


class Errors(BatchTest):
    def errors(self, *lines):
        """The error of each line; a good one before and after shows that others are answered."""
        good = '{"id": "good", "prompt": "hello"}'
        path = self.write("in.jsonl", "\n".join([good, *lines, good]) + "\n")
        answers = self.batch(path, code=1)
        self.assertEqual(len(answers), len(lines) + 2)
        for answer in (answers[0], answers[-1]):
            self.assertEqual(answer["ids"], self.answer_of("hello")["ids"])
        for answer in answers[1:-1]:
            # A line that failed while it ran carries what a later run compares it by.
            self.assertIn(answer.keys(), ({"id", "error"}, {"id", "error", "digest", "check"}))
        return answers[1:-1]

    def test_lines_that_are_no_requests(self):
        cases = (
                ("not json", None, "JSON"), ("[1]", None, "object"), ('{"prompt": "a"}', None, "id"), ('{"id": 1', None, "JSON"),
                ('{"id": null, "prompt": "a"}', None, "id"), ('{"id": 1.5, "prompt": "a"}', None, "id"),
                ('{"id": 123456789012345678901, "prompt": "a"}', None, "id"), ('{"id": 1}', 1, "prompt"),
                ('{"id": 1, "prompt": "a", "messages": []}', 1, "both"), ('{"id": 1, "prompt": 5}', 1, "prompt"),
                ('{"id": 1, "messages": "x"}', 1, "messages"), ('{"id": 1, "messages": []}', 1, "messages"),
                ('{"id": 1, "prompt": "a", "seed": -1}', 1, "seed"), ('{"id": 1, "prompt": "a", "seed": 1.5}', 1, "seed"),
                ('{"id": 1, "prompt": "a", "temperature": "1"}', 1, "temperature"), ('{"id": 1, "prompt": "a", "temperature": -1}', 1, "temperature"),
                ('{"id": 1, "prompt": "a", "top_p": 0}', 1, "top_p"), ('{"id": 1, "prompt": "a", "min_p": 1.5}', 1, "min_p"),
                ('{"id": 1, "prompt": "a", "max_new_tokens": 0}', 1, "max_new_tokens"), ('{"id": 1, "prompt": "a", "max_new_tokens": true}', 1, "max_new_tokens"),
                ('{"id": 1, "prompt": "a", "stop": [""]}', 1, "stop"), ('{"id": 1, "prompt": "a", "stop": [1]}', 1, "stop"),
                ('{"id": 1, "prompt": "a", "max_tokens": 5}', 1, "max_tokens"), ('{"id": 1, "prompt": "a", "num_beams": 2}', 1, "num_beams"),
                ('{"id": 1, "prompt": "a", "max_new_tokens": 999999}', 1, "context limit"), ('{"id": 1, "prompt": "\\ud800"}', 1, "JSON"),
                ('{"id": 1, "prompt": "a", "stop": NaN}', 1, "stop"), ('{"id": 1, "prompt": "a", "seed": NaN}', 1, "seed"),
                ('{"id": 1, "prompt": "a" "seed": 1}', None, "JSON"), ('{"id": 1, "prompt": "a", "metadata": [}}', 1, "metadata"),
                ('{"id": 1, "messages": [}}', 1, "messages"), ('{"id": 1, "messages": [{"role": "user", "content": "a"}]}]}', None, "JSON"),
                ('{"id": ' + "[" * 100000 + "]" * 100000 + ', "prompt": "a"}', None, "id"), ('{"id": 1, "prompt": "a"} {}', None, "JSON"))
        for (line, name, text), answer in zip(cases, self.errors(*[line for line, _, _ in cases])):
            self.assertEqual(answer["id"], name, line)
            self.assertIn(text, answer["error"], line)

    def test_keys_of_the_callers_own_are_ignored(self):
        answer, = self.batch([{"id": 1, "prompt": "hello", "metadata": {"a": 1}, "reference": "x", "model": "y"}])
        self.assertEqual(answer["ids"], self.answer_of("hello")["ids"])

    def test_a_boundary_error_is_one_of_the_line(self):
        # The template renders the system text otherwise when the user says "x".
        template = ("{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% if m.role == 'system' and messages|length > 1 and "
                    "messages[1].content == 'x' %}!{% endif %}<|end|>{% endfor %}")
        model = self.checkpoint(template=template)
        out = self.new_out()
        path = self.write("in.jsonl", '{"id": 1, "prompt": "x"}\n{"id": 2, "prompt": "y"}\n')
        done = self.start("batch", "--model", model, "--context", CONTEXT, "--in", path, "--out", out, "--max-new-tokens", 4)
        self.assertEqual(done.returncode, 1)
        bad, good = lines_of(out.read_bytes())
        self.assertIn("error", bad)
        self.assertEqual(len(good["ids"]), 4)

    def test_usage(self):
        path = self.write("in.jsonl", "{}")
        self.fails(2, "batch", "--model", self.model, "--in", path)
        self.fails(2, "batch", "--model", self.model, "--out", path)
        self.fails(2, "batch", "--model", self.model, "--in", path, "--out", path, says="--in")
        self.fails(2, *self.arguments([], self.new_out(), "--width", 0))
        self.fails(1, "batch", "--model", self.model, "--in", path.parent / "absent", "--out", path, says="absent")
        self.fails(1, *self.arguments([], path.parent / "no" / "where"), says="where")

    def test_a_full_disk_is_an_error(self):
        self.fails(1, *self.arguments([{"id": 1, "prompt": "a"}], "/dev/full"), says="/dev/full")

    def test_a_disk_that_fills_up_leaves_whole_lines_to_go_on_from(self):
        path = self.write("in.jsonl", "".join(json.dumps({"id": i, "prompt": "hello"}) + "\n" for i in range(200)))
        expected = self.new_out()
        self.ok(*self.arguments(path, expected))
        disk, out = self.new_out().parent, self.new_out()
        done = self.in_own_mounts('disk=$1 kept=$2; shift 2; mount -t tmpfs -o size=16k none "$disk" && "$TOOL" "$@"; code=$?; '
                                  'cp "$disk/out" "$kept"; exit $code', disk, out, *self.arguments(path, disk / "out"))
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn(f"{disk}/out: cannot write: No space left", done.stderr.decode())
        found = out.read_bytes()
        self.assertTrue(0 < len(found) <= 16384 and found.endswith(b"\n"), found[-60:])
        self.ok(*self.arguments(path, out))
        self.assertEqual(out.read_bytes(), expected.read_bytes())


class Resume(BatchTest):
    def requests(self, count=40):
        generator = random.Random(5)
        requests = [{"id": f"r{i}", "prompt": generator.choice(PROMPTS) + str(i), "temperature": i % 3 * 0.7, "seed": i,
                     "max_new_tokens": generator.randrange(1, 60)} for i in range(count)]
        lines = [json.dumps(request) for request in requests]
        lines[3], lines[count * 2 // 3] = "broken", '{"id": "late", "prompt": 1}'
        return self.write("in.jsonl", "\n".join(lines) + "\n")

    def whole(self, path):
        out = self.new_out()
        self.fails(1, *self.arguments(path, out))
        return out.read_bytes()

    def test_goes_on_after_any_whole_line(self):
        path = self.requests(12)
        expected = self.whole(path)
        lines = expected.splitlines(keepends=True)
        for count in (1, 6, 8, 11, 12):
            out = self.write("out.jsonl", b"".join(lines[:count]))
            summary = json.loads(self.start(*self.arguments(path, out), "--json").stdout)
            self.assertEqual(out.read_bytes(), expected, count)
            self.assertEqual(summary["resumed"], count)

    def test_cuts_off_a_torn_line(self):
        path = self.requests(6)
        expected = self.whole(path)
        for end in (1, 3, 30, expected.index(b"\n") + 1, expected.index(b"\n") + 9, len(expected) - 1):
            out = self.write("out.jsonl", expected[:end])
            self.start(*self.arguments(path, out))
            self.assertEqual(out.read_bytes(), expected, end)

    def test_cuts_off_zeros_that_a_crash_left(self):
        path = self.requests(6)
        expected = self.whole(path)
        out = self.write("out.jsonl", expected[:expected.index(b"\n") + 1] + bytes(30))
        self.start(*self.arguments(path, out))
        self.assertEqual(out.read_bytes(), expected)

    def test_a_file_that_is_not_its_own_keeps_its_last_line(self):
        path = self.write("in.jsonl", '{"id": 1, "prompt": "a"}\n{"id": 2, "prompt": "hello"}\n')
        for text in ('{"id":1,"prompt":"mine"}\n{"id":2,"prompt":"no newline"}', '{"id":1,"prompt":"no newline"}', '{"id":7,"ids":[1'):
            out = self.write("out.jsonl", text)
            self.fails(1, *self.arguments(path, out), says="not the answer")
            self.assertEqual(out.read_text(), text)

    def test_standard_output_in_a_file_is_not_shared_with_json(self):
        path = self.write("in.jsonl", '{"id": 1, "prompt": "a"}\n')
        with open(self.new_out(), "wb") as file:
            done = subprocess.run([cli.TOOL, *map(str, self.arguments(path, "/dev/stdout")), "--json"], stdout=file, stderr=subprocess.PIPE)
        self.assertEqual(done.returncode, 2, done.stderr)

    def test_finished_lines_are_not_touched_or_computed_again(self):
        path = self.requests(10)
        expected = self.whole(path)
        out = self.write("out.jsonl", expected)
        os.utime(out, (1, 1))
        summary = json.loads(self.start(*self.arguments(path, out), "--json").stdout)
        self.assertEqual((out.read_bytes(), out.stat().st_mtime), (expected, 1))
        self.assertEqual((summary["resumed"], summary["new_tokens"], summary["passes"]), (10, 0, 0))

    def test_new_requests_at_the_end_are_answered(self):
        path = self.requests(10)
        expected = self.whole(path)
        lines = path.read_text().splitlines(keepends=True)
        short = self.write("in.jsonl", "".join(lines[:6]))
        out = self.new_out()
        self.start(*self.arguments(short, out))
        self.start(*self.arguments(path, out))
        self.assertEqual(out.read_bytes(), expected)

    def test_answers_to_something_else_are_refused_and_left_alone(self):
        path = self.write("in.jsonl", '{"id": 1, "prompt": "a"}\n{"id": 2, "prompt": "hello"}\n')
        out = self.new_out()
        self.ok(*self.arguments(path, out))
        expected = out.read_bytes()
        others = [self.write("in.jsonl", text) for text in (
            '{"id": 1, "prompt": "a"}\n', '{"id": 1, "prompt": "b"}\n{"id": 2, "prompt": "hello"}\n',
            '{"id": 2, "prompt": "hello"}\n{"id": 1, "prompt": "a"}\n', '{"id": 1, "prompt": "a", "seed": 3, "temperature": 1}\n{"id": 2, "prompt": "hello"}\n')]
        for other in others:
            self.fails(1, *self.arguments(other, out), says=[str(out), "line"])
        for more in (["--max-new-tokens", 9], ["--logprobs"], ["--dtype", "bfloat16"], ["--stop", "x"], ["--temperature", 1]):
            self.fails(1, *self.arguments(path, out, *more), says=[str(out), "line"])
        another = self.checkpoint(seed=2)
        self.fails(1, "batch", "--model", another, "--context", CONTEXT, "--in", path, "--out", out, "--max-new-tokens", 8, says=str(out))
        self.assertEqual(out.read_bytes(), expected)

    def test_a_file_of_another_kind_is_left_alone(self):
        for content in (b"my notes", b"my notes\n", b'{"a": 1}\n', b"\n"):
            out = self.write("out.jsonl", content)
            self.fails(1, *self.arguments([{"id": 1, "prompt": "a"}], out), says=str(out))
            self.assertEqual(out.read_bytes(), content)

    def test_two_at_once_do_not_mix(self):
        path = self.requests(12)
        expected = self.whole(path)
        out = self.new_out()
        both = [subprocess.Popen([cli.TOOL, *map(str, self.arguments(path, out))], stderr=subprocess.PIPE) for _ in range(2)]
        for process in both:
            process.communicate(timeout=300)
        self.assertEqual(out.read_bytes(), expected)

    def test_killed_at_random_moments_it_gives_the_same_bytes(self):
        kills = int(os.environ.get("KVFORK_KILLS", "4"))
        path = self.requests(int(os.environ.get("KVFORK_KILL_LINES", "40")))
        expected = self.whole(path)
        begin = time.monotonic()
        self.whole(path)
        duration = time.monotonic() - begin
        generator = random.Random(6)
        out = self.new_out()
        found, sizes, longest_wait = b"", [], 3 * duration / kills
        while len(sizes) < kills:
            process = subprocess.Popen([cli.TOOL, *map(str, self.arguments(path, out, "--width", generator.choice((1, 3, 8))))],
                                       stderr=subprocess.DEVNULL)
            if len(sizes) % 2:  # every other one is killed as it answers, the rest at any moment
                while process.poll() is None and out.stat().st_size == len(found):
                    time.sleep(0.0002)
            else:
                time.sleep(generator.uniform(0, longest_wait))
            process.send_signal(signal.SIGKILL)
            if process.wait() != -signal.SIGKILL:
                self.assertEqual(out.read_bytes(), expected)
                found = b""
                out.write_bytes(found)  # it was done; once more from the start
                continue
            found = out.read_bytes()
            self.assertTrue(found == b"" or found.endswith(b"\n"), found[-60:])
            self.assertTrue(expected.startswith(found), "finished lines are those of an undisturbed run")
            sizes.append(len(found))
            longest_wait *= 1.5 if len(sizes) > 1 and sizes[-2] == sizes[-1] else 1  # not yet answering when it was killed
        self.assertGreater(len(set(sizes)), kills // 3, f"too few kills while it answered: {sizes}")
        self.start(*self.arguments(path, out))
        self.assertEqual(out.read_bytes(), expected)


class Load(BatchTest):
    """A saved context in place of the options that name one."""

    def setUp(self):
        self.saved = self.write("context.kv", b"")
        self.ok("save", "--model", self.model, "--context", CONTEXT, "--out", self.saved, "--quiet")

    def loaded(self, requests, out, *more):
        return ["batch", "--model", self.model, "--load", self.saved, "--in", requests, "--out", out, "--max-new-tokens", 8, *more]

    def test_gives_the_bytes_of_a_batch_that_prefills_and_the_answers_of_run(self):
        requests = [{"id": i, "prompt": prompt, "temperature": i % 2, "seed": i} for i, prompt in enumerate(PROMPTS)]
        path = self.write("in.jsonl", "".join(json.dumps(request) + "\n" for request in requests))
        prefilled, loaded = self.new_out(), self.new_out()
        self.ok(*self.arguments(path, prefilled, "--logprobs"))
        self.ok(*self.loaded(path, loaded, "--logprobs", "--width", 3))
        self.assertEqual(loaded.read_bytes(), prefilled.read_bytes())
        for request, answer in zip(requests, lines_of(loaded.read_bytes())):
            expected = self.answer_of(request["prompt"], "--temperature", request["temperature"], "--seed", request["seed"], "--logprobs")
            for key in ("ids", "text", "stop", "logprobs", "cached_tokens", "request_tokens"):
                self.assertEqual(answer[key], expected[key], (request, key))

    def test_goes_on_where_a_batch_that_prefills_stopped(self):
        requests = [json.dumps({"id": i, "prompt": prompt}) + "\n" for i, prompt in enumerate(PROMPTS)]
        path = self.write("in.jsonl", "".join(requests))
        expected = self.new_out()
        self.ok(*self.arguments(path, expected))
        lines = expected.read_bytes().splitlines(keepends=True)
        out = self.write("out.jsonl", b"".join(lines[:3]))
        self.assertEqual(self.json(*self.loaded(path, out))["resumed"], 3)
        self.assertEqual(out.read_bytes(), expected.read_bytes())

    def test_a_child_context_serves_what_one_of_the_whole_does(self):
        messages = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "the order"}]
        turns = [{"role": "system", "content": CONTEXT}, *messages]
        child = self.saved.parent / "child.kv"
        self.ok("save", "--model", self.model, "--load", self.saved, "--messages", self.write("m.json", json.dumps(messages)),
                "--out", child, "--quiet")
        path = self.write("in.jsonl", '{"id": 1, "prompt": "a"}\n{"id": 2, "prompt": "order", "temperature": 1}\n')
        nested, whole = self.new_out(), self.new_out()
        self.ok("batch", "--model", self.model, "--load", child, "--in", path, "--out", nested, "--max-new-tokens", 8)
        self.ok("batch", "--model", self.model, "--messages", self.write("m.json", json.dumps(turns)), "--in", path, "--out", whole,
                "--max-new-tokens", 8)
        self.assertEqual(nested.read_bytes(), whole.read_bytes())

    def test_a_damaged_or_foreign_one_is_refused_before_any_answer(self):
        sound = self.saved.read_bytes()
        path = self.write("in.jsonl", '{"id": 1, "prompt": "a"}\n')
        for content in (sound[:-9], sound + b"\0", sound[:9000] + bytes([sound[9000] ^ 1]) + sound[9001:]):
            self.saved.write_bytes(content)
            out = self.new_out()
            self.fails(1, *self.loaded(path, out), says=str(self.saved))
            self.assertEqual(out.read_bytes(), b"")
        self.saved.write_bytes(sound)
        other = self.checkpoint(seed=2)
        self.fails(1, "batch", "--model", other, "--load", self.saved, "--in", path, "--out", self.new_out(), says=["weights", "expected", "found"])
        self.fails(2, *self.loaded(path, self.new_out(), "--context", "x"), says="--load")


class Memory(BatchTest):
    def test_too_little_is_an_error_before_any_answer(self):
        import resource
        model = self.checkpoint(num_hidden_layers=8, max_position_embeddings=10**7)
        out = self.new_out()
        path = self.write("in.jsonl", json.dumps({"id": 1, "prompt": "a", "max_new_tokens": 5 * 10**6}) + "\n")
        limit = 3 << 30
        done = subprocess.run([cli.TOOL, "batch", "--model", model, "--context", CONTEXT, "--in", path, "--out", out],
                              capture_output=True, timeout=300,
                              preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)))
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn(b"memory", done.stderr)
        self.assertEqual(out.read_bytes(), b"")


class LogProbabilities(BatchTest):
    def test_are_those_of_score_to_the_bit(self):
        answer = self.answer_of("hello", "--logprobs", "--max-new-tokens", 12)
        messages = [{"role": "system", "content": CONTEXT}, {"role": "user", "content": "hello"}]
        path = self.write("m.json", json.dumps(messages))
        request = self.json("tokenize", "--model", self.model, "--messages", path)["ids"]
        scored = self.json("score", "--model", self.model, "--ids", ",".join(map(str, request + answer["ids"])))
        expected = [position["logprob"] for position in scored["positions"]][len(request):]
        bits = lambda values: [struct.pack("<d", value) for value in values]
        self.assertEqual(bits(answer["logprobs"]), bits(expected))

    def test_are_the_models_own_whatever_the_sampling(self):
        sampled = self.answer_of("hello", "--logprobs", "--temperature", 3, "--seed", 4)
        self.assertLess(min(sampled["logprobs"]), -1)
        self.assertEqual(len(sampled["logprobs"]), len(sampled["ids"]))

    def test_are_absent_unless_asked_for(self):
        self.assertNotIn("logprobs", self.answer_of("hello"))


class StopStrings(BatchTest):
    def test_of_run_are_those_of_batch(self):
        plain = self.answer_of("hello", "--max-new-tokens", 30)
        stop = plain["text"][4:6]
        answer = self.answer_of("hello", "--max-new-tokens", 30, "--stop", "not there", "--stop", stop)
        self.assertEqual(answer["stop"], "stop")
        self.assertEqual(answer["text"], plain["text"][:plain["text"].index(stop)])
        shown = self.ok("run", "--model", self.model, "--context", CONTEXT, "--prompt", "hello", "--max-new-tokens", 30, "--stop", stop)
        self.assertIn(answer["text"], shown)

    def test_an_empty_one_is_refused(self):
        self.fails(2, "run", "--model", self.model, "--prompt", "a", "--stop", "", says="stop")


if __name__ == "__main__":
    cli.main()
