"""weir serve on the fake model: no body costs more than in proportion to its size, and none goes on after its client has left. Every
generator of tests/support/bodies.py is sent with n and 2n bytes. Work of all with all over 4 MiB is seen if it takes CHEAP seconds, and half of
that from other work; WEIR_LINEAR=N: over N MiB, which finds 16 times less with 16. Nothing here counts steps instead: processors of virtual
machines count no instructions for programs."""
# SPDX-License-Identifier: Apache-2.0
import json
import os
import signal
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from bodies import HELLO, every_body, halves, several  # noqa: E402
from checks import PATIENCE, check  # noqa: E402
from parts import end, part, run_parts  # noqa: E402
from processor import Process  # noqa: E402
from serve import Server, need_server  # noqa: E402

WEIR = os.path.abspath(os.environ["WEIR_BIN"])
LARGE = int(os.environ.get("WEIR_LINEAR", "4")) << 20
SMALL = 1 << 18
CHEAP = 0.3  # seconds, or four times what a plain text takes; what takes less for LARGE bytes is no danger
RATIO = 3.4  # of twice the size: 2 is linear and 4 quadratic
TRIES = 4  # others use the processors, too: the least time counts
SERVED = ("--embeddings", "--work-timeout", "600", "--max-body", "64M")

# The same generators serve several paths whose readers are the same; these see all readers.
PATHS = {"/v1/chat/completions", "/v1/completions", "/infill", "/v1/messages", "/v1/responses", "/api/chat", "/api/generate", "/v1/embeddings", "/api/embed",
         "/v1/rerank", "/tokenize", "/detokenize", "/lora-adapters", "/api/show", "/v1/models/load", "/v1/prefixes"}


SANITIZER = os.environ.get("WEIR_SANITIZED", "")


def measured(f):
    """A part that compares processor times. Sanitizers have costs of their own."""
    return f if SANITIZER else part(f)


def read_alone(f):
    """A part for what looks at memory while a body is read: one thread reads it, and every_generator sends the same bodies elsewhere."""
    return part(f) if "address" in SANITIZER else f


class Meter:
    def __init__(self, server):
        self.server, self.process = server, Process(server.process.pid)

    def cost(self, path, data):
        before = self.process.used()
        connection = self.server.connect(timeout=600)
        connection.request("POST", path, data)
        status = connection.head()[0]
        connection.close()
        return self.process.settle(0.02) - before, status

    def least(self, path, data, tries):
        return min(self.cost(path, data)[0] for _ in range(tries))


FAILURES = (500, 502, 503)


