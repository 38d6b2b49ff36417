"""weir serve on the fake model: each path has the spellings that the guides name and no other, so that a proxy's rules about paths hold;
which pages are the server's own; and what the log may not have."""
# SPDX-License-Identifier: Apache-2.0
import atexit
import json
import os
import pty
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from checks import PATIENCE, check, environment  # noqa: E402
from parts import end, part, run_parts  # noqa: E402
from serve import Connection, Reply, Server, need_server, running  # noqa: E402

WEIR = os.path.abspath(os.environ["WEIR_BIN"])
SOURCE = os.environ["WEIR_SOURCE_DIR"]
CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"
SHORT = {"max_output_tokens": 3, "temperature": 0, "input": "hello"}
scratch = tempfile.TemporaryDirectory()

# As the guides have them. In brackets: what may be left out; "x" or "x/y" at the place of an id or a name.
ROWS = """
POST   [/v1]/chat/completions
POST   [/v1]/completions
POST   /completion
POST   /infill
POST   [/v1]/messages
POST   [/v1]/messages/count_tokens
POST   [/v1]/responses
POST   [/v1]/responses/input_tokens
GET    [/v1]/responses/*
DELETE [/v1]/responses/*
POST   [/v1]/responses/*/cancel
GET    [/v1]/responses/*/input_items
POST   /api/chat
POST   /api/generate
POST   /api/embed
POST   /api/embeddings
POST   /api/show
GET    /api/tags
GET    /api/ps
GET    /api/version
POST   /api/pull
POST   /api/create
POST   /api/copy
POST   /api/push
POST   /api/blobs/*
DELETE /api/delete
GET    /props
POST   [/v1]/embeddings
POST   /v1/completions/render
POST   /v1/chat/completions/render
POST   [/v1]/rerank
POST   [/v1]/reranking
POST   /v1/prefixes
GET    /v1/prefixes/*
POST   /v1/plan
POST   /tokenize
POST   /detokenize
POST   /apply-template
GET    /lora-adapters
POST   /lora-adapters
POST   /v1/load_lora_adapter
POST   /v1/unload_lora_adapter
POST   /v1/models/load
POST   /v1/models/unload
GET    [/v1]/models
GET    [/v1]/models/**
GET    /v1/streams/*
POST   /v1/streams/*/cancel
POST   [/v1]/chat/completions/control
GET    /metrics
GET    /slots
GET    /events
GET    /health
""".split("\n")[1:-1]
ROWS = [tuple(row.split()) for row in ROWS]


def ask(server, method, target, *headers, host="localhost"):
    connection = Connection(server)
    body = "Content-Length: 2\r\n\r\n{}" if method == "POST" else "\r\n"
    try:
        connection.send(f"{method} {target} HTTP/1.1\r\nHost: {host}\r\n" + "".join(h + "\r\n" for h in headers) + body)
        return connection.reply(head_only=method == "HEAD")
    finally:
        connection.close()


def is_nothing(reply):
    """Whether no handler was there; HEAD's answer has no text that says so."""
    return reply.status in (404, 405) and (not reply.body or b"there is nothing at" in reply.body or b"does not support" in reply.body)


# ---- Paths


@part
def rows():
    with open(os.path.join(SOURCE, "server", "http", "paths.c"), encoding="utf-8") as f:
        table = re.findall(r'^    \{"([A-Z]+)", "([^"]+)"', f.read(), re.M)
    check("the table has the paths that the guides have", sorted(table) == sorted(ROWS), set(table) ^ set(ROWS))


def spellings(path, star):
    """Others than `path`, which a proxy's rule for it does not match. star: any name may follow it."""
    parts = path[1:].split("/")
    yield "/" + path
    yield "/." + path
    yield "/x/.." + path
    yield "/%2e" + path
    yield "/" + parts[0].upper() + path[1 + len(parts[0]):]
    yield "/" + f"%{ord(parts[0][0]):02x}" + path[2:]
    yield "/" + f"%{ord(parts[0][0]):02X}" + path[2:]
    yield "%2f" + path[1:]
    yield "\\" + path[1:]
    for i in range(1, len(parts)):
        # Within an id, or between it and what follows, these are parts of the id.
        for between in ("//", "/./", "/x/../", "/;/", *(() if "x" in parts[i - 1:i + 1] else ("%2f", "%2F", "\\", ";/"))):
            yield "/" + "/".join(parts[:i]) + between + "/".join(parts[i:])
    if not star:
        yield from (path + tail for tail in ("/", "//", "/.", ";", ";x", ";x=1", ".", "%20", "%3f", "%2f", "+", "&x", ":8080", ".json", "/x/.."))
        yield path[:-1] + f"%{ord(path[-1]):02x}"


