#!/usr/bin/env python3
"""Rendering a 20-message conversation: kvfork beside jinja2 under Transformers' environment.

For each template: microseconds (medians) to parse or compile, and to render. kvfork's time includes reading the messages
from JSON; jinja2 gets Python objects. Templates that refuse the conversation are left out. Exits 1 when a rendering takes
1 ms or more, or the texts differ.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tools"))
from oracle_templates import make_reference  # noqa: E402
from template_cases import SEARCH, SPECIAL, WEATHER, assistant, system, user  # noqa: E402

QUESTION = "My order arrived damaged. What should I do, and how long will it take until I hear back from you? " * 2
ANSWER = "I am sorry to hear that. Please send a photo of the parcel and of the damage to our support address. " * 4


def conversation():
    messages = [system("You are the support assistant of a shop. " * 10)]
    while len(messages) < 19:
        messages += [user(QUESTION), assistant(ANSWER)]
    return messages[:19] + [user(QUESTION)]


def median_us(work, repeats):
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append((time.perf_counter() - start) * 1e6)
    return statistics.median(times)


def main():
    root = HERE.parent
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default=str(root / "build/release/bench/render_bench"))
    parser.add_argument("--templates", default=str(root.parent / "shared/templates"))
    parser.add_argument("--repeats", type=int, default=200)
    args = parser.parse_args()

    make_reference()
    from transformers.utils import chat_template_utils as utils
    variables = {"messages": conversation(), "tools": None, "documents": None, "add_generation_prompt": True, **SPECIAL}
    with_tools = {**variables, "tools": [WEATHER, SEARCH]}
    failed = 0
    print(f"{'template':52} {'parse':>8} {'jinja2':>8} {'render':>8} {'jinja2':>8} {'speedup':>8}   (microseconds)")
    for path in sorted(pathlib.Path(args.templates).glob("*.jinja")):
        source = path.read_text(encoding="utf-8")
        given = with_tools if "tool_use" in path.name else variables
        template = utils._compile_jinja_template(source)
        try:
            text = template.render(**given)
        except Exception as error:  # noqa: BLE001
            print(f"{path.name:52} refuses this conversation: {str(error)[:50]}")
            continue
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(given, file)
            file.flush()
            out = subprocess.run([args.binary, str(path), file.name, str(args.repeats)], capture_output=True, text=True, check=True)
        own = json.loads(out.stdout)
        compile_us = median_us(lambda: utils._compile_jinja_template.__wrapped__(source), 3)
        render_us = median_us(lambda: template.render(**given), max(5, args.repeats // 4))
        slow = own["render"] >= 1000
        differs = own["bytes"] != len(text.encode())
        failed += slow or differs
        print(f"{path.name:52} {own['parse']:8.1f} {compile_us:8.0f} {own['render']:8.1f} {render_us:8.1f} {render_us / own['render']:7.1f}x"
              + ("   SLOW" if slow else "") + ("   DIFFERENT TEXT" if differs else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
