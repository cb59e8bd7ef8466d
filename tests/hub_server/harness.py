"""Runs `kvfork pull` against a loopback Hub and looks at what it left behind."""

import concurrent.futures
import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import hub_server  # noqa: E402

TOKEN = "hf_SecretOfTheTests0123456789abcdef"
CLI = None
PARALLEL = 12


def model_files(weights=300_000, shards=0, seed=1):
    """A repository as transformers would save it; the weights are noise."""
    rng = random.Random(seed)
    files = {
        "config.json": json.dumps({"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "seed": seed}).encode(),
        "generation_config.json": b'{"eos_token_id": [1, 2]}',
        "tokenizer.json": json.dumps({"filler": rng.randbytes(6000).hex()}).encode(),
        "tokenizer_config.json": b'{"chat_template": "x"}',
        ".gitattributes": b"*.safetensors filter=lfs\n",
        "README.md": b"# model\n",
        "pytorch_model.bin": b"pickle" * 1000,
    }
    if shards == 0:
        files["model.safetensors"] = rng.randbytes(weights)
        return files
    names = ["model-%05d-of-%05d.safetensors" % (i + 1, shards) for i in range(shards)]
    files["model.safetensors.index.json"] = json.dumps(
        {"metadata": {}, "weight_map": {"tensor.%d" % i: name for i, name in enumerate(names)}}).encode()
    for name in names:
        files[name] = rng.randbytes(weights)
    return files


WANTED = ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json")


class Result:
    def __init__(self, code, out, err, seconds):
        self.code, self.out, self.err, self.seconds = code, out, err, seconds
        self.json = json.loads(out) if code == 0 and out.startswith("{") else None

    def __repr__(self):
        return "exit %s after %.1f s\nstdout: %s\nstderr: %s" % (self.code, self.seconds, self.out, self.err)


class HubCase(unittest.TestCase):
    """One Hub and one empty cache per test."""

    hub_options = {}

    def setUp(self):
        # In memory where that is possible: a blob is synced, and a slow disk would decide how long the tests take.
        in_memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) and shutil.disk_usage("/dev/shm").free > 2 << 30 else None
        self.folder = tempfile.mkdtemp(prefix="hub_test_", dir=in_memory)
        self.cache = os.path.join(self.folder, "home", "hub")
        self.hub = hub_server.Hub(**self.hub_options)

    def tearDown(self):
        self.hub.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def environment(self, **env):
        clean = {k: v for k, v in os.environ.items()
                 if not k.startswith(("HF_", "HUGGING", "TRANSFORMERS", "XDG_CACHE")) and not k.lower().endswith("_proxy")
                 and k not in ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")}
        clean.update(HF_ENDPOINT=self.hub.url, HF_HOME=os.path.join(self.folder, "home"), HOME=self.folder)
        clean.update(env)
        return {k: v for k, v in clean.items() if v is not None}

    def start(self, *args, **env):
        return subprocess.Popen([CLI, "pull", *args], env=self.environment(**env), stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True)

    def pull(self, ref="org/tiny", *args, json_output=True, **env):
        begin = time.monotonic()
        extra = ["--json"] if json_output else []
        process = self.start(ref, *args, *extra, **env)
        try:
            out, err = process.communicate(timeout=120)
        except subprocess.TimeoutExpired:
            process.kill()
            self.fail("kvfork pull still ran after 120 s: %s" % (process.communicate(),))
        result = Result(process.returncode, out, err, time.monotonic() - begin)
        self.assertNotIn(TOKEN, out + err, "the token was printed")
        self.assertNotIn("secret-of-the-store", out + err, "a signed address was printed")
        self.assertIn(result.code, (0, 1), result)
        if result.code == 1:
            self.assertEqual("", out, result)
            self.assertEqual(1, sum(line.startswith("kvfork: error:") for line in err.splitlines()), result)
        return result

    def good(self, ref="org/tiny", *args, **env):
        result = self.pull(ref, *args, **env)
        self.assertEqual(0, result.code, result)
        self.check_cache()
        return result

    def bad(self, *said, ref="org/tiny", args=(), **env):
        """The pull fails, says each of `said`, and leaves no wrong blob."""
        result = self.pull(ref, *args, **env)
        self.assertEqual(1, result.code, result)
        for text in said:
            self.assertIn(text.lower(), result.err.lower(), result)
        self.check_cache()
        return result

    def repo_folder(self, repo="org/tiny"):
        return os.path.join(self.cache, "models--" + repo.replace("/", "--"))

    def check_cache(self):
        """Whatever happened: blobs match their names, links are relative and lead to blobs, refs name snapshots."""
        for top, _, names in os.walk(self.cache):
            for name in names:
                path = os.path.join(top, name)
                if os.path.basename(top) == "blobs" and not name.endswith(".incomplete"):
                    with open(path, "rb") as f:
                        content = f.read()
                    digests = (hashlib.sha256(content).hexdigest(), hub_server.git_sha1(content), hashlib.sha1(content).hexdigest())
                    if len(name) in (40, 64):
                        self.assertIn(name, digests, "a wrong blob stands under its name: " + path)
                if "/snapshots/" in path and os.path.islink(path):
                    self.assertFalse(os.path.isabs(os.readlink(path)), path)
                    self.assertTrue(os.path.isfile(path), "dangling link: " + path)
                if "/refs/" in path:
                    with open(path) as f:
                        commit = f.read()
                    self.assertTrue(os.path.isdir(os.path.join(path.split("/refs/")[0], "snapshots", commit)), path)

    def check_snapshot(self, result, repo="org/tiny", weights=True):
        """The snapshot holds exactly the files that kvfork reads, with the repository's content."""
        files = self.hub.repos[repo].commits[result.json["revision"]]
        wanted = [n for n in files if n in WANTED or (weights and n.startswith("model"))]
        present = {os.path.relpath(os.path.join(top, n), result.json["directory"])
                   for top, _, names in os.walk(result.json["directory"]) for n in names}
        self.assertEqual(set(wanted), present)
        for name in wanted:
            with open(os.path.join(result.json["directory"], name), "rb") as f:
                self.assertEqual(files[name].read(0, files[name].size - 1), f.read(), name)

    def leftovers(self, repo="org/tiny"):
        blobs = os.path.join(self.repo_folder(repo), "blobs")
        return [n for n in os.listdir(blobs) if n.endswith(".incomplete")] if os.path.isdir(blobs) else []


def flatten(suite):
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from flatten(test)
        else:
            yield test


def main(module_name):
    """CLI [pattern ...]: runs the module's tests, several at a time, since most of them wait."""
    global CLI
    if len(sys.argv) < 2:
        sys.exit("usage: %s KVFORK [pattern ...]" % sys.argv[0])
    CLI = os.path.abspath(sys.argv[1])
    sys.modules["harness"].CLI = CLI
    tests = list(flatten(unittest.defaultTestLoader.loadTestsFromModule(sys.modules[module_name])))
    tests = [t for t in tests if not sys.argv[2:] or any(p in t.id() for p in sys.argv[2:])]
    if not tests:
        sys.exit("no test matches")

    def run(test):
        begin = time.monotonic()
        result = unittest.TestResult()
        test.run(result)
        return test, result, time.monotonic() - begin

    failed = 0
    with concurrent.futures.ThreadPoolExecutor(PARALLEL) as pool:
        for test, result, seconds in pool.map(run, tests):
            problems = result.failures + result.errors
            failed += bool(problems)
            name = test.id().split(".", 1)[1]
            state = "FAILED" if problems else "skipped: " + result.skipped[0][1] if result.skipped else "ok"
            print("%-70s %5.1f s  %s" % (name, seconds, state), flush=True)
            for _, text in problems:
                print(text, flush=True)
    print("%d tests, %d failed" % (len(tests), failed))
    sys.exit(1 if failed else 0)
