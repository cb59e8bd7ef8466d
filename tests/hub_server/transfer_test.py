"""Servers and networks that misbehave: every case ends in the right files or the right error, and a later pull
succeeds."""

import os
import time
import unittest

import harness
import hub_server as hs

QUICK = {"HF_HUB_ETAG_TIMEOUT": "2", "HF_HUB_DOWNLOAD_TIMEOUT": "2"}
LIMIT = 90


class Recovers(harness.HubCase):
    """Misbehaves a few times; one pull gets through."""

    def setUp(self):
        super().setUp()
        self.hub.repos["org/tiny"] = hs.Repo(harness.model_files())

    def recovers(self, act, times=2, **where):
        self.hub.rule(act, times=times, **where)
        result = self.good(**QUICK)
        self.check_snapshot(result)
        self.assertEqual([], self.leftovers())
        self.assertTrue(all(rule.times == 0 for rule in self.hub.rules), "the rule was not used up")
        return result

    def test_drop_of_the_listing(self):
        self.recovers(hs.drop, path="/api/models")

    def test_drop_of_head(self):
        self.recovers(hs.drop, method="HEAD")

    def test_drop_of_get(self):
        self.recovers(hs.drop, method="GET", path="/store/")

    def test_drop_halfway_resumes(self):
        result = self.recovers(hs.drop_after(100_000), method="GET", path="/store/", times=1)
        ranges = [r["range"] for r in self.hub.requests("GET", "/store/") if r["range"]]
        self.assertEqual(1, len(ranges), "the transfer went on by Range")
        self.assertLess(sum(r["sent"] for r in self.hub.requests("GET", "/store/")),
                        int(result.json["bytes_downloaded"]) + 1000, "nothing was sent twice")

    def test_many_drops_with_progress_each(self):
        self.recovers(hs.drop_after(30_000), method="GET", path="/store/", times=9)

    def test_truncation_at_any_byte(self):
        for n in (0, 1, 4095):
            self.hub.rule(hs.drop_after(n), method="GET", path="/store/", times=1)
        self.check_snapshot(self.good(**QUICK))

    def test_wrong_range(self):
        self.hub.rule(hs.drop_after(100_000), method="GET", path="/store/", times=2)
        self.recovers(hs.wrong_range(-1000), method="GET", path="/store/", times=1)

    def test_range_ignored(self):
        self.hub.rule(hs.drop_after(100_000), method="GET", path="/store/", times=2)
        self.recovers(hs.ignore_range, method="GET", path="/store/", times=1)

    def test_range_refused(self):
        self.hub.rule(hs.drop_after(100_000), method="GET", path="/store/", times=2)
        self.recovers(hs.status(416), method="GET", path="/store/", times=1)

    def test_429(self):
        self.recovers(hs.status(429, Retry_After="1"), times=4)

    def test_429_with_a_date(self):
        soon = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(time.time() + 2))
        self.recovers(hs.status(429, Retry_After=soon), times=1)

    def test_408_500_502_503_504(self):
        for code in (408, 500, 502, 503, 504):
            self.hub.rule(hs.status(code), path="/api/models", times=1)
        self.check_snapshot(self.good(**QUICK))

    def test_503_of_the_store(self):
        self.recovers(hs.status(503), path="/store/", times=3)

    def test_stall_before_the_reply(self):
        self.recovers(hs.stall_after(-1), path="/api/models", times=1)

    def test_stall_halfway(self):
        self.recovers(hs.stall_after(50_000), method="GET", path="/store/", times=2)

    def test_trickle(self):
        self.recovers(hs.trickle(), method="GET", path="/store/", times=1)

    def test_corrupted_once(self):
        self.recovers(hs.corrupt, method="GET", path="/store/", times=1)

    def test_corrupted_small_file_once(self):
        self.recovers(hs.corrupt, method="GET", path="/generation_config.json", times=1)

    def test_length_too_long(self):
        self.recovers(hs.lie_about_length(1000), method="GET", path="/store/", times=2)

    def test_length_too_short(self):
        self.recovers(hs.lie_about_length(-1000), method="GET", path="/store/", times=2)

    def test_chunked(self):
        self.hub.rule(hs.chunked, method="GET")
        self.check_snapshot(self.good(**QUICK))

    def test_chunked_and_cut(self):
        self.recovers(hs.chunked_cut(50_000), method="GET", path="/store/", times=2)

    def test_compressed_though_identity_was_asked_for(self):
        self.recovers(hs.gzipped, method="GET", path="/store/", times=1)

    def test_signed_address_expired(self):
        self.hub.close()
        self.hub = hs.Hub(split=True)
        self.hub.repos["org/tiny"] = hs.Repo(harness.model_files())
        self.recovers(hs.status(403), method="GET", path="/store/", times=1)

    def test_relative_redirect_to_a_renamed_repository(self):
        self.hub.repos["new/name"] = self.hub.repos["org/tiny"]
        for name in list(self.hub.repos["new/name"].commits.values())[0]:
            commit = self.hub.repos["new/name"].branches["main"]
            self.hub.rule(hs.redirect("/new/name/resolve/%s/%s" % (commit, name), 307), path="/org/tiny/resolve/%s/%s" % (commit, name))
        self.hub.rule(hs.redirect("/api/models/new/name/revision/main", 307), path="/api/models/org/tiny")
        self.check_snapshot(self.good())

    def test_xet_headers_are_ignored(self):
        self.hub.xet_headers = True
        self.check_snapshot(self.good())

    def test_a_mirror_without_listing(self):
        self.hub.has_api = False
        self.check_snapshot(self.good())

    def test_no_length_in_head(self):
        self.hub.rule(hs.chunked, method="HEAD", path="config.json")
        self.check_snapshot(self.good())


