#!/usr/bin/env python3
"""Runs kvfork's Hub client against the real huggingface_hub, both on a loopback Hub.

    tools/oracle_hub.py KVFORK [--only NAME] [--kills N] [--megabytes N]

Needs huggingface_hub (it comes with transformers; scripts/venv.sh makes an environment that has it). Checks that
each side opens what the other downloaded without fetching a blob again, that both work in one cache at once, that
interrupted downloads of either go on in the other, that kills at random moments lose nothing, and that the transfer
keeps up with curl. Nothing but 127.0.0.1 is contacted.
"""

import argparse
import concurrent.futures
import hashlib
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "tests", "hub_server"))
import hub_server as hs  # noqa: E402
from harness import model_files  # noqa: E402

# What runs in a Python of its own, since huggingface_hub reads the environment once.
PYTHON_SIDE = r"""
import json, sys
import huggingface_hub as hh
task, argument = sys.argv[1], sys.argv[2:]
if task == "snapshot":
    print(hh.snapshot_download(argument[0], revision=argument[1] if len(argument) > 1 else None))
elif task == "files":
    for name in argument[1:]:
        print(hh.hf_hub_download(argument[0], name))
elif task == "look":
    print(json.dumps({n: str(hh.try_to_load_from_cache(argument[0], n)) for n in argument[1:]}))
elif task == "environment":
    from huggingface_hub import constants
    print(json.dumps({"cache": constants.HF_HUB_CACHE, "endpoint": constants.ENDPOINT, "offline": constants.HF_HUB_OFFLINE,
                      "token": None if constants.HF_HUB_DISABLE_IMPLICIT_TOKEN else hh.get_token()}))
elif task == "scan":
    info = hh.scan_cache_dir()
    print(json.dumps({"warnings": [str(w) for w in info.warnings],
                      "repos": {r.repo_id: {rev.commit_hash: sorted(rev.refs) for rev in r.revisions} for r in info.repos}}))
elif task == "config":
    from transformers import AutoConfig
    print(AutoConfig.from_pretrained(argument[0]).model_type)
elif task == "generate":
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    tokenizer = AutoTokenizer.from_pretrained(argument[0])
    model = AutoModelForCausalLM.from_pretrained(argument[0], dtype=torch.float32, attn_implementation="eager")
    messages = [{"role": "system", "content": argument[1]}, {"role": "user", "content": argument[2]}]
    ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_tensors="pt")
    out = model.generate(ids, do_sample=False, max_new_tokens=16, pad_token_id=0)
    print(json.dumps(out[0, ids.shape[1]:].tolist()))
"""


class World:
    """A Hub and a cache; closes with the block."""

    def __init__(self, kvfork, files, split=True):
        self.kvfork = kvfork
        self.folder = tempfile.mkdtemp(prefix="oracle_hub_")
        self.hub = hs.Hub(split=split)
        self.repo = self.hub.repos["org/tiny"] = hs.Repo(files)
        self.commit = self.repo.branches["main"]
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "HUGGING", "TRANSFORMERS"))}
        self.env.update(HF_ENDPOINT=self.hub.url, HF_HOME=self.folder, HF_HUB_DISABLE_TELEMETRY="1", HF_HUB_DISABLE_PROGRESS_BARS="1")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.hub.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def start_python(self, *args, **env):
        return subprocess.Popen([sys.executable, "-c", PYTHON_SIDE, *args], env=dict(self.env, **env), stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True)

    def start_pull(self, ref="org/tiny", **env):
        return subprocess.Popen([self.kvfork, "pull", ref, "--json"], env=dict(self.env, **env), stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True)

    def python(self, *args, **env):
        return finish(self.start_python(*args, **env))

    def pull(self, ref="org/tiny", **env):
        return json.loads(finish(self.start_pull(ref, **env)))

    def blobs(self):
        folder = os.path.join(self.folder, "hub", "models--org--tiny", "blobs")
        return [os.path.join(folder, n) for n in os.listdir(folder)] if os.path.isdir(folder) else []

    def check_blobs(self):
        for path in self.blobs():
            if path.endswith(".incomplete"):
                continue
            with open(path, "rb") as f:
                content = f.read()
            name = os.path.basename(path)
            check(name in (hashlib.sha256(content).hexdigest(), hs.git_sha1(content)), "wrong blob under " + name)

    def gets(self):
        """GET requests for content, not for listings."""
        return [r for r in self.hub.requests("GET") if not r["path"].startswith("/api/")]

    def check_scan(self):
        scan = json.loads(self.python("scan"))
        check(scan["warnings"] == [], scan)
        return scan


