"""kvfork ask: answers at once, on a terminal, from a pipe and from options."""

import json
import os
import resource
import signal
import subprocess
import time

import cli
from screen import Terminal

CONTEXT = " ".join(["hello the order"] * 30)
QUESTIONS = ["hello", "the order", "a \u00fcb\u00e9r question"]


class Ask(cli.CliTest):
    def setUp(self):
        self.arguments = ("--model", self.model, "--context", CONTEXT, "--max-new-tokens", 8)

    def answers(self, command, *more, **options):
        return [a["ids"] for a in self.json(command, *self.arguments, *more, **options)["answers"]]

    def ask(self, *more, **options):
        return [json.loads(line) for line in self.ok("ask", *self.arguments, "--json", *more, **options).splitlines()]

    def test_answers_are_those_of_run(self):
        prompts = [text for question in QUESTIONS for text in ("--prompt", question)]
        for options in ((), ("--temperature", 1.2, "--seed", 4), ("--repetition-penalty", 1.5)):
            found = self.ask(*prompts, *options)
            self.assertEqual([a["ids"] for a in found], self.answers("run", *prompts, *options))
            self.assertEqual([a["prompt"] for a in found], QUESTIONS)

    def test_reads_lines_and_skips_blank_ones(self):
        found = self.ask(stdin="\n".join(["", *QUESTIONS, "  ", ""]) + "\r\n")
        self.assertEqual([a["prompt"] for a in found], QUESTIONS)

    def test_each_line_is_answered_before_the_next_comes(self):
        process = subprocess.Popen([cli.TOOL, "ask", *map(str, self.arguments), "--json"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   text=True)
        for question in QUESTIONS:
            process.stdin.write(question + "\n")
            process.stdin.flush()
            self.assertEqual(json.loads(process.stdout.readline())["prompt"], question)
        process.stdin.close()
        self.assertEqual((process.stdout.read(), process.wait()), ("", 0))
        process.stdout.close()

    def test_standard_output_has_the_answers_alone(self):
        done = self.start("ask", *self.arguments, "--prompt", "hello", "--stats")
        text = self.ask("--prompt", "hello")[0]["text"]
        self.assertEqual(done.stdout.decode(), text + "\n")
        self.assertRegex(done.stderr.decode(), r"^8 tokens in [0-9.]+ [mu]?s, \d+ tokens/s; \d+ tokens came from the cache, about [0-9.]+ [mu]?s saved\n$")
        self.assertEqual(self.start("ask", *self.arguments, "--prompt", "hello").stderr, b"")

    def test_a_saved_context(self):
        saved = self.folder / "ask.kv"
        self.ok("save", *self.arguments[:4], "--out", saved)
        more = ("--prompt", "hello", "--max-new-tokens", 8)
        found = json.loads(self.ok("ask", "--model", self.model, "--load", saved, "--json", *more))
        self.assertEqual(found["ids"], self.answers("run", "--prompt", "hello")[0])

    def test_one_bad_question_does_not_end_the_others(self):
        done = self.start("ask", *self.arguments, "--json", stdin="hello\n" + "hello " * 3000 + "\nthe order\n")
        self.assertEqual(done.returncode, 1)
        self.assertEqual([json.loads(line)["prompt"] for line in done.stdout.splitlines()], ["hello", "the order"])
        self.assertIn(b"context limit", done.stderr)

    def test_chat_is_the_conversation_as_the_template_renders_it(self):
        found = self.ask("--chat", "--prompt", "hello", "--prompt", "the order")
        messages = [{"role": "system", "content": CONTEXT}, {"role": "user", "content": "hello"},
                    {"role": "assistant", "content": found[0]["text"]}]
        path = self.write("m.json", json.dumps(messages))
        (expected,) = self.json("run", "--model", self.model, "--messages", path, "--prompt", "the order", "--max-new-tokens", 8)["answers"]
        self.assertEqual(found[1]["ids"], expected["ids"])
        self.fails(2, "ask", *self.arguments, "--chat", "--raw", "--prompt", "x", says="--chat")

    def test_a_reader_that_goes_away_is_no_error(self):
        process = subprocess.Popen([cli.TOOL, "ask", *map(str, self.arguments)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        process.stdout.close()
        try:
            process.stdin.write(b"hello\n" * 1000)
            process.stdin.close()
        except BrokenPipeError:
            pass
        self.assertEqual(process.stderr.read(), b"")
        self.assertEqual(process.wait(), -signal.SIGPIPE)
        process.stderr.close()

    def test_costs_no_more_than_batch(self):
        requests = self.write("in.jsonl", "".join(json.dumps({"id": i, "prompt": q}) + "\n" for i, q in enumerate(QUESTIONS)))
        common = ("--model", self.model, "--context", CONTEXT, "--max-new-tokens", 8)

        def cost(*arguments, stdin=""):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            self.ok(*arguments, stdin=stdin)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        batch = min(cost("batch", *common, "--in", requests, "--out", requests.parent / f"out{i}") for i in range(3))
        ask = min(cost("ask", *common, stdin="\n".join(QUESTIONS)) for _ in range(3))
        self.assertLess(ask, 2 * batch + 0.1)


class Conversation(cli.CliTest):
    def start(self, *more, **options):
        terminal = Terminal("ask", "--model", self.model, "--context", CONTEXT, "--max-new-tokens", 6, *more, **options)
        terminal.wait_for("> ")
        return terminal

    def test_questions_history_and_commands(self):
        terminal = self.start()
        for keys in ("hello\r", "\x1b[A\r", "xyz\x15hellp\x7fo\r", "\r", "ello\x01h\x05\r", "hello wrong\x17\x7f\r"):
            terminal.type(keys)
            terminal.wait_for("\n")
            terminal.wait_for("> ")
        terminal.type("/stats\r")
        terminal.wait_for("on.")
        terminal.wait_for("> ")
        terminal.type("/help\r")
        terminal.wait_for("/reset")
        terminal.wait_for("> ")
        terminal.type("\x03")  # clears the line, and does not end the program
        terminal.wait_for("> ")
        terminal.type("\x04")
        code, screen = terminal.finish()
        self.assertEqual(code, 0, screen)
        self.assertEqual([line for line in screen if line.startswith("> hell")], ["> hello"] * 5)
        self.assertTrue(any("came from the cache" in line for line in screen), screen)

    def test_exit_and_end(self):
        for keys in ("/exit\r", "/quit\r", "\x04"):
            terminal = self.start()
            terminal.type(keys)
            self.assertEqual(terminal.finish()[0], 0)

    def test_an_interrupt_ends_the_answer_and_not_the_program(self):
        terminal = Terminal("ask", "--model", self.model, "--context", CONTEXT, "--max-new-tokens", 1500, "--raw")
        terminal.wait_for("> ")
        terminal.type("hello\r")
        terminal.wait_for("\n")
        time.sleep(0.02)
        terminal.interrupt()
        terminal.wait_for("> ")
        terminal.type("/exit\r")
        self.assertEqual(terminal.finish()[0], 0)

    def test_a_dumb_terminal(self):
        terminal = self.start(term="dumb")
        terminal.type("hello\n")
        terminal.wait_for("> ")
        terminal.type("\x04")
        code, _ = terminal.finish()
        self.assertEqual(code, 0)
        self.assertNotIn("\x1b", terminal.drawn)

    def test_a_narrow_terminal_keeps_one_line(self):
        terminal = self.start(width=40)
        terminal.type("hello " * 20)
        terminal.type("\x15\x04")
        code, screen = terminal.finish()
        self.assertEqual(code, 0)
        self.assertEqual(screen[-2:], [">", ""], screen)


if __name__ == "__main__":
    cli.main()
