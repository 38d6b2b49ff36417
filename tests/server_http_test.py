"""weir serve on the fake model, by RFC 9112: what a request may look like and what is refused, where one ends and the next begins, whom a
page may ask, and clients that close their half."""
# SPDX-License-Identifier: Apache-2.0
import json
import os
import socket
import ssl
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from checks import PATIENCE, check  # noqa: E402
from parts import end, part, run_parts  # noqa: E402
from serve import Connection, Server, need_server  # noqa: E402

WEIR = os.path.abspath(os.environ["WEIR_BIN"])
CHAT = "/v1/chat/completions"
HOST = "Host: localhost\r\n"
GET = "GET /health HTTP/1.1\r\n" + HOST
POST = "POST /tokenize HTTP/1.1\r\n" + HOST
CHUNKED = POST + "Transfer-Encoding: chunked\r\n"
ABC = '{"content":"abc"}'
LONG = {"messages": [{"role": "user", "content": "tell"}], "max_tokens": 100000, "ignore_eos": True}
SLOW = "fake:tick_us=20000,n_ctx_train=100000"
scratch = tempfile.TemporaryDirectory()


def start(*words, **more):
    return Server(WEIR, *words, **more)


def say(server, data, half=False, timeout=PATIENCE):
    connection = Connection(server, timeout=timeout)
    connection.send(data.encode("latin-1") if isinstance(data, str) else data)
    if half:
        connection.sock.shutdown(socket.SHUT_WR)
    return connection


def refused(server, name, data, status, code=None):
    """One answer, an error in JSON, then the connection's end. Behind the request stands another one, which is never answered."""
    connection = say(server, data + GET + "\r\n")
    try:
        reply = connection.reply()
        closed = connection.closed()
        ok = reply.status == status and closed and connection.buffer == b"" and reply.headers["connection"] == "close"
        check(f"{name}: {status}, and the end", ok and (code is None or reply.error["code"] == code), reply.status, reply.body, closed, connection.buffer)
    except (OSError, ConnectionError) as e:
        check(f"{name}: {status}, and the end", False, e)
    connection.close()


def answered(server, name, data, status=200, n=1):
    """n answers, then those to a request on the same connection."""
    connection = say(server, data)
    try:
        replies = [connection.reply() for _ in range(n)]
        connection.send(GET + "\r\n")
        check(f"{name}: answered", all(r.status == status for r in replies) and connection.reply().status == 200 and connection.buffer == b"",
              [(r.status, r.body) for r in replies], connection.buffer)
        return replies[-1]
    except (OSError, ConnectionError) as e:
        check(f"{name}: answered", False, e)
    finally:
        connection.close()


# ---- Heads


