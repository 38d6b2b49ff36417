"""weir serve with TLS, on the fake model: clients that close their half, certificates that change while the server runs."""
# SPDX-License-Identifier: Apache-2.0
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from checks import check  # noqa: E402
from parts import end, part, run_parts  # noqa: E402
from serve import Connection, Server, need_server  # noqa: E402

WEIR = os.path.abspath(os.environ["WEIR_BIN"])
CHAT = "/v1/chat/completions"
LONG = {"messages": [{"role": "user", "content": "tell"}], "max_tokens": 4000, "ignore_eos": True}
SLOW = "fake:tick_us=20000,n_ctx_train=100000"
scratch = tempfile.TemporaryDirectory()


def make_certificate(name):
    """A certificate, its key, and its bytes as a client sees them."""
    cert, key = os.path.join(scratch.name, name + ".pem"), os.path.join(scratch.name, name + ".key")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", key, "-out", cert, "-days", "2",
                    "-subj", "/CN=" + name], check=True, capture_output=True)
    with open(cert) as f:
        return cert, key, ssl.PEM_cert_to_DER_cert(f.read())


class Half(Connection):
    """TLS whose ends are in the test's hands: `end` closes this half, with close_notify or without."""

    def __init__(self, server, version=ssl.TLSVersion.TLSv1_3):
        self.sock = socket.create_connection(("127.0.0.1", server.port), 60)
        context = ssl.create_default_context(cafile=server.cert)
        context.check_hostname = False
        context.minimum_version = context.maximum_version = version
        self.came, self.goes, self.buffer = ssl.MemoryBIO(), ssl.MemoryBIO(), b""
        self.truncated = False  # TCP ended before TLS did
        self.tls = context.wrap_bio(self.came, self.goes)
        self.work(self.tls.do_handshake)

    def flush(self):
        if self.goes.pending:
            self.sock.sendall(self.goes.read())

    def work(self, what, *words):
        """Until TLS has enough bytes; b"" at the end of TCP."""
        while True:
            try:
                result = what(*words)
                self.flush()
                return result
            except ssl.SSLWantReadError:
                self.flush()
                data = self.sock.recv(65536)
                if not data:
                    self.truncated = True
                    return b""
                self.came.write(data)

    def send(self, data):
        self.work(self.tls.write, data if isinstance(data, bytes) else data.encode())

    def more(self):
        try:
            data = self.work(self.tls.read, 65536)
        except ssl.SSLZeroReturnError:
            return False
        self.buffer += data
        return bool(data)

    def end(self, notify):
        if notify:
            try:
                self.tls.unwrap()
            except ssl.SSLWantReadError:
                self.flush()
        self.sock.shutdown(socket.SHUT_WR)


@part
def halves():
    """Who closes its half of TLS waits for its answer, as with plain TCP; who is gone does not."""
    cert, key, _ = make_certificate("localhost")
    server = Server(WEIR, "-np", "1", "--tls-cert", cert, "--tls-key", key, model=SLOW, kind="tls", cert=cert)
    body = json.dumps(dict(LONG, max_tokens=20))
    whole = f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n{body}"
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        for notify in (True, False):
            name = f"{version.name}, {'close_notify' if notify else 'FIN alone'}"
            connection = Half(server, version)
            connection.send("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            connection.end(notify)
            check(f"{name}: at once", connection.reply().status == 200)
            connection.close()
            connection = Half(server, version)
            connection.send(whole + whole)
            connection.end(notify)
            check(f"{name}: after a while, and two", [connection.reply().json["usage"]["completion_tokens"] for _ in range(2)] == [20, 20])
            check(f"{name}: and close_notify at the end", connection.more() is False and not connection.truncated)
            connection.close()
            connection = Half(server, version)
            connection.send(whole[:-5])
            connection.end(notify)
            check(f"{name}: half a request is none", connection.more() is False and connection.buffer == b"")
            connection.close()
            for streamed in (False, True):
                text = json.dumps(dict(LONG, stream=streamed))
                gone = Half(server, version)
                gone.send(f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(text)}\r\n\r\n{text}")
                server.wait_for(lambda m: m["weir_slots_generating"] == 1)
                if notify:
                    gone.end(True)
                gone.close()
                metrics = server.wait_for(lambda m: m["weir_slots_generating"] == 0)
                check(f"{name}: who is gone is noticed, {'streamed' if streamed else 'whole'}", metrics["weir_slots_generating"] == 0, metrics)
    end(server)


@part
def certificates():
    """SIGHUP reads the certificate anew."""
    old, new, other = make_certificate("old"), make_certificate("new"), make_certificate("other")
    cert, key = os.path.join(scratch.name, "served.pem"), os.path.join(scratch.name, "served.key")
    trusted = os.path.join(scratch.name, "trusted.pem")
    with open(trusted, "w") as f:
        for path in (old[0], new[0]):
            with open(path) as one:
                f.write(one.read())

    def serve(pair, with_key=None):
        shutil.copy(pair[0], cert)
        shutil.copy((with_key or pair)[1], key)

    serve(old)
    server = Server(WEIR, "--tls-cert", cert, "--tls-key", key, model=SLOW, kind="tls", cert=trusted)

    def served():
        connection = server.connect()
        try:
            return connection.sock.getpeercert(binary_form=True)
        finally:
            connection.close()

    def reload():
        """Its line in the log."""
        n = len([e for e in server.lines if e["event"] == "reload"])
        server.process.send_signal(signal.SIGHUP)
        server.log(lambda e: len([x for x in list(server.lines) if x["event"] == "reload"]) > n)
        return [e for e in server.lines if e["event"] == "reload"][-1]

    running = server.connect()
    running.request("POST", CHAT, dict(LONG, stream=True))
    running.head()
    events = running.events()
    idle = server.connect()
    check("the certificate that it was started with", served() == old[2] and next(events))
    serve(new)
    check("files alone change nothing", served() == old[2])
    line = reload()
    check("after SIGHUP the new one is served", line["level"] == "info" and served() == new[2], line)
    check("what runs goes on", all(next(events) for _ in range(10)))
    idle.request("GET", "/health")
    check("and so does a connection that is open", idle.reply().status == 200)
    for name, break_it in (("a certificate that is none", lambda: shutil.copy(WEIR, cert)), ("another one's key", lambda: serve(old, other)),
                           ("a file that is gone", lambda: os.unlink(cert))):
        break_it()
        line = reload()
        check(f"{name}: the one before stays", line["level"] == "warning" and served() == new[2], line)
        check(f"{name}: the log says why", server.log(lambda e: e["event"] == "options" and "cannot be used" in e["message"]) is not None, server.lines[-3:])
        server.lines[:] = [e for e in server.lines if e["event"] != "options"]
        check(f"{name}: what runs goes on", all(next(events) for _ in range(3)))
    serve(old)
    check("a good one is taken again", reload()["level"] == "info" and served() == old[2])
    for connection in (running, idle):
        connection.close()
    end(server)


need_server(WEIR)
run_parts()
