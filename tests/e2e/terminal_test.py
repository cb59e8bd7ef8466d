"""What stays on a terminal: progress goes away, lines fit, nothing acts on the terminal, interrupts end at once."""

import json
import os
import signal
import time

import cli
import context_reader
from screen import Terminal
from tiny_checkpoint import write_checkpoint

CONTEXT = " ".join(["hello the order"] * 30)
WIDTHS = (40, 80, 200)


class Screen(cli.CliTest):
    def common(self, *more):
        return ("--model", self.model, "--context", CONTEXT, "--prompt", "hello", *more)

    def test_progress_leaves_nothing_behind(self):
        for width in WIDTHS:
            for term in ("xterm", "dumb"):
                terminal = Terminal("run", *self.common("--max-new-tokens", 4, "--benchmark-repeats", 3, "--quiet"), width=width, term=term)
                quiet = terminal.finish()
                terminal = Terminal("run", *self.common("--max-new-tokens", 4), width=width, term=term)
                code, screen = terminal.finish()
                self.assertEqual((quiet[0], code), (0, 0))
                self.assertIn("proving parity", terminal.drawn)
                for word in ("opening", "prefill [", "proving"):
                    self.assertFalse(any(word in line for line in screen), screen)
                self.assertEqual("\x1b" in terminal.drawn, term == "xterm")
                self.assertEqual(len(quiet[1]), 2, quiet)  # the answer alone, and the end of its line

    def test_batch_fits_the_terminal(self):
        path = self.write("in.jsonl", "".join(json.dumps({"id": i, "prompt": "hello"}) + "\n" for i in range(300)))
        for width in WIDTHS:
            terminal = Terminal("batch", "--model", self.model, "--in", path, "--out", path.parent / f"out{width}",
                                "--max-new-tokens", 20, "--json", width=width)
            code, screen = terminal.finish()
            self.assertEqual(code, 0)
            self.assertEqual(screen[0][:1], "{", screen)  # the document alone

    def test_no_progress_where_there_is_no_terminal(self):
        done = Screen.start(self, "run", *self.common("--max-new-tokens", 4))
        self.assertNotIn(b"\r", done.stderr)

    def test_controls_of_prompts_and_answers_are_made_visible(self):
        terminal = Terminal("run", "--model", self.model, "--context", CONTEXT, "--prompt", "\x1b[31mred\u202e\x07", "--max-new-tokens", 8)
        code, screen = terminal.finish()  # show() refuses what a terminal would act on
        self.assertEqual(code, 0)
        self.assertIn("> \\u001B[31mred\\u202E\\u0007", screen)

    def test_reports_make_files_visible(self):
        for text in ("A\x1b[2J", "A\u009b2J", "A\u202eB", "A\x07"):
            model = self.checkpoint()
            config = json.loads((model / "config.json").read_text())
            config["architectures"] = [text]
            (model / "config.json").write_text(json.dumps(config))
            for more in ((), ("--json",)):
                done = self.start("inspect", model, *more)
                self.assertNotIn(text.encode(), done.stdout + done.stderr)
                for bad in (b"\x1b", b"\x07", "\u009b".encode(), "\u202e".encode()):
                    self.assertNotIn(bad, done.stdout + done.stderr)
                if more:
                    self.assertEqual(json.loads(done.stdout)["architecture"], text)  # the same text for a program

    def test_reports_make_saved_contexts_visible(self):
        saved = self.folder / "visible.kv"
        self.start("save", "--model", self.model, "--context", CONTEXT, "--out", saved)
        sound = saved.read_bytes()
        for key in ("kvfork_version", "id", "revision", "architecture", "kernel_set", "parent_id", "parent_file"):
            saved.write_bytes(context_reader.with_metadata(sound, key, "A\x1b[2J\u009b2J\u202eB\x07"))
            for command in (("inspect", saved), ("inspect", "--json", saved), ("list", self.folder),
                            ("ask", "--model", self.model, "--load", saved, "--prompt", "hello")):
                done = self.start(*command)
                for bad in (b"\x1b", b"\x07", "\u009b".encode(), "\u202e".encode()):
                    self.assertNotIn(bad, done.stdout + done.stderr, (key, command[0]))

    def test_help_fits(self):
        for width in (60, 80, 120):
            for command in ("run", "ask", "batch", "verify", "bench", "save", "list", "rm", "inspect", "pull", "tokenize", "score"):
                terminal = Terminal(command, "--help", width=width)
                code, screen = terminal.finish()
                self.assertEqual(code, 0)
                text = [line for line in screen if not line.startswith("  kvfork ")]  # examples are to be copied
                self.assertLessEqual(max(map(len, text)), min(width, 100), command)
                self.assertNotIn("TEXT:", "\n".join(screen))


class Interrupt(cli.CliTest):
    def test_ends_at_once_and_takes_the_progress_line_away(self):
        model = write_checkpoint(self.folder / "slow", max_position_embeddings=100000)
        out = self.folder / "interrupted.kv"
        context = self.write("long.txt", "hello the order " * 12000)
        for arguments in (("run", "--prompt", "hello"), ("ask", "--prompt", "hello"), ("save", "--out", out), ("verify",), ("bench",)):
            terminal = Terminal(*arguments, "--model", model, "--context-file", context)
            terminal.wait_for("prefill" if arguments[0] in ("run", "ask", "save") else "\r", 60)
            time.sleep(0.1)
            terminal.interrupt()
            start = time.monotonic()
            code, screen = terminal.finish()
            self.assertEqual(code, -signal.SIGINT, screen)  # which a shell shows as 130
            self.assertLess(time.monotonic() - start, 5)
            self.assertEqual([line for line in screen if line and line != "^C"], [], arguments)
            self.assertFalse(out.exists())
            self.assertEqual([name for name in os.listdir(self.folder) if name.endswith(".tmp")], [])


if __name__ == "__main__":
    cli.main()
