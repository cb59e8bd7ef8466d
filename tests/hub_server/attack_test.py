"""Hostile servers, unlucky users, odd caches; and a folder as the Hub."""

import os
import subprocess
import time

import harness
import hub_server as hs

QUICK = {"HF_HUB_ETAG_TIMEOUT": "2", "HF_HUB_DOWNLOAD_TIMEOUT": "2"}


class AttackCase(harness.HubCase):
    def setUp(self):
        super().setUp()
        self.serve()

    def serve(self, **more):
        self.repo = self.hub.repos["org/tiny"] = hs.Repo(dict(harness.model_files(), **more))
        self.commit = self.repo.branches["main"]
        self.etag = self.repo.commits[self.commit]["model.safetensors"].etag

    def write(self, path, content=b""):
        path = os.path.join(self.repo_folder(), path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as f:
            f.write(content)
        return path


class Environment(AttackCase):
    def test_proxies_that_are_junk(self):
        for proxy in ("junk", ":::", "http://", "http://[::", " ", "junk:99999", "http://user:pass-word@[::"):
            result = self.bad("proxy", http_proxy=proxy)
            self.assertNotIn("pass-word", result.err)
            self.assertLess(result.seconds, 30)
        self.assertEqual([], self.hub.log)

    def test_places_with_odd_names(self):
        for name in ("two words", "\u00c4\U0001f4a1", "-x", "a'b\"c", "%20"):
            result = self.pull(HF_HOME=os.path.join(self.folder, name))
            self.assertEqual(0, result.code, result)
            self.check_snapshot(result)
            self.assertTrue(os.path.isdir(os.path.join(self.folder, name, "hub", "models--org--tiny", "blobs")))

    def test_relative_places(self):
        for home, place in (("rel home", "rel home/hub"), ("", "hub"), ("./x/../y", "y/hub")):
            process = subprocess.run([harness.CLI, "pull", "org/tiny"], cwd=self.folder, capture_output=True, text=True,
                                     env=self.environment(HF_HOME=home))
            self.assertEqual(0, process.returncode, process)
            self.assertTrue(os.path.isabs(process.stdout))
            self.assertTrue(os.path.isdir(os.path.join(self.folder, place, "models--org--tiny", "snapshots", self.commit)))
        process = subprocess.run([harness.CLI, "pull", "org/tiny"], cwd=self.folder, capture_output=True, text=True,
                                 env=self.environment(HF_HUB_CACHE=""))
        self.assertEqual(os.path.join(self.folder, "models--org--tiny", "snapshots", self.commit) + "\n", process.stdout, process)

    def test_places_where_nothing_can_be_made(self):
        for place in ("/proc/x", "/dev/null/x", "/etc/passwd"):
            self.bad("HF_HUB_CACHE", HF_HUB_CACHE=place)

    def test_limits_as_python_reads_them(self):
        for good in ("0", " 5 ", "30"):
            self.good(HF_HUB_ETAG_TIMEOUT=good, HF_HUB_DOWNLOAD_TIMEOUT=good)
        for bad in ("", "2.5", "5s", "-1", "1" * 30):
            self.bad("HF_HUB_ETAG_TIMEOUT", HF_HUB_ETAG_TIMEOUT=bad)


class Sizes(AttackCase):
    def test_a_file_without_a_length_has_a_bound(self):
        # An opaque ETag, as for the small files of a mirror.
        for name in ("config.json", "tokenizer.json", "generation_config.json", "model.safetensors.index.json"):
            self.hub.rules.clear()
            if name.endswith("index.json"):
                self.repo = self.hub.repos["org/tiny"] = hs.Repo(harness.model_files(shards=2))
            self.hub.rule(hs.endless(200 << 20), path="/" + name)
            result = self.bad(name, "64.0 MB", HF_HOME=os.path.join(self.folder, "for " + name))
            self.assertLess(result.seconds, 60)
            self.assertLess(self.hub.sent, 100 << 20)
            self.hub.sent = 0

    def test_a_short_file_without_a_length_is_taken(self):
        self.hub.rule(hs.chunked, path="config.json")
        self.good()


class Names(AttackCase):
    def test_etags_that_are_file_names(self):
        for etag in ("\u00fc", "a b", "a%2fb", "~", "-rf", "CON", "x.incomplete", "x.lock", "'q'", "...", "e" * 244):
            self.hub.rules.clear()
            sent = '"%s"' % etag.encode().decode("latin1")
            self.hub.rule(lambda h, m, r, sent=sent: (r[0], dict(r[1], ETag=sent), r[2]), path="/config.json")
            result = self.pull(HF_HOME=os.path.join(self.folder, "for " + str(len(etag)) + etag[:5].replace("/", "")))
            self.assertEqual(0, result.code, (etag, result))
            self.check_snapshot(result)
            self.assertEqual("../../blobs/" + etag, os.readlink(os.path.join(result.json["directory"], "config.json")))

    def test_files_that_no_file_system_takes(self):
        self.serve(**{"n" * 300: b"x", "d/" + "n" * 256 + "/x": b"x", "additional_chat_templates/" + "n" * 300 + ".jinja": b"x"})
        self.check_snapshot(self.good())

    def test_names_that_differ_in_case(self):
        self.serve(**{"CONFIG.JSON": b"{}", "Model.safetensors": b"x", "Tokenizer.Json": b"x"})
        self.check_snapshot(self.good())

    def test_a_path_longer_than_the_system_takes(self):
        self.serve(**{"additional_chat_templates/" + "/".join(["d" * 200] * 25) + "/x.jinja": b"x"})
        self.bad("additional_chat_templates")

    def test_a_file_that_is_dot_dot(self):
        self.serve(**{"..": b"x"})
        self.bad("inside the repository", "'..'")


class Contents(AttackCase):
    def test_empty_files(self):
        for name in ("generation_config.json", "model.safetensors"):
            self.serve(**{name: b""})
            self.check_snapshot(self.good())
        self.serve(**{"model.safetensors": hs.File(b"", large=True)})
        self.check_snapshot(self.good())

    def html(self, headers=()):
        return lambda h, m, r: (200, dict(headers, **{"Content-Type": "text/html"}), b"<html>log in</html>")

    def test_html_in_place_of_a_file(self):
        for path in ("/config.json", "/tokenizer.json", "/store/"):
            self.hub.rules.clear()
            self.hub.rule(self.html(), method="GET", path=path)
            self.bad("found", **QUICK)
        self.hub.rules.clear()
        self.check_snapshot(self.good())

    def test_html_in_place_of_config_and_its_head(self):
        self.hub.rule(self.html({"ETag": '"abc"', "X-Repo-Commit": self.commit}), path="/config.json")
        self.bad("config.json", "JSON object", "proxy")
        self.assertEqual([], self.hub.requests(path="model.safetensors"))

    def test_lfs_pointers_in_place_of_weights(self):
        pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 123456\n"
        self.serve(**{"model.safetensors": pointer})
        self.check_snapshot(self.good())
        process = subprocess.run([harness.CLI, "run", "--model", "org/tiny", "--prompt", "x"], env=self.environment(),
                                 capture_output=True, text=True)
        self.assertEqual(1, process.returncode, process)
        self.assertEqual(1, process.stderr.count("kvfork: error:"), process)


class OddCaches(AttackCase):
    def test_refs_that_are_garbage(self):
        for content in (b"", b"garbage\n", b"../../x", b"\0" * 50, b"x" * 100_000, b"f" * 40, b"f" * 40 + b"\n"):
            self.write("refs/main", content)
            self.bad_offline()
            self.check_snapshot(self.good())

    def bad_offline(self):
        result = self.pull(HF_HUB_OFFLINE="1")
        self.assertEqual(1, result.code, result)
        self.assertIn("offline", result.err)

    def test_folders_and_files_in_each_others_place(self):
        os.makedirs(os.path.join(self.repo_folder(), "refs", "main"))
        self.assertIn("refs/main", self.pull().err)
        os.makedirs(os.path.join(self.repo_folder(), "blobs"), exist_ok=True)
        self.serve(**{"model.safetensors": b"other" * 20_000})
        os.makedirs(os.path.join(self.repo_folder(), "blobs", self.etag))
        self.assertIn(self.etag, self.pull().err)
        self.serve(**{"model.safetensors": b"another" * 20_000})
        self.write("snapshots/" + self.commit)
        self.assertIn(self.commit, self.pull().err)

    def test_an_unfinished_file_that_is_a_link(self):
        victim = self.write("victim", b"precious")
        os.makedirs(os.path.join(self.repo_folder(), "blobs"))
        os.symlink(victim, os.path.join(self.repo_folder(), "blobs", self.etag + ".incomplete"))
        self.assertEqual(1, self.pull().code)
        with open(victim, "rb") as f:
            self.assertEqual(b"precious", f.read())

    def test_an_unfinished_file_that_is_a_pipe(self):
        os.makedirs(os.path.join(self.repo_folder(), "blobs"))
        os.mkfifo(os.path.join(self.repo_folder(), "blobs", self.etag + ".incomplete"))
        self.assertEqual(1, self.pull().code)

    def test_a_dangling_link_that_leads_outside(self):
        outside = os.path.join(self.folder, "outside")
        snapshot = os.path.join(self.repo_folder(), "snapshots", self.commit)
        os.makedirs(snapshot)
        os.symlink(outside, os.path.join(snapshot, "config.json"))
        self.check_snapshot(self.good())
        self.assertFalse(os.path.exists(outside))

    def test_another_pull_is_killed_while_this_one_waits(self):
        self.serve(**{"model.safetensors": os.urandom(3_000_000)})
        self.hub.rate = 3_000_000
        unfinished = os.path.join(self.repo_folder(), "blobs", self.etag + ".incomplete")
        first = self.start("org/tiny")
        end = time.monotonic() + 30
        while time.monotonic() < end and not (os.path.exists(unfinished) and os.path.getsize(unfinished) > 500_000):
            time.sleep(0.01)
        second = self.start("org/tiny")
        time.sleep(0.2)
        first.kill()
        first.communicate()
        _, err = second.communicate(timeout=60)
        self.assertEqual(0, second.returncode, err)
        self.check_cache()
        ranges = [r["range"] for r in self.hub.requests("GET", "/store/" + self.etag)]
        self.assertEqual(2, len(ranges))
        self.assertGreaterEqual(int(ranges[1].removeprefix("bytes=").rstrip("-")), 500_000, "it goes on from what the other left")
        self.assertEqual([], self.leftovers())


class Memory(AttackCase):
    def peak(self, megabytes):
        """Bytes of memory that a pull of a file of this size takes at most, and whether it came in pieces."""
        path = os.path.join(self.folder, "weights")
        with open(path, "wb") as f:
            f.truncate(megabytes << 20)
        self.serve(**{"model.safetensors": hs.File(path=path)})
        self.hub.log.clear()
        process = self.start("org/tiny")
        peak = 0
        while process.poll() is None:  # rusage would count what this process held when it forked
            with open("/proc/%d/status" % process.pid) as f:
                peak = max([peak] + [int(line.split()[1]) << 10 for line in f if line.startswith("VmHWM")])
            time.sleep(0.01)
        self.assertEqual(0, process.returncode, process.communicate())
        return peak, any(r["range"] for r in self.hub.requests("GET", "/store/"))

    def test_flat_in_the_size_of_the_file(self):
        small, _ = self.peak(16)
        large, in_pieces = self.peak(400)
        # On a machine so busy that several connections take over, a few pieces wait for each.
        self.assertLess(large, small + ((64 if in_pieces else 8) << 20))


class Folder(AttackCase):
    """HF_ENDPOINT=file://FOLDER"""

    def lay_out(self, place):
        os.makedirs(os.path.join(self.folder, place), exist_ok=True)
        for name, file in self.repo.commits[self.commit].items():
            with open(os.path.join(self.folder, place, name), "wb") as f:
                f.write(file.content)
        return {"HF_ENDPOINT": "file://" + self.folder + "/mirror"}

    def check_files(self, result):
        for name in harness.WANTED + ("model.safetensors",):
            with open(os.path.join(result.json["directory"], name), "rb") as f:
                self.assertEqual(self.repo.commits[self.commit][name].content, f.read(), name)

    def test_files_as_they_are(self):
        env = self.lay_out("mirror/org/tiny")
        result = self.good(**env)
        self.check_files(result)
        self.assertEqual(40, len(result.json["revision"]))
        self.assertEqual(0, self.good(**env).json["bytes_downloaded"])
        self.good("org/tiny@" + result.json["revision"], **env)
        time.sleep(0.01)
        with open(os.path.join(self.folder, "mirror/org/tiny/generation_config.json"), "wb") as f:
            f.write(b'{"new": 1}')
        again = self.good(**env)
        self.assertNotEqual(result.json["revision"], again.json["revision"])
        self.assertEqual(["generation_config.json"], again.json["files_downloaded"])

    def test_the_hubs_addresses(self):
        self.lay_out("mirror/org/tiny/resolve/" + self.commit)
        env = self.lay_out("mirror/org/tiny/resolve/main")
        self.check_files(self.good(**env))
        result = self.good("org/tiny@" + self.commit, **env)
        self.assertEqual(self.commit, result.json["revision"])

    def test_goes_on_from_what_is_there(self):
        env = self.lay_out("mirror/org/tiny")
        sha = hs.hashlib.sha256(self.repo.commits[self.commit]["model.safetensors"].content).hexdigest()
        self.write("blobs/" + sha + ".incomplete", self.repo.commits[self.commit]["model.safetensors"].content[:100_000])
        result = self.good(**env)
        self.check_files(result)
        self.assertEqual(sum(os.path.getsize(os.path.join(result.json["directory"], n)) for n in os.listdir(result.json["directory"])) - 100_000,
                         result.json["bytes_downloaded"])

    def test_what_is_not_there(self):
        env = self.lay_out("mirror/org/tiny")
        self.bad("org/nothing", ref="org/nothing", **env)
        self.bad("v2", ref="org/tiny@v2", **env)
        self.bad("no such folder", HF_ENDPOINT="file:///nowhere/at/all")
        self.bad("HF_ENDPOINT", HF_ENDPOINT="file://relative")

    def test_only_where_the_endpoint_says_so(self):
        self.lay_out("mirror/org/tiny")
        for path in ("/api/", "/config.json", "/store/"):
            self.hub.rules.clear()
            self.hub.rule(hs.redirect("file://" + self.folder + "/mirror/org/tiny/config.json"), path=path)
            self.bad(**QUICK)


if __name__ == "__main__":
    harness.main(__name__)
