"""One error with a hint for each thing that can be wrong, the token kept to itself, names kept inside the cache."""

import json
import os
import subprocess
import tempfile
import unittest

import harness
import hub_server as hs
from harness import TOKEN


class Refusals(harness.HubCase):
    def setUp(self):
        super().setUp()
        self.repo = self.hub.repos["org/tiny"] = hs.Repo(harness.model_files())
        self.hub.valid_tokens = {TOKEN}

    def test_gated_without_token(self):
        self.repo.gated = True
        self.bad("gated", "licence", self.hub.url + "/org/tiny", "HF_TOKEN")

    def test_gated_with_token(self):
        self.repo.gated = True
        self.bad("gated", "licence", "account of your token", HF_TOKEN=TOKEN)
        self.hub.members = {TOKEN}
        self.check_snapshot(self.good(HF_TOKEN=TOKEN))

    def test_missing_repository(self):
        self.bad("org/nothing", "spelling", "HF_TOKEN", ref="org/nothing")

    def test_missing_repository_with_token(self):
        self.bad("org/nothing", "token in use has no access", ref="org/nothing", HF_TOKEN=TOKEN)

    def test_private_repository(self):
        self.repo.private = True
        self.bad("private", "HF_TOKEN")
        self.check_snapshot(self.good(HF_TOKEN=TOKEN))

    def test_missing_revision_lists_a_few(self):
        self.repo.tags["v1.0"] = self.repo.branches["main"]
        self.bad("v9", "main", "v1.0", ref="org/tiny@v9")

    def test_missing_commit(self):
        self.bad("0" * 40, "main", ref="org/tiny@" + "0" * 40)

    def test_bad_token(self):
        self.bad("token", "refuses", "HF_TOKEN", HF_TOKEN="hf_wrong_one")

    def test_expired_token(self):
        self.hub.expired_tokens = {TOKEN}
        self.bad("expired", "settings/tokens", HF_TOKEN=TOKEN)

    def test_forbidden(self):
        self.hub.rule(hs.status(403, X_Error_Message="no read permission"))
        self.bad("permission", HF_TOKEN=TOKEN)

    def test_only_pickles(self):
        commit = self.repo.branches["main"]
        del self.repo.commits[commit]["model.safetensors"]
        self.bad("pytorch_model.bin", "convert", "save_pretrained", "never reads")
        self.assertEqual([], self.hub.requests(path="pytorch_model.bin"))

    def test_only_gguf(self):
        commit = self.repo.branches["main"]
        self.repo.commits[commit] = {"model-Q4_0.gguf": hs.File(b"GGUF" * 100), "config.json": hs.File(b"{}")}
        self.bad("--gguf", "model-Q4_0.gguf")

    def test_no_weights_at_all(self):
        commit = self.repo.branches["main"]
        self.repo.commits[commit] = {"config.json": hs.File(b"{}")}
        self.bad("model.safetensors", "no weights")

    def test_no_config(self):
        del self.repo.commits[self.repo.branches["main"]]["config.json"]
        self.bad("config.json")

    def test_unsupported_architecture(self):
        for config in ({"model_type": "bert", "architectures": ["BertModel"]}, {"architectures": ["MambaForCausalLM"]}):
            files = dict(harness.model_files(), **{"config.json": json.dumps(config).encode()})
            self.hub.repos["org/tiny"] = hs.Repo(files)
            self.hub.log.clear()
            self.bad(config["architectures"][0])
            self.assertEqual({"config.json"}, {r["path"].split("/")[-1] for r in self.hub.log if "resolve" in r["path"]})

    def test_missing_shard(self):
        self.hub.repos["org/tiny"] = repo = hs.Repo(harness.model_files(shards=3))
        del repo.commits[repo.branches["main"]]["model-00002-of-00003.safetensors"]
        self.bad("model-00002-of-00003.safetensors")

    def test_broken_index(self):
        for text in (b"", b"[]", b"{}", b'{"weight_map": 3}', b'{"weight_map": {}}', b'{"weight_map": {"a": 3}}', b"{" * 100000):
            files = harness.model_files(shards=2)
            files["model.safetensors.index.json"] = text
            self.hub.repos["org/tiny"] = hs.Repo(files)
            self.bad("model.safetensors.index.json")

    def test_missing_gguf(self):
        self.bad("Q9.gguf", args=("--gguf", "Q9.gguf"))

    def test_full_disk(self):
        def huge(handler, method, reply):
            return reply[0], dict(reply[1], **{"X-Linked-Size": str(1 << 60)}), reply[2]
        self.hub.rule(huge, path="model.safetensors")
        self.bad("room", "free", "HF_HUB_CACHE")
        self.assertEqual([], self.hub.requests("GET", "/store/"))

    def test_disk_fills_up_during_the_transfer(self):
        if os.geteuid() != 0:
            self.skipTest("needs to mount a small disk")
        mounted = os.path.join(self.folder, "disk")
        os.mkdir(mounted)
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=600k", "tmpfs", mounted], capture_output=True).returncode:
            self.skipTest("needs to mount a small disk")
        try:
            def less(handler, method, reply):
                return reply[0], {k: v for k, v in reply[1].items() if k != "X-Linked-Size"}, reply[2]
            self.repo.push(harness.model_files(weights=2_000_000))
            self.hub.rule(less, method="HEAD", path="model.safetensors")
            self.hub.rule(hs.chunked, method="HEAD", path="/store/")
            self.bad("disk full", HF_HUB_CACHE=mounted)
        finally:
            subprocess.run(["umount", mounted], check=False)

    def test_cache_that_cannot_be_made(self):
        blocked = os.path.join(self.folder, "file")
        open(blocked, "w").close()
        self.bad("HF_HUB_CACHE", HF_HUB_CACHE=os.path.join(blocked, "below"))

    def test_variables_that_cannot_be_read(self):
        self.bad("HF_HUB_ETAG_TIMEOUT", HF_HUB_ETAG_TIMEOUT="soon")
        self.bad("HF_HUB_DOWNLOAD_TIMEOUT", HF_HUB_DOWNLOAD_TIMEOUT="-1")
        self.bad("HF_ENDPOINT", HF_ENDPOINT="gopher://x")
        self.bad("token", HF_TOKEN="two words")

    def test_ids_that_break_the_rules(self):
        for ref in ("", "a/b/c", "../x", "org/--x", "org/x..y", "org/.x", "org/x.git", "org/x@", "org/x@../y", "org/x@/y", "org/x@a\\b"):
            self.assertEqual(1, self.pull(ref).code, ref)
        self.assertEqual([], self.hub.log)


