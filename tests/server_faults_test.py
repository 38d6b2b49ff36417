"""weir serve on the fake model, among clients that behave badly and when things run out: it stays up, comes back to idle, does not spin,
and its memory does not grow. WEIR_FAULTS=N: that many clients that vanish (500); WEIR_TEST_SEED=N; arguments: parts, to run only these."""
# SPDX-License-Identifier: Apache-2.0
import asyncio
import json
import os
import random
import re
import resource
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from checks import PATIENCE, check, eventually, leave_out, seed  # noqa: E402
from parts import end, part, run_parts  # noqa: E402
from serve import Connection, Server, environment, need_server  # noqa: E402

WEIR = os.path.abspath(os.environ["WEIR_BIN"])
CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
HELLO = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 8, "temperature": 0}
ENDLESS = {"messages": [{"role": "user", "content": "tell"}], "max_tokens": 100000, "ignore_eos": True, "stream": True}
SLOW = "fake:tick_us=20000,n_ctx_train=100000"
POST = f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\n"
RESET = struct.pack("ii", 1, 0)
N_CLIENTS = int(os.environ.get("WEIR_FAULTS", "500"))
SEED = seed()
scratch = tempfile.TemporaryDirectory()
with open(WEIR, "rb") as program:
    # What sanitizers take for themselves says nothing about weir.
    SANITIZED = re.search(b"__[at]san_init", program.read()) is not None


def start(*words, **more):
    return Server(WEIR, *words, **more)


def idle(metrics):
    return (metrics["weir_slots_prefilling"] + metrics["weir_slots_generating"] + metrics["weir_queue_depth"] == 0 and
            metrics["weir_http_live"] == 1)  # the one that asks


def ended(metrics):
    """All that was submitted has its one end."""
    return metrics["weir_submitted_total"] == sum(v for k, v in metrics.items() if k.startswith("weir_finished_total"))


def restful(server, seconds=1.0):
    """What of a core the service thread takes."""
    before, began = server.cpu(), time.monotonic()
    time.sleep(seconds)
    return (server.cpu() - before) / (time.monotonic() - began)


# ---- The model is not there, or stands still


@part
def loading():
    path = os.path.join(scratch.name, "loading.sock")
    server = start("--unix", path, model="fake:load_us=3600000000", kind="unix", unix=path, wait=False)
    check("it listens while the model is loaded", eventually(lambda: os.path.exists(path)))
    reply = server.get("/health")
    check("loading: /health is red", reply.status == 503 and reply.error["code"] == "loading" and int(reply.headers["retry-after"]) >= 1, reply.body)
    for ask in (lambda: server.post(CHAT, HELLO), lambda: server.get("/v1/models"), lambda: server.get("/slots"), lambda: server.get("/events")):
        reply = ask()
        check("loading: 503, and when to come again", reply.status == 503 and reply.error["code"] == "loading" and
              reply.error["type"] == "unavailable_error" and int(reply.headers["retry-after"]) >= 1, reply.status, reply.body)
    check("loading: the page and metrics are there", server.get("/").status == 200 and server.get("/metrics").status == 200)
    server.process.send_signal(signal.SIGTERM)
    check("loading: SIGTERM ends it", server.wait() not in (None, -signal.SIGKILL, -signal.SIGSEGV), server.process.returncode, server.lines)


@part
def watchdog():
    # A tick of an hour; it is given up as soon as nobody wants its results.
    server = start("-np", "1", "--watchdog", "1", model="fake:tick_us=3600000000")
    check("watchdog: green at first", server.get("/health").status == 200)
    running = server.connect()
    running.request("POST", CHAT, ENDLESS)
    check("watchdog: red when there is work and no tick", eventually(lambda: server.get("/health").status == 503))
    reply = server.get("/health")
    check("watchdog: says why", reply.error["code"] == "stuck" and "1 s" in reply.error["message"], reply.body)
    check("watchdog: the log says so", server.log(lambda e: e["event"] == "stuck") is not None)
    waiting = server.connect()
    waiting.request("POST", CHAT, ENDLESS)
    check("watchdog: requests are still taken", server.wait_for(lambda m: m["weir_queue_depth"] == 1)["weir_queue_depth"] == 1)
    waiting.close()
    running.close()
    check("watchdog: green again", eventually(lambda: server.get("/health").status == 200))
    end(server)