@part
def one_spelling():
    server = Server(WEIR, "--embeddings", "--prefix-key", "p" * 32)
    for method, pattern in ROWS:
        if pattern == "/events":
            method = "HEAD"  # a stream of events has no end
        full, star = pattern.replace("[/v1]", "/v1").replace("**", "x").replace("*", "x"), pattern.endswith("*")
        good = {full, full[3:]} if pattern.startswith("[") else {full}
        for path in sorted(good):
            check(f"{method} {path} is there", not is_nothing(ask(server, method, path)) and not is_nothing(ask(server, method, path + "?")), ask(server, method, path).body)
        bad = {s for path in good for s in spellings(path, star)} | {"/v1" + path for path in good} | {"/v1/v1" + full, "/V1" + full, "/v1" + full[3:] + "/v1"}
        if full.startswith("/v1/"):
            bad.add(full[3:])
        if star:
            bad -= {s for s in bad if any(s.startswith(path[:-1]) for path in good)}
        bad -= good
        wrong = []
        for target in sorted(bad):
            # In "[/v1]/models/**" anything may be a name: it says so itself.
            if method == "GET" and target.startswith(("/v1/models/", "/models/")):
                continue
            for where in (target, "http://localhost" + target):
                reply = ask(server, method, where)
                if not (is_nothing(reply) or (reply.status == 400 and (not reply.body or reply.error["code"] == "bad_request"))):
                    wrong.append((where, reply.status, reply.body[:100]))
        check(f"{method} {pattern}: none of {len(bad)} others", not wrong, *wrong[:20])
    # Names of models may be encoded, and only they.
    check("a model's name", ask(server, "GET", "/v1/models/fake%3A").status == ask(server, "GET", "/models/fake:").status == 200, ask(server, "GET", "/v1/models/fake%3A").body)
    check("an encoded slash in an id is a part of it", ask(server, "POST", "/v1/streams/x%2fcancel").status == 405 and
          ask(server, "GET", "/v1/responses/x%2Finput_items").error["message"].startswith('there is no response "x/input_items"'), ask(server, "GET", "/v1/responses/x%2Finput_items").body)
    for target in ("/v1/models/%zz", "/v1/models/%", "/v1/models/%4", "/nothing%00", "/%"):
        check(f"{target}: 400", ask(server, "GET", target).status == 400)
    end(server)


