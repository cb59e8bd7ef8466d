"""What is cached is used: no request for what is whole, offline and fallback, the layout's details."""

import json
import os
import subprocess
import time

import harness
import hub_server as hs

OFFLINE = {"HF_HUB_OFFLINE": "1"}


class Cached(harness.HubCase):
    def setUp(self):
        super().setUp()
        self.repo = self.hub.repos["org/tiny"] = hs.Repo(harness.model_files())
        self.commit = self.repo.branches["main"]

    def test_a_branch_asks_for_the_listing_only(self):
        self.good()
        self.hub.log.clear()
        result = self.good()
        self.check_snapshot(result)
        self.assertEqual(["/api/models/org/tiny/revision/main"], [r["path"] for r in self.hub.log])
        self.assertEqual(0, result.json["bytes_downloaded"])

    def test_a_complete_commit_makes_no_request(self):
        self.good()
        self.hub.log.clear()
        result = self.good("org/tiny@" + self.commit)
        self.assertTrue(result.json["from_cache"])
        self.assertEqual([], self.hub.log)

    def test_a_complete_sharded_commit_makes_no_request(self):
        self.repo = self.hub.repos["org/tiny"] = hs.Repo(harness.model_files(shards=3))
        ref = "org/tiny@" + self.repo.branches["main"]
        self.good(ref)
        self.hub.log.clear()
        self.check_snapshot(self.good(ref))
        self.assertEqual([], self.hub.log)

    def test_a_commit_without_optional_files_makes_no_request(self):
        files = harness.model_files()
        del files["generation_config.json"], files["tokenizer_config.json"]
        self.repo = self.hub.repos["org/tiny"] = hs.Repo(files)
        ref = "org/tiny@" + self.repo.branches["main"]
        self.good(ref)
        self.hub.log.clear()
        self.good(ref)
        self.assertEqual([], self.hub.log, ".no_exist says that they are not there")

    def test_an_incomplete_commit_is_completed(self):
        self.good()
        for name in ("generation_config.json", "model.safetensors"):
            link = os.path.join(self.repo_folder(), "snapshots", self.commit, name)
            os.remove(link)
            self.hub.log.clear()
            self.check_snapshot(self.good("org/tiny@" + self.commit))
            self.assertEqual([], self.hub.requests("GET", "/store/"), "the blob is still there")

    def test_a_dangling_link_is_repaired(self):
        self.good()
        link = os.path.join(self.repo_folder(), "snapshots", self.commit, "model.safetensors")
        os.remove(os.path.realpath(link))
        self.check_snapshot(self.good("org/tiny@" + self.commit))

    def test_a_blob_of_the_wrong_size_is_replaced(self):
        self.good()
        link = os.path.join(self.repo_folder(), "snapshots", self.commit, "model.safetensors")
        blob = os.path.realpath(link)
        os.remove(link)
        with open(blob, "r+b") as f:
            f.truncate(1000)
        self.check_snapshot(self.good())

    def test_a_new_commit_fetches_what_changed(self):
        self.good()
        new = dict(harness.model_files(), **{"generation_config.json": b'{"new": true}'})
        self.repo.push(new)
        self.hub.log.clear()
        result = self.good()
        self.check_snapshot(result)
        self.assertEqual(["generation_config.json"], result.json["files_downloaded"])
        with open(os.path.join(self.repo_folder(), "refs", "main")) as f:
            self.assertEqual(result.json["revision"], f.read())

    def test_branches_with_slashes_and_tags(self):
        self.repo.branches["refs/pr/1"] = self.repo.push(harness.model_files(seed=5), branch="refs/pr/1")
        self.repo.tags["v1"] = self.commit
        result = self.good("org/tiny@refs/pr/1")
        self.check_snapshot(result)
        with open(os.path.join(self.repo_folder(), "refs", "refs", "pr", "1")) as f:
            self.assertEqual(result.json["revision"], f.read())
        self.assertIn("/revision/refs%2Fpr%2F1", self.hub.log[0]["path"])
        self.assertEqual(self.commit, self.good("org/tiny@v1").json["revision"])

    def test_names_without_organization(self):
        self.hub.repos["tiny"] = hs.Repo(harness.model_files())
        result = self.good("tiny")
        self.check_snapshot(result, repo="tiny")
        self.assertTrue(os.path.isdir(os.path.join(self.cache, "models--tiny")))

    def test_absent_files_are_noted(self):
        self.good()
        folder = os.path.join(self.repo_folder(), ".no_exist", self.commit)
        self.assertEqual({"special_tokens_map.json", "added_tokens.json", "vocab.json", "merges.txt", "chat_template.jinja",
                          "chat_template.json", "adapter_config.json"}, set(os.listdir(folder)))

    def test_named_templates(self):
        files = dict(harness.model_files(), **{"additional_chat_templates/rag.jinja": b"{{ rag }}", "additional_chat_templates/x.txt": b"",
                                               "chat_template.jinja": b"{{ x }}"})
        self.hub.repos["org/tiny"] = hs.Repo(files)
        result = self.good()
        link = os.path.join(result.json["directory"], "additional_chat_templates", "rag.jinja")
        with open(link) as f:
            self.assertEqual("{{ rag }}", f.read())
        self.assertTrue(os.readlink(link).startswith("../../../blobs/"))
        self.assertFalse(os.path.exists(os.path.join(result.json["directory"], "additional_chat_templates", "x.txt")))

    def test_only_the_files_needed(self):
        self.good()
        for name in ("README.md", ".gitattributes", "pytorch_model.bin"):
            self.assertEqual([], self.hub.requests(path=name))

    def test_gguf(self):
        files = {"config.json": b"{}", "README.md": b"", "tiny-Q4_0.gguf": b"GGUF" * 50000, "tiny-Q8_0.gguf": b"GGUF8" * 50000,
                 "big/m-00001-of-00002.gguf": b"1" * 100000, "big/m-00002-of-00002.gguf": b"2" * 100000}
        self.hub.repos["org/tiny"] = repo = hs.Repo(files)
        result = self.good("org/tiny", "--gguf", "tiny-Q4_0.gguf")
        with open(result.json["gguf"], "rb") as f:
            self.assertEqual(files["tiny-Q4_0.gguf"], f.read())
        self.assertEqual(["tiny-Q4_0.gguf"], result.json["files_downloaded"])
        result = self.good("org/tiny", "--gguf", "big/m-00001-of-00002.gguf")
        self.assertEqual(["big/m-00001-of-00002.gguf", "big/m-00002-of-00002.gguf"], result.json["files_downloaded"])
        self.hub.log.clear()
        self.good("org/tiny@" + repo.branches["main"], "--gguf", "tiny-Q4_0.gguf")
        self.assertEqual([], self.hub.log)

    def test_the_directory_is_the_plain_output(self):
        result = self.pull(json_output=False)
        self.assertEqual(os.path.join(self.repo_folder(), "snapshots", self.commit) + "\n", result.out)
        self.assertEqual("", result.err)

    def test_requests_are_like_huggingface_hubs(self):
        self.good()
        heads = self.hub.requests("HEAD")
        self.assertTrue(heads and all(r["encoding"] == "identity" for r in self.hub.log))
        self.assertTrue(all(r["path"].startswith(("/org/tiny/resolve/%s/" % self.commit, "/store/")) for r in heads))


