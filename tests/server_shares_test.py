"""weir serve on the fake model, when one caller takes all it can get: what another one keeps, and that it is not refused. Callers are
API keys, and addresses where there are none. And clients that leave: how they are counted. Arguments: parts, to run only these."""
# SPDX-License-Identifier: Apache-2.0
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from checks import check, eventually  # noqa: E402
from hold import Held, may_hold  # noqa: E402
from parts import end, part, run_parts  # noqa: E402
from serve import Server, need_server  # noqa: E402

WEIR = os.path.abspath(os.environ["WEIR_BIN"])
CHAT, TEXT, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/responses"
SHORT = {"max_output_tokens": 2, "temperature": 0}
SLOW = "fake:tick_us=20000,n_ctx_train=100000"
KEYS = ("--api-key", "hog", "--api-key", "other", "--metrics-need-no-key")
# A caller as keys and as addresses: words of the server, and of each caller's requests.
CALLERS = (("keys", KEYS, {"key": "hog"}, {"key": "other"}), ("addresses", (), {"source": "127.0.0.2"}, {"source": "127.0.0.3"}))


def ask(server, caller, method, path, body=None):
    return server.ask(method, path, body, **caller)


def send(server, caller, path, body, **more):
    """Sends a request, and does not wait."""
    connection = server.connect(source=caller.get("source"), **more)
    connection.request("POST", path, body, key=caller.get("key"))
    return connection


def idle(metrics):
    return metrics["weir_slots_prefilling"] + metrics["weir_slots_generating"] + metrics["weir_queue_depth"] == 0


# ---- What is kept


@part
def records():
    for name, words, hog, other in CALLERS:
        server = Server(WEIR, "-np", "2", "--response-memory", "300K", *words)

        def there(caller, ids):
            return [ask(server, caller, "GET", f"{RESPONSES}/{i}").status == 200 for i in ids]

        mine = [ask(server, other, "POST", RESPONSES, {**SHORT, "input": "y" * 2000}).json["id"] for _ in range(20)]
        his = [ask(server, hog, "POST", RESPONSES, {**SHORT, "input": "x" * 2000}).json["id"] for _ in range(120)]
        check(f"{name}: responses: who has less than an equal share keeps all", all(there(other, mine)), there(other, mine))
        alive = there(hog, his)
        check(f"{name}: responses: of who has most the oldest go, and much is left", alive == sorted(alive) and 20 < sum(alive) < 120, alive)
        end(server)


@part
def unused_members():
    """Of an item only what a prompt uses is kept."""
    server = Server(WEIR, "-np", "2", "--response-memory", "1M", *KEYS)
    note = {"type": "url_citation", "url": "u" * 100000, "title": "t", "start_index": 0, "end_index": 1}
    item = {"type": "message", "role": "assistant", "id": "msg_1", "status": "completed", "phase": "final_answer",
            "content": [{"type": "output_text", "text": "yes", "annotations": [note], "logprobs": [{"token": "z" * 1000}]}]}
    call = {"type": "function_call", "id": "fc_1", "call_id": "1", "name": "f", "namespace": "n", "arguments": "{}", "status": "completed"}
    output = {"type": "function_call_output", "call_id": "1", "output": [{"type": "input_text", "text": "out", "prompt_cache_breakpoint": {"a": "w" * 1000}}]}
    thought = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "brief", "extra": "v" * 1000}],
               "content": [{"type": "reasoning_text", "text": "hm"}], "encrypted_content": None}
    asked = [{"role": "user", "content": "a"}, item, thought, call, output]
    mine = [server.post(RESPONSES, {**SHORT, "input": "y" * 1000}, key="other").json["id"] for _ in range(20)]
    his = [server.post(RESPONSES, {**SHORT, "input": asked}, key="hog").json["id"] for _ in range(20)]
    check("annotations take no memory: all are kept", all(server.get(f"{RESPONSES}/{i}", key="hog").status == 200 for i in his) and
          all(server.get(f"{RESPONSES}/{i}", key="other").status == 200 for i in mine))
    listed = server.get(f"{RESPONSES}/{his[0]}/input_items?order=asc", key="hog").json["data"]
    lean = dict(item, content=[{"type": "output_text", "text": "yes", "annotations": []}])
    check("an item is returned with all that a prompt uses, and what clients need", listed[1] == lean and listed[3] == call and
          listed[4]["output"] == [{"type": "input_text", "text": "out"}] and listed[2]["content"] == thought["content"] and
          listed[2]["summary"] == [], listed)
    more = server.post(RESPONSES, {**SHORT, "input": "go on", "previous_response_id": his[0]}, key="hog").json
    first = server.get(f"{RESPONSES}/{his[0]}", key="hog").json
    whole = server.post(RESPONSES, {**SHORT, "input": [*asked, *first["output"], {"role": "user", "content": "go on"}]}, key="hog").json
    check("continued, the prompt is that of the whole conversation", more["output"][0]["content"] == whole["output"][0]["content"] and
          more["usage"]["input_tokens"] == whole["usage"]["input_tokens"], more, whole)
    end(server)