@part
def heads():
    """HEAD is answered like GET, without the text: what follows on the connection is the next answer."""
    server = Server(WEIR, "--prefix-key", "p" * 32)
    # The last is what Claude Code asks for to open a connection: nothing is there, and it reads no answer.
    for path in [pattern.replace("[/v1]", "/v1").replace("**", "fake:").replace("*", "x") for method, pattern in ROWS if method == "GET"] + ["/", "/api/hello"]:
        connection = Connection(server)
        connection.send(f"HEAD {path} HTTP/1.1\r\nHost: localhost\r\n\r\n")
        head = connection.reply(head_only=True)
        connection.send("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n" if path == "/events" else f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n")
        get = connection.reply()
        connection.close()
        check(f"HEAD {path}", head.status == get.status and head.body == b"", head.status, get.status, get.body)
        check(f"HEAD {path}: its type and whether it is there", path == "/events" or (head.headers.get("content-type") == get.headers.get("content-type") and "content-length" in head.headers), head.headers, get.headers)
    check("what is nowhere is a 404 with any method", [ask(server, method, "/api/hello").status for method in ("HEAD", "GET", "POST", "DELETE")] == [404] * 4)
    end(server)


# ---- Names of models


def odd_names(folder):
    """Names that a server might take for files, addresses, other models, formats or commands."""
    files = ("/etc/passwd", "../../../../etc/passwd", "..\\..\\etc\\passwd", folder + "/secret.gguf", "secret.gguf", "./secret.gguf", "secret", "~/secret.gguf", "$HOME/secret.gguf", "file://" + folder + "/secret.gguf",
             "/dev/zero", "/dev/stdin", "/proc/self/environ", "models.conf", "../models.conf")
    others = ("fake:seed=9", "fake:fail_load=1", "FAKE:", "One", "one ", " one", "one\t", "one\n", "one/", "/one", "one/..", "one;two", "one,two", "one two", "one:other", "one@sha256:0", "one#", "one?", "*", "o*", "o?e", "[one]", "one=two",
              "default ", "hidden", "hf:o/r", "hf:o/r:Q8_0", "o/r", "ollama:x", "llama3.2", "http://127.0.0.1:1/x.gguf", "https://hub.example/x.gguf", "ftp://x/y")
    odd = ("%s%s%s%n", "%2e%2e%2f", "{0}", "${x}", "$(id)", "`id`", "';--", '"', "\\", "\x7f", "\u202eeno", "on\u0435", "\u00e9", "\U0001f600", "\ufeffone", "one\u200b", "x" * 255, "x" * 300, "x" * 5000, "-m", "--model", "null", "0", "true", "None")
    for name in (*files, *others, *odd):
        yield name
    for i in range(0, len(files), 3):
        yield files[i] + "\u0000.gguf"


@part
def names():
    """A name that no model has is not found, wherever it stands: it leads to no file, no address and no other model."""
    with open(os.path.join(scratch.name, "secret.gguf"), "w") as f:
        f.write("swordfish")
    with open(os.path.join(scratch.name, "models.conf"), "w") as f:
        f.write("[one]\nmodel = fake:\n[two]\nmodel = fake:seed=2\n")
    chat, text = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1}, {"prompt": "x", "max_tokens": 1}
    fields = (("/v1/chat/completions", chat), ("/v1/completions", text), ("/v1/messages", chat), ("/v1/responses", {"input": "x", "max_output_tokens": 16}), ("/v1/embeddings", {"input": "x"}), ("/api/chat", chat), ("/api/generate", text),
              ("/api/embed", {"input": "x"}), ("/api/show", {}), ("/api/pull", {}), ("/v1/plan", text), ("/v1/models/load", {}), ("/v1/models/unload", {}), ("/v1/rerank", {"query": "x", "documents": ["y"]}))
    for what, server in (("one model", Server(WEIR, "--embeddings", "--alias", "one")), ("several models", Server(WEIR, "--embeddings", "--models", os.path.join(scratch.name, "models.conf"), model=None))):
        wrong, n = [], 0
        for name in odd_names(scratch.name):
            quoted = urllib.parse.quote(name, safe="")
            replies = [(path, server.post(path, {**body, "model": name})) for path, body in fields]
            replies += [(target, ask(server, method, target)) for method, target in (("GET", "/v1/models/" + quoted), ("GET", "/props?model=" + quoted), ("POST", "/tokenize?model=" + quoted))]
            n += len(replies)
            wrong += [(path, name, reply.status, reply.body[:200]) for path, reply in replies if reply.status not in (400, 403, 404, 414, 431, 501) or b"swordfish" in reply.body or b"root:" in reply.body]
        check(f"{what}: none of {n} requests with odd names is answered", not wrong, len(wrong), *wrong[:12])
        known = [m["id"] for m in server.get("/v1/models").json["data"]]
        check(f"{what}: and there are no others than before", sorted(known) in (["one"], ["one", "two"]), known)
        end(server)


# ---- Pages


def origin(server, value, host="localhost", *more):
    """How a page's request is met: whether a POST of it reaches the handler."""
    reply = ask(server, "POST", "/tokenize", f"Origin: {value}", *more, host=host)
    if reply.status == 403:
        check(f"{value} at {host}: and why not", reply.error["code"] == "origin_not_allowed" and "--cors" in reply.error["message"], reply.body)
    return reply.status != 403


HTTPS, SAME = "X-Forwarded-Proto: https", "Sec-Fetch-Site: same-origin"