class Names(harness.HubCase):
    """Nothing that a server says leads out of the cache."""

    EVIL = ("../evil", "../../../../evil", "/evil", "a/../../evil", "a\\..\\evil", "./evil", "a//evil", "evil\0x", "evil\n")

    def tree(self):
        return {os.path.relpath(os.path.join(top, n), self.folder) for top, _, names in os.walk(self.folder) for n in names}

    def check_inside(self):
        outside = {n for n in self.tree() if not n.startswith("home/hub/") or "evil" in n}
        self.assertEqual(set(), outside)

    def test_listing(self):
        for name in self.EVIL:
            self.hub.repos["org/tiny"] = repo = hs.Repo(harness.model_files())
            repo.commits[repo.branches["main"]][name] = hs.File(b"evil")
            self.bad("inside the repository")
            self.check_inside()

    def test_shards(self):
        for name in self.EVIL:
            files = harness.model_files(shards=2)
            files["model.safetensors.index.json"] = json.dumps({"weight_map": {"a": name}}).encode()
            self.hub.repos["org/tiny"] = hs.Repo(files)
            self.bad()
            self.check_inside()

    def test_commits(self):
        for name in ("../evil", "", "/evil", "a/b", ".."):
            self.hub.rules.clear()
            self.hub.repos["org/tiny"] = hs.Repo(harness.model_files())
            self.hub.rule(lambda h, m, r, name=name: (200, {}, json.dumps({"sha": name, "siblings": [{"rfilename": "config.json"}]}).encode()),
                          path="/api/")
            self.bad()
            self.check_inside()

    def test_etags(self):
        self.hub.repos["org/tiny"] = hs.Repo(harness.model_files())
        for etag in ('"../../../evil"', '"/evil"', '".."', '""', '"evil/x"', '"' + "e" * 300 + '"', '"a\\b"'):
            self.hub.rules.clear()
            self.hub.rule(lambda h, m, r, etag=etag: (r[0], dict(r[1], ETag=etag), r[2]), path="config.json")
            self.bad("ETag")
            self.check_inside()

    def test_file_of_another_commit(self):
        self.hub.repos["org/tiny"] = hs.Repo(harness.model_files())
        self.hub.rule(lambda h, m, r: (r[0], dict(r[1], **{"X-Repo-Commit": "f" * 40}), r[2]), method="HEAD", path="config.json")
        self.bad("f" * 40)

    def test_gguf_option(self):
        self.hub.repos["org/tiny"] = hs.Repo(harness.model_files())
        for name in ("../x.gguf", "/x.gguf"):
            self.bad(args=("--gguf", name))
        self.assertEqual([], self.hub.log)