class Display(harness.HubCase):
    """Progress on a terminal, nothing elsewhere."""

    def on_terminal(self, *args, **env):
        import pty
        self.hub.repos["org/tiny"] = hs.Repo(harness.model_files(weights=2_000_000))
        self.hub.rate = 4_000_000
        main, other = pty.openpty()
        process = subprocess.Popen([harness.CLI, "pull", "org/tiny", *args], env=self.environment(**env), stdout=subprocess.PIPE, stderr=other)
        os.close(other)
        shown = b""
        while True:
            try:
                block = os.read(main, 4096)
            except OSError:
                break
            if not block:
                break
            shown += block
        os.close(main)
        self.assertEqual(0, process.wait())
        self.assertEqual(1, process.stdout.read().count(b"\n"))
        process.stdout.close()
        return shown.decode()

    def test_bar_with_rate_and_time_left(self):
        shown = self.on_terminal()
        self.assertRegex(shown, r"\[#+\.*\] [0-9.]+ [KM]iB of 1\.92 MiB, [0-9.]+ [KM]?i?B/s, \d+:\d\d:\d\d left, model\.safetensors")
        self.assertTrue(shown.endswith("\r\x1b[K"), "the line is erased at the end")

    def test_no_bar_where_it_is_not_wanted(self):
        self.assertEqual("", self.on_terminal(HF_HUB_DISABLE_PROGRESS_BARS="1"))

    def test_no_bar_when_quiet(self):
        self.assertEqual("", self.on_terminal("--quiet"))


class ReadOnly(harness.HubCase):
    def test_a_cache_that_may_only_be_read(self):
        self.hub.repos["org/tiny"] = repo = hs.Repo(harness.model_files())
        self.good()
        repo.branches["other"] = repo.branches["main"]
        refs = os.path.join(self.repo_folder(), "refs")
        os.rename(os.path.join(refs, "main"), os.path.join(self.repo_folder(), "main"))
        os.rmdir(refs)
        open(refs, "w").close()  # stands in for a file system that refuses, since tests may run as root
        result = self.pull("org/tiny@other")
        self.assertEqual(0, result.code, result)
        self.assertIn("refs", result.err)


