"""weir serve behind HAProxy and nginx, which send the requests of all clients over few connections. Some clients send mutilated requests
without a key, others whole ones with a key and a text of their own: nobody gets an answer to what another caller asked, and no mutilated
request is answered as if it had a key. WEIR_PROXY_REQUESTS=N: that many mutilated requests to each proxy (5000); WEIR_TEST_SEED=N.
Without either program the test is skipped."""
# SPDX-License-Identifier: Apache-2.0
import os
import random
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from checks import PATIENCE, check, finish, seed  # noqa: E402
from serve import Connection, Server, need_server  # noqa: E402

WEIR = os.path.abspath(os.environ["WEIR_BIN"])
N = int(os.environ.get("WEIR_PROXY_REQUESTS", "5000"))
SEED = seed()
KEY = "a-key-of-somebody"
N_HOSTILE, N_HONEST = 16, 3
scratch = tempfile.TemporaryDirectory()

HAPROXY = """
global
    maxconn 500
defaults
    mode http
    timeout connect 10s
    timeout client 30s
    timeout server 30s
    option accept-invalid-http-request
frontend all
    bind 127.0.0.1:{port}
    default_backend weir
backend weir
    http-reuse always
    server weir 127.0.0.1:{weir} maxconn 3
"""
NGINX = """
daemon off;
master_process off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log {folder}/nginx.log;
events {{ worker_connections 400; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    ignore_invalid_headers off;
    underscores_in_headers on;
    upstream weir {{
        server 127.0.0.1:{weir} max_fails=0;
        keepalive 3;
    }}
    server {{
        listen 127.0.0.1:{port};
        location / {{
            proxy_pass http://weir;
            proxy_http_version 1.1;
            proxy_request_buffering off;
            proxy_set_header Connection "";
            proxy_set_header Host localhost;
        }}
    }}
}}
"""


def program(name):
    return shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin:/opt/homebrew/bin")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Proxy:
    """What a Connection needs, and the process."""
    kind = "tcp"

    def __init__(self, name, server):
        self.name, self.port = name, free_port()
        folder = os.path.join(scratch.name, name)
        os.mkdir(folder)
        path = os.path.join(folder, "conf")
        with open(path, "w") as f:
            f.write((HAPROXY if name == "haproxy" else NGINX).format(port=self.port, weir=server.port, folder=folder))
        words = [program(name), "-db", "-f", path] if name == "haproxy" else [program(name), "-p", folder, "-c", path, "-e", os.path.join(folder, "nginx.log")]
        self.log = open(os.path.join(folder, "out"), "w+")
        self.process = subprocess.Popen(words, stdout=self.log, stderr=self.log, stdin=subprocess.DEVNULL)
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until and self.process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                time.sleep(0.05)
        self.log.seek(0)
        raise RuntimeError(name + " did not start: " + self.log.read())

    def stop(self):
        self.process.terminate()
        self.process.wait(PATIENCE)
        self.log.close()


# ---- What is sent

SMUGGLED = "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 18\r\n\r\n{\"content\":\"evil\"}"
PREFIXES = ["X", "X-Auth", "X-Real", "X-Forwarded", "User", "Content", "Cache", "Conn", "Transfer", "Auth", "Hos", "Accept", "If", "Sec", "Proxy", "Keep", "Te", "Up", "Exp", "Co"]
ODD = ["Transfer-Encoding: chunked", "Transfer-Encoding : chunked", "Transfer-Encoding: xchunked", "Transfer-Encoding:\tchunked", "Transfer-Encoding: chunked, identity", "Transfer-Encoding: identity", " Transfer-Encoding: chunked",
       "Transfer-Encoding\r\n: chunked", "Transfer-Encoding: \x0bchunked", "X: y\nTransfer-Encoding: chunked", "Content-Length: 5", "Content-Length: +5", "Content-Length: 0", "Content-Length: 5, 5", "Content-Length: 0x5",
       "Content-Length : 5", "Content_Length: 5", "Content-Length:\r\n 5", "Connection: Content-Length", "Connection: Upgrade", "Upgrade: h2c", "Upgrade: websocket", "Expect: 100-continue", "Host: other", "X: a\r\n b", "no colon", "X: \0",
       "X: a\rb", "Trailer: Content-Length", "Connection: close", "Connection: keep-alive"]