@part
def names():
    """A field is its own, whatever its name begins like. 4.1.6 of another library took the next line for its value."""
    server = start("--api-key", "secret")
    known = ["User-Agent", "X-Auth-Token", "X-Real-IP", "X-Forwarded-For", "Content-Type", "Content-Length", "Content-Encoding", "Cache-Control", "Connection", "Host", "Accept-Encoding", "Authorization",
             "Transfer-Encoding", "Expect", "Origin", "If-Modified-Since", "Upgrade", "Sec-WebSocket-Key", "HTTP2-Settings", "Proxy-Authorization", "Keep-Alive", "Te", "Trailer", "Last-Event-ID", "Cookie"]
    bad = []
    connection = server.connect()
    for name in sorted({n[:i] for n in known for i in range(1, len(n))} - set(known)):
        if name.lower() in (k.lower() for k in known):
            continue
        for value in ("alice", "", "a: b"):
            connection.send(GET.replace("/health", "/v1/models") + f"{name}: {value}\r\nAuthorization: Bearer secret\r\n\r\n")
            status = connection.reply().status
            if status != 200:
                bad.append((name, value, status))
            connection.send(GET.replace("/health", "/v1/models") + f"Authorization: Bearer wrong\r\n{name}: {value}\r\nX-Last: 1\r\n\r\n")
            if connection.reply().status != 401:
                bad.append((name, value, "no key"))
    check("what a field's name begins like changes nothing", not bad, bad[:5])
    connection.close()
    # A request without a key, and the authenticated one of the next client behind it, as a proxy would send them.
    connection = server.connect()
    body = json.dumps({"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1})
    for name in ("X", "X-Auth", "X-Real", "User", "Content", "Cache"):
        connection.send(GET + f"{name}: POST {CHAT} HTTP/1.1\r\n\r\nPOST {CHAT} HTTP/1.1\r\n{HOST}Authorization: Bearer secret\r\nContent-Length: {len(body)}\r\n\r\n{body}")
        first, second = connection.reply(), connection.reply()
        check(f"{name}: each request is answered as it is", "status" in first.json and second.json.get("object") == "chat.completion", first.body, second.body)
    connection.close()
    done = subprocess.run(["curl", "-sS", "-m", "20", "-o", os.devnull, "-w", "%{http_code}", "-H", "User: alice", server.url + "/health"], capture_output=True, text=True)
    check("curl -H 'User: alice'", done.stdout == "200", done.stdout, done.stderr)
    end(server)


@part
def heads():
    server = start()
    for name, data in {
        "a folded line": GET + "A: b\r\n c\r\n\r\n", "a folded line with a tab": GET + "A: b\r\n\tc\r\n\r\n", "no colon": GET + "Abc\r\n\r\n",
        "a space before the colon": GET + "A : b\r\n\r\n", "a tab before the colon": GET + "A\t: b\r\n\r\n", "a space before the first field": "GET /health HTTP/1.1\r\n " + HOST + "\r\n",
        "no name": GET + ": b\r\n\r\n", "a bad name": GET + "A(b): c\r\n\r\n", "a name that is not ASCII": GET + "\xe9: c\r\n\r\n", "NUL": GET + "A: b\0c\r\n\r\n", "a control": GET + "A: \x01\r\n\r\n",
        "LF alone": GET + "A: b\nC: d\r\n\r\n", "CR alone": GET + "A: b\rC: d\r\n\r\n", "LF alone behind the first line": "GET /health HTTP/1.1\n" + HOST + "\r\n",
        "LF alone at the end": GET + "\n", "CR CR LF": GET + "A: b\r\r\n\r\n", "no Host": "GET /health HTTP/1.1\r\n\r\n", "two Hosts": GET + HOST + "\r\n", "an empty Host": "GET /health HTTP/1.1\r\nHost:\r\n\r\n",
        "two hosts in one": "GET /health HTTP/1.1\r\nHost: localhost, localhost\r\n\r\n", "a Host with a path": "GET /health HTTP/1.1\r\nHost: localhost/a\r\n\r\n",
        "a Host with a user": "GET /health HTTP/1.1\r\nHost: a@localhost\r\n\r\n", "a Host with a long port": "GET /health HTTP/1.1\r\nHost: localhost:123456\r\n\r\n",
        "two keys": GET + "Origin: http://localhost\r\nOrigin: http://localhost\r\n\r\n", "a space in the target": "GET /he alth HTTP/1.1\r\n" + HOST + "\r\n",
        "tabs in the first line": "GET\t/health\tHTTP/1.1\r\n" + HOST + "\r\n", "more behind the version": "GET /health HTTP/1.1 x\r\n" + HOST + "\r\n", "a method in small letters": "get /health HTTP/1.1\r\n" + HOST + "\r\n",
        "no method": " /health HTTP/1.1\r\n" + HOST + "\r\n", "a fragment": "GET /health#a HTTP/1.1\r\n" + HOST + "\r\n", "a path with %00": "GET /health%00 HTTP/1.1\r\n" + HOST + "\r\n",
        "a path with %zz": "GET /%zz HTTP/1.1\r\n" + HOST + "\r\n", "a path with half a %": "GET /health%2 HTTP/1.1\r\n" + HOST + "\r\n", "CONNECT": "CONNECT localhost:1 HTTP/1.1\r\n" + HOST + "\r\n",
        "another host in the target": "GET http://evil.example/health HTTP/1.1\r\n" + HOST + "\r\n", "no host in the target": "GET http:///health HTTP/1.1\r\n" + HOST + "\r\n",
        "another scheme": "GET ftp://localhost/health HTTP/1.1\r\n" + HOST + "\r\n", "TLS": "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    }.items():
        if name != "two keys":
            refused(server, name, data, 400)
        else:
            check("two Origins: 400", say(server, data).reply().status == 400)
    for name, data in {"HTTP/1.2": "GET /health HTTP/1.2\r\n", "HTTP/2.0": "GET /health HTTP/2.0\r\n", "HTTP/0.9": "GET /health HTTP/0.9\r\n"}.items():
        refused(server, name, data + HOST + "\r\n", 505, "http_version")
    refused(server, "HTTP/2's beginning", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505)

    # A head of 16 KiB is one, a byte more is too much; the same in one long line.
    for what in ("A: ", "GET /"):
        head = GET if what == "A: " else ""
        tail = "\r\n\r\n" if what == "A: " else " HTTP/1.1\r\n" + HOST + "\r\n"
        room = (16 << 10) - len(head) - len(what) - len(tail)
        check(f"{what}… of 16 KiB", say(server, head + what + "x" * room + tail).reply().status == (200 if head else 404))
        refused(server, f"{what}… of a byte more", head + what + "x" * (room + 1) + tail, 431, "head_too_large")
    refused(server, "many fields", GET + "A: b\r\n" * 4000 + "\r\n", 431)
    refused(server, "an endless beginning", "\r\n" * 9000, 431)
    check("all of these are in the log", server.log(lambda e: e.get("status") == 431 and e.get("code") == "head_too_large") is not None)

    answered(server, "a line before the request", "\r\n" + GET + "\r\n")
    answered(server, "fields without values", GET + "A:\r\nB: \t \r\n\r\n")
    answered(server, "bytes that are not ASCII in a value", GET + "A: \xe9\xff\r\n\r\n")
    answered(server, "HTTP's absolute form", "GET http://localhost/health HTTP/1.1\r\n" + HOST + "\r\n")
    answered(server, "a path with %XX is another one", "GET /%68ealth HTTP/1.1\r\n" + HOST + "\r\n", 404)
    answered(server, "OPTIONS *", "OPTIONS * HTTP/1.1\r\n" + HOST + "\r\n", 204)
    answered(server, "an upgrade that nobody wants", GET + "Connection: Upgrade\r\nUpgrade: h2c\r\n\r\n")
    answered(server, "a WebSocket's beginning", GET + "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
    answered(server, "a TRACE", "TRACE /health HTTP/1.1\r\n" + HOST + "\r\n", 405)
    connection = say(server, "HEAD /health HTTP/1.1\r\n" + HOST + "\r\n" + GET + "\r\n")
    first, second = connection.reply(head_only=True), connection.reply()
    check("HEAD has the length and no body", first.headers["content-length"] == str(len(second.body)) and second.status == 200)
    connection.send(GET + "Connection: close\r\n\r\n" + GET + "\r\n")
    check("Connection: close", connection.reply().status == 200 and connection.closed() and connection.buffer == b"")
    connection.close()
    end(server)


# ---- Bodies


@part
def bodies():
    server = start("--max-body", "4K", "--body-timeout", "2")
    for name, data in {
        "two lengths": POST + "Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}", "a list of lengths": POST + "Content-Length: 2, 2\r\n\r\n{}", "a length and chunks": POST + "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "chunks and a length": CHUNKED + "Content-Length: 2\r\n\r\n0\r\n\r\n", "+2": POST + "Content-Length: +2\r\n\r\n{}", "-2": POST + "Content-Length: -2\r\n\r\n{}", "0x2": POST + "Content-Length: 0x2\r\n\r\n{}",
        "no length": POST + "Content-Length:\r\n\r\n{}", "1 2": POST + "Content-Length: 1 2\r\n\r\n{}", "a length above all": POST + "Content-Length: 18446744073709551618\r\n\r\n{}",
        "chunked, twice": CHUNKED + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "identity": POST + "Transfer-Encoding: identity\r\n\r\n", "chunked, gzip": POST + "Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n",
        "xchunked": POST + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", "chunks in HTTP/1.0": CHUNKED.replace("1.1", "1.0") + "\r\n0\r\n\r\n",
        "a chunk without a length": CHUNKED + "\r\n\r\n", "a chunk's bad length": CHUNKED + "\r\nzz\r\n", "a chunk's length with a sign": CHUNKED + "\r\n+2\r\n{}\r\n0\r\n\r\n", "a chunk's length in 0x": CHUNKED + "\r\n0x2\r\n{}\r\n0\r\n\r\n",
        "a chunk's endless length": CHUNKED + "\r\nfffffffffffffffff\r\n", "a chunk that ends elsewhere": CHUNKED + "\r\n2\r\n{}3\r\n", "chunks with LF alone": CHUNKED + "\r\n2\n{}\n0\n\n",
        "a space behind a chunk's length": CHUNKED + "\r\n2 \r\n{}\r\n0\r\n\r\n", "many extensions": CHUNKED + "\r\n2;" + "a" * 20000 + "\r\n{}\r\n0\r\n\r\n", "many trailers": CHUNKED + "\r\n2\r\n{}\r\n0\r\n" + "A: b\r\n" * 9000 + "\r\n",
        "a GET's body": GET + "Content-Length: 3\r\n\r\nabc", "a GET's chunks": GET + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    }.items():
        refused(server, name, data, 400)
    refused(server, "gzip, chunked", POST + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501)
    refused(server, "another expectation", POST + "Expect: magic\r\nContent-Length: 2\r\n\r\n", 417)
    # To a byte: a text of as many bytes as there may be, and of one more, by length and in chunks of all sizes.
    most = 4096
    for n, status in ((most, 200), (most + 1, 413)):
        text = ABC.ljust(n)
        check(f"{n} bytes", say(server, POST + f"Content-Length: {n}\r\n\r\n" + (text if n == most else "")).reply().status == status)
        for size in (1, 7, 1000, n):
            pieces = "".join(f"{len(text[i:i + size]):x}{';x=y' if size > 6 else ''}\r\n{text[i:i + size]}\r\n" for i in range(0, n, size))
            connection = say(server, CHUNKED + "\r\n" + pieces + "0\r\nTrailer: x\r\n\r\n")
            reply = connection.reply()
            check(f"{n} bytes in chunks of {size}", reply.status == status and (status == 200 or connection.closed()), reply.body)
    for length in (most + 1, 0x7fffffff, 0xffffffffffffffff):
        refused(server, f"a first chunk of {length:x} bytes, before it comes", CHUNKED + f"\r\n{length:x}\r\n", 413, "body_too_large")
    refused(server, "a second one", CHUNKED + f"\r\n5\r\n{ABC[:5]}\r\n{most - 4:x}\r\n", 413, "body_too_large")
    refused(server, "one byte too many, behind it a request", CHUNKED + "\r\n" + f"{most + 1:x}\r\n" + "x" * (most + 1) + "\r\n0\r\n\r\n", 413, "body_too_large")
    answered(server, "chunks, and another request", CHUNKED + "\r\n5\r\n" + ABC[:5] + "\r\nC\r\n" + ABC[5:] + "\r\n0\r\n\r\n")
    answered(server, "no body at all", POST + "\r\n", 400)
    connection = say(server, CHUNKED + "Expect: 100-continue\r\n\r\n")
    first = connection.until(b"\r\n\r\n")
    connection.send(f"{len(ABC):x}\r\n{ABC}\r\n0\r\n\r\n")
    check("Expect, and chunks", first == b"HTTP/1.1 100 Continue" and connection.reply().json["tokens"] == [97, 98, 99], first)
    connection.send(POST + f"Expect: 100-continue\r\nContent-Length: {len(ABC)}\r\n\r\n{ABC}")
    check("Expect, and the body at once", connection.reply().status == 200)
    connection.close()
    # The limit of all bodies together: sixteen times that of one, of which one caller has three quarters. They are reserved by their length,
    # before they come.
    waiting = [say(server, POST + f"Content-Length: {most}\r\n\r\n") for _ in range(12)]
    server.wait_for(lambda m: m["weir_http_live"] == 13)
    reply = say(server, POST + f"Content-Length: {most // 16 + 1}\r\n\r\n").reply()
    check("the sum of all bodies is bounded", reply.status == 503 and reply.error["code"] == "too_many_bodies" and int(reply.headers["retry-after"]) == 1, reply.body)
    check("without a body one may ask", server.get("/health").status == 200)
    check("with a small one, too", server.post("/tokenize", {"content": ""}).status == 200)
    check("in time", all(w.reply().status == 408 and w.closed() for w in waiting))
    check("then there is room again", server.post("/tokenize", {"content": "abc"}).status == 200)
    # In pieces of a byte, each in a segment of its own.
    connection = server.connect()
    for byte in (CHUNKED + f"\r\n{len(ABC):x}\r\n{ABC}\r\n0\r\n\r\n" + GET + "\r\n").encode():
        connection.send(bytes([byte]))
    check("byte by byte", connection.reply().json["tokens"] == [97, 98, 99] and connection.reply().status == 200)
    connection.close()
    end(server)


# ---- Connections


@part
def order():
    """Requests that come at once are answered in turn."""
    server = start("-np", "2")
    connection = server.connect()
    words = [f"w{i}" for i in range(200)]
    connection.send("".join(f'{POST}Content-Length: {len(w) + 14}\r\n\r\n{{"content":"{w}"}}' for w in words))
    got = ["".join(map(chr, connection.reply().json["tokens"])) for _ in words]
    check("two hundred, workers' and others'", got == words, got[:5])
    body = json.dumps(dict(LONG, max_tokens=5, stream=True))
    connection.send((f"POST {CHAT} HTTP/1.1\r\n{HOST}Content-Length: {len(body)}\r\n\r\n{body}" + GET + "\r\n") * 3)
    for _ in range(3):
        status, _ = connection.head()
        events = list(connection.events())
        check("a stream, then what follows", status == 200 and events[-1] == "[DONE]" and connection.reply().status == 200, events[-2:])
    connection.close()
    # Behind a request that takes its time only so much is taken; the rest waits in the client's own system.
    slow = start("-np", "1", model=SLOW)
    connection = slow.connect()
    body = json.dumps(dict(LONG, max_tokens=100))
    connection.send(f"POST {CHAT} HTTP/1.1\r\n{HOST}Content-Length: {len(body)}\r\n\r\n{body}")
    connection.sock.settimeout(0.5)
    flood, sent = (GET + "\r\n").encode() * 2000, 0
    try:
        while sent < 64 << 20:
            sent += connection.sock.send(flood)
    except socket.timeout:
        pass
    connection.sock.settimeout(300)
    check("what comes before an answer is bounded", sent < 32 << 20, sent)
    check("and the answer comes all the same", connection.reply().json["usage"]["completion_tokens"] == 100 and connection.reply().status == 200)
    connection.close()
    end(slow)
    end(server)


@part
def halves():
    """Who closes its half waits for its answer; who is gone does not."""
    for kind in ("tcp", "unix"):
        path = os.path.join(scratch.name, "half.sock")
        server = start("-np", "1", "--unix", path, model=SLOW, unix=path)
        body = json.dumps(dict(LONG, max_tokens=30))
        whole = f"POST {CHAT} HTTP/1.1\r\n{HOST}Content-Length: {len(body)}\r\n\r\n{body}"
        server.kind = kind
        check(f"{kind}: at once", say(server, GET + "\r\n", half=True).reply().status == 200)
        connection = say(server, whole, half=True)
        check(f"{kind}: after a while", connection.reply().json["usage"]["completion_tokens"] == 30 and connection.closed())
        connection = say(server, whole.replace(" HTTP/1.1", " HTTP/1.0"), half=True)
        check(f"{kind}: HTTP/1.0", connection.reply().json["usage"]["completion_tokens"] == 30)
        connection = say(server, whole + whole + GET + "\r\n", half=True)
        check(f"{kind}: several", [connection.reply().status for _ in range(3)] == [200] * 3 and connection.closed())
        stream = json.dumps(dict(LONG, max_tokens=10, stream=True))
        connection = say(server, f"POST {CHAT} HTTP/1.1\r\n{HOST}Content-Length: {len(stream)}\r\n\r\n{stream}", half=True)
        connection.head()
        check(f"{kind}: a stream", list(connection.events())[-1] == "[DONE]")
        connection = say(server, whole[:-5], half=True)
        check(f"{kind}: half a request is none", connection.closed() and connection.buffer == b"")
        # Running and queued, streamed and whole: all of them are gone, and nothing of theirs runs on.
        for streamed in (False, True):
            text = json.dumps(dict(LONG, stream=streamed))
            gone = [say(server, f"POST {CHAT} HTTP/1.1\r\n{HOST}Content-Length: {len(text)}\r\n\r\n{text}") for _ in range(3)]
            server.wait_for(lambda m: m["weir_queue_depth"] == 2 and m["weir_slots_generating"] == 1)
            for connection in gone:
                connection.close()
            metrics = server.wait_for(lambda m: m["weir_queue_depth"] == 0 and m["weir_slots_generating"] == 0)
            check(f"{kind}: who is gone is noticed", metrics["weir_queue_depth"] == 0 and metrics["weir_slots_generating"] == 0, metrics)
        server.kind = "tcp"
        end(server)


@part
def patience():
    server = start("--head-timeout", "1")
    quiet, slow = server.connect(), say(server, GET + "A: ")
    began, n = time.monotonic(), 0
    while time.monotonic() - began < 20 and not slow.buffer:
        try:
            slow.send("x")
            slow.sock.settimeout(0.1)
            slow.more()
        except OSError:
            pass
        n += 1
    slow.sock.settimeout(PATIENCE)
    reply = slow.reply()
    check("a head that trickles: 408", reply.status == 408 and reply.error["code"] == "request_timeout" and slow.closed(), reply.body)
    check("who says nothing hears nothing", quiet.closed() and quiet.buffer == b"")
    connection = say(server, GET + "\r\n" + "\r\n\n\r\n")
    first = connection.reply()
    time.sleep(2.5)
    connection.send("\r\n" + GET + "\r\n")
    check("empty lines between requests begin none", first.status == 200 and connection.reply().status == 200)
    connection.close()
    end(server)


# ---- Names


@part
def hosts():
    def status(server, host, *more):
        return say(server, "GET /slots HTTP/1.1\r\n" + (f"Host: {host}\r\n" if host is not None else "") + "".join(f"{m}\r\n" for m in more) + "\r\n").reply()

    server = start()
    for host in ("localhost", "LOCALHOST", "localhost:1", "app.localhost", "127.0.0.1", f"127.0.0.1:{server.port}", "[::1]:80", "192.0.2.7:8080", "[2001:db8::1]", socket.gethostname(), "localhost."):
        check(f"{host}: one of its own", status(server, host).status == 200)
    for host in ("evil.example", f"evil.example:{server.port}", "localhost.evil.example", "127.0.0.1.evil.example", "1.2.3", "xlocalhost", "weir.example"):
        reply = status(server, host)
        check(f"{host}: not", reply.status == 403 and reply.error["code"] == "host_not_allowed" and "--allowed-hosts" in reply.error["message"], reply.body)
    # What a page on a name that was pointed here sends: its origin is the host that it asks.
    reply = status(server, "evil.example", "Origin: http://evil.example")
    check("DNS rebinding fails", reply.status == 403 and reply.error["code"] == "host_not_allowed", reply.body)
    check("another origin", status(server, "localhost", "Origin: http://evil.example").error["code"] == "origin_not_allowed")
    check("another port's page", status(server, "localhost:8080", "Origin: http://localhost:3000").status == 403)
    check("its own page", status(server, "localhost:8080", "Origin: http://localhost:8080").status == 200)
    check("no page's origin", status(server, "localhost", "Origin: null").status == 403)
    check("HTTP/1.0 has none", say(server, "GET /health HTTP/1.0\r\n\r\n").reply().status == 200)
    end(server)
    server = start("--allowed-hosts", "weir.example", "--allowed-hosts", "other.example")
    check("those that are allowed", status(server, "weir.example:443").status == 200 and status(server, "OTHER.example").status == 200 and status(server, "third.example").status == 403)
    check("and their pages", status(server, "weir.example", "Origin: http://weir.example").status == 200 and status(server, "weir.example", "Origin: http://other.example").status == 403)
    end(server)
    server = start("--allowed-hosts", "*")
    check("all of them", status(server, "evil.example").status == 200 and status(server, "a b").status == 400)
    end(server)
    done = subprocess.run([WEIR, "serve", "-m", "fake:", "--port", "0", "--allowed-hosts", "http://a"], capture_output=True, text=True)
    check("a name is no address", done.returncode in (1, 2) and "hosts" in done.stderr, done.stderr)


@part
def tls():
    cert, key = os.path.join(scratch.name, "cert.pem"), os.path.join(scratch.name, "key.pem")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", key, "-out", cert, "-days", "2",
                    "-subj", "/CN=localhost"], check=True, capture_output=True)
    server = start("-np", "1", "-c", "30000", "--tls-cert", cert, "--tls-key", key, model=SLOW, kind="tls", cert=cert)
    connection = server.connect()
    big = {"content": "x" * 300000}
    connection.request("POST", "/tokenize", big)
    check("large ones, both ways", len(connection.reply().json["tokens"]) == 300000)
    connection.send((GET + "\r\n") * 300)
    check("many at once", [connection.reply().status for _ in range(300)] == [200] * 300)
    connection.close()
    gone = server.connect()
    gone.request("POST", CHAT, LONG)
    server.wait_for(lambda m: m["weir_slots_generating"] == 1)
    gone.close()
    check("who leaves is noticed", server.wait_for(lambda m: m["weir_slots_generating"] == 0)["weir_slots_generating"] == 0)
    with socket.create_connection(("127.0.0.1", server.port)) as s:
        s.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        s.settimeout(PATIENCE)
        try:
            said = s.recv(100)
        except OSError:
            said = b""
        check("plain HTTP gets no answer in HTTP", not said.startswith(b"HTTP"), said)
    context = ssl.create_default_context(cafile=cert)
    context.check_hostname = False
    context.set_alpn_protocols(["h2", "http/1.1"])
    with socket.create_connection(("127.0.0.1", server.port)) as s, context.wrap_socket(s) as t:
        check("of what is offered it takes HTTP/1.1", t.selected_alpn_protocol() == "http/1.1")
    end(server)


need_server(WEIR)
run_parts()