class ChangesHalfway(harness.HubCase):
    def test_etag_changes_during_the_transfer(self):
        old, new = harness.model_files(seed=1), harness.model_files(seed=2)
        self.hub.repos["org/tiny"] = repo = hs.Repo(old)
        commit = repo.branches["main"]
        changed = dict(repo.commits[commit], **{"model.safetensors": hs.File(new["model.safetensors"])})

        def change(handler, method, reply):
            repo.commits[commit] = changed
            return hs.drop_after(100_000)(handler, method, reply)

        self.hub.rule(change, method="GET", path="/store/%s" % hs.File(old["model.safetensors"]).etag, times=1)

        def gone(handler, method, reply):
            return 404, {}, b""

        self.hub.rule(gone, method="GET", path="/store/%s" % hs.File(old["model.safetensors"]).etag)
        self.hub.store_url = self.hub.url
        result = self.good(**QUICK)
        self.check_snapshot(result)

    def test_small_file_changes_between_head_and_get(self):
        self.hub.repos["org/tiny"] = repo = hs.Repo(harness.model_files())
        commit = repo.branches["main"]

        def change(handler, method, reply):
            repo.commits[commit] = dict(repo.commits[commit], **{"tokenizer_config.json": hs.File(b'{"another": "one"}')})
            return handler.normal_reply(method)

        self.hub.rule(change, method="GET", path="/tokenizer_config.json", times=1)
        self.check_snapshot(self.good(**QUICK))

    def test_other_etag_in_get_than_in_head(self):
        self.hub.repos["org/tiny"] = hs.Repo(harness.model_files())

        def rename(handler, method, reply):
            return reply[0], dict(reply[1], ETag='"something-else"'), reply[2]

        self.hub.rule(rename, method="GET", path="/resolve/")
        self.check_snapshot(self.good(**QUICK))


