"""What the tests of the Python module share: checkpoints of the goldens, and the command to compare with."""

import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

import kvfork

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHECKPOINTS = ROOT / "tests" / "golden" / "checkpoints"
MODEL = CHECKPOINTS / "qwen2-bf16-tied"
POLICY = "You answer questions about orders. Returns: 30 days, unused. Damage: report it within 14 days with a photo."
QUESTIONS = ["When?", "How do I return a tent?", "Was ist mit Schäden?", "🙂?"]


def command():
    """The installed command: beside this Python, or the one that KVFORK_COMMAND names."""
    beside = pathlib.Path(sys.executable).parent / "kvfork"
    found = os.environ.get("KVFORK_COMMAND") or (str(beside) if beside.exists() else shutil.which("kvfork"))
    assert found, "the command kvfork is not there: install the wheel, or set KVFORK_COMMAND"
    return found


def run_command(*arguments):
    done = subprocess.run([command(), *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, f"{arguments}: {done.stderr}"
    return json.loads(done.stdout)


@pytest.fixture(scope="session", params=["float32", "bfloat16"])
def model(request):
    return kvfork.Model.from_pretrained(MODEL, dtype=request.param, num_threads=2)


@pytest.fixture(scope="session")
def context(model):
    return model.prefill(system=POLICY)
