"""Every command takes a Hub id: what it asks for, what it says when the Hub is away, what it keeps about the commit."""

import json
import os
import subprocess

import harness
import hub_server as hs
from harness import TOKEN

GOLDEN = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "golden", "checkpoints", "llama-f16-sharded")
CONTEXT = ("--context", "Answer politely.")


def golden_files():
    files = {}
    for name in os.listdir(GOLDEN):
        with open(os.path.join(GOLDEN, name), "rb") as f:
            files[name] = f.read()
    return files


class CommandCase(harness.HubCase):
    def setUp(self):
        super().setUp()
        self.repo = self.hub.repos["org/tiny"] = hs.Repo(golden_files())
        self.commit = self.repo.branches["main"]
        self.saved = os.path.join(self.folder, "saved.kv")
        self.requests = os.path.join(self.folder, "requests.jsonl")
        with open(self.requests, "w") as f:
            f.write('{"id": "1", "prompt": "Hello"}\n')

    def kvfork(self, *args, **env):
        process = subprocess.run([harness.CLI, *args], env=self.environment(**env), capture_output=True, text=True, timeout=300)
        self.assertNotIn(TOKEN, process.stdout + process.stderr, "the token was printed")
        return process

    def ok(self, *args, **env):
        process = self.kvfork(*args, **env)
        self.assertEqual(0, process.returncode, (args, process.stdout, process.stderr))
        return process

    def commands(self, model="org/tiny"):
        """One call of each command that takes a model."""
        flags = ("--model", model, "--threads", "1")
        short = ("--max-new-tokens", "2")
        yield "run", ("run", *flags, *CONTEXT, "--prompt", "Hello", *short, "--benchmark-repeats", "1")
        yield "save", ("save", *flags, *CONTEXT, "--out", self.saved)
        yield "batch", ("batch", *flags, *CONTEXT, "--in", self.requests, "--out", os.path.join(self.folder, "answers.jsonl"), *short)
        yield "verify", ("verify", *flags, *CONTEXT, "--prompt", "Hello", *short)
        yield "bench", ("bench", *flags, "--prefix-lengths", "16", "--repeats", "1", *short)
        yield "score", ("score", *flags, "--ids", "1,2,3")
        yield "tokenize", ("tokenize", "--model", model, "--text", "Hello")
        yield "inspect", ("inspect", model)
        yield "pull", ("pull", model)

    def weights_asked_for(self):
        return [r["path"] for r in self.hub.log if ".safetensors" in r["path"] and not r["path"].endswith("index.json")]


class Commands(CommandCase):
    def test_with_the_hub_down(self):
        self.ok("pull", "org/tiny")
        for name, args in self.commands():
            process = self.ok(*args, HF_ENDPOINT="http://127.0.0.1:1")
            self.assertIn("using the cached copy of commit " + self.commit, process.stderr, name)

    def test_offline_with_a_complete_cache(self):
        self.ok("pull", "org/tiny")
        self.hub.log.clear()
        for name, args in self.commands():
            process = self.ok(*args, HF_HUB_OFFLINE="1")
            self.assertIn("offline", process.stderr, name)
        self.assertEqual([], self.hub.log)

    def test_offline_with_an_empty_cache(self):
        for name, args in self.commands():
            process = self.kvfork(*args, HF_HUB_OFFLINE="1")
            self.assertEqual(1, process.returncode, (name, process))
            self.assertIn("offline", process.stderr, name)
            self.assertEqual("", process.stdout, name)
        self.assertEqual([], self.hub.log)

    def test_a_complete_commit_makes_no_request(self):
        self.ok("pull", "org/tiny")
        self.hub.log.clear()
        for _, args in self.commands("org/tiny@" + self.commit):
            self.ok(*args)
        self.assertEqual([], self.hub.log)

    def test_unsupported_architecture_before_any_weight(self):
        config = json.dumps({"model_type": "bert", "architectures": ["BertModel"]}).encode()
        self.hub.repos["org/tiny"] = hs.Repo(dict(golden_files(), **{"config.json": config}))
        for name, args in self.commands():
            if name == "inspect":
                continue
            process = self.kvfork(*args)
            self.assertEqual(1, process.returncode, (name, process))
            self.assertIn("BertModel", process.stderr, name)
        self.assertEqual([], self.weights_asked_for())

    def test_the_default_model_of_run(self):
        process = self.kvfork("run", *CONTEXT, "--prompt", "Hello")
        self.assertEqual(1, process.returncode)
        self.assertIn("Qwen/Qwen2-0.5B-Instruct", process.stderr)
        self.assertIn("/api/models/Qwen/Qwen2-0.5B-Instruct/revision/main", [r["path"] for r in self.hub.log])

    def test_gguf_of_a_repository_that_has_none(self):
        process = self.kvfork("run", "--model", "org/tiny", "--gguf", "x.gguf", *CONTEXT, "--prompt", "Hello")
        self.assertEqual(1, process.returncode)
        self.assertIn("x.gguf", process.stderr)