def finish(process):
    out, err = process.communicate(timeout=300)
    check(process.returncode == 0, "exit %s: %s %s" % (process.returncode, out, err))
    return out


def check(condition, message):
    if not condition:
        raise AssertionError(message)


def python_opens_what_kvfork_pulled(args):
    with World(args.kvfork, model_files(shards=2)) as w:
        directory = w.pull()["directory"]
        before = len(w.gets())
        wanted = [n for n in w.repo.commits[w.commit] if n not in ("README.md", ".gitattributes", "pytorch_model.bin")]
        paths = w.python("files", "org/tiny", *wanted).split()
        check(paths == [os.path.join(directory, n) for n in wanted], paths)
        check(len(w.gets()) == before, "a blob was fetched again")
        scan = w.check_scan()
        check(scan["repos"] == {"org/tiny": {w.commit: ["main"]}}, scan)
        seen = json.loads(w.python("look", "org/tiny", "config.json", "vocab.json", "README.md"))
        check(seen["config.json"] == os.path.join(directory, "config.json") and "object" in seen["vocab.json"]
              and seen["README.md"] == "None", seen)
        n_requests = len(w.hub.log)
        w.python("files", "org/tiny", *wanted, HF_HUB_OFFLINE="1")
        w.python("snapshot", "org/tiny", HF_HUB_OFFLINE="1")
        check(len(w.hub.log) == n_requests, "offline made requests")


def transformers_opens_what_kvfork_pulled(args):
    files = dict(model_files(), **{"config.json": b'{"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"]}'})
    with World(args.kvfork, files) as w:
        w.pull()
        before = len(w.gets())
        check(w.python("config", "org/tiny").strip() == "qwen2", "config")
        check(w.python("config", "org/tiny", HF_HUB_OFFLINE="1").strip() == "qwen2", "config offline")
        check(len(w.gets()) == before, "a blob was fetched again")


def kvfork_opens_what_python_downloaded(args):
    for shards in (0, 2):
        with World(args.kvfork, model_files(shards=shards)) as w:
            path = w.python("snapshot", "org/tiny").strip()
            before = len(w.gets())
            answer = w.pull()
            check(answer["directory"] == path and answer["bytes_downloaded"] == 0, answer)
            check(len(w.gets()) == before, "a blob was fetched again")
            n_requests = len(w.hub.log)
            check(w.pull("org/tiny@" + w.commit)["from_cache"], "commit")
            check(w.pull(HF_HUB_OFFLINE="1")["directory"] == path, "offline")
            check(len(w.hub.log) == n_requests, "a complete commit made requests")
            w.check_scan()


def kvfork_completes_what_python_began(args):
    with World(args.kvfork, model_files()) as w:
        w.python("files", "org/tiny", "config.json", "model.safetensors")
        before = {r["path"] for r in w.gets()}
        answer = w.pull()
        check(sorted(answer["files_downloaded"]) == ["generation_config.json", "tokenizer.json", "tokenizer_config.json"], answer)
        check(len(w.gets()) == len(before) + 3, "only what was missing")


def same_layout(args):
    """Byte for byte the same tree, when both fetch the same files."""
    trees = []
    for side in ("python", "kvfork"):
        with World(args.kvfork, {n: c for n, c in model_files(shards=2).items() if n not in ("README.md", ".gitattributes", "pytorch_model.bin")}) as w:
            w.python("snapshot", "org/tiny") if side == "python" else w.pull()
            tree = {}
            for top, folders, names in os.walk(os.path.join(w.folder, "hub")):
                for name in names:
                    path = os.path.join(top, name)
                    key = os.path.relpath(path, w.folder)
                    mode = os.lstat(path).st_mode
                    tree[key] = ("link", os.readlink(path)) if os.path.islink(path) else ("file", open(path, "rb").read(), oct(mode))
            trees.append({k: v for k, v in tree.items() if ".no_exist" not in k and ".locks" not in k and not k.endswith("CACHEDIR.TAG")})
    check(trees[0].keys() == trees[1].keys(), trees[0].keys() ^ trees[1].keys())
    for key in trees[0]:
        check(trees[0][key] == trees[1][key], key)