@part
def origins():
    server = Server(WEIR, "--allowed-hosts", "weir.example", "--cors", "https://app.example")
    for value, host, *more in (
            ("http://localhost", "localhost"), ("http://localhost:8080", "localhost:8080"), ("http://LOCALHOST:8080", "localhost:8080"), ("HTTP://localhost", "localhost"),
            ("http://localhost", "localhost:80"), ("http://localhost:80", "localhost"), ("http://[::1]:8080", "[::1]:8080"), ("http://[::1]", "[::1]"), ("http://127.0.0.1:1", "127.0.0.1:1"),
            ("http://localhost", "localhost", SAME), ("http://localhost", "localhost", "X-Forwarded-Proto: http"), ("https://app.example", "localhost"), ("https://app.example", "localhost", "Sec-Fetch-Site: cross-site"),
            # Behind a proxy that ends TLS.
            ("https://weir.example", "weir.example", HTTPS), ("https://weir.example", "weir.example", SAME), ("https://weir.example", "weir.example:443", HTTPS), ("https://weir.example:8443", "weir.example:8443", HTTPS),
            ("https://weir.example", "weir.example", HTTPS, SAME), ("https://weir.example", "weir.example", "X-Forwarded-Proto: http", SAME)):
        check(f"its own page: {value} at {host} {more}", origin(server, value, host, *more))
    for value, host, *more in (
            ("null", "localhost"), ("null", "localhost", SAME), ("ftp://localhost", "localhost"), ("://localhost", "localhost"), ("x://localhost", "localhost"), ("localhost", "localhost"), ("//localhost", "localhost"),
            ("file://localhost", "localhost"), ("chrome-extension://localhost", "localhost"), ("http://", "localhost"), ("http:localhost", "localhost"), ("http:/localhost", "localhost"), ("http:///localhost", "localhost"),
            ("http://localhost/", "localhost"), ("http://localhost/x", "localhost"), ("http://localhost?", "localhost"), ("http://user@localhost", "localhost"), ("http://localhost#", "localhost"), ("http:// localhost", "localhost"),
            ("http://localhost http://localhost", "localhost"), ("http://localhost, http://localhost", "localhost"), ("http://localhost:99999", "localhost"),
            ("http://localhost:3000", "localhost:8080"), ("http://localhost:3000", "localhost"), ("http://localhost", "localhost:3000"), ("http://127.0.0.1", "localhost"), ("http://localhost.", "localhost"),
            ("http://[::1]:8081", "[::1]:8080"), ("http://[::2]", "[::1]"), ("http://::1", "[::1]"), ("http://evil.example", "weir.example"), ("http://xweir.example", "weir.example"), ("http://weir.example.evil", "weir.example"),
            # A page of a scheme that the server is not asked by.
            ("https://localhost", "localhost"), ("https://localhost", "localhost:443"), ("http://localhost", "localhost:443"), ("https://localhost", "localhost:80"), ("https://localhost:80", "localhost"),
            ("https://weir.example", "weir.example"), ("http://weir.example", "weir.example", HTTPS), ("https://weir.example", "weir.example", "X-Forwarded-Proto: http"),
            ("https://weir.example", "weir.example", HTTPS, HTTPS), ("https://weir.example", "weir.example", "X-Forwarded-Proto: http, https"),
            ("https://weir.example:8443", "weir.example", HTTPS), ("https://weir.example", "weir.example:80", HTTPS),
            # What the browser itself says of the two.
            ("http://localhost", "localhost", "Sec-Fetch-Site: same-site"), ("http://localhost", "localhost", "Sec-Fetch-Site: cross-site"), ("http://localhost", "localhost", "Sec-Fetch-Site: none"),
            ("http://weir.example", "weir.example", "Sec-Fetch-Site: cross-site"), ("https://weir.example", "weir.example", HTTPS, "Sec-Fetch-Site: cross-site"),
            ("http://localhost", "localhost", "Sec-Fetch-Site: Same-Origin"), ("http://localhost", "localhost", SAME, "Sec-Fetch-Site: cross-site"), ("http://localhost", "localhost", "Sec-Fetch-Site:"),
            ("http://evil.example", "localhost", SAME), ("http://localhost:3000", "localhost:8080", SAME)):
        check(f"not: {value} at {host} {more}", not origin(server, value, host, *more))
    check("who is no page", not is_nothing(ask(server, "POST", "/tokenize")) and ask(server, "POST", "/tokenize", "Sec-Fetch-Site: cross-site").status != 403)
    # A header that a page of another origin may not set without asking: the question is refused.
    reply = ask(server, "OPTIONS", "/tokenize", "Origin: http://evil.example", "Access-Control-Request-Method: POST", "Access-Control-Request-Headers: x-forwarded-proto")
    check("a preflight of another origin", reply.status == 403 and "access-control-allow-origin" not in reply.headers, reply.headers)
    end(server)