@part
def forks():
    for name, words, hog, other in CALLERS:
        server = Server(WEIR, "-np", "4", *words)
        body = {"prompt": "one two", "max_tokens": 2, "temperature": 0}

        def forked(caller, i):
            return ask(server, caller, "POST", TEXT, {"fork": {"id": i}, "max_tokens": 1, "store": False}).status

        mine = [ask(server, other, "POST", TEXT, body).json["id"] for _ in range(20)]
        his = [ask(server, hog, "POST", TEXT, dict(body, n=2)).json["id"] for _ in range(70)]
        check(f"{name}: forks: who has less than an equal share keeps all", [forked(other, i) for i in mine] == [200] * 20)
        check(f"{name}: forks: of who has most the oldest go", forked(hog, his[-1]) == 200 and forked(hog, his[0]) == 404)
        end(server)


# ---- What is refused


@part
def background():
    for name, words, hog, other in CALLERS:
        server = Server(WEIR, "-np", "1", "--queue", "0", "--resume-keep", "3600", "--drain", "0", *words, model="fake:tick_us=500000,n_ctx_train=100000")
        body = {"input": "hello", "max_output_tokens": 5000, "temperature": 0, "background": True}
        replies = []
        while len(replies) < 300 and (not replies or replies[-1].status == 200):
            replies.append(ask(server, hog, "POST", RESPONSES, body))
        refused = replies[-1]
        check(f"{name}: background: one caller has most of the streams", refused.status == 429 and refused.error["code"] == "too_many_streams" and
              len(replies) == 193 and int(refused.headers["retry-after"]) > 0, len(replies), refused.body)
        got = [ask(server, other, "POST", RESPONSES, body).status for _ in range(48)]
        check(f"{name}: background: another one is not refused", got == [200] * 48, got)
        connection = send(server, other, CHAT, {"messages": [{"role": "user", "content": "x"}], "stream": True, "resume": True, "max_tokens": 2})
        status = connection.head()[0]
        check(f"{name}: background: nor are the two together more than all", status == 429, status)
        connection.close()
        for reply in replies[:10]:
            ask(server, hog, "POST", f"{RESPONSES}/{reply.json['id']}/cancel", {})
        got = [ask(server, other, "POST", RESPONSES, body).status for _ in range(5)]
        check(f"{name}: background: what one gives back the other can have", got == [200] * 5, got)
        refused = ask(server, hog, "POST", RESPONSES, body)
        check(f"{name}: background: and the one that still has most is refused", refused.status == 429 and refused.error["code"] == "too_many_streams", refused.body)
        server.stop()


@part
def queue():
    for name, words, hog, other in CALLERS:
        server = Server(WEIR, "-np", "1", "--queue", "16", "-c", "100000", *words, model=SLOW)
        body = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 90000, "temperature": 0}
        crowd = [send(server, hog, CHAT, body)]
        server.wait_for(lambda m: m["weir_slots_generating"] == 1)
        crowd += [send(server, hog, CHAT, body) for _ in range(20)]
        got = server.wait_for(lambda m: m["weir_refused_total"] == 8)
        check(f"{name}: queue: one caller has most of it", got["weir_queue_depth"] == 12 and got["weir_refused_total"] == 8, got)
        mine = [send(server, other, CHAT, dict(body, max_tokens=2)) for _ in range(3)]
        got = server.wait_for(lambda m: m["weir_queue_depth"] == 15)
        check(f"{name}: queue: another one waits, and is not refused", got["weir_queue_depth"] == 15 and got["weir_refused_total"] == 8, got)
        for connection in mine[1:]:
            connection.close()
        server.wait_for(lambda m: m["weir_queue_depth"] == 13)
        crowd[0].close()
        status = mine[0].reply().status
        got = server.wait_for(lambda m: m["weir_queue_depth"] <= 11)  # then one of the crowd begins, and no second one has
        check(f"{name}: queue: and is next, before those who came earlier", status == 200 and got["weir_queue_depth"] == 11, status, got)
        check(f"{name}: queue: the refusal says why", any(b"queue_full" in c.reply().body for c in crowd[-1:]))
        for connection in crowd + mine:
            connection.close()
        server.wait_for(idle)
        end(server)


@part
def bodies():
    for name, words, hog, other in CALLERS:
        server = Server(WEIR, "-c", "100000", "--max-body", "1M", "--body-timeout", "3600", *words, model="fake:n_ctx_train=100000")
        crowd = []
        for _ in range(20):
            crowd.append(server.connect(source=hog.get("source")))
            key = f"Authorization: Bearer {hog['key']}\r\n" if "key" in hog else ""
            crowd[-1].send(f"POST /tokenize HTTP/1.1\r\nHost: localhost\r\n{key}Content-Type: application/json\r\nContent-Length: {1 << 20}\r\n\r\n{{")
            ask(server, other, "GET", "/health")  # so that the server has read its head
        replies = [ask(server, other, "POST", "/tokenize", {"content": "x" * 300000}).status for _ in range(3)]
        check(f"{name}: bodies: one caller's unfinished ones keep another one's large ones not out", replies == [200] * 3, replies)
        for connection in crowd:
            connection.close()
        end(server)