class Token(harness.HubCase):
    hub_options = {"split": True}

    def setUp(self):
        super().setUp()
        self.repo = self.hub.repos["org/tiny"] = hs.Repo(harness.model_files())
        self.repo.private = True
        self.hub.valid_tokens = {TOKEN}

    def auths(self, server):
        return {r["auth"] for r in self.hub.log if r["server"] == server}

    def test_goes_to_the_hub_only(self):
        self.check_snapshot(self.good(HF_TOKEN=TOKEN))
        self.assertEqual({"Bearer " + TOKEN}, self.auths("hub"))
        self.assertEqual({None}, self.auths("store"))

    def test_does_not_come_back_after_leaving(self):
        # The store sends the client back to the Hub: by then the token stays away.
        self.hub.rule(lambda h, m, r: hs.redirect(self.hub.url + "/store" + h.path.split("/store")[1])(h, m, r),
                      method="GET", path="/store/", times=1)
        self.check_snapshot(self.good(HF_TOKEN=TOKEN))
        self.assertIn(None, {r["auth"] for r in self.hub.log if r["server"] == "hub" and "/store/" in r["path"]})
        self.assertNotIn("Bearer " + TOKEN, {r["auth"] for r in self.hub.log if "/store/" in r["path"]})

    def test_not_to_a_redirected_listing(self):
        self.hub.rule(lambda h, m, r: hs.redirect(self.hub.back.url + h.path)(h, m, r), path="/api/", times=1)
        self.pull(HF_TOKEN=TOKEN)
        self.assertEqual({None}, self.auths("store"))

    def test_not_to_redirected_heads(self):
        self.hub.rule(lambda h, m, r: hs.redirect(self.hub.back.url + h.path)(h, m, r), method="HEAD")
        self.pull(HF_TOKEN=TOKEN)
        self.assertEqual({"Bearer " + TOKEN}, self.auths("hub"))
        self.assertLessEqual(self.auths("store"), {None})

    def test_sources_and_their_order(self):
        path = os.path.join(self.folder, "token_file")
        with open(path, "w") as f:
            f.write("  %s\n" % TOKEN)
        home = os.path.join(self.folder, "home")
        os.makedirs(home)
        with open(os.path.join(home, "token"), "w") as f:
            f.write("hf_of_the_home\n")
        self.hub.valid_tokens = {TOKEN, "hf_of_the_home", "hf_other"}
        for env, seen in (({"HF_TOKEN": TOKEN, "HUGGING_FACE_HUB_TOKEN": "hf_other"}, TOKEN),
                          ({"HUGGING_FACE_HUB_TOKEN": TOKEN}, TOKEN), ({"HF_TOKEN": "", "HUGGING_FACE_HUB_TOKEN": "hf_other"}, "hf_other"),
                          ({"HF_TOKEN_PATH": path}, TOKEN), ({"HF_TOKEN_PATH": "~/token_file"}, TOKEN), ({}, "hf_of_the_home"),
                          ({"HF_TOKEN_PATH": path, "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1"}, None)):
            self.hub.log.clear()
            self.pull(**env)
            self.assertEqual({"Bearer " + seen if seen else None}, self.auths("hub"), env)

    def test_echoed_by_the_server(self):
        self.hub.rule(hs.status(403, X_Error_Message="token %s may not" % TOKEN))
        self.bad("<token>", HF_TOKEN=TOKEN)
        self.hub.rules.clear()
        self.hub.rule(hs.redirect("gopher://" + TOKEN))
        self.bad(HF_TOKEN=TOKEN)
        self.hub.rules.clear()
        self.hub.rule(lambda h, m, r: (200, {}, json.dumps({"sha": "a", "siblings": [{"rfilename": "../" + TOKEN}]}).encode()))
        self.bad(HF_TOKEN=TOKEN)