def both_at_once(args):
    for order in range(4):
        with World(args.kvfork, model_files(shards=3, weights=3_000_000)) as w:
            w.hub.rate = 3_000_000
            makers = [w.start_pull, lambda: w.start_python("snapshot", "org/tiny")] * 2
            random.Random(order).shuffle(makers)
            processes = []
            for make in makers:
                processes.append(make())
                time.sleep(0.4)
            for process in processes:
                finish(process)
            w.check_blobs()
            shards = [f.etag for n, f in w.repo.commits[w.commit].items() if n.startswith("model-")]
            for etag in shards:
                check(len(w.hub.requests("GET", "/store/" + etag)) == 1, "fetched by both: " + etag)
            w.check_scan()


def downloads_go_on_in_the_other(args):
    for first in ("python", "kvfork"):
        with World(args.kvfork, model_files(weights=8_000_000)) as w:
            w.hub.rate = 4_000_000
            process = w.start_python("snapshot", "org/tiny") if first == "python" else w.start_pull()
            etag = w.repo.commits[w.commit]["model.safetensors"].etag
            unfinished = os.path.join(w.folder, "hub", "models--org--tiny", "blobs", etag + ".incomplete")
            end = time.monotonic() + 30
            while time.monotonic() < end and not (os.path.exists(unfinished) and os.path.getsize(unfinished) >= 2_000_000):
                if first == "python" and w.hub.requests("GET", "/store/" + etag) and w.hub.requests("GET", "/store/" + etag)[0]["sent"] > 4_000_000:
                    break  # Python writes in steps of 10 MB: it has nothing on disk yet
                time.sleep(0.02)
            process.kill()
            process.communicate()
            present = os.path.getsize(unfinished) if os.path.exists(unfinished) else 0
            w.hub.rate = 0
            w.pull() if first == "python" else w.python("snapshot", "org/tiny")
            last = w.hub.requests("GET", "/store/" + etag)[-1]
            check(last["range"] == ("bytes=%d-" % present if present else None), (first, present, last))
            w.check_blobs()
            check(not any(p.endswith(".incomplete") for p in w.blobs()), "leftovers")


def kills(args):
    """kill -9 at random moments of a sharded download: what is whole is never fetched again, nothing wrong is named."""
    rng = random.Random(7)
    with World(args.kvfork, model_files(shards=6, weights=4_000_000)) as w:
        w.hub.rate = 6_000_000
        fetched_when_whole = {}
        n_done = 0
        for i in range(args.kills):
            process = w.start_pull()
            time.sleep(rng.uniform(0.0, 0.5))
            process.kill()
            process.communicate()
            w.check_blobs()
            for path in w.blobs():
                name = os.path.basename(path)
                if not name.endswith(".incomplete"):
                    count = len([r for r in w.gets() if name in r["path"]])
                    check(fetched_when_whole.setdefault(name, count) == count, "fetched again though whole: " + name)
            snapshot = os.path.join(w.folder, "hub", "models--org--tiny", "snapshots", w.commit)
            if os.path.isdir(snapshot):
                for top, _, names in os.walk(snapshot):
                    check(all(os.path.exists(os.path.join(top, n)) for n in names), "dangling link")
            if os.path.exists(os.path.join(w.folder, "hub", "models--org--tiny", "refs", "main")):
                n_done += 1
                shutil.rmtree(os.path.join(w.folder, "hub"))
                fetched_when_whole.clear()
                w.hub.log.clear()
        w.hub.rate = 0
        w.pull()
        w.check_blobs()
        w.check_scan()
        check(not any(p.endswith(".incomplete") for p in w.blobs()), "leftovers")
        print("   %d kills, %d downloads completed in between" % (args.kills, n_done))


def watch_memory(pid):
    """A future of the process's peak, in KB. (What wait4 says counts the parent's memory at the fork.)"""
    def watch():
        peak = 0
        while True:
            try:
                with open("/proc/%d/status" % pid) as f:
                    now = [int(line.split()[1]) for line in f if line.startswith("VmHWM")]
            except OSError:
                return peak
            if not now:
                return peak
            peak = max(peak, now[0])
            time.sleep(0.02)
    return concurrent.futures.ThreadPoolExecutor(1).submit(watch)


