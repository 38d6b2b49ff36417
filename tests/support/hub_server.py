"""A small hub of models on this machine, that behaves badly where a test asks for it.

Hub() listens on two ports: the hub, and the store that it redirects downloads to. repo(NAME, files, **quirks) adds a
repository. Quirks of downloads: cut=N (each answer ends after N bytes), cuts=K (so many times), no_range, etags (another
ETag each time), change (other bytes once the first answer was cut), busy=K (429 so many times), retry_after,
length (a wrong Content-Length for whole answers), extra (bytes too many), redirect (where else to), direct (no store), stall (seconds before the
body), delay (seconds between pieces), status (an answer without a body), wrong_start. Of the list: raw (bytes in
place of JSON), gated, private, list_busy, sizes and sums (what it tells of a file)."""
# SPDX-License-Identifier: Apache-2.0
import hashlib
import http.server
import json
import socketserver
import threading
import time
import urllib.parse


class Repo:
    def __init__(self, name, files, quirks):
        self.name, self.files, self.quirks = name, dict(files), quirks
        self.commit = hashlib.sha1(name.encode() + b"".join(self.files.values())).hexdigest()
        self.served = 0  # downloads that were answered with bytes

    def listing(self):
        siblings = [{"rfilename": "README.md", "size": 3, "blobId": "0" * 40}]
        for name, content in self.files.items():
            size = self.quirks.get("sizes", {}).get(name, len(content))
            sha = self.quirks.get("sums", {}).get(name, hashlib.sha256(content).hexdigest())
            siblings.append({"rfilename": name, "size": size, "blobId": hashlib.sha1(content).hexdigest(),
                             "lfs": {"sha256": sha, "size": size, "pointerSize": 134}})
        return json.dumps({"id": self.name, "sha": self.commit, "private": False, "gated": False, "siblings": siblings}).encode()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def answer(self, status, body=b"", **headers):
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key.replace("_", "-"), str(value))
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        hub = self.server.hub
        path = urllib.parse.urlsplit(self.path)
        with hub.lock:
            hub.seen.append((self.server.role, self.path, dict(self.headers)))
        parts = urllib.parse.unquote(path.path).split("/")
        try:
            if self.server.role == "store":
                return self.store(parts)
            if parts[1:3] == ["api", "models"] and len(parts) > 5:
                return self.list(hub.repos.get("/".join(parts[3:5])), parts[6:])
            if path.path == "/api/models":
                return self.answer(200, json.dumps([{"id": n} for n in hub.repos]).encode())
            if len(parts) > 5 and parts[3] == "resolve":
                return self.resolve(hub.repos.get("/".join(parts[1:3])), parts[4], "/".join(parts[5:]))
            self.answer(404, b"nothing")
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def allowed(self, repo):
        """Whether the request may go on; it is answered where not."""
        token = self.headers.get("Authorization")
        if repo is None:
            self.answer(404 if token else 401, X_Error_Code="RepoNotFound")
        elif repo.quirks.get("gated") and token != "Bearer good":
            self.answer(403 if token else 401, b"x" * 200000, X_Error_Code="GatedRepo")
        elif repo.quirks.get("private") and token != "Bearer good":
            self.answer(403 if token else 401)
        else:
            return True
        return False

    def busy(self, repo, key):
        with self.server.hub.lock:
            left = repo.quirks.get(key, 0)
            repo.quirks[key] = left - 1
        if left > 0:
            headers = {"Retry_After": repo.quirks["retry_after"]} if "retry_after" in repo.quirks else {}
            self.answer(repo.quirks.get("busy_status", 429), b"busy", **headers)
        return left > 0

    def list(self, repo, revision):
        if repo is not None and self.busy(repo, "list_busy"):
            return
        if not self.allowed(repo):
            return
        if "/".join(revision) not in ("main", "v2", repo.commit):
            return self.answer(404, X_Error_Code="RevisionNotFound")
        self.answer(200, repo.quirks.get("raw", repo.listing()), Content_Type="application/json")

    def resolve(self, repo, commit, name):
        if not self.allowed(repo):
            return
        if repo.quirks.get("direct"):
            return self.send(repo, name)
        content = repo.files[name]
        store = repo.quirks.get("redirect") or self.server.hub.store_url
        self.answer(302, b"see there", Location=f"{store}/{repo.name}/{urllib.parse.quote(name)}?signed=1",
                    X_Linked_Etag='"%s"' % repo.quirks.get("linked", {}).get(name, repo.quirks.get("sums", {}).get(name, hashlib.sha256(content).hexdigest())), X_Linked_Size=len(content),
                    X_Repo_Commit=repo.commit)

    def store(self, parts):
        repo = self.server.hub.repos["/".join(parts[1:3])]
        self.send(repo, "/".join(parts[3:]))

    def send(self, repo, name):
        quirks = repo.quirks
        if self.busy(repo, "busy"):
            return
        if "status" in quirks:
            return self.answer(quirks["status"], b"no")
        with self.server.hub.lock:
            repo.served += 1
            served = repo.served
        content = repo.files[name]
        if quirks.get("change") and served == 1:
            content = bytes(len(content))  # what it was before it changed
        etag = '"%s"' % (served if quirks.get("etags") else hashlib.md5(content).hexdigest())
        begin, ranged = 0, self.headers.get("Range")
        fresh = self.headers.get("If-Range") in (None, etag)
        if ranged and fresh and not quirks.get("no_range"):
            begin = int(ranged[len("bytes="):-1])
            if begin >= len(content):
                return self.answer(416, Content_Range=f"bytes */{len(content)}")
            self.send_response(206)
            told = begin + quirks.get("wrong_start", 0)
            self.send_header("Content-Range", f"bytes {told}-{len(content) - 1}/{len(content)}")
        else:
            self.send_response(200)
        body = content[begin:] + b"x" * quirks.get("extra", 0)
        self.send_header("ETag", etag)
        if quirks.get("length") != "none":
            self.send_header("Content-Length", str(quirks.get("length", len(body))))
        else:
            self.send_header("Connection", "close")
            self.close_connection = True
        self.end_headers()
        time.sleep(quirks.get("stall", 0))
        cut = len(body)
        if "cut" in quirks and quirks.get("cuts", 1 << 30) >= served:
            cut = min(cut, quirks["cut"])
        for at in range(0, cut, 1 << 16):
            self.wfile.write(body[at:min(at + (1 << 16), cut)])
            time.sleep(quirks.get("delay", 0))
        if cut < len(body):
            self.wfile.flush()
            self.close_connection = True


