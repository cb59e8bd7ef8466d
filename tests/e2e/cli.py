"""What the command-line tests share: running the tool, and checking what holds for every failure."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from tiny_checkpoint import write_checkpoint

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent.parent / "tools"))
from machine import kernel_sets  # noqa: E402, F401

TOOL = sys.argv.pop(1) if len(sys.argv) > 1 else ""


class CliTest(unittest.TestCase):
    """A test with a scratch folder, a Llama checkpoint at self.model, and the tool."""

    maxDiff = 2000

    @classmethod
    def setUpClass(cls):
        cls._temporary = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls._temporary.name)
        cls.model = write_checkpoint(cls.folder / "model")

    @classmethod
    def tearDownClass(cls):
        cls._temporary.cleanup()

    def checkpoint(self, **options):
        """A new checkpoint of its own for a test that varies or breaks one."""
        folder = pathlib.Path(tempfile.mkdtemp(dir=self.folder)) / "model"
        return write_checkpoint(folder, **options)

    def write(self, name, data):
        path = pathlib.Path(tempfile.mkdtemp(dir=self.folder)) / name
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
        return path

    def start(self, *arguments, stdin="", isa=None):
        environment = {name: value for name, value in os.environ.items() if name != "KVFORK_ISA"}
        if isa is not None:
            environment["KVFORK_ISA"] = isa
        data = stdin if isinstance(stdin, bytes) else stdin.encode()
        return subprocess.run([TOOL, *map(str, arguments)], input=data, capture_output=True, env=environment, timeout=300)

    def ok(self, *arguments, **options):
        """Standard output of a call that must succeed."""
        done = self.start(*arguments, **options)
        self.assertEqual(done.returncode, 0, f"{arguments}: {done.stderr.decode(errors='replace')}")
        return done.stdout.decode()

    def json(self, *arguments, **options):
        """The one JSON document of a call that must succeed; NaN is not JSON."""
        def refuse(constant):
            self.fail(f"{constant} in JSON")
        return json.loads(self.ok(*arguments, "--json", **options), parse_constant=refuse)

    def run_json(self, *arguments, **options):
        """`run` with what most tests do not vary."""
        more = () if "--max-new-tokens" in arguments else ("--max-new-tokens", 8)
        return self.json("run", "--model", self.model, *more, *arguments, **options)

    def in_own_mounts(self, script, *arguments):
        """A bash script with $1.. as arguments and $TOOL, which may mount what it likes; skips where that is not allowed."""
        unshare = ["unshare", "--mount", "--map-root-user"]
        try:
            allowed = subprocess.run([*unshare, "mount", "-t", "tmpfs", "none", str(self.folder)], capture_output=True).returncode == 0
        except FileNotFoundError:
            allowed = False
        if not allowed:
            self.skipTest("needs a mount namespace of its own")
        return subprocess.run([*unshare, "bash", "-c", script, "-", *map(str, arguments)], capture_output=True, timeout=300,
                              env={**os.environ, "TOOL": TOOL})

    def fails(self, code, *arguments, says=(), **options):
        """A call that must exit with code, print nothing on standard output and one error that says all of `says`."""
        done = self.start(*arguments, **options)
        message = done.stderr.decode(errors="replace")
        shown = f"{' '.join(map(str, arguments))[:300]}\nstdout: {done.stdout[:300]!r}\nstderr: {message}"
        self.assertEqual(done.returncode, code, shown)
        self.assertEqual(done.stdout, b"", shown)
        lines = [line for line in message.splitlines() if "error:" in line]
        self.assertEqual(len(lines), 1, shown)
        self.assertRegex(lines[0], r"^kvfork: error: \S.*: \S", shown)
        for text in says if isinstance(says, (list, tuple)) else [says]:
            self.assertIn(str(text), message, shown)
        return message


def main():
    unittest.main(verbosity=0)