def throughput(args):
    """At least 80% of curl, in turns; memory does not grow with the file."""
    ratios, memory = [], []
    with World(args.kvfork, {"config.json": b"{}"}) as w:
        for megabytes in (args.megabytes // 4, args.megabytes):
            path = os.path.join(w.folder, "weights")
            with open(path, "wb") as f:
                for _ in range(megabytes):
                    f.write(random.randbytes(1 << 20))
            file = hs.File(path=path)
            w.hub.repos["org/tiny"] = hs.Repo({"config.json": b"{}", "tokenizer.json": b"{}", "model.safetensors": file})
            w.hub.store[file.etag] = file
            for i in range(7 if megabytes == args.megabytes else 1):
                seconds = {}
                for side in ("curl", "kvfork") if i % 2 == 0 else ("kvfork", "curl"):
                    out = os.path.join(w.folder, "out")
                    command = {"curl": ["curl", "-s", "-o", out, w.hub.back.url + "/store/" + file.etag],
                               "kvfork": [args.kvfork, "pull", "org/tiny"]}[side]
                    begin = time.monotonic()
                    process = subprocess.Popen(command, env=w.env, stdout=subprocess.DEVNULL)
                    peak = watch_memory(process.pid)
                    process.wait()
                    seconds[side] = time.monotonic() - begin
                    check(process.returncode == 0, side)
                    if side == "kvfork":
                        memory.append(peak.result())
                os.remove(out)
                shutil.rmtree(os.path.join(w.folder, "hub"))
                curl, kvfork = seconds["curl"], seconds["kvfork"]
                if megabytes == args.megabytes:
                    ratios.append(curl / kvfork)
                    print("   curl %.0f MB/s, kvfork %.0f MB/s, verified" % (megabytes * 1.048576 / curl, megabytes * 1.048576 / kvfork))
    print("   median ratio %.2f, memory %s KB" % (statistics.median(ratios), memory))
    check(statistics.median(ratios) >= 0.8, "slower than 80% of curl")
    # On a machine so busy that several connections take over, a few pieces wait for each.
    check(max(memory) < memory[0] + (64 << 10), "memory grows with the file")


# Sets of variables; {F} is a folder, {U} the Hub's address. None: not set.
ENVIRONMENTS = [
    {}, {"HF_HOME": "{F}/a"}, {"HF_HOME": "~/b"}, {"HF_HOME": "$PLACE/${PART}/c", "PLACE": "{F}/p", "PART": "q"}, {"HF_HOME": "$UNKNOWN/d"},
    {"HF_HOME": None, "XDG_CACHE_HOME": "{F}/xdg"}, {"HF_HOME": None, "XDG_CACHE_HOME": "~/xdg"}, {"HF_HOME": None}, {"HF_HOME": ""},
    {"HF_HOME": "relative home"}, {"HF_HUB_CACHE": "{F}/hc", "HUGGINGFACE_HUB_CACHE": "{F}/ghc"}, {"HUGGINGFACE_HUB_CACHE": "{F}/ghc"},
    {"HUGGINGFACE_HUB_CACHE": "~/ghc"}, {"HF_HUB_CACHE": "~/hc2"}, {"HF_HUB_CACHE": "{F}/x/../y"}, {"HF_HUB_CACHE": ""}, {"HF_HUB_CACHE": "{F}/\u00e4 \u4e2d"},
    {"HF_TOKEN": "hf_one"}, {"HF_TOKEN": " hf_one\n"}, {"HF_TOKEN": "", "HUGGING_FACE_HUB_TOKEN": "hf_two"}, {"HF_TOKEN": "hf_one", "HUGGING_FACE_HUB_TOKEN": "hf_two"},
    {"HF_TOKEN": "  ", "HUGGING_FACE_HUB_TOKEN": "hf_two"}, {"HF_TOKEN_PATH": "{F}/token_file"}, {"HF_TOKEN_PATH": "~/token_file"}, {"HF_TOKEN_PATH": "{F}/none"},
    {"HF_HOME": "{F}/with_token"}, {"HF_HOME": "{F}/with_token", "HF_TOKEN": "hf_one"}, {"HF_HOME": "{F}/with_token", "HF_TOKEN_PATH": "{F}/token_file"},
    {"HF_TOKEN": "hf_one", "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1"}, {"HF_TOKEN": "hf_one", "HF_HUB_DISABLE_IMPLICIT_TOKEN": "no"},
    {"HF_ENDPOINT": "{U}/"}, {"HF_ENDPOINT": "{U}///"},
] + [{name: value} for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE") for value in ("1", "on", "Yes", "TRUE", "0", "off", "2", " 1", "")] + [
    {"HF_HUB_OFFLINE": "0", "TRANSFORMERS_OFFLINE": "1"}, {"HF_HUB_OFFLINE": "", "TRANSFORMERS_OFFLINE": "1"}]


def environment_means_the_same(args):
    """Cache, token and offline, as huggingface_hub reads each set of variables and as kvfork behaves."""
    with World(args.kvfork, {"config.json": b"{}", "model.safetensors": b"x", "tokenizer.json": b"{}"}) as w:
        for place, token in (("with_token/token", "hf_of_the_home\n"), ("token_file", "\n hf_of_the_file \n\n")):
            os.makedirs(os.path.dirname(os.path.join(w.folder, place)), exist_ok=True)
            with open(os.path.join(w.folder, place), "w") as f:
                f.write(token)
        for variables in ENVIRONMENTS:
            env = dict(w.env, HOME=w.folder, HF_HOME=os.path.join(w.folder, "home"))
            env.pop("XDG_CACHE_HOME", None)
            for name, value in variables.items():
                env[name] = value if value is None else value.replace("{F}", w.folder).replace("{U}", w.hub.url)
            env = {k: v for k, v in env.items() if v is not None}
            start = lambda *command: subprocess.Popen(command, env=env, cwd=w.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            expected = json.loads(finish(start(sys.executable, "-c", PYTHON_SIDE, "environment")))
            cache = os.path.join(w.folder, expected["cache"])
            check(expected["endpoint"] == w.hub.url, expected)
            w.hub.log.clear()
            process = start(args.kvfork, "pull", "org/tiny", "--json")
            out, err = process.communicate()
            if expected["offline"]:
                check(process.returncode == 1 and "offline" in err and not w.hub.log, (variables, out, err, w.hub.log))
                continue
            check(process.returncode == 0, (variables, expected, out, err))
            found = json.loads(out)["directory"].split("/models--org--tiny/")[0]
            check(os.path.realpath(found) == os.path.realpath(cache), (variables, expected, found))
            auth = {r["auth"] for r in w.hub.log}
            check(auth == {"Bearer " + expected["token"] if expected["token"] else None}, (variables, expected, auth))
            for name in ("models--org--tiny", ".locks"):
                shutil.rmtree(os.path.join(cache, name))
    print("   %d sets of variables" % len(ENVIRONMENTS))


def run_answers_as_transformers(args):
    """kvfork run --model ORG/NAME, and from_pretrained of the same name, each from a cache of its own."""
    golden = os.path.join(ROOT, "tests", "golden", "checkpoints", "llama-f16-sharded")
    files = {name: open(os.path.join(golden, name), "rb").read() for name in os.listdir(golden)}
    prompt = "Where is my order?"
    with World(args.kvfork, files) as w:
        expected = json.loads(w.python("generate", "org/tiny", "Answer politely.", prompt))
    with World(args.kvfork, files) as w:
        command = [args.kvfork, "run", "--model", "org/tiny", "--context", "Answer politely.", "--prompt", prompt,
                   "--max-new-tokens", "16", "--benchmark-repeats", "1", "--json"]
        start = lambda **env: subprocess.Popen(command, env=dict(w.env, **env), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        output = json.loads(finish(start()))
        check(output["answers"][0]["ids"] == expected, "%s, expected %s" % (output["answers"][0]["ids"], expected))
        check(output["revision"] == w.commit, output["revision"])
        before = len(w.hub.requests())
        again = json.loads(finish(start(HF_HUB_OFFLINE="1")))
        check(again["answers"][0]["ids"] == expected, "offline: other ids")
        check(len(w.hub.requests()) == before, "a request while offline")


CHECKS = [run_answers_as_transformers, python_opens_what_kvfork_pulled, transformers_opens_what_kvfork_pulled, kvfork_opens_what_python_downloaded,
          kvfork_completes_what_python_began, same_layout, environment_means_the_same, both_at_once, downloads_go_on_in_the_other, kills, throughput]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("kvfork")
    parser.add_argument("--only", default="")
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--megabytes", type=int, default=1024)
    args = parser.parse_args()
    failed = 0
    for test in CHECKS:
        if args.only not in test.__name__:
            continue
        begin = time.monotonic()
        try:
            test(args)
            print("%-45s ok  %.1f s" % (test.__name__, time.monotonic() - begin), flush=True)
        except (AssertionError, subprocess.SubprocessError) as error:
            failed += 1
            print("%-45s FAILED: %s" % (test.__name__, error), flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