# ---- Bodies and readers


@part
def bodies():
    server = start("--body-timeout", "2")
    size = 64 << 20
    connection = server.connect()
    before = server.resident()
    connection.send(POST + f"Content-Length: {size}\r\n\r\n")
    status, headers = connection.head()
    body = connection.exactly(int(headers["content-length"]))
    check("64 MB: refused before a byte of it came", status == 413 and json.loads(body)["error"]["code"] == "body_too_large" and connection.closed(), status, body)
    connection.close()
    connection = server.connect()
    sent = 0
    try:
        connection.send(POST + f"Content-Length: {size}\r\n\r\n")
        while sent < size:
            sent += connection.sock.send(b"x" * 65536)
    except OSError:
        pass
    try:
        status = connection.head()[0]
    except OSError:
        status = None  # the reset came first
    check("64 MB, sent all the same: not taken", sent < size and status in (413, None), sent, status)
    connection.close()
    check("64 MB: none of it was kept", server.resident() - before < 8 << 20, before, server.resident())
    connection = server.connect()
    connection.send("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n" * 2)
    check("requests that come at once are answered", [connection.reply().status for _ in range(2)] == [200, 200])
    connection.close()
    # A byte now and then: each of them in time, all of them not.
    connection = server.connect()
    connection.send(POST + "Content-Length: 1000\r\n\r\n{")
    began, reply = time.monotonic(), b""
    while time.monotonic() - began < PATIENCE and not reply:
        try:
            connection.send(" ")
        except OSError:
            pass
        if select.select([connection.sock], [], [], 0.1)[0]:
            reply = connection.sock.recv(1000)
    check("a body that trickles: 408 at its deadline", reply.startswith(b"HTTP/1.1 408") and time.monotonic() - began >= 1.9, reply)
    check("and closed", connection.closed())
    connection.close()
    check("all are gone", idle(server.wait_for(idle)))
    end(server)


@part
def slow_readers():
    # Events faster than any reader; the memory of the fake's cells is not measured.
    server = start("-np", "4", "-c", "100000", "--kv", "400000", "--stall-timeout", "3", model="fake:n_ctx_train=100000,tick_us=100")
    readers = [server.connect(room=4096) for _ in range(3)]
    for reader in readers:
        reader.request("POST", CHAT, ENDLESS)
    # What is unsent grows until the kernel's buffers and the server's are full, then the engine merges; until they are hung up on.
    most = 0

    def hung_up():
        nonlocal most
        metrics = server.metrics()
        most = max(most, metrics["weir_http_unsent_bytes"])
        return metrics["weir_http_left_total"] == 3

    while not hung_up():
        reply = server.post(CHAT, dict(HELLO, max_tokens=20, ignore_eos=True))
        if reply.status != 200 or reply.json["usage"]["completion_tokens"] != 20:
            check("others are unaffected", False, reply.body)
            break
    check("others are unaffected", True)
    check("at most 256 KiB wait for each", (256 << 10) <= most <= 3 * ((256 << 10) + 16384), most)
    metrics = server.wait_for(lambda m: idle(m) and ended(m) and m["weir_http_left_total"] == 3)
    check("who reads nothing is left, and the slot is free", idle(metrics) and ended(metrics) and metrics["weir_http_left_total"] == 3, metrics)
    eventually(lambda: len([e for e in list(server.lines) if e.get("left")]) == 3)
    lines = [e for e in server.lines if e.get("left")]
    check("the log says so", len(lines) == 3 and all(e["choices"][0]["reason"] == "left" for e in lines), lines)
    for reader in readers:
        reader.close()
    end(server)

    server = start("-c", "24000", model="fake:n_ctx_train=24000,tick_us=100")
    # Who reads after a while gets all of it, merged or not.
    reader = server.connect(room=4096)
    reader.request("POST", CHAT, dict(ENDLESS, max_tokens=20000, temperature=0))
    server.wait_for(lambda m: m["weir_slots_generating"] == 0 and m["weir_http_unsent_bytes"] >= 200 << 10)
    reader.hurry()
    reader.head()
    text, most = "", 0
    for i, event in enumerate(e for e in reader.events() if not e.startswith(":")):
        if i % 200 == 0:
            most = max(most, server.metrics()["weir_http_unsent_bytes"])
        if event != "[DONE]":
            text += json.loads(event)["choices"][0]["delta"].get("content", "")
    whole = server.post(CHAT, dict(ENDLESS, stream=False, max_tokens=20000, temperature=0)).json["choices"][0]["message"]["content"]
    check("who reads late misses nothing", text == whole, len(text), len(whole))
    check("and what is merged comes in pieces", most <= (256 << 10) + 65536, most)
    end(server)