def fault(meter, body, cheap):
    """True if it is not answered, or its least cost grows beyond the ratio."""
    status = meter.server.post(body.path, body.make(SMALL // 4)).status  # below the limits that refuse a larger one
    if status in FAILURES:
        return f"{body.path}: {body.name}: {status}"
    large, status = meter.cost(body.path, body.make(LARGE))
    if status in FAILURES:
        return f"{body.path}: {body.name}: {status}"
    if large < cheap:
        return None
    ratio = 0
    for tries in range(1, TRIES + 1):
        one, two = (meter.least(body.path, body.make(size), tries) for size in (LARGE // 2, LARGE))
        ratio = two / one
        if ratio < RATIO:
            return None
    return f"{body.path}: {body.name}: {one:.2f} s, twice the size {two:.2f} s, {status}"


@read_alone
def every_body_is_read():
    server = Server(WEIR, *SERVED)
    bodies = [body for body in every_body() if body.path in PATHS]
    bad = [(body.path, body.name) for body in bodies if server.post(body.path, body.make(SMALL // 4)).status in FAILURES]
    check(f"each of {len(bodies)} bodies is answered", not bad, *bad)
    end(server)


@measured
def every_generator():
    server = Server(WEIR, *SERVED)
    meter = Meter(server)
    bodies = [body for body in every_body() if body.path in PATHS]
    cheap = max(CHEAP, 4 * meter.least("/v1/chat/completions", json.dumps({"messages": [{"role": "user", "content": "x" * LARGE}]}).encode(), 2))
    bad = [found for found in (fault(meter, body, cheap) for body in bodies) if found]
    check(f"each of {len(bodies)} bodies is answered, and none costs more than in proportion to its size", not bad, *bad)
    check("and the server goes on", server.get("/health").status == 200)
    end(server)


@measured
def pairs():
    """Two lists, each of which is looked up in the other."""
    server = Server(WEIR, *SERVED, "-c", "1048576", "-np", "1", model="fake:n_ctx_train=1048576")
    meter = Meter(server)
    bodies = {(b.path, b.name): b for b in every_body()}
    for path, name in (("/api/chat", "calls and named results"), ("/api/chat", "calls and unnamed results"), ("/api/chat", "calls and results of one tool"),
                       ("/api/chat", "calls and results of no tool"), ("/v1/chat/completions", "tools and allowed tools"), ("/v1/responses", "allowed tools"),
                       ("/v1/chat/completions", "dropped parts before others"), ("/v1/messages", "uses and results")):
        (quarter, _), (seconds, status) = (meter.cost(path, bodies[path, name].make(size)) for size in (1 << 20, 1 << 22))
        check(f"{path}, {name}", seconds < 8 * max(quarter, 0.1), quarter, seconds, status)  # squares: 16 times
    end(server)


@part
def counts():
    """What is refused by its number alone."""
    server = Server(WEIR, *SERVED)
    tool, name = '{{"type":"function","function":{{"name":"f{0}"}}}}', {"type": "function", "function": {"name": "f"}}
    said = '{"messages":[' + HELLO + "]"
    chat, ollama = "/v1/chat/completions", "/api/chat"
    reply = server.post(chat, several(said + ',"tools":[', tool.format, "]}", 1 << 16))
    check("more than 1,024 tools", reply.status == 400 and reply.error["param"] == "tools" and "1024" in reply.error["message"], reply.body)
    reply = server.post(chat, {"messages": [json.loads(HELLO)], "tools": [name], "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [name] * 1025}}})
    check("more than 1,024 allowed tools", reply.status == 400 and reply.error["param"] == "tool_choice.allowed_tools.tools", reply.body)
    for what, path, data in (("messages", chat, several('{"messages":[', HELLO, "]}", 1 << 20)),
                             ("parts", chat, several('{"messages":[{"role":"user","content":[', '{"type":"text","text":"a"}', "]}]}", 1 << 20)),
                             ("calls", chat, several('{"messages":[' + HELLO + ',{"role":"assistant","tool_calls":[', '{"function":{"name":"f"}}', "]}]}", 1 << 20)),
                             ("images", ollama, several('{"messages":[{"role":"user","content":"a","images":[', '"AAAA"', "]}]}", 1 << 20)),
                             ("items", "/v1/responses", several('{"input":[', HELLO, "]}", 1 << 20)),
                             ("blocks", "/v1/messages", several('{"max_tokens":1,"messages":[{"role":"user","content":[', '{"type":"text","text":"a"}', "]}]}", 1 << 20))):
        reply = server.post(path, data)
        check(f"more {what} than the context has tokens", reply.status == 400 and b"texts, images and calls" in reply.body, reply.status, reply.body)
    for what, item in (("objects and arrays", "{}"), ("values", "1")):
        reply = server.post(chat, several(said + ',"chat_template_kwargs":{"v":[', item, "]}}", 6 << 20))
        check(f"too many {what}", reply.status == 400 and what.split()[0].encode() in reply.body and b"allowed" in reply.body or b"limit" in reply.body, reply.status, reply.body)
    reply = server.post(chat, {"messages": [{"role": "user", "content": "abcd" * (1 << 20)}]})
    check("a text that cannot fit is not rendered", reply.status == 400 and reply.error["code"] == "context_length_exceeded", reply.body[:300])
    end(server)


def left_after(meter, path, data, seconds):
    """The processor time that is used after the client has left, `seconds` into the work."""
    before = meter.process.settle(0.02)
    connection = meter.server.connect()
    connection.request("POST", path, data)
    until = time.monotonic() + PATIENCE
    while meter.process.used() - before < seconds and time.monotonic() < until:
        time.sleep(0.0005)
    connection.close()
    left = meter.process.used()
    return meter.process.settle(0.1) - left


@measured
def a_client_that_left():
    """The work for a body ends soon after its client has left, also while the body is parsed."""
    server = Server(WEIR, *SERVED)
    meter = Meter(server)
    size = 8 << 20
    for path, name in (("/v1/chat/completions", "a variable of the template: reals"), ("/v1/chat/completions", "a variable of the template: one long text"),
                       ("/v1/chat/completions", "parts with empty members"), ("/v1/completions", "biases"), ("/v1/responses", "metadata"),
                       ("/detokenize", "numbers"), ("/v1/messages", "metadata")):
        body = next(b for b in every_body() if (b.path, b.name) == (path, name))
        data = body.make(size)
        whole = meter.least(path, data, 2)
        most, rest, tries = max(0.5 * whole, 0.1), float("inf"), 0
        while rest >= most and tries < TRIES:
            rest, tries = min(rest, left_after(meter, path, data, whole * 0.3)), tries + 1
        check(f"{path}, {name}: what is left", rest < most, f"{whole:.3f} s as a whole, {rest:.3f} s after it had left")
    end(server)


@part
def time_for_reading():
    """--work-timeout holds while a body is read, too. The server is stopped for longer than that, in the middle of a body that has no end: a
    reader that did not look at the time would call it invalid. Where the stop comes too early or too late, it is tried again."""
    server = Server(WEIR, "--work-timeout", "1", "--workers", "1", "--max-body", "64M")
    data = halves('{"messages":[' + HELLO + '],"chat_template_kwargs":{"v":[', lambda i, n: "1.5e-7", ',"a",', lambda i, n: '"\\u0001\\u0002"', "]}", 6 << 20)
    process, seen = Process(server.process.pid), []
    whole, _ = Meter(server).cost("/v1/chat/completions", data)
    while len(seen) < 60 and 503 not in seen:
        connection = server.connect()
        connection.request("POST", "/v1/chat/completions", data)
        before, until = process.used(), time.monotonic() + 1
        while process.used() - before < whole * (1 + len(seen)) / 60 and time.monotonic() < until:
            pass
        server.process.send_signal(signal.SIGSTOP)
        time.sleep(1.1)
        server.process.send_signal(signal.SIGCONT)
        reply = connection.reply()
        connection.close()
        seen.append(reply.status)
    check("a body that is read for too long", seen[-1] == 503 and reply.error["code"] == "work_timeout" and set(seen[:-1]) <= {400}, seen, reply.body)
    line = server.log(lambda e: e.get("status") == 503)
    check("the log says why", line is not None and line.get("code") == "work_timeout", line)
    check("the next one has its own time", server.post("/v1/chat/completions", b"{").error["code"] == "invalid_json")
    end(server)


@part
def readers_that_left():
    """A server without workers to spare answers others, once who sent large bodies has left."""
    server = Server(WEIR, "--work-timeout", "1", "--workers", "1", "--max-body", "64M")
    data = halves('{"messages":[' + HELLO + '],"chat_template_kwargs":{"v":[', lambda i, n: "1.5e-7", ',"a",', lambda i, n: '"\\u0001\\u0002"', "]}}", 10 << 20)
    connections = [server.connect() for _ in range(8)]
    for connection in connections:
        connection.request("POST", "/v1/chat/completions", data)
        connection.close()
    before = time.monotonic()
    check("another client is answered", server.post("/tokenize", {"content": "x"}).status == 200, time.monotonic() - before)
    end(server)


need_server(WEIR)
run_parts()