@part
def repeated():
    """What an answer repeats of its request is counted as long as it runs."""
    for name, words, hog, other in CALLERS:
        server = Server(WEIR, "-np", "1", "--queue", "0", "--max-body", "1M", "--drain", "0", *words, model=SLOW)
        body = {"input": "hello", "max_output_tokens": 5000, "temperature": 0, "background": True, "metadata": {"a": "x" * 900000}}
        replies = [ask(server, hog, "POST", RESPONSES, body) for _ in range(20)]
        got = [reply.status for reply in replies]
        # near the bound the body of the request before may count still, so that one more fits later
        check(f"{name}: repeated: one caller's large requests have a bound together", got[:10] == [200] * 10 and 10 < got.count(200) < 16 and
              replies[-1].error["code"] == "too_many_bodies", got, replies[-1].body[:200])
        got = [ask(server, other, "POST", RESPONSES, body).status for _ in range(2)]
        check(f"{name}: repeated: another one's are taken", got == [200] * 2, got)
        check(f"{name}: repeated: and small ones always", ask(server, hog, "POST", RESPONSES, {**SHORT, "input": "x", "background": True}).status == 200)
        for reply in replies[:6]:
            ask(server, hog, "POST", f"{RESPONSES}/{reply.json['id']}/cancel", {})
        check(f"{name}: repeated: until they end", eventually(lambda: ask(server, hog, "POST", RESPONSES, body).status == 200))
        server.stop()


@part
def answers():
    for name, words, hog, other in CALLERS:
        server = Server(WEIR, "-c", "1048576", "-np", "1", "--work-timeout", "3600", *words, model="fake:n_ctx_train=1048576")
        body = json.dumps({"content": "x" * (2 << 20), "with_pieces": True}).encode()  # its answer has 24 times as many bytes
        crowd = [send(server, hog, "/tokenize", body, room=4096) for _ in range(8)]
        heads = [connection.head()[0] for connection in crowd]
        reply = ask(server, other, "POST", "/tokenize", {"content": "x" * (1 << 20), "with_pieces": True})
        check(f"{name}: answers: one caller's unread ones do not keep another one's out", 503 in heads and reply.status == 200, heads, reply.status)
        for connection in crowd:
            connection.close()
        end(server)


# ---- Clients that leave


@part
def left():
    server = Server(WEIR, "-np", "1", "-c", "1048576", "--workers", "1", model="fake:tick_us=20000,n_ctx_train=1048576")
    body = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 2000, "temperature": 0}

    def counted(n):
        return server.wait_for(lambda m: m["weir_http_left_total"] == n)

    reading = server.connect()
    reading.send("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{")
    server.wait_for(lambda m: m["weir_http_live"] == 2)
    reading.close()
    check("left while its request was read", counted(1)["weir_http_left_total"] == 1)
    running = server.connect()
    running.request("POST", CHAT, dict(body, stream=True))
    running.head()
    server.wait_for(lambda m: m["weir_slots_generating"] == 1)
    waiting = server.connect()
    waiting.request("POST", CHAT, body)
    server.wait_for(lambda m: m["weir_queue_depth"] == 1)
    waiting.close()
    check("left in the queue", counted(2)["weir_http_left_total"] == 2)
    running.close()
    check("left in the middle of a stream", counted(3)["weir_http_left_total"] == 3)
    server.wait_for(idle)
    hard = server.connect()
    hard.request("POST", "/tokenize", {"content": "x" * (4 << 20), "with_pieces": True})
    server.wait_for(lambda m: m["weir_workers_busy"] == 1)
    held = Held(server.process.pid, "weir-work") if may_hold(server.process.pid, "weir-work") else None
    hard.close()
    for _ in range(20):  # so that it is seen before the worker goes on
        server.metrics()
    if held:
        held.release()
    metrics = counted(4)
    check("left while a worker had it", metrics["weir_http_left_total"] == 4, metrics["weir_http_left_total"])
    server.log(lambda _: sum(bool(e.get("left")) for e in list(server.lines)) == 4)
    lines = [e for e in server.lines if e.get("left")]
    check("the log: 499, and no refusal of the server's", len(lines) == 4 and all(e["status"] == 499 and e["level"] == "info" and "code" not in e for e in lines), lines)
    check("with what was generated", [e["choices"][0]["reason"] for e in lines if e.get("choices")] == ["left", "left"], lines)
    check("metrics: a class of their own", metrics['weir_http_requests_total{status="499"}'] == 4 and metrics['weir_http_responses_total{code="499"}'] == 4 and
          metrics['weir_http_requests_total{status="5xx"}'] == 0 and metrics['weir_http_requests_total{status="4xx"}'] == 0, metrics)
    watching = server.connect()
    watching.request("GET", "/events")
    watching.head()
    watching.close()
    server.wait_for(lambda m: m["weir_http_live"] == 1)
    check("an endless stream ends so: nobody left it", server.metrics()["weir_http_left_total"] == 4 and server.log(lambda e: e.get("path") == "/events" and e["status"] == 200) is not None)
    end(server)


need_server(WEIR)
run_parts()