@part
def large_bodies():
    """Their memory goes back to the system. A request of many small texts takes many times its size."""
    server = start("--body-timeout", "3600", "--work-timeout", "3600")
    before = server.resident()
    for _ in range(3):
        reply = server.post(CHAT, {"messages": [{"role": "user", "content": [{"type": "text", "text": "x"}] * 200000}]})
        check("a large body is read", reply.status == 400 and reply.error["code"] == "context_length_exceeded", reply.status, reply.body)
    peak = server.peak() - before
    back = eventually(lambda: server.resident() - before < 32 << 20)
    check("what large bodies took is given back", SANITIZED or (peak > 100 << 20 and back), before, peak, server.resident())
    end(server)


@part
def whole_answers():
    """A prompt that all choices echo, and a whole answer that nobody takes."""
    server = start("--stall-timeout", "2")
    before = server.resident()
    reply = server.post(TEXT, {"prompt": "x" * (8 << 20), "echo": True, "n": 128})
    check("a prompt is kept once for all choices", reply.status == 400 and (SANITIZED or server.peak() - before < 256 << 20), reply.body, before, server.peak())
    reader = server.connect(room=4096)
    reader.request("POST", "/detokenize", {"tokens": [300] * (1 << 20)})
    metrics = server.wait_for(lambda m: m["weir_http_unsent_bytes"] > 0)
    check("an answer waits for its reader", metrics["weir_http_unsent_bytes"] > 1 << 20, metrics["weir_http_unsent_bytes"])
    metrics = server.wait_for(lambda m: m["weir_http_left_total"] == 1)
    check("and is left by the stall timeout", metrics["weir_http_left_total"] == 1 and idle(metrics) and metrics["weir_http_unsent_bytes"] == 0, metrics)
    reader.close()
    check("it answers", server.post(CHAT, HELLO).status == 200)
    end(server)


# ---- The service thread


