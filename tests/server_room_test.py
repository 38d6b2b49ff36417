"""weir serve on the fake model, when there is no room: large answers that nobody reads, connections of one address, workers that are
stuck. Each refusal says when to come again."""
# SPDX-License-Identifier: Apache-2.0
import json
import os
import signal
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from checks import PATIENCE, check  # noqa: E402
from hold import Held, may_hold  # noqa: E402
from parts import end, part, run_parts  # noqa: E402
from serve import Server, need_server  # noqa: E402

WEIR = os.path.abspath(os.environ["WEIR_BIN"])
CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
HELLO = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 8, "temperature": 0}
with open(WEIR, "rb") as program:
    # What sanitizers take for themselves says nothing about weir.
    SANITIZED = b"san_init" in program.read()
SLOW = "fake:tick_us=20000,n_ctx_train=100000"
WIDE = ("-c", "1048576", "-np", "1")  # so that texts of many bytes may fit
WIDE_MODEL = "fake:n_ctx_train=1048576"
ANSWERS = 256 << 20  # bytes that large answers may have together


@part
def unread_answers():
    """Whole answers wait for clients that never read."""
    server = Server(WEIR, "--work-timeout", "3600", *WIDE, model=WIDE_MODEL)
    body = json.dumps({"content": "x" * (2 << 20), "with_pieces": True}).encode()  # its answer has 24 times as many bytes
    before, crowd = server.resident(), []
    for _ in range(8):
        crowd.append(server.connect(room=4096))
        crowd[-1].request("POST", "/tokenize", body)
    heads = [connection.head() for connection in crowd]
    metrics = server.metrics()
    waits = metrics["weir_http_unsent_bytes"]
    check("large answers that wait have a bound together", 32 << 20 < waits <= ANSWERS, waits)
    check("and so has their memory", SANITIZED or server.peak() - before < ANSWERS + (64 << 20), before, server.peak())
    refused = [headers for status, headers in heads if status == 503]
    check("who comes then is refused, and learns when to come again", len(refused) >= 3 and all(int(h["retry-after"]) >= 1 for h in refused) and
          {status for status, _ in heads} == {200, 503}, heads)
    at = [status for status, _ in heads].index(503) if refused else 0
    check("and why", refused and json.loads(crowd[at].exactly(int(heads[at][1]["content-length"])))["error"]["code"] == "too_many_answers")
    check("small answers have room", server.post("/tokenize", {"content": "x"}).status == 200 and server.post(CHAT, HELLO).status == 200)
    for connection in crowd:
        connection.close()
    server.wait_for(lambda m: m["weir_http_unsent_bytes"] == 0)
    last = server.connect()
    last.request("POST", "/tokenize", body)
    check("then there is room again", last.head()[0] == 200)
    last.close()
    reply = server.post("/tokenize", json.dumps({"content": "x" * (12 << 20), "with_pieces": True}).encode())
    check("what never has room is no matter of time", reply.status == 400 and reply.error["code"] == "answer_too_long" and "retry-after" not in reply.headers, reply.body)
    end(server)


@part
def stopping():
    """What a drain cuts off learns when the next server may be there."""
    server = Server(WEIR, "-np", "1", "--drain", "0", model=SLOW)
    running, waiting = server.connect(), server.connect()
    running.request("POST", CHAT, dict(HELLO, max_tokens=10000, ignore_eos=True))
    server.wait_for(lambda m: m["weir_slots_generating"] == 1)
    waiting.request("POST", CHAT, HELLO)
    server.wait_for(lambda m: m["weir_queue_depth"] == 1)
    server.process.send_signal(signal.SIGTERM)
    for name, connection in (("running", running), ("queued", waiting)):
        reply = connection.reply()
        check(f"{name}: 503, and when to come again", reply.status == 503 and reply.error["code"] == "stopping" and int(reply.headers.get("retry-after", 0)) >= 1, reply.headers, reply.body)
    check("it ends with 0", server.wait() == 0)


@part
def stuck_workers():
    """A worker that stands still in the middle of a request, and goes on."""
    server = Server(WEIR, "--workers", "1", "--work-timeout", "1", "--watchdog", "1", *WIDE, model=WIDE_MODEL)
    if not may_hold(server.process.pid, "weir-work"):
        print("skipped: this system lets no process hold another one's threads", flush=True)
        end(server)
        return
    check("green at first", server.get("/health").status == 200)
    body = json.dumps({"content": "x" * (4 << 20), "with_pieces": True}).encode()
    held = None
    while held is None:
        connection = server.connect(room=4096)
        connection.request("POST", "/tokenize", body)
        server.wait_for(lambda m: m["weir_workers_busy"] == 1)
        held = Held(server.process.pid, "weir-work")
        if server.metrics()["weir_workers_busy"] == 0:  # it was quicker
            held.release()
            held = None
    line = server.log(lambda e: e["event"] == "stuck")
    check("the log says which", line is not None and "1 of 1;" in line["message"] and "2 s" in line["message"], line)
    reply = server.get("/health")
    check("then /health is red", reply.status == 503 and reply.error["code"] == "stuck" and "1 of 1" in reply.error["message"] and int(reply.headers["retry-after"]) >= 1, reply.body)
    check("what needs no worker is answered", server.get("/slots").status == 200 and server.metrics()["weir_workers_busy"] == 1)
    held.release()
    until = time.monotonic() + PATIENCE
    while server.get("/health").status != 200 and time.monotonic() < until:
        time.sleep(0.05)
    check("once it goes on, /health is green", server.get("/health").status == 200)
    check("its request has an answer", connection.head()[0] in (200, 503))
    check("and others, too", server.post("/tokenize", {"content": "x"}).status == 200 and len([e for e in server.lines if e["event"] == "stuck"]) == 1)
    connection.close()
    end(server)


need_server(WEIR)
run_parts()
