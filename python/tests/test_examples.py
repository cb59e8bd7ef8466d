"""The Python examples run, and their answers hold."""

import pathlib
import subprocess
import sys

from conftest import MODEL, ROOT


def run(name, *arguments):
    done = subprocess.run([sys.executable, str(ROOT / "examples" / name), *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_examples(tmp_path: pathlib.Path):
    output = run("answer.py", MODEL, "When?", "How?")
    assert output.startswith("context of ") and output.count("> ") == 2
    assert run("batch.py", MODEL).count("(as alone)") == 4
    assert run("nested.py", MODEL, tmp_path).rstrip().endswith("\nequal")