@part
def spinning():
    """Connections in every state. The service thread has nothing to do with them."""
    cert, key = os.path.join(scratch.name, "cert.pem"), os.path.join(scratch.name, "key.pem")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", key, "-out", cert, "-days", "2",
                    "-subj", "/CN=localhost"], check=True, capture_output=True)
    stream, whole = json.dumps(ENDLESS), json.dumps(dict(ENDLESS, stream=False))
    streamed = POST + f"Content-Length: {len(stream)}\r\n\r\n{stream}"
    waited = POST + f"Content-Length: {len(whole)}\r\n\r\n{whole}"
    more = "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    events = "GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n"
    plain = {
        "nothing is sent": [""], "half a head": [POST], "a head without its body": [POST + "Content-Length: 5\r\n\r\n"],
        "a stream": [streamed], "a stream, and more in one piece": [streamed + more], "a stream, and more afterwards": [streamed, more],
        "a stream, and noise": [streamed, "\0" * 5000], "whole": [waited], "whole, and more in one piece": [waited + more], "whole, and more afterwards": [waited, more],
        "events": [events], "events, and more in one piece": [events + more], "events, and more afterwards": [events, more], "events, and a POST": [events + streamed],
        "many at once": [more * 50], "a refusal, and its body": [POST + "Content-Length: 99999999\r\n\r\n" + "x" * 70000],
    }
    server = start("-np", "1", "--tls-cert", cert, "--tls-key", key, "--unix", os.path.join(scratch.name, "spin.sock"), "--head-timeout", "60", "--body-timeout", "60",
                   model="fake:tick_us=100000,n_ctx_train=100000", kind="unix", unix=os.path.join(scratch.name, "spin.sock"), cert=cert)
    quiet = min(restful(server) for _ in range(5))
    check("idle, it rests", quiet < 0.1, quiet)
    for name, pieces in plain.items():
        for kind in ("unix", "tls"):
            for ending in ("open", "half closed"):
                connection = server.connect(kind=kind)
                try:
                    for i, piece in enumerate(pieces):
                        if i:
                            time.sleep(0.1)
                        connection.send(piece)
                    if ending == "half closed":
                        connection.sock.shutdown(socket.SHUT_WR)
                except OSError:
                    pass  # it may have hung up
                load = restful(server, 0.3)
                if load > 0.3:
                    load = restful(server)
                if load > 0.3:
                    check(f"{kind}, {ending}: {name}: the service thread rests", False, load)
                connection.close()
    metrics = server.wait_for(lambda m: idle(m) and ended(m))
    check("whatever they did, all is idle", idle(metrics) and ended(metrics), metrics)
    # A half-open handshake, and one that is none.
    for first in (b"", b"\x16\x03\x01\x02\x00\x01", b"GET / HTTP/1.1\r\n\r\n", b"\0" * 100):
        with socket.create_connection(("127.0.0.1", server.port)) as s:
            s.sendall(first)
            load = restful(server, 0.3)
            check(f"TLS, begun with {first[:4]}: the service thread rests", load < 0.3, load)
    # Clients that are killed, in the middle and in the queue.
    script = ("import socket, sys, time\nfor _ in range(6):\n s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); s.sendall(sys.argv[2].encode())\n"
              " globals()['s%d' % _] = s\nprint('sent', flush=True)\ntime.sleep(60)")
    for text in (streamed, waited, events, POST):
        client = subprocess.Popen([sys.executable, "-c", script, server.unix, text], stdout=subprocess.PIPE)
        client.stdout.readline()
        time.sleep(0.2)
        client.kill()
        client.wait()
        metrics = server.wait_for(lambda m: idle(m) and ended(m))
        load = restful(server, 0.3)
        check("killed clients leave nothing behind", idle(metrics) and ended(metrics) and load < 0.3, load, metrics)
    end(server)


@part
def descriptors():
    """More connections than descriptors."""
    if SANITIZED:
        leave_out("sanitizers need descriptors themselves")
        return
    server = start("-np", "2", "--no-log", model=SLOW, limits=[(resource.RLIMIT_NOFILE, 64)])
    running = server.connect()
    running.request("POST", CHAT, ENDLESS)
    running.head()
    events = running.events()
    next(events)
    crowd = []
    for _ in range(200):
        s = socket.socket()
        s.setblocking(False)
        s.connect_ex(("127.0.0.1", server.port))
        crowd.append(s)
    check("who says nothing makes room for who does", all(server.post(CHAT, dict(HELLO, max_tokens=1)).status == 200 for _ in range(5)))
    for s in crowd:
        try:
            s.send(b"GET /health HTTP/1.1\r\nHos")
        except OSError:
            pass
    check("so does who goes on for ever with its head", all(server.post(CHAT, dict(HELLO, max_tokens=1)).status == 200 for _ in range(5)))
    check("the log says so, once", server.log(lambda e: e["event"] == "full") is not None and len([e for e in server.lines if e["event"] == "full"]) == 1, server.lines[-3:])
    load = restful(server)
    check("full: the service thread does not spin", load < 0.3, load)
    before = server.metrics()["weir_ticks_total"]
    metrics = server.wait_for(lambda m: m["weir_ticks_total"] >= before + 20 and m["weir_http_unsent_bytes"] == 0)
    check("and keeps no stream waiting: what was generated is on its way", metrics["weir_ticks_total"] >= before + 20 and metrics["weir_http_unsent_bytes"] == 0, metrics)
    for _ in range(20):
        next(events)
    for s in crowd:
        s.close()
    # Requests that wait for their answers are not sent away: then the last connections are for probes.
    busy, answered = [], {}
    for _ in range(40):
        connection = server.connect()
        busy.append(connection)
        connection.request("POST", CHAT, ENDLESS)
        # The last one waits until one of them is told.
        silent = [c for c in busy if c not in answered]
        told = select.select([c.sock for c in silent], [], [], 0.2 if len(busy) < 39 else PATIENCE)[0]
        answered.update((c, c.head()[0]) for c in silent if c.sock in told)
        if 503 in answered.values():
            break
    check("beyond what it has room for, a request is refused", len(busy) < 40 and server.wait_for(lambda m: m["weir_http_live"] > 20)["weir_http_live"] > 20, len(busy))
    reply = server.post(CHAT, HELLO)
    check("with when to come again", reply.status == 503 and reply.error["code"] == "too_many_connections" and int(reply.headers["retry-after"]) >= 1, reply.body)
    check("and who asks whether it lives is answered", server.get("/health").status == 200 and server.get("/metrics").status == 200)
    for connection in busy:
        connection.close()
    check("then it answers again", eventually(lambda: server.post(CHAT, dict(HELLO, max_tokens=1)).status == 200))
    running.close()
    metrics = server.wait_for(lambda m: idle(m) and ended(m))
    check("and is idle", idle(metrics) and ended(metrics), metrics)
    load = restful(server)
    check("and rests", load < 0.1, load)
    end(server)