def make_certificate():
    cert, key = os.path.join(scratch.name, "cert.pem"), os.path.join(scratch.name, "key.pem")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", key, "-out", cert, "-days", "2",
                    "-subj", "/CN=localhost"], check=True, capture_output=True)
    return cert, key


@part
def origins_over_tls():
    cert, key = make_certificate()
    path = os.path.join(scratch.name, "tls.sock")
    server = Server(WEIR, "--tls-cert", cert, "--tls-key", key, "--unix", path, kind="tls", cert=cert, unix=path)
    for value, host, *more in (("https://localhost", "localhost"), ("https://localhost:8443", "localhost:8443"), ("https://localhost", "localhost:443"), ("https://localhost", "localhost", SAME)):
        check(f"over TLS, its own page: {value} at {host} {more}", origin(server, value, host, *more))
    for value, host, *more in (("http://localhost", "localhost"), ("http://localhost:8443", "localhost:8443"), ("http://localhost", "localhost", "X-Forwarded-Proto: http"), ("http://localhost", "localhost:443"),
                               ("http://localhost", "localhost", "Sec-Fetch-Site: cross-site"), ("https://localhost", "localhost", "Sec-Fetch-Site: cross-site"), ("https://localhost:80", "localhost")):
        check(f"over TLS, not: {value} at {host} {more}", not origin(server, value, host, *more))
    server.kind = "unix"
    check("its Unix socket has no TLS", origin(server, "http://localhost") and not origin(server, "https://localhost") and origin(server, "https://localhost", "localhost", HTTPS))
    server.kind = "tls"
    end(server)


# ---- Folders of the machine


@part
def folders():
    """What of the operator's folders an answer has, of a server of several models and adapters. The fake model's adapters are no files."""
    folder = os.path.join(scratch.name, "a secret folder")
    os.mkdir(folder)
    models = os.path.join(folder, "models.ini")
    model = os.path.join(folder, "damaged.gguf")
    with open(models, "w", encoding="utf-8") as f:
        f.write(f"[first]\nmodel = fake:\nlora = fake:1\n[second]\nmodel = {model}\n")
    for path in (model, os.path.join(folder, "x.gguf")):
        with open(path, "wb") as f:
            f.write(b"GGUF")
    server = Server(WEIR, "--models", models, "--lora-dir", folder, model=None)
    replies = {"a model that cannot be loaded": server.post("/v1/completions", {"model": "second", "prompt": "x"})}
    check("it is not there", replies["a model that cannot be loaded"].error["code"] == "model_load_failed", replies["a model that cannot be loaded"].body)
    server.post("/v1/completions", {"prompt": "x", "max_tokens": 1})
    for name, method, path, body in (("the models", "GET", "/v1/models", None), ("the model", "GET", "/v1/models/second", None), ("Ollama's list", "GET", "/api/tags", None), ("Ollama's running ones", "GET", "/api/ps", None),
                                     ("what a model is", "POST", "/api/show", {"model": "first"}), ("properties", "GET", "/props?model=first", None), ("adapters", "GET", "/lora-adapters?model=first", None),
                                     ("slots", "GET", "/slots", None), ("metrics", "GET", "/metrics", None), ("health", "GET", "/health", None),
                                     ("an adapter that is none", "POST", "/v1/load_lora_adapter", {"lora_name": "x", "lora_path": "x.gguf"}), ("one that is not there", "POST", "/v1/load_lora_adapter", {"lora_name": "x", "lora_path": "y.gguf"}),
                                     ("a load", "POST", "/v1/models/load", {"model": "second"}), ("a download", "POST", "/api/pull", {"model": "second"})):
        replies[name] = server.ask(method, path, body)
    connection = server.connect()
    connection.request("GET", "/events")
    connection.head()
    replies["events"] = Reply(200, {}, next(connection.events()).encode())
    connection.close()
    for name, reply in replies.items():
        check(f"{name}: no folder", b"secret folder" not in reply.body and scratch.name.encode() not in reply.body and "secret" not in str(reply.headers), reply.body)
    server.stop()