class GivesUp(harness.HubCase):
    """Misbehaves for ever; the pull ends in time with one error, and a later one succeeds."""

    def setUp(self):
        super().setUp()
        self.hub.repos["org/tiny"] = hs.Repo(harness.model_files())

    def gives_up(self, act, *said, env=QUICK, **where):
        self.hub.rule(act, **where)
        result = self.bad(*said, **env)
        self.assertLess(result.seconds, LIMIT, result)
        self.hub.rules.clear()
        self.check_snapshot(self.good(**QUICK))
        self.assertEqual([], self.leftovers())
        return result

    def test_drops(self):
        self.gives_up(hs.drop, "try again")

    def test_drops_of_the_store(self):
        self.gives_up(hs.drop, "model.safetensors", path="/store/")

    def test_drops_after_a_byte(self):
        self.gives_up(hs.drop_after(1), method="GET", path="/store/")

    def test_restarts_without_end(self):
        def act(handler, method, reply):
            return hs.drop_after(200_000)(handler, method, hs.ignore_range(handler, method, reply))
        self.gives_up(act, method="GET", path="/store/")

    def test_stalls(self):
        self.gives_up(hs.stall_after(-1), "HF_HUB_ETAG_TIMEOUT")

    def test_stalls_of_the_store(self):
        self.gives_up(hs.stall_after(100), "HF_HUB_DOWNLOAD_TIMEOUT", path="/store/", method="GET")

    def test_stalls_with_default_limits(self):
        self.gives_up(hs.stall_after(100, seconds=100), env={}, path="/store/", method="GET")

    def test_trickle_with_default_limits(self):
        self.gives_up(hs.trickle(seconds=100), env={}, path="/store/", method="GET")

    def test_trickle_of_a_small_file(self):
        self.gives_up(hs.trickle(pause=3, seconds=100), method="GET", path="/generation_config.json")

    def test_trickling_heads(self):
        self.gives_up(hs.trickle_head(), method="HEAD")

    def test_trickling_listing(self):
        self.gives_up(hs.trickle_head(), path="/api/")

    def test_429_storm(self):
        self.gives_up(hs.status(429), "429")

    def test_429_storm_with_short_waits(self):
        self.gives_up(hs.status(429, Retry_After="2"), "429")

    def test_retry_after_an_hour(self):
        result = self.gives_up(hs.status(429, Retry_After="3600"), "429", "3600")
        self.assertLess(result.seconds, 30, "an hour is an error, not a wait")

    def test_retry_after_an_hour_from_the_store(self):
        result = self.gives_up(hs.status(503, Retry_After="3600"), "503", "3600", path="/store/")
        self.assertLess(result.seconds, 30)

    def test_retry_after_beyond_what_is_waited_for(self):
        result = self.gives_up(hs.status(429, Retry_After="40"), "429", "40")
        self.assertLess(result.seconds, 20)

    def test_retry_after_far_beyond_numbers(self):
        self.gives_up(hs.status(429, Retry_After="9" * 30), "429")

    def test_500_storm(self):
        self.gives_up(hs.status(500), "500")

    def test_503_of_heads(self):
        self.gives_up(hs.status(503), "503", method="HEAD")

    def test_corrupt_weights(self):
        self.gives_up(hs.corrupt, "checksum", method="GET", path="/store/")

    def test_corrupt_small_file(self):
        self.gives_up(hs.corrupt, "checksum", method="GET", path="/config.json")

    def test_wrong_ranges(self):
        # Always another part than asked for, and the first reply always cut.
        def act(handler, method, reply):
            if reply[0] == 200:
                return hs.drop_after(100_000)(handler, method, reply)
            return hs.wrong_range(-5)(handler, method, reply)
        self.gives_up(act, method="GET", path="/store/")

    def test_redirect_loop(self):
        self.gives_up(hs.redirect("/loop"), "redirected more than", path="/")

    def test_redirect_loop_of_the_store(self):
        self.gives_up(hs.redirect("/store/again"), "redirected more than", path="/store/")

    def test_redirect_to_a_file(self):
        self.gives_up(hs.redirect("file:///etc/passwd"), path="/store/")

    def test_redirect_to_another_protocol(self):
        self.gives_up(hs.redirect("ftp://127.0.0.1/x"), path="/api/")

    def test_huge_headers(self):
        self.gives_up(hs.huge_headers, "headers")

    def test_huge_headers_of_the_store(self):
        self.gives_up(hs.huge_headers, "headers", path="/store/")

    def test_not_http(self):
        self.gives_up(hs.not_http)

    def test_more_bytes_than_announced(self):
        def act(handler, method, reply):
            code, headers, content = reply
            if not isinstance(content, tuple):
                return reply
            return code, headers, content[0].read(content[1], content[2]) + b"more"
        self.gives_up(act, method="GET", path="/store/")

    def test_login_page_in_place_of_the_listing(self):
        self.gives_up(lambda h, m, r: (200, {"Content-Type": "text/html"}, b"<html>please log in"), "proxy", path="/api/")

    def test_heads_without_the_hub_headers(self):
        self.gives_up(lambda h, m, r: (200, {}, b""), "X-Repo-Commit", method="HEAD")

    def test_changes_without_end(self):
        counter = [0]
        repo = self.hub.repos["org/tiny"]
        commit = repo.branches["main"]
        before = dict(repo.commits[commit])

        def act(handler, method, reply):
            counter[0] += 1
            repo.commits[commit] = dict(before, **{"tokenizer_config.json": hs.File(b'{"n": %d}' % counter[0])})
            return handler.normal_reply(method)

        self.hub.rule(act, method="GET", path="/tokenizer_config.json")
        self.bad("changed", **QUICK)
        self.hub.rules.clear()
        self.check_snapshot(self.good(**QUICK))

    def test_nobody_listens(self):
        result = self.bad("HF_ENDPOINT", HF_ENDPOINT="http://127.0.0.1:1")
        self.assertLess(result.seconds, 15)

    def test_unknown_host(self):
        self.bad("HF_ENDPOINT", HF_ENDPOINT="http://nowhere.invalid")