@unittest.skipIf(subprocess.run(["which", "openssl"], capture_output=True).returncode, "needs the openssl command")
class Tls(unittest.TestCase):
    """A Hub behind a certificate authority of one's own."""

    def run(self, result=None):
        # The Hub needs the certificate, so the case is made here.
        with tempfile.TemporaryDirectory() as folder:
            self.authority = make_certificates(folder)
            self.folder = folder
            super().run(result)

    def case(self):
        import ssl
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(os.path.join(self.folder, "server.pem"), os.path.join(self.folder, "server.key"))
        case = harness.HubCase()
        case.hub_options = {"tls": context, "split": True}
        case.setUp()
        self.addCleanup(case.tearDown)
        case.hub.repos["org/tiny"] = hs.Repo(harness.model_files())
        return case

    def test_unknown_authority(self):
        self.case().bad("TLS", "REQUESTS_CA_BUNDLE")

    def test_known_authority(self):
        for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE"):
            case = self.case()
            case.check_snapshot(case.good(**{name: self.authority}))

    def test_order_of_the_variables(self):
        with tempfile.TemporaryDirectory() as other:
            wrong = make_certificates(other)
            self.case().bad("TLS", REQUESTS_CA_BUNDLE=wrong, CURL_CA_BUNDLE=self.authority)

    def test_bundle_that_is_not_there(self):
        self.case().bad("REQUESTS_CA_BUNDLE", REQUESTS_CA_BUNDLE="/nonexistent/ca.pem")

    def test_wrong_host(self):
        case = self.case()
        case.bad("TLS", HF_ENDPOINT=case.hub.url.replace("127.0.0.1", "localhost"), REQUESTS_CA_BUNDLE=self.authority)

    def test_redirect_to_plain_http_is_refused(self):
        case = self.case()
        plain = hs.Hub()
        self.addCleanup(plain.close)
        case.hub.rule(lambda h, m, r: hs.redirect(plain.url + h.path)(h, m, r), path="/store/")
        case.bad("https", REQUESTS_CA_BUNDLE=self.authority)
        self.assertEqual([], plain.log)


def make_certificates(folder):
    def openssl(*args):
        subprocess.run(["openssl", *args], cwd=folder, check=True, capture_output=True)
    openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "ca.key", "-out", "ca.pem", "-days", "2", "-subj", "/CN=test authority")
    openssl("req", "-newkey", "rsa:2048", "-nodes", "-keyout", "server.key", "-out", "server.csr", "-subj", "/CN=127.0.0.1")
    with open(os.path.join(folder, "names"), "w") as f:
        f.write("subjectAltName=IP:127.0.0.1\n")
    openssl("x509", "-req", "-in", "server.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-out", "server.pem", "-days", "2",
            "-extfile", "names")
    return os.path.join(folder, "ca.pem")


class Proxies(harness.HubCase):
    def setUp(self):
        super().setUp()
        self.hub.repos["org/tiny"] = hs.Repo(harness.model_files())

    def test_plain_http_goes_through_the_proxy(self):
        # The loopback Hub takes absolute request lines as a proxy would.
        seen = []

        def as_proxy(handler, method, reply):
            seen.append(handler.path)
            handler.path = "/" + handler.path.split("/", 3)[3] if handler.path.startswith("http://") else handler.path
            return handler.normal_reply(method)

        self.hub.rule(as_proxy)
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            seen.clear()
            result = self.pull(HF_ENDPOINT="http://hub.invalid", HF_HOME=os.path.join(self.folder, name), **{name: self.hub.url})
            self.assertEqual(0, result.code, result)
            self.assertTrue(seen and all(path.startswith("http://hub.invalid/") for path in seen), (name, seen))

    def test_no_proxy(self):
        for name in ("no_proxy", "NO_PROXY"):
            self.check_snapshot(self.good(http_proxy="http://127.0.0.1:1", **{name: "127.0.0.1"}))

    def test_proxy_that_is_down(self):
        self.bad("proxy", http_proxy="http://127.0.0.1:1")

    def test_proxy_that_refuses_the_tunnel(self):
        class Tunnel(hs.Handler):
            pass
        self.hub.rule(hs.status(407))
        self.bad("proxy", HF_ENDPOINT="https://hub.invalid", https_proxy=self.hub.url)


if __name__ == "__main__":
    harness.main(__name__)