def mutant(dice):
    """A request without a key for a path that needs one; most have another one in their body or behind it."""
    body = dice.choice([SMUGGLED, '{"content":"bad"}', "0\r\n\r\n" + SMUGGLED, "5\r\nhello\r\n0\r\n\r\n" + SMUGGLED, f"{len(SMUGGLED):x}\r\n{SMUGGLED}\r\n0\r\n\r\n", "", "1;a=b\r\nx\r\n0\r\nX: y\r\n\r\n"])
    fields = ["Host: localhost"]
    for _ in range(dice.choice([0, 1, 1, 2])):
        fields.append(f"{dice.choice(PREFIXES)}: {dice.choice(['alice', '', 'POST /tokenize HTTP/1.1'])}")
    for _ in range(dice.choice([0, 1, 1, 2])):
        fields.append(dice.choice(ODD))
    if dice.random() < 0.7:
        fields.append(f"Content-Length: {dice.choice([len(body), len(body), len(body) + 1, max(0, len(body) - 3), 5])}")
    if dice.random() < 0.3:
        fields.append("Transfer-Encoding: chunked")
    if dice.random() < 0.7:
        fields.append("Connection: close")  # else its end is told by the time alone
    dice.shuffle(fields)
    line = dice.choice(["POST /tokenize HTTP/1.1"] * 6 + ["GET /v1/models HTTP/1.1", "POST http://localhost/tokenize HTTP/1.1", "POST /tokenize HTTP/1.0", "HEAD /v1/models HTTP/1.1", "GET /slots HTTP/1.1"])
    data = "\r\n".join([line, *fields, "", body]).encode("latin-1")
    for _ in range(dice.choice([0, 0, 0, 1, 2])):
        at = dice.randrange(len(data) + 1)
        data = data[:at] + dice.choice([b"\r", b"\n", b" ", b"\t", b":", b"\0", b"\r\n", b"\r\n\r\n", b"0", b"a", b","]) + data[at + dice.choice([0, 0, 1]):]
    return data


class Trial:
    def __init__(self, proxy):
        self.proxy, self.over = proxy, threading.Event()
        self.lock, self.bad, self.statuses, self.n_honest, self.n_lost = threading.Lock(), [], {}, 0, 0

    def tell(self, what, data, got):
        with self.lock:
            self.bad.append((what, data, got))

    def hostile(self, number, n):
        dice = random.Random(f"{SEED} {self.proxy.name} {number}")
        for _ in range(n):
            data = b"".join(mutant(dice) for _ in range(dice.choice([1, 1, 2])))
            seen = b""
            try:
                with socket.create_connection(("127.0.0.1", self.proxy.port), 20) as s:
                    s.sendall(data)
                    if dice.random() < 0.2:
                        s.shutdown(socket.SHUT_WR)
                    s.settimeout(dice.choice([0.05, 0.05, 0.5]))
                    while piece := s.recv(65536):
                        seen += piece
            except OSError:
                pass
            with self.lock:
                for status in re.findall(rb"HTTP/1\.[01] (\d\d\d)", seen):
                    self.statuses[int(status)] = self.statuses.get(int(status), 0) + 1
            if any(word in seen for word in (b'"tokens":[', b'"object":"list"', b'[{"id":0,"state":')):  # of /tokenize, /v1/models, /slots
                self.tell("a request without a key is answered", data, seen)

    def honest(self, number):
        connection, i = None, 0
        while not self.over.is_set() or i < 20:
            i += 1
            text = f"{self.proxy.name} {number} {i} " + "x" * (i % 50)
            try:
                if connection is None:
                    connection = Connection(self.proxy, timeout=PATIENCE)
                connection.request("POST", "/tokenize", {"content": text}, key=KEY)
                reply = connection.reply()
                if reply.status in (502, 503, 504):  # the server's end of a connection came first
                    raise ConnectionError(reply.status)
                if reply.status != 200 or "".join(map(chr, reply.json["tokens"])) != text:
                    self.tell("another answer than its own", text, (reply.status, reply.body))
                    return
                with self.lock:
                    self.n_honest += 1
            except (OSError, ConnectionError) as e:
                with self.lock:
                    self.n_lost += 1
                    self.last = repr(e)
                if connection is not None:
                    connection.close()
                connection = None
        if connection is not None:
            connection.close()

    def run(self):
        honest = [threading.Thread(target=self.honest, args=(i,)) for i in range(N_HONEST)]
        hostile = [threading.Thread(target=self.hostile, args=(i, N // N_HOSTILE)) for i in range(N_HOSTILE)]
        for thread in honest + hostile:
            thread.start()
        for thread in hostile:
            thread.join()
        self.over.set()
        for thread in honest:
            thread.join()


need_server(WEIR)
names = [name for name in ("haproxy", "nginx") if program(name)]
if not names:
    print("skipped: neither haproxy nor nginx is here (scripts/deps.sh check installs them)")
    sys.exit(77)
server = Server(WEIR, "--api-key", KEY, "--log-text", model="fake:")
for name in names:
    began = time.monotonic()
    proxy = Proxy(name, server)
    trial = Trial(proxy)
    try:
        trial.run()
    finally:
        proxy.stop()
    print(f"      {name}: {N} mutilated requests, answers by status {dict(sorted(trial.statuses.items()))}; {trial.n_honest} honest ones, {trial.n_lost} of them lost; {time.monotonic() - began:.1f} s", flush=True)
    check(f"{name}: answers never cross", not trial.bad, *trial.bad[:3])
    check(f"{name}: honest clients are answered", trial.n_honest >= 20 * N_HONEST and trial.n_lost <= trial.n_honest // 4, trial.n_honest, trial.n_lost)
    check(f"{name}: the mutilated ones get through to be refused", sum(trial.statuses.get(s, 0) for s in (400, 401)) > N // 10, trial.statuses)
stolen = [e for e in server.lines if e.get("status") == 200 and '"evil"' in (e.get("body") or "")]
check("nothing that was hidden in a request ran with somebody's key", not stolen, stolen[:3])
check("it ends with 0", server.stop() == 0)
finish()