class Ranges(harness.HubCase):
    """A server that limits each connection: one large file comes over several."""

    MEGABYTES = 30

    def setUp(self):
        super().setUp()
        self.repo = self.hub.repos["org/tiny"] = hs.Repo(harness.model_files(weights=self.MEGABYTES << 20))
        self.etag = self.repo.commits[self.repo.branches["main"]]["model.safetensors"].etag
        self.hub.rate = 3_000_000

    def bounded(self):
        return [r for r in self.hub.requests("GET", "/store/") if r["range"] and not r["range"].endswith("-")]

    def test_several_connections_take_over(self):
        result = self.good()
        self.check_snapshot(result)
        self.assertGreater(len(self.bounded()), 4)
        together = max(sum(o["begin"] <= r["begin"] < o["end"] for o in self.bounded()) for r in self.bounded())
        self.assertGreater(together, 2, "several at the same time")
        sent = sum(r["sent"] for r in self.hub.requests("GET", "/store/"))
        self.assertLess(sent, (self.MEGABYTES + 6) << 20, "next to nothing was sent twice")
        self.assertEqual([], self.leftovers())

    def misbehaves(self, act, **where):
        def later(handler, method, reply):
            first, _, last = (handler.headers.get("Range") or "").removeprefix("bytes=").partition("-")
            return act(handler, method, reply) if last and int(first) > 16 << 20 else reply
        self.hub.rule(later, path="/store/", **where)
        self.check_snapshot(self.good(HF_HUB_DOWNLOAD_TIMEOUT="3"))
        self.assertNotEqual([], self.bounded())
        self.assertEqual([], self.leftovers())

    def test_dropped(self):
        self.misbehaves(hs.drop_after(1000))

    def test_ignored(self):
        self.misbehaves(hs.ignore_range)

    def test_wrong(self):
        self.misbehaves(hs.wrong_range(-100))

    def test_refused(self):
        self.misbehaves(hs.status(416))

    def test_stalled(self):
        self.misbehaves(hs.stall_after(1000))

    def test_damaged(self):
        damaged = []

        def once(handler, method, reply):
            damaged.append(handler.path)
            return hs.corrupt(handler, method, reply) if len(damaged) == 1 else reply
        self.misbehaves(once)

    def test_killed(self):
        process = self.start("org/tiny")
        unfinished = os.path.join(self.repo_folder(), "blobs", self.etag + ".incomplete")
        end = time.monotonic() + 30
        while time.monotonic() < end and not (os.path.exists(unfinished) and os.path.getsize(unfinished) > 12 << 20):
            time.sleep(0.02)
        process.kill()
        process.communicate()
        content = self.repo.commits[self.repo.branches["main"]]["model.safetensors"].content
        with open(unfinished, "rb") as f:
            present = f.read()
        self.assertEqual(content[:len(present)], present, "what is in place is a prefix")
        self.check_snapshot(self.good())