# ---- Hosts on a Unix socket


@part
def hosts_of_a_unix_socket():
    path = os.path.join(scratch.name, "hosts.sock")
    server = Server(WEIR, "--unix", path, "--allowed-hosts", "weir.example", unix=path)
    server.kind = "unix"
    for host in ("localhost", "localhost:8080", "127.0.0.1", "[::1]", "weir.example", "weir", "weir_upstream", "backend-1", "weir:80"):
        check(f"{host}: one of its own", ask(server, "GET", "/slots", host=host).status == 200)
    for host in ("evil.example", "evil.example:80", "evil.example.", "localhost.evil.example", "weir.example.evil"):
        reply = ask(server, "GET", "/slots", host=host)
        check(f"{host}: not", reply.status == 403 and reply.error["code"] == "host_not_allowed" and "--allowed-hosts" in reply.error["message"], reply.body)
    # A page on a name that was pointed at the proxy, which passes the name on, or has its own instead.
    check("DNS rebinding through a proxy", ask(server, "POST", "/tokenize", "Origin: http://evil.example", host="evil.example").status == 403 and
          ask(server, "POST", "/tokenize", "Origin: http://evil.example", host="weir").error["code"] == "origin_not_allowed")
    server.kind = "tcp"
    check("TCP has no names of a proxy", ask(server, "GET", "/slots", host="weir").status == 403)
    end(server)


NGINX = """
daemon off;
master_process off;
pid {folder}/nginx.pid;
error_log {folder}/nginx.log;
events {{ }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    ssl_certificate {cert};
    ssl_certificate_key {key};
    upstream weir {{ server unix:{socket}; }}
    server {{ # as the guide has it
        listen 127.0.0.1:{ports[0]} ssl;
        location / {{ proxy_pass http://weir; proxy_set_header Host $http_host; proxy_set_header X-Forwarded-Proto $scheme; }}
    }}
    server {{ # with nothing but the names
        listen 127.0.0.1:{ports[1]} ssl;
        location / {{ proxy_pass http://weir; proxy_set_header Host $http_host; }}
    }}
    server {{ # as nginx does it by itself
        listen 127.0.0.1:{ports[2]} ssl;
        location / {{ proxy_pass http://weir; }}
    }}
    server {{
        listen 127.0.0.1:{ports[3]} ssl;
        location / {{ proxy_pass http://unix:{socket}:; }}
    }}
}}
"""


class Nginx:
    """What a Connection needs."""
    kind = "tls"

    def __init__(self, program, server, cert, key):
        folder = os.path.join(scratch.name, "nginx")
        os.mkdir(folder)
        sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(4)]
        self.ports = [s.getsockname()[1] for s in sockets]
        for s in sockets:
            s.close()
        self.cert, self.port = cert, self.ports[0]
        with open(os.path.join(folder, "conf"), "w", encoding="utf-8") as f:
            f.write(NGINX.format(folder=folder, ports=self.ports, cert=cert, key=key, socket=server.unix))
        self.process = subprocess.Popen([program, "-p", folder, "-c", os.path.join(folder, "conf"), "-e", os.path.join(folder, "nginx.log")], stdin=subprocess.DEVNULL)
        atexit.register(self.process.kill)
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until and self.process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", self.ports[3]), 1).close()
                return
            except OSError:
                time.sleep(0.05)
        raise RuntimeError("nginx did not start")


