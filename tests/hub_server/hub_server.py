"""A Hub on the loopback interface that misbehaves on request.

It speaks the part of the Hugging Face Hub's HTTP interface that clients need to download a model: the listing, the
list of refs, HEAD and GET of files with the Hub's headers, redirects of large files to a store. Every request is
logged. A test adds rules; the first rule that matches a request replaces or damages the reply. Python's standard
library only.
"""

import hashlib
import json
import os
import socket
import ssl
import threading
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

LARGE = 1 << 16  # files from this size on lie in the store, as LFS files do on the Hub


def git_sha1(content):
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


class File:
    """Content with the ETag the Hub would give it. Large content may lie on disk."""

    def __init__(self, content=None, path=None, large=None):
        self.content, self.path = content, path
        self.size = len(content) if path is None else os.path.getsize(path)
        self.large = self.size >= LARGE if large is None else large
        self.sha256 = hashlib.sha256(content).hexdigest() if path is None else sha256_of(path)
        self.etag = self.sha256 if self.large else git_sha1(content)

    def read(self, first, last):
        if self.path is None:
            return self.content[first:last + 1]
        with open(self.path, "rb") as f:
            f.seek(first)
            return f.read(last + 1 - first)


def sha256_of(path):
    digest = hashlib.sha256()
    with open(path, "rb") as f:
        for block in iter(lambda: f.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()


class Repo:
    def __init__(self, files, commit=None):
        self.commits, self.branches, self.tags = {}, {}, {}
        self.gated = self.private = False
        self.push(files, commit=commit)

    def push(self, files, branch="main", commit=None):
        files = {name: f if isinstance(f, File) else File(f) for name, f in files.items()}
        seed = repr(sorted((name, f.etag) for name, f in files.items())).encode()
        commit = commit or hashlib.sha1(seed).hexdigest()
        self.commits[commit] = files
        self.branches[branch] = commit
        return commit

    def resolve(self, revision):
        commit = self.branches.get(revision) or self.tags.get(revision) or revision
        return commit if commit in self.commits else None


class Rule:
    def __init__(self, act, method=None, path="", times=None, skip=0):
        self.act, self.method, self.path, self.times, self.skip = act, method, path, times, skip

    def takes(self, method, path):
        if self.method not in (None, method) or self.path not in path or self.times == 0:
            return False
        if self.skip > 0:
            self.skip -= 1
            return False
        if self.times is not None:
            self.times -= 1
        return True


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = 0

    def log_message(self, *args):
        pass

    def do_HEAD(self):
        self.answer("HEAD")

    def do_GET(self):
        self.answer("GET")

    # A reply is (status, headers, content): bytes, a File with a (first, last) range, or None.
    def answer(self, method):
        hub = self.server.hub
        record = {"method": method, "path": self.path, "host": self.headers.get("Host"),
                  "auth": self.headers.get("Authorization"), "range": self.headers.get("Range"),
                  "encoding": self.headers.get("Accept-Encoding"), "server": self.server.name, "sent": 0,
                  "begin": time.monotonic(), "end": None}
        self.record = record
        with hub.lock:
            hub.log.append(record)
            rule = next((r for r in hub.rules if r.takes(method, self.path)), None)
        try:
            reply = self.normal_reply(method)
            record["status"] = reply[0]
            if rule is not None:
                reply = rule.act(self, method, reply)
                if reply is None:
                    self.close_connection = True
                    return
                record["status"] = reply[0]
            self.send(method, *reply)
        except (BrokenPipeError, ConnectionResetError, ssl.SSLError, socket.timeout):
            self.close_connection = True
        finally:
            record["end"] = time.monotonic()

    def normal_reply(self, method):
        hub = self.server.hub
        url = urllib.parse.urlsplit(self.path)
        parts = [urllib.parse.unquote(p) for p in url.path.split("/")[1:]]
        if parts[0] == "store" and parts[1] in hub.store:
            return self.store_reply(hub.store[parts[1]])
        if parts[:2] == ["api", "models"]:
            return self.api_reply(parts[2:])
        if "resolve" in parts:
            at = parts.index("resolve")
            return self.file_reply("/".join(parts[:at]), parts[at + 1], "/".join(parts[at + 2:]))
        return 404, {"X-Error-Code": "EntryNotFound"}, b""

    def closed(self, repo_id):
        """The Hub's refusal, or None when the repository is open to this request."""
        hub = self.server.hub
        repo = hub.repos.get(repo_id)
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        if token and token in hub.expired_tokens:
            return 401, {"X-Error-Message": "User Access Token \"laptop\" is expired"}, b""
        if token and hub.valid_tokens and token not in hub.valid_tokens:
            return 401, {"X-Error-Message": "Invalid credentials in Authorization header"}, b""
        if repo is None or (repo.private and token not in hub.valid_tokens):
            return (404 if token else 401), {"X-Error-Code": "RepoNotFound", "X-Error-Message": "Repository not found"}, b""
        if repo.gated and token not in hub.members:
            return 403 if token else 401, {"X-Error-Code": "GatedRepo", "X-Error-Message":
                                           "Access to model %s is restricted" % repo_id}, b""
        return None

    def api_reply(self, parts):
        hub = self.server.hub
        if not hub.has_api:
            return 404, {}, b"not here"
        tail = next((i for i, p in enumerate(parts) if p in ("revision", "refs", "tree")), len(parts))
        repo_id = "/".join(parts[:tail])
        refusal = self.closed(repo_id)
        if refusal:
            return refusal
        repo = hub.repos[repo_id]
        if parts[tail:tail + 1] == ["refs"]:
            ref = lambda kind, items: [{"name": n, "ref": kind + n, "targetCommit": c} for n, c in items.items()]
            return self.json_reply({"branches": ref("refs/heads/", repo.branches), "tags": ref("refs/tags/", repo.tags),
                                    "converts": []})
        revision = parts[tail + 1] if tail + 1 < len(parts) else "main"
        commit = repo.resolve(revision)
        if commit is None:
            return 404, {"X-Error-Code": "RevisionNotFound", "X-Error-Message": "Invalid rev id: %s" % revision}, b""
        files = repo.commits[commit]
        if parts[tail:tail + 1] == ["tree"]:
            folder = "/".join(parts[tail + 2:])
            entries = [{"type": "file", "path": n, "size": f.size, "oid": f.etag} for n, f in files.items()
                       if not folder or n.startswith(folder + "/")]
            if folder and not entries:
                return 404, {"X-Error-Code": "EntryNotFound"}, b""
            return self.json_reply(entries)
        return self.json_reply({"id": repo_id, "modelId": repo_id, "sha": commit, "private": False, "tags": [],
                                "downloads": 0, "siblings": [{"rfilename": name} for name in files]})

    @staticmethod
    def json_reply(value):
        return 200, {"Content-Type": "application/json"}, json.dumps(value).encode()

    def file_reply(self, repo_id, revision, name):
        hub = self.server.hub
        refusal = self.closed(repo_id)
        if refusal:
            return refusal
        repo = hub.repos[repo_id]
        commit = repo.resolve(revision)
        if commit is None:
            return 404, {"X-Error-Code": "RevisionNotFound"}, b""
        file = repo.commits[commit].get(name)
        if file is None:
            return 404, {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": commit}, b""
        headers = {"X-Repo-Commit": commit, "Accept-Ranges": "bytes"}
        if not file.large:
            headers["ETag"] = '"%s"' % file.etag
            return self.ranged(file, headers)
        with hub.lock:
            hub.store[file.etag] = file
        base = hub.store_url or ""
        headers.update({"X-Linked-Etag": '"%s"' % file.etag, "X-Linked-Size": str(file.size),
                        "Location": "%s/store/%s?signature=secret-of-the-store" % (base, file.etag),
                        "X-Xet-Hash": "0" * 64 if hub.xet_headers else None, "ETag": '"pointer-of-%s"' % file.etag[:8]})
        return 302, {k: v for k, v in headers.items() if v is not None}, b""

    def store_reply(self, file):
        return self.ranged(file, {"ETag": '"%s"' % hashlib.md5(file.etag.encode()).hexdigest(), "Accept-Ranges": "bytes"})

    def ranged(self, file, headers):
        wanted = self.headers.get("Range")
        if not wanted:
            return 200, headers, (file, 0, file.size - 1)
        first, _, last = wanted.removeprefix("bytes=").partition("-")
        first, last = int(first), min(int(last or file.size - 1), file.size - 1)
        if first > last:
            return 416, dict(headers, **{"Content-Range": "bytes */%d" % file.size}), b""
        return 206, dict(headers, **{"Content-Range": "bytes %d-%d/%d" % (first, last, file.size)}), (file, first, last)

    def send_head(self, status, headers):
        self.send_response_only(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def send(self, method, status, headers, content):
        length = content[2] + 1 - content[1] if isinstance(content, tuple) else len(content)
        headers.setdefault("Content-Length", str(length))
        self.send_head(status, headers)
        if method == "HEAD":
            return
        if isinstance(content, tuple):
            self.send_file(*content)
        else:
            self.put(content)

    def send_file(self, file, first, last):
        position = first
        if file.path is None or self.server.hub.rate or isinstance(self.connection, ssl.SSLSocket):
            while position <= last:
                self.put(file.read(position, min(position + (1 << 16) - 1, last)))
                position += 1 << 16
                if self.server.hub.rate:
                    time.sleep((1 << 16) / self.server.hub.rate)
            return
        with open(file.path, "rb") as f:
            while position <= last:
                n = os.sendfile(self.connection.fileno(), f.fileno(), position, last + 1 - position)
                position += n
                self.record["sent"] += n

    def put(self, content):
        self.connection.sendall(content)
        self.record["sent"] += len(content)


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, hub, name, tls=None):
        super().__init__(("127.0.0.1", 0), Handler)
        self.hub, self.name, self.tls = hub, name, tls
        self.url = "%s://127.0.0.1:%d" % ("https" if tls else "http", self.server_port)
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def finish_request(self, request, address):
        if self.tls:
            request = self.tls.wrap_socket(request, server_side=True)
        self.RequestHandlerClass(request, address, self)

    def handle_error(self, request, address):
        pass


class Hub:
    """The Hub ("hub") and, with `split`, a store under another port ("store")."""

    def __init__(self, split=False, tls=None):
        self.repos, self.store, self.log, self.rules = {}, {}, [], []
        self.valid_tokens, self.expired_tokens, self.members = set(), set(), set()
        self.has_api, self.xet_headers, self.rate = True, False, 0
        self.lock = threading.Lock()
        self.front = Server(self, "hub", tls)
        self.back = Server(self, "store", tls) if split else None
        self.store_url = self.back.url if split else None
        self.url = self.front.url

    def rule(self, act, **kwargs):
        with self.lock:
            self.rules.append(Rule(act, **kwargs))

    def close(self):
        for server in (self.front, self.back):
            if server:
                server.shutdown()
                server.server_close()

    def requests(self, method=None, path=""):
        with self.lock:
            return [r for r in self.log if method in (None, r["method"]) and path in r["path"]]


# ----------------------------------------------------------------------------------------------- misbehaviours


def status(code, **headers):
    headers = {k.replace("_", "-"): v for k, v in headers.items()}
    return lambda handler, method, reply: (code, dict(headers), b"")


def drop(handler, method, reply):
    """Closes the connection without an answer."""
    return None


def drop_after(n):
    """Promises everything, sends n bytes of it, closes."""
    def act(handler, method, reply):
        code, headers, content = reply
        if code not in (200, 206) or not isinstance(content, tuple):
            return reply
        file, first, last = content
        headers["Content-Length"] = str(last + 1 - first)
        handler.send_head(code, headers)
        handler.put(file.read(first, min(first + n - 1, last)))
        return None
    return act


def stall_after(n, seconds=30):
    """Sends the head and n bytes, then nothing while the connection stays open. n < 0: not even the head."""
    def act(handler, method, reply):
        code, headers, content = reply
        if n >= 0:
            if not isinstance(content, tuple):
                return reply
            file, first, last = content
            headers["Content-Length"] = str(last + 1 - first)
            handler.send_head(code, headers)
            handler.put(file.read(first, first + n - 1) if n else b"")
        wait_open(handler, seconds)
        return None
    return act


def trickle(pause=0.3, seconds=60):
    """One byte at a time."""
    def act(handler, method, reply):
        code, headers, content = reply
        if not isinstance(content, tuple):
            return reply
        file, first, last = content
        headers["Content-Length"] = str(last + 1 - first)
        handler.send_head(code, headers)
        end = time.monotonic() + seconds
        for i in range(first, last + 1):
            if time.monotonic() > end:
                break
            handler.put(file.read(i, i))
            time.sleep(pause)
        return None
    return act


def trickle_head(pause=0.3, seconds=60):
    """An endless reply head, one short header at a time."""
    def act(handler, method, reply):
        handler.put(b"HTTP/1.1 200 OK\r\n")
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            handler.put(b"X-A: b\r\n")
            time.sleep(pause)
        return None
    return act


def huge_headers(handler, method, reply):
    handler.put(b"HTTP/1.1 200 OK\r\n")
    for i in range(150):
        handler.put(b"X-%d: " % i + b"y" * 1000 + b"\r\n")
    return None


def not_http(handler, method, reply):
    handler.put(b"220 mail.example ESMTP\r\n")
    return None


def wrong_range(shift):
    """A 206 for other bytes than those asked for."""
    def act(handler, method, reply):
        code, headers, content = reply
        if code != 206:
            return reply
        file, first, last = content
        first = max(0, first + shift)
        return 206, dict(headers, **{"Content-Range": "bytes %d-%d/%d" % (first, last, file.size)}), (file, first, last)
    return act


def ignore_range(handler, method, reply):
    code, headers, content = reply
    if code != 206:
        return reply
    headers.pop("Content-Range")
    return 200, headers, (content[0], 0, content[0].size - 1)


def lie_about_length(delta):
    """Content-Length off by delta, then the connection closes."""
    def act(handler, method, reply):
        code, headers, content = reply
        if not isinstance(content, tuple):
            return reply
        file, first, last = content
        headers["Content-Length"] = str(last + 1 - first + delta)
        handler.send_head(code, headers)
        if method == "GET":
            handler.put(file.read(first, last) + b"x" * max(delta, 0))
        return None
    return act


def corrupt(handler, method, reply):
    code, headers, content = reply
    if not isinstance(content, tuple):
        return reply
    file, first, last = content
    damaged = bytearray(file.read(first, last))
    damaged[len(damaged) // 2] ^= 1
    return code, headers, bytes(damaged)


def chunked(handler, method, reply):
    code, headers, content = reply
    if not isinstance(content, tuple):
        return reply
    headers["Transfer-Encoding"] = "chunked"
    handler.send_head(code, headers)
    if method == "GET":
        body = content[0].read(content[1], content[2])
        for i in range(0, len(body), 1000):
            part = body[i:i + 1000]
            handler.put(b"%x\r\n" % len(part) + part + b"\r\n")
        handler.put(b"0\r\n\r\n")
    return None


def endless(limit):
    """Chunked and without a size, until the client leaves or `limit` bytes are sent."""
    def act(handler, method, reply):
        code, headers, content = reply
        if not isinstance(content, tuple):
            return reply
        for name in ("X-Linked-Size", "Content-Length"):
            headers.pop(name, None)
        headers["Transfer-Encoding"] = "chunked"
        handler.send_head(code, headers)
        part = b" " * (1 << 20)
        for _ in range(limit >> 20 if method == "GET" else 0):
            try:
                handler.wfile.write(b"%x\r\n" % len(part) + part + b"\r\n")
            except OSError:
                break
            handler.server.hub.sent = getattr(handler.server.hub, "sent", 0) + len(part)
        handler.close_connection = True
        return None
    return act


def chunked_cut(n):
    """Chunked, closed after n bytes without the last chunk."""
    def act(handler, method, reply):
        code, headers, content = reply
        if not isinstance(content, tuple):
            return reply
        headers["Transfer-Encoding"] = "chunked"
        handler.send_head(code, headers)
        body = content[0].read(content[1], content[2])[:n]
        handler.put(b"%x\r\n" % len(body) + body + b"\r\n")
        return None
    return act


def gzipped(handler, method, reply):
    import gzip
    code, headers, content = reply
    if not isinstance(content, tuple):
        return reply
    headers["Content-Encoding"] = "gzip"
    return code, headers, gzip.compress(content[0].read(content[1], content[2]))


def redirect(location, code=302, **headers):
    return lambda handler, method, reply: (code, dict(headers, Location=location), b"")


def wait_open(handler, seconds):
    """Until the other side closes, at most `seconds`."""
    handler.connection.settimeout(seconds)
    try:
        handler.connection.recv(1)
    except OSError:
        pass