class Interrupted(harness.HubCase):
    def test_killed_pulls_go_on(self):
        self.hub.repos["org/tiny"] = hs.Repo(harness.model_files(shards=3, weights=1_000_000))
        self.hub.rate = 4_000_000
        whole = {}
        for delay in (0.15, 0.3, 0.45, 0.6):
            process = self.start("org/tiny")
            time.sleep(delay)
            process.kill()
            process.communicate()
            self.check_cache()
            for top, _, names in os.walk(self.cache):
                for name in names:
                    if os.path.basename(top) == "blobs" and not name.endswith(".incomplete"):
                        whole.setdefault(name, len(self.hub.requests("GET", "/store/" + name)))
        self.hub.rate = 0
        self.check_snapshot(self.good())
        self.assertEqual([], self.leftovers())
        for name, n_requests in whole.items():
            self.assertEqual(n_requests, len(self.hub.requests("GET", "/store/" + name)), "fetched again though whole")

    def test_leftover_of_the_wrong_content(self):
        self.hub.repos["org/tiny"] = repo = hs.Repo(harness.model_files())
        etag = list(repo.commits.values())[0]["model.safetensors"].etag
        for junk in (b"\0" * 1000, b"\0" * 300_000, b"\0" * 400_000):
            blobs = os.path.join(self.repo_folder(), "blobs")
            os.makedirs(blobs, exist_ok=True)
            with open(os.path.join(blobs, etag + ".incomplete"), "wb") as f:
                f.write(junk)
            self.check_snapshot(self.good())
            self.assertEqual([], self.leftovers())
            os.remove(os.path.join(blobs, etag))

    def test_whole_but_unnamed(self):
        files = harness.model_files()
        self.hub.repos["org/tiny"] = repo = hs.Repo(files)
        etag = list(repo.commits.values())[0]["model.safetensors"].etag
        blobs = os.path.join(self.repo_folder(), "blobs")
        os.makedirs(blobs)
        with open(os.path.join(blobs, etag + ".incomplete"), "wb") as f:
            f.write(files["model.safetensors"])
        self.check_snapshot(self.good())
        self.assertEqual([], self.hub.requests("GET", "/store/" + etag))

    def test_two_pulls_at_once(self):
        self.hub.repos["org/tiny"] = repo = hs.Repo(harness.model_files(weights=2_000_000))
        self.hub.rate = 4_000_000
        both = [self.start("org/tiny") for _ in range(3)]
        for process in both:
            _, err = process.communicate(timeout=60)
            self.assertEqual(0, process.returncode, err)
        self.check_cache()
        etag = list(repo.commits.values())[0]["model.safetensors"].etag
        self.assertEqual(1, len(self.hub.requests("GET", "/store/" + etag)), "one of them fetched, the others waited")


if __name__ == "__main__":
    harness.main(__name__)