@part
def behind_nginx():
    program = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/opt/homebrew/bin")
    if not program:
        print("skipped: there is no nginx")
        return
    cert, key = make_certificate()
    server = Server(WEIR, "--unix", os.path.join(scratch.name, "proxied.sock"), "--allowed-hosts", "weir.example", unix=os.path.join(scratch.name, "proxied.sock"))
    proxy = Nginx(program, server, cert, key)
    check("its own page", origin(proxy, "https://weir.example", "weir.example") and origin(proxy, "https://weir.example:8443", "weir.example:8443"))
    check("its own page, in a browser of today", origin(proxy, "https://weir.example", "weir.example", SAME))
    check("the same host's page without TLS", not origin(proxy, "http://weir.example", "weir.example") and not origin(proxy, "http://weir.example", "weir.example", "Sec-Fetch-Site: cross-site"))
    check("another port's page", not origin(proxy, "https://weir.example:3000", "weir.example") and not origin(proxy, "https://weir.example:3000", "weir.example", "Sec-Fetch-Site: same-site"))
    check("DNS rebinding", ask(proxy, "GET", "/slots", host="evil.example").status == 403)
    check("who is no page", ask(proxy, "GET", "/slots", host="weir.example").status == 200)
    proxy.port = proxy.ports[1]
    check("without X-Forwarded-Proto: the browser says so", origin(proxy, "https://weir.example", "weir.example", SAME) and not origin(proxy, "https://weir.example", "weir.example") and
          not origin(proxy, "http://weir.example", "weir.example", "Sec-Fetch-Site: cross-site"))
    for proxy.port in proxy.ports[2:]:
        check("without names: all but pages", ask(proxy, "GET", "/slots", host="evil.example").status == 200 and not origin(proxy, "https://evil.example", "evil.example", SAME) and
              not origin(proxy, "https://weir.example", "weir.example", SAME))
    proxy.process.terminate()
    proxy.process.wait(PATIENCE)
    end(server)


# ---- The log


LOGGED = ("--api-key", "key-of-the-client", "--embeddings", "--prefix-key", "p" * 32, "--prefix-peer", "http://127.0.0.1:1")


def token(name):
    return re.search("[0-9a-f]{32}", name)[0]


def use(server):
    """Sends what has ids and keys in it wherever a client can put them. Returns all that may not be written."""
    key = {"key": "key-of-the-client"}
    kept = server.post(RESPONSES, SHORT, **key).json["id"]
    behind = server.post(RESPONSES, {**SHORT, "background": True}, **key).json["id"]
    connection = server.connect()
    connection.request("POST", CHAT, {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 2, "stream": True, "resume": True}, **key)
    stream = connection.head()[1]["x-stream-id"]
    list(connection.events())
    connection.close()
    text = server.post("/v1/completions", {"prompt": "x", "max_tokens": 2}, **key).json["id"]
    message = server.post("/v1/messages", {"messages": [{"role": "user", "content": "x"}], "max_tokens": 2}, **key).json["id"]
    ids = (kept, behind, stream, text, message)
    block = "12345678901234567"
    for one in ids:
        encoded = f"%{ord(one[0]):02x}{one[1:]}"
        for method, path in (("GET", f"{RESPONSES}/{one}"), ("GET", f"/responses/{one}?after=query-{one}"), ("POST", f"{RESPONSES}/{one}"), ("GET", f"{RESPONSES}/{encoded}"), ("GET", f"{RESPONSES}/{one}/input_items"),
                             ("POST", f"{RESPONSES}/{one}/cancel"), ("GET", f"/v1/streams/{one}"), ("POST", f"/v1/streams/{one}/cancel"), ("GET", f"/streams/{one}"), ("GET", f"/v1/response/{one}"),
                             ("GET", f"/v1/v1/streams/{one}/x"), ("GET", f"/{'x' * 220}/{one}"), ("GET", f"/{'x' * 205}/{one}"), ("GET", f"/{one}%zz"), ("GET", f"/nothing%3Fkey={one}"), ("GET", f"/v1/models/{one}"),
                             ("OPTIONS", f"/v1/streams/{one}"), ("DELETE", f"/v1/streams/{one}")):
            connection = server.connect()
            connection.request(method, path, {} if method == "POST" else None, **key)
            connection.reply(head_only=method == "HEAD")
            connection.close()
        for target in (f"/health?key=secret-of-the-query&id={one}", f"http://name:password-of-the-url@localhost/{one}?key=secret-of-the-query", f"ftp://localhost/{one}", f"{one}"):
            for host in ("evil.example", "localhost"):
                ask(server, "GET", target, host=host)
        server.post("/v1/completions", {"prompt": "x", "max_tokens": 1}, headers=[f"X-Request-Id: {one}", f"X-Session-Id: {one}", f"User-Agent: agent/{one}"], **key)
        server.get("/health", headers=[f"X-Request-Id: before-{one}-after", "Cookie: a=cookie-of-the-client", f"Referer: http://x/{one}"])
    server.get(f"/v1/prefixes/{block}", key="p" * 32)
    server.get("/v1/models", key="wrong-key-of-the-client")
    server.get("/v1/models", headers=["X-Api-Key: other-key-of-the-client"])
    server.post("/v1/completions", {"prompt": "x", "max_tokens": 1, "cache_salt": "salt-of-the-client"}, **key)
    server.post("/v1/completions", {"prompt": "x", "max_tokens": 1}, headers=["X-Weir-Prefix-From: http://name:password-of-the-url@other.example/?key=secret-of-the-query"], **key)
    return [*map(token, ids), block, "key-of-the-client", "cookie-of-the-client", "salt-of-the-client", "secret-of-the-query", "password-of-the-url", "p" * 32]