class Offline(harness.HubCase):
    def setUp(self):
        super().setUp()
        self.repo = self.hub.repos["org/tiny"] = hs.Repo(harness.model_files())
        self.commit = self.repo.branches["main"]

    def test_empty_cache(self):
        for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
            for value in ("1", "true", "YES", "on"):
                self.bad("offline", name, **{name: value})
        self.assertEqual([], self.hub.log)

    def test_first_name_decides(self):
        self.good(HF_HUB_OFFLINE="0", TRANSFORMERS_OFFLINE="1")
        self.assertNotEqual([], self.hub.log)

    def test_cached(self):
        self.good()
        self.hub.log.clear()
        for ref in ("org/tiny", "org/tiny@" + self.commit):
            result = self.good(ref, **OFFLINE)
            self.check_snapshot(result)
            self.assertTrue(result.json["from_cache"])
            self.assertIn("offline", result.err)
        self.assertEqual([], self.hub.log)

    def test_incomplete(self):
        self.good()
        os.remove(os.path.join(self.repo_folder(), "snapshots", self.commit, "model.safetensors"))
        self.bad("offline", "model.safetensors", **OFFLINE)

    def test_other_revision(self):
        self.good()
        self.bad("offline", "v2", ref="org/tiny@v2", **OFFLINE)

    def test_hub_down(self):
        first = self.good()
        begin = time.monotonic()
        result = self.good(HF_ENDPOINT="http://127.0.0.1:1")
        self.assertLess(time.monotonic() - begin, 10)
        self.assertEqual(first.json["directory"], result.json["directory"])
        self.assertIn("cached copy", result.err)
        self.assertTrue(result.json["from_cache"])

    def test_hub_down_and_incomplete(self):
        self.good()
        os.remove(os.path.join(self.repo_folder(), "snapshots", self.commit, "model.safetensors"))
        self.bad("127.0.0.1:1", HF_ENDPOINT="http://127.0.0.1:1")

    def test_hub_in_trouble(self):
        self.good()
        for act in (hs.status(500), hs.status(503), hs.status(429, Retry_After="3600"), hs.drop, hs.status(401), hs.not_http,
                    lambda h, m, r: (200, {}, b"<html>log in</html>")):
            self.hub.rules.clear()
            self.hub.rule(act)
            result = self.good()
            self.check_snapshot(result)
            self.assertIn("cached copy of commit " + self.commit, result.err)

    def test_hub_stalls(self):
        self.good()
        self.hub.rule(hs.stall_after(-1))
        result = self.good(HF_HUB_ETAG_TIMEOUT="1")
        self.assertLess(result.seconds, 10)
        self.assertIn("cached copy", result.err)

    def test_missing_revision_does_not_fall_back(self):
        self.good()
        del self.repo.branches["main"]
        self.bad("revision", "main")

    def test_failed_update_leaves_the_old_one_usable(self):
        self.good()
        self.repo.push(harness.model_files(seed=9))
        self.hub.rule(hs.status(404), path="/store/")
        self.bad()
        result = self.good(**OFFLINE)
        self.assertEqual(self.commit, result.json["revision"])
        self.check_snapshot(result)


class Places(harness.HubCase):
    """Where the cache is, by every variable, with huggingface_hub's precedence."""

    def setUp(self):
        super().setUp()
        self.hub.repos["org/tiny"] = hs.Repo(harness.model_files())

    def test_places(self):
        a, b = os.path.join(self.folder, "a"), os.path.join(self.folder, "b")
        none = {"HF_HOME": None}
        for env, place in (({"HF_HUB_CACHE": a, "HUGGINGFACE_HUB_CACHE": b}, a), ({"HUGGINGFACE_HUB_CACHE": b}, b),
                           ({"HF_HOME": a}, a + "/hub"), (dict(none, XDG_CACHE_HOME=b), b + "/huggingface/hub"),
                           (none, self.folder + "/.cache/huggingface/hub"), ({"HF_HUB_CACHE": "~/c"}, self.folder + "/c"),
                           ({"HF_HUB_CACHE": "$HERE/${SUB}/x", "HERE": a, "SUB": "s"}, a + "/s/x"), ({"HF_HOME": "~/$NOT_SET"}, self.folder + "/$NOT_SET/hub")):
            result = self.pull(**env)
            self.assertEqual(0, result.code, result)
            self.assertTrue(result.json["directory"].startswith(place + "/models--org--tiny/snapshots/"), (env, result))

    def test_endpoint_with_a_path_and_slashes(self):
        def strip(handler, method, reply):
            handler.path = handler.path.replace("/mirror/hf", "", 1)
            return handler.normal_reply(method)
        self.hub.rule(strip)
        self.check_snapshot(self.good(HF_ENDPOINT=self.hub.url + "/mirror/hf///"))


if __name__ == "__main__":
    harness.main(__name__)