@part
def nobody_reads_the_log():
    read, write = os.pipe()
    path = os.path.join(scratch.name, "log.sock")
    process = subprocess.Popen([WEIR, "serve", "-m", "fake:", "--host", "", "--unix", path], stderr=write, stdin=subprocess.DEVNULL, env=environment())
    os.close(write)

    class Other:
        kind, unix = "unix", path
    try:
        eventually(lambda: os.path.exists(path))
        connection = Connection(Other, timeout=PATIENCE)
        status = []
        for _ in range(12000):  # lines of some 150 bytes: more than a pipe holds, and more than the server keeps
            connection.request("GET", "/health")
            status.append(connection.reply().status)
        check("a log that nobody reads holds up nobody", status[-1] == 200)
        lines = b""
        os.set_blocking(read, False)

        def caught_up():
            nonlocal lines
            try:
                while True:
                    piece = os.read(read, 65536)
                    if not piece:
                        break
                    lines += piece
            except BlockingIOError:
                pass
            connection.request("GET", "/nothing")
            connection.reply()
            return b" lost: nobody read" in lines and lines.rstrip().endswith(b"}")

        check("what was lost is counted", eventually(caught_up))
        entries = [json.loads(line) for line in lines.decode().splitlines()]
        lost = [e for e in entries if " lost: nobody read" in e.get("message", "")]
        check("every line is whole", len(lost) == 1 and 1000 < int(lost[0]["message"].split()[0]) < 12000, lost)
    except (OSError, ConnectionError) as e:
        check("a log that nobody reads holds up nobody", False, e)
    finally:
        process.kill()
        process.wait()
        os.close(read)


# ---- Clients that vanish


def go(sock, dice):
    if dice.random() < 0.5:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)


async def take(loop, sock, n_bytes, patience):
    """Reads until so much has come, the end, or the time is over."""
    until = loop.time() + patience
    try:
        while n_bytes > 0 and loop.time() < until:
            data = await asyncio.wait_for(loop.sock_recv(sock, 4096), until - loop.time())
            if not data:
                return
            n_bytes -= len(data)
    except (asyncio.TimeoutError, OSError):
        pass