class Listener(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def verify_request(self, request, client_address):
        with self.hub.lock:
            self.hub.n_connections += 1
        return True

    def handle_error(self, request, client_address):
        pass


class Hub:
    def __init__(self, tls=None):
        """tls: the context of an https hub"""
        self.lock = threading.Lock()
        self.repos, self.seen = {}, []
        self.n_connections = 0
        self.listeners = []
        for role in ("hub", "store"):
            listener = Listener(("127.0.0.1", 0), Handler)
            listener.hub, listener.role = self, role
            if tls is not None:
                # Each connection shakes hands in its own thread, with the first bytes that are read.
                listener.socket = tls.wrap_socket(listener.socket, server_side=True, do_handshake_on_connect=False)
            threading.Thread(target=listener.serve_forever, daemon=True).start()
            self.listeners.append(listener)
        # Two names of one machine, so that they are two hosts as well.
        scheme = "http" if tls is None else "https"
        self.url = f"{scheme}://127.0.0.1:{self.listeners[0].server_port}"
        self.store_url = f"{scheme}://localhost:{self.listeners[1].server_port}"

    def repo(self, name, files, **quirks):
        self.repos[name] = Repo(name, files, quirks)
        return self.repos[name]

    def requests(self, role=None, part=""):
        with self.lock:
            return [s for s in self.seen if (role is None or s[0] == role) and part in s[1]]

    def close(self):
        for listener in self.listeners:
            listener.shutdown()
            listener.server_close()