@part
def log():
    server = Server(WEIR, *LOGGED)
    secrets = use(server)
    server.get("/health", headers=["X-Request-Id: the-last-one"])
    check("the last line came", server.log(lambda e: e.get("request_id") == "the-last-one") is not None)
    lines = [json.dumps(line) for line in server.lines]
    for secret in secrets:
        check(f"JSON: no line has {secret}", not [line for line in lines if secret in line], *[line for line in lines if secret in line][:5])
    paths = {e["path"] for e in server.lines if "path" in e}
    check("each path has its own label", {CHAT, RESPONSES + "/*", "/v1/streams/*/cancel", "/v1/prefixes/*", "/v1/models", "/health"} <= paths, paths)
    own = server.lines[-1]
    check("its own id of a request gives nobody anything", server.get(f"{RESPONSES}/resp_{own['id']}", key="key-of-the-client").status == 404)
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    server.get("/health", headers=[f"X-Request-Id: {trace}"])
    check("the id of a trace is none of an answer", server.log(lambda e: e.get("request_id") == trace) is not None)
    for path in ("/metrics", "/slots"):
        said = server.get(path, key="key-of-the-client").body.decode()
        check(f"{path} has none of them", not [s for s in secrets if s in said])
    end(server)


class OnTerminal(Server):
    """Its log is plain text."""

    def start(self, wait=True):
        master, slave = pty.openpty()
        self.text, self.lines, self.said = b"", [], ""
        self.process = subprocess.Popen([self.weir, "serve", "-m", self.model, "--port", "0", *self.words], stdin=subprocess.DEVNULL, stdout=slave, stderr=slave, env=environment())
        running.add(self)
        os.close(slave)
        self.reader = threading.Thread(target=self.read_terminal, args=(master,), daemon=True)
        self.reader.start()
        self.port = int(self.wait_for_text(r"http://127\.0\.0\.1:(\d+)")[1])
        self.wait_for_text("Ctrl-C")

    def read_terminal(self, master):
        try:
            while data := os.read(master, 65536):
                self.text += data
        except OSError:
            pass  # all who had it open have closed it

    def wait_for_text(self, pattern):
        until = time.monotonic() + self.patience
        while time.monotonic() < until:
            if found := re.search(pattern, self.text.decode(errors="replace")):
                return found
            time.sleep(0.01)
        raise RuntimeError(self.text.decode(errors="replace"))


@part
def log_as_text():
    server = OnTerminal(WEIR, *LOGGED)
    secrets = use(server)
    server.get("/the/last/one", key="key-of-the-client")
    server.wait_for_text("/the/last/one 404")
    text = server.text.decode(errors="replace")
    for secret in secrets:
        check(f"text: no line has {secret}", secret not in text, *[line for line in text.split("\n") if secret in line][:5])
    check("each path has its own label", all(f"{path} " in text for path in (CHAT, RESPONSES + "/*", "/v1/streams/*/cancel", "/v1/prefixes/*")), text[:4000])
    server.stop()


need_server(WEIR)
run_parts()