async def client(port, dice):
    """One client: how far it goes, and how it leaves."""
    loop = asyncio.get_running_loop()
    where = dice.choice(["connected", "head", "body", "sent", "queued", "queued", "streaming", "streaming", "streaming", "end", "events", "whole", "again"])
    words = " ".join(str(dice.random()) for _ in range(dice.choice([1, 5, 40])))
    body = {"messages": [{"role": "user", "content": words}], "max_tokens": dice.choice([1, 10, 60]), "stream": where != "whole", "n": dice.choice([1, 1, 1, 3])}
    data = json.dumps(body).encode()
    head = f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(data)}\r\n\r\n".encode()
    if where == "events":
        head, data = b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n", b""
    sock = socket.socket()
    sock.setblocking(False)
    try:
        await loop.sock_connect(sock, ("127.0.0.1", port))
        if where == "connected":
            pass
        elif where == "head":
            await loop.sock_sendall(sock, head[:dice.randrange(1, len(head))])
        elif where == "body":
            await loop.sock_sendall(sock, head + data[:dice.randrange(len(data))])
        else:
            await loop.sock_sendall(sock, head + data)
            if where in ("queued", "whole"):
                await take(loop, sock, 1 << 30, dice.random() * 0.03)
            elif where in ("streaming", "events"):
                await take(loop, sock, dice.randrange(1, 5000), 1)
            elif where in ("end", "again"):
                await take(loop, sock, 1 << 30, 0.3)
            if where == "again":
                await loop.sock_sendall(sock, head + data[:dice.randrange(len(data))])
        go(sock, dice)
        if dice.random() < 0.2:
            sock.shutdown(socket.SHUT_WR)
            await asyncio.sleep(dice.random() * 0.01)
    except OSError:
        pass  # it had enough of us
    finally:
        sock.close()
    return where


async def crowd(port, dice, n, at_once):
    """n clients, a number of them at a time."""
    left = iter(range(n))
    counts = {}

    async def line():
        for _ in left:
            where = await client(port, dice)
            counts[where] = counts.get(where, 0) + 1

    await asyncio.gather(*(line() for _ in range(at_once)))
    return counts


def rest(server):
    """Waits until all is idle and the server has looked around once more."""
    metrics = server.wait_for(lambda m: idle(m) and ended(m))
    time.sleep(1)
    return metrics


@part
def vanishing():
    print(f"{N_CLIENTS} clients", flush=True)
    dice = random.Random(SEED)
    # Without a cache, which grows as far as it may. Warm: cells, the engine's record of the last ticks and buffers are touched once.
    server = start("-np", "8", "--queue", "200", "--no-log", "--cache-sequences", "0", model="fake:tick_us=500")
    long = [server.connect() for _ in range(8)]
    for connection in long:
        connection.request("POST", CHAT, dict(ENDLESS, max_tokens=4000, stream=False))
    for connection in long:
        connection.reply()
        connection.close()
    asyncio.run(crowd(server.port, dice, max(2000, N_CLIENTS // 10), 64))
    rest(server)
    warm, files, before = server.resident(), server.files(), server.metrics()
    began, cpu = time.monotonic(), server.cpu()
    counts = asyncio.run(crowd(server.port, dice, N_CLIENTS, 64))
    took = time.monotonic() - began
    metrics = rest(server)
    now = server.resident()
    print(f"      {counts}, in {took:.1f} s; {metrics['weir_submitted_total'] - before['weir_submitted_total']:.0f} requests were queued, "
          f"{metrics['weir_http_left_total'] - before['weir_http_left_total']:.0f} left; resident {warm / 1e6:.2f} MB before, {now / 1e6:.2f} MB after; "
          f"service thread {server.cpu() - cpu:.2f} s", flush=True)
    check("all slots are idle, nothing is queued, all have ended", idle(metrics) and ended(metrics), metrics)
    check("many left", metrics["weir_http_left_total"] - before["weir_http_left_total"] > N_CLIENTS / 4, metrics["weir_http_left_total"])
    check("cells are free or cached", metrics["weir_kv_cells_used"] == metrics["weir_kv_cells_cached"], metrics)
    check("no descriptor stays", eventually(lambda: server.files() <= files), server.files(), files)
    check("memory is what it was", SANITIZED or now <= warm * 1.05, warm, now)
    load = restful(server)
    check("and it rests", load < 0.1, load)
    check("it answers", server.post(CHAT, HELLO).status == 200)
    end(server)


need_server(WEIR)
run_parts(at_once=4)
