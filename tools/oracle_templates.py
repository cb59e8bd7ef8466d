#!/usr/bin/env python3
"""Compares kvfork's template engine with jinja2 under the environment of Transformers.

Two parts: whole templates (every *.jinja in the shared folder, over many conversations) and generated snippets (families
of expressions and statements, COUNT each). Needs transformers and jinja2; kvfork's side is the test binary jinja_tool
(--tool). With --cli KVFORK the whole templates go through the command line instead: a checkpoint directory is made for each
template, with the tokenizer in --tokenizer, and `kvfork tokenize --jsonl --render` reads the conversations.

Equal text is a pass; an error on both sides is a pass, for raise_exception only with the same message.
Prints "N passed, N failed" and exits 1 on a difference.
"""
import argparse
import datetime
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import warnings

warnings.filterwarnings("ignore", category=SyntaxWarning)  # what Python says of odd templates as jinja2 compiles them

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from template_cases import conversations  # noqa: E402
from template_snippets import FAMILIES, generate  # noqa: E402

NOW = "2031-01-05T06:07:08"


# What kvfork refuses by name where Python computes (docs/templates.md).
REFUSED = ("an integer beyond 64 bits is not supported", "integers beyond 64 bits are not supported",
           "complex numbers are not supported", "str.encode, str.translate and str.maketrans are not supported")


class FrozenDatetime(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls.fromisoformat(NOW)


def make_reference():
    """Compiles templates with Transformers' own function, under a frozen clock."""
    import jinja2
    from transformers.utils import chat_template_utils as utils

    utils.datetime = FrozenDatetime
    compile_template = utils._compile_jinja_template

    def reference(template, variables):
        try:
            return {"text": compile_template(template).render(**variables)}
        except jinja2.exceptions.TemplateError as error:
            raised = type(error) is jinja2.exceptions.TemplateError
            return {"error": str(error), "raised": raised}
        except Exception as error:  # noqa: BLE001
            return {"error": f"{type(error).__name__}: {error}", "raised": False}

    return reference


class Tool:
    def __init__(self, path):
        self.process = subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def render(self, template, variables):
        request = {"template": template, "now": NOW,
                   "variables": {name: json.dumps(value) for name, value in variables.items()}}
        self.process.stdin.write(json.dumps(request).encode() + b"\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.process.args[0]} ended while rendering {template!r}")
        return json.loads(line)


class CommandLine:
    """kvfork tokenize over checkpoint directories that hold a tokenizer and one template."""

    def __init__(self, path, tokenizer):
        self.path = path
        self.tokenizer = pathlib.Path(tokenizer).resolve()

    def render_all(self, template, cases):
        with tempfile.TemporaryDirectory() as directory:
            model = pathlib.Path(directory)
            (model / "tokenizer.json").symlink_to(self.tokenizer)
            (model / "chat_template.jinja").write_bytes(template.encode())
            (model / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"}))
            lines = []
            for variables in cases:
                request = dict(variables)
                known = {name: request.pop(name) for name in ("messages", "tools", "documents", "add_generation_prompt") if name in request}
                lines.append(json.dumps({**known, "vars": request}))
            out = subprocess.run([self.path, "tokenize", "--model", directory, "--jsonl", "--render", "--now", NOW],
                                 input="\n".join(lines).encode(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                 check=False)
            return [json.loads(line) for line in out.stdout.decode().split("\n") if line]


def agree(expected, found):
    if "text" in expected:
        if "text" not in found:
            return False
        try:
            expected["text"].encode()
        except UnicodeEncodeError:
            return False
        return found["text"] == expected["text"]
    if "error" not in found:
        return False
    return not expected["raised"] or found["error"].endswith(expected["error"])


class Tally:
    def __init__(self, show):
        self.passed = 0
        self.failed = 0
        self.refused = 0
        self.show = show

    def add(self, label, template, variables, expected, found):
        if "text" in expected and any(0xD800 <= ord(c) < 0xE000 for c in expected["text"]):
            expected = {"error": "lone surrogate", "raised": False}
        if agree(expected, found):
            self.passed += 1
            return
        if "text" in expected and any(text in found.get("error", "") for text in REFUSED):
            self.refused += 1
            return
        self.failed += 1
        if self.failed > self.show:
            return
        print(f"--- {label}")
        if len(template) < 2000:
            print(f"template:  {template!r}")
        print(f"variables: {json.dumps(variables)[:1500]}")
        print(f"expected:  {str(expected)[:3000]}")
        print(f"found:     {str(found)[:3000]}")


def check_templates(args, tool, reference, tally):
    rng = random.Random(args.seed)
    paths = sorted(pathlib.Path(args.templates).glob("*.jinja"))
    for path in paths:
        template = path.read_text(encoding="utf-8")
        before = tally.failed
        cases = conversations(rng, args.inputs)
        rendered = 0
        if args.cli:
            answers = CommandLine(args.cli, args.tokenizer).render_all(template, cases)
            if len(answers) != len(cases):
                raise SystemExit(f"{path.name}: {len(cases)} requests, {len(answers)} answers")
        else:
            answers = [tool.render(template, variables) for variables in cases]
        for variables, found in zip(cases, answers):
            expected = reference(template, variables)
            rendered += "text" in expected
            tally.add(path.name, template, variables, expected, found)
        if args.verbose or tally.failed > before:
            print(f"{path.name}: {len(cases)} inputs, {rendered} render, {tally.failed - before} differ")
    return len(paths)


def check_snippets(args, tool, reference, tally):
    for family in args.families:
        rng = random.Random(f"{args.seed}/{family}")
        before = tally.failed
        rendered = 0
        for _ in range(args.count):
            template, variables = generate(rng, family)
            expected = reference(template, variables)
            # Python's addresses, and a fault of jinja2: it writes constants that come out infinite as names.
            if " at 0x" in str(expected.get("text", "")) or "name 'inf'" in str(expected) or "name 'nan'" in str(expected):
                continue
            rendered += "text" in expected
            tally.add(family, template, variables, expected, tool.render(template, variables))
        if args.verbose or tally.failed > before:
            print(f"{family}: {args.count} snippets, {rendered} render, {tally.failed - before} differ")


def main():
    here = pathlib.Path(__file__).resolve().parent.parent
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tool", default=str(here / "build/release/tests/jinja_tool"))
    parser.add_argument("--templates", default=str(here.parent / "shared/templates"))
    parser.add_argument("--cli", help="the kvfork command; whole templates only")
    parser.add_argument("--tokenizer", default=str(here.parent / "shared/tokenizers/qwen2_5/tokenizer.json"))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--inputs", type=int, default=80, help="conversations for each template")
    parser.add_argument("--count", type=int, default=1000, help="snippets for each family")
    parser.add_argument("--families", nargs="*", default=sorted(FAMILIES))
    parser.add_argument("--only", choices=["templates", "snippets"])
    parser.add_argument("--show", type=int, default=20, help="differences to print")
    parser.add_argument("--verbose", action="store_true")
    args = parser.parse_args()

    tool = None if args.cli else Tool(args.tool)
    if args.cli:
        args.only = "templates"
    reference = make_reference()
    tally = Tally(args.show)
    if args.only != "snippets":
        n = check_templates(args, tool, reference, tally)
        print(f"templates: {n} files")
    if args.only != "templates":
        check_snippets(args, tool, reference, tally)
        print(f"snippets: {len(args.families)} families")
    print(f"refused by name where Python computes: {tally.refused}")
    print(f"{tally.passed} passed, {tally.failed} failed")
    return 1 if tally.failed or not tally.passed else 0


if __name__ == "__main__":
    sys.exit(main())
