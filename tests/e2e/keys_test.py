"""The keys of every --json document are those that docs/cli.md names, no more and no fewer."""

import json
import os
import pathlib
import re
import unittest.mock

import cli
from tiny_checkpoint import TEMPLATE

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "cli.md"
SUMMARY = {"median", "min", "max"}
# Objects that hold the user's own JSON, or names that are not fixed.
FREE = {"weights.bytes_by_dtype", "origin.messages", "origin.tools", "origin.documents", "origin.vars"}
CONTEXT = " ".join(["hello the order"] * 30)


def documented(section):
    """The keys in the first column of the tables under a heading."""
    text = re.search(rf"(?ms)^## {re.escape(section)}\n(.*?)(?=^## |\Z)", PAGE.read_text()).group(1)
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    return {key for row in rows for key in re.findall(r"`([^`]+)`", row)}


def paths(value, path=""):
    """The path of every key that holds a value, [] for each element of a list; a null part has no keys of its own."""
    if isinstance(value, dict) and value.keys() != SUMMARY and path not in FREE:
        return {found for key, part in value.items() for found in paths(part, f"{path}.{key}" if path else key)}
    if isinstance(value, list) and any(isinstance(part, dict) for part in value) and path not in FREE:
        return {found for part in value for found in paths(part, path + "[]")}
    return {path}


class Keys(cli.CliTest):
    def check(self, section, *documents):
        found = set().union(*map(paths, documents))
        # A part that is null in one document and an object in another has no key of its own.
        found -= {path for path in found if any(other.startswith((path + ".", path + "[].")) for other in found)}
        self.assertEqual(sorted(found), sorted(documented(section)), section)

    def report(self, code, *arguments):
        done = self.start(*arguments, "--json")
        self.assertEqual(done.returncode, code, done.stderr)
        return json.loads(done.stdout)

    def test_run(self):
        self.check("run", self.run_json("--prompt", "hello", "--logprobs", "--context", CONTEXT, "--benchmark-repeats", 1))

    def test_ask(self):
        self.check("ask", self.report(0, "ask", "--model", self.model, "--prompt", "hello", "--logprobs", "--max-new-tokens", 2))

    def test_list(self):
        saved = self.folder / "listed.kv"
        hub = self.folder / "hub" / "models--org--tiny" / "snapshots" / ("0" * 40)
        hub.mkdir(parents=True)
        (hub / "config.json").write_text("{}")
        environment = {"HF_HUB_CACHE": str(self.folder / "hub"), "XDG_CACHE_HOME": str(self.folder / "cache")}
        with unittest.mock.patch.dict(os.environ, environment):
            self.report(0, "save", "--model", self.model, "--context", CONTEXT, "--out", saved)
            listed = self.report(0, "list")
            self.check("list", listed)
            self.assertEqual([c["file"] for c in listed["contexts"]], [str(saved)])
            self.assertEqual([m["model"] for m in listed["models"]], ["org/tiny"])
            self.fails(2, "rm", "org/tiny", says="--yes")
            self.ok("rm", "org/tiny", saved, "--yes")
            self.assertEqual(self.report(0, "list"), {"models": [], "contexts": []})
            self.fails(1, "rm", self.model / "config.json", says="another file")
            self.assertTrue((self.model / "config.json").exists())

    def test_batch(self):
        path = self.write("in.jsonl", '{"id": 1, "prompt": "hello"}\n{}\n')
        self.check("batch", self.report(1, "batch", "--model", self.model, "--in", path, "--out", path.parent / "out"))

    def test_verify(self):
        broken = self.checkpoint(template="{{ messages|length }}" + TEMPLATE)
        self.check("verify", self.report(3, "verify", "--model", broken, "--prompt", "hello"))

    def test_bench(self):
        self.check("bench", self.report(0, "bench", "--model", self.model, "--prefix-lengths", 5, "--repeats", 1, "--max-new-tokens", 2))

    def test_save_and_inspect(self):
        parent, child = self.folder / "parent.kv", self.folder / "child.kv"
        more = self.write("more.json", '[{"role": "user", "content": "hello"}]')
        saves = [self.report(0, "save", "--model", self.model, "--context", CONTEXT, "--out", parent),
                 self.report(0, "save", "--model", self.model, "--load", parent, "--messages", more, "--out", child)]
        self.check("save", *saves)
        self.check("inspect, of a saved context", self.report(0, "inspect", parent), self.report(0, "inspect", child, "--check"))
        self.check("inspect, of a model", self.report(0, "inspect", self.model))

    def test_tokenize(self):
        self.check("tokenize", self.report(0, "tokenize", "--model", self.model, "--text", "hello"),
                   self.report(0, "tokenize", "--model", self.model, "--decode", "1,2"))
        breaking = "{% if messages[-1].content == 'x' %}!{% endif %}" + TEMPLATE
        self.check("tokenize --boundary", self.report(3, "tokenize", "--model", self.checkpoint(template=breaking), "--boundary", "--context", CONTEXT,
                                                      "--prompt", "hello", "--prompt", "x"))

    def test_score(self):
        self.check("score", self.report(0, "score", "--model", self.model, "--ids", "1,2,3"))

    def test_score_of_requests(self):
        requests = self.folder / "requests.jsonl"
        requests.write_text("".join(json.dumps(line) + "\n" for line in (
            {"id": "one", "context": [1, 2], "continuation": [3]}, {"context": [1, 2], "continuations": [[3], [4, 5]]}, {"context": [1]})))
        done = self.start("score", "--model", self.model, "--in", requests)
        self.assertEqual(done.returncode, 1, done.stderr)
        answers = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertEqual([answer["id"] for answer in answers], ["one", 1, 2])
        found = {path.removeprefix("scores[].") for answer in answers for path in paths(answer)}
        of_requests = {"context", "continuation", "continuations"}
        self.assertEqual(found | of_requests | {"scores"}, documented("score --in"))

    def test_exit_codes(self):
        self.fails(1, "run", "--model", self.folder / "absent", "--prompt", "x")
        self.fails(2, "run", "--model", self.model, "--prompt", "x", "--threads", 0)


if __name__ == "__main__":
    cli.main()