class Provenance(CommandCase):
    def test_run_names_the_commit(self):
        for ref in ("org/tiny", "org/tiny@main", "org/tiny@" + self.commit):
            args = ("run", "--model", ref, *CONTEXT, "--prompt", "Hello", "--max-new-tokens", "2", "--benchmark-repeats", "1")
            self.assertEqual(self.commit, json.loads(self.ok(*args, "--json").stdout)["revision"], ref)
        self.assertIn(self.commit, self.ok(*args).stderr)

    def test_a_saved_context_names_the_commit(self):
        self.ok("save", "--model", "org/tiny", *CONTEXT, "--out", self.saved)
        facts = json.loads(self.ok("inspect", self.saved, "--json").stdout)
        self.assertEqual(self.commit, facts["identity"]["revision"])
        self.assertIn(self.commit, self.ok("inspect", self.saved).stdout)

    def test_pull_names_the_commit(self):
        self.assertEqual(self.commit, json.loads(self.ok("pull", "org/tiny", "--json").stdout)["revision"])


class Inspect(CommandCase):
    def test_small_files_only(self):
        facts = json.loads(self.ok("inspect", "org/tiny", "--json").stdout)
        self.assertEqual([], self.weights_asked_for())
        self.assertNotEqual([], self.hub.requests("GET", "model.safetensors.index.json"))
        self.assertTrue(facts["runs"], facts["problem"])
        self.assertEqual(self.commit, facts["revision"])
        self.assertEqual("LlamaForCausalLM", facts["architecture"])
        self.assertFalse(facts["weights"]["present"])
        for key in ("context_limit", "layers", "kv_heads", "parameters", "vocab_size"):
            self.assertGreater(facts[key], 0, key)
        for mode in ("float32", "bfloat16"):
            self.assertGreater(facts["kv_bytes_per_token"][mode], 0)
            self.assertGreater(facts["memory_bytes"][mode], facts["weights"]["bytes"])
        self.assertTrue(facts["template"]["system_role"])
        # The weights change nothing but that they are there.
        self.ok("pull", "org/tiny")
        whole = json.loads(self.ok("inspect", "org/tiny", "--json").stdout)
        self.assertTrue(whole["weights"]["present"])
        self.assertEqual(facts["parameters"], whole["parameters"])
        self.assertEqual(facts["template"], whole["template"])

    def test_the_branch_stays_where_the_weights_are(self):
        self.ok("pull", "org/tiny")
        self.repo.push(dict(golden_files(), **{"generation_config.json": b'{"new": 1}'}))
        self.ok("inspect", "org/tiny")
        process = self.ok("pull", "org/tiny", HF_HUB_OFFLINE="1")
        self.assertIn(self.commit, process.stdout)

    def problem(self, files, *said):
        self.hub.repos["org/tiny"] = hs.Repo(files)
        facts = json.loads(self.ok("inspect", "org/tiny", "--json").stdout)
        self.assertFalse(facts["runs"])
        for text in said:
            self.assertIn(text, facts["problem"])
        self.assertEqual([], [r for r in self.hub.log if ".bin" in r["path"]])

    def test_what_kvfork_cannot_run(self):
        config = json.dumps({"model_type": "bert", "architectures": ["BertModel"]}).encode()
        self.problem(dict(golden_files(), **{"config.json": config}), "BertModel")

    def test_only_pickles(self):
        files = {n: c for n, c in golden_files().items() if "safetensors" not in n}
        self.problem(dict(files, **{"pytorch_model.bin": b"pickle"}), "pytorch_model.bin", "never reads", "save_pretrained")

    def test_no_weights(self):
        self.problem({n: c for n, c in golden_files().items() if "safetensors" not in n}, "no weights")


class Token(CommandCase):
    """The token in the environment is in nothing that any command prints or writes."""

    hub_options = {"split": True}

    def test_nowhere(self):
        self.repo.private = True
        self.hub.valid_tokens = {TOKEN}
        for _, args in self.commands():
            self.ok(*args, HF_TOKEN=TOKEN)
        self.hub.expired_tokens = {TOKEN}
        for _, args in self.commands():
            self.kvfork(*args, HF_TOKEN=TOKEN)
        n_files = 0
        for top, _, names in os.walk(self.folder):
            for name in names:
                with open(os.path.join(top, name), "rb") as f:
                    self.assertNotIn(TOKEN.encode(), f.read(), name)
                n_files += 1
        self.assertGreater(n_files, 10)
        self.assertTrue(os.path.getsize(self.saved) > 0)
        self.assertLessEqual({r["auth"] for r in self.hub.log if r["server"] == "store"}, {None})


if __name__ == "__main__":
    harness.main(__name__)
