"""weir serve on the fake model: streams that are resumed after a lost connection, and requests that share a generation.
WEIR_TEST_SEED=N; arguments: parts, to run only these."""
# SPDX-License-Identifier: Apache-2.0
import json
import os
import random
import re
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from checks import check, seed  # noqa: E402
from parts import end, part, run_parts  # noqa: E402
from resumed import Reader, whole  # noqa: E402
from serve import Server, need_server  # noqa: E402

WEIR = os.path.abspath(os.environ["WEIR_BIN"])
CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
HELLO = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 12, "temperature": 0, "ignore_eos": True}
ASK = {"prompt": "one two", "max_tokens": 12, "temperature": 0, "ignore_eos": True}
LONG = dict(HELLO, max_tokens=50000)
QUICK, SLOW = "fake:tick_us=2000,n_ctx_train=100000", "fake:tick_us=20000,n_ctx_train=100000"
SEED = seed()


def start(*words, **more):
    return Server(WEIR, *words, **more)


def refused(name, reply, status, field=None, code=None, word=""):
    error = reply.error if reply.body else {}
    check(f"{name}: {status}" + (f", {field}" if field else ""), reply.status == status and error.get("param") == field and
          (code is None or error.get("code") == code) and word in error.get("message", ""), reply.status, reply.body)


def idle(metrics):
    return metrics["weir_slots_prefilling"] + metrics["weir_slots_generating"] + metrics["weir_queue_depth"] == 0


def events(got):
    return [json.loads(data) for _, data in got if data != "[DONE]"]


def texts(got):
    """Of each choice."""
    out = {}
    for event in events(got):
        for choice in event["choices"]:
            out[choice["index"]] = out.get(choice["index"], "") + (choice["delta"].get("content") or "" if "delta" in choice else choice["text"])
    return out


def cancel(server, reader, **more):
    return server.post(f"/v1/streams/{reader.id}/cancel", {}, **more)


def plain(server, path, body, **more):
    """The same without resume."""
    return texts([(None, json.dumps(e)) for e in server.stream(path, body, **more)])


# ---- Resuming


@part
def every_cut():
    server = start("-np", "4", model=QUICK)
    for name, path, body in (("chat", CHAT, dict(HELLO, stream_options={"include_usage": True})), ("a completion", TEXT, ASK),
                             ("three choices with logprobs", CHAT, dict(HELLO, n=3, temperature=1, seed=5, max_tokens=5, logprobs=True, top_logprobs=2)),
                             ("echo with logprobs", TEXT, dict(ASK, echo=True, logprobs=1, max_tokens=5))):
        want = plain(server, path, body)
        with Reader(server, path, body) as reader:
            model = reader.rest()
        check(f"{name}: numbered, ended, the text of a stream without numbers", whole(model) and texts(model) == want, model, want)
        check(f"{name}: the id is the head's, and not to be guessed", re.fullmatch(r"(chatcmpl|cmpl)-[0-9a-f]{32}", reader.id) and
              {e["id"] for e in events(model)} == {reader.id}, reader.id, model[0])
        wrong, n = [], len(model)
        for cut in range(n + 1):
            with Reader(server, path, body) as first:
                head = list(first.take(cut))
            at = head[-1][0] if head else 0
            with Reader(server, first.id, at=at) as second:
                tail = second.rest() if second.status == 200 else []
            with Reader(server, first.id) as third:
                again = third.rest()
            if cut == n and (second.status != 204 or tail):
                wrong.append((cut, "not 204", second.status))
            if head + tail != again or not whole(again) or texts(again) != want:
                wrong.append((cut, head, tail, again))
        check(f"{name}: cut after each of {n} events, and resumed: each event once, to the byte", not wrong, wrong[:2])
    usage = [e["usage"] for e in events(model) if e.get("usage")]
    check("it comes back to idle", idle(server.wait_for(idle)), usage)
    metrics = server.metrics()
    check("metrics count them", metrics["weir_streams_kept"] > 40 and metrics["weir_streams_running"] == 0 and metrics["weir_streams_resumed_total"] > 80 and
          metrics["weir_streams_bytes"] > 40 * 1000 and metrics["weir_http_live"] == 1, metrics)
    check("the log has the generation's line, and the connections'", server.log(lambda e: e.get("event") == "stream" and e["choices"][0]["generated"] == 12) is not None)
    end(server)


@part
def random_cuts():
    dice = random.Random(SEED)
    server = start("-np", "3", "--strategy", "decode-maximal", model="fake:tick_us=3000,any=1,n_ctx_train=100000")
    wrong, n_cuts = [], 0

    def one(dice):
        nonlocal n_cuts
        path, body = dice.choice([(CHAT, HELLO), (TEXT, ASK)])
        body = dict(body, n=dice.choice([1, 1, 2]), max_tokens=dice.randrange(1, 60), temperature=1, seed=dice.randrange(1000))
        got, key = [], None
        reader = Reader(server, path, body)
        while True:
            try:
                for _ in range(dice.choice([0, 1, 3, 10, 1000])):
                    got.append(next(reader.source))
            except StopIteration:
                break
            reader.leave()
            time.sleep(dice.random() * 0.02)
            n_cuts += 1
            at = got[-1][0] if got else 0
            key = reader.id
            by = dice.randrange(3)
            reader = Reader(server, key, at=at if by != 1 else None, query=at if by == 1 else 1 if by == 2 else None)
            if reader.status == 204:
                break
        reader.leave()
        if not whole(got) or texts(got) != plain(server, path, body):
            wrong.append((body, got))

    def many(dice):
        for _ in range(8):
            one(dice)
    threads = [threading.Thread(target=many, args=(random.Random(dice.random()),)) for _ in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    check(f"32 streams, {n_cuts} random cuts: the texts are those of streams without", not wrong and n_cuts > 30, wrong[:1])
    check("it comes back to idle", idle(server.wait_for(idle)))
    end(server)


@part
def readers():
    server = start("-np", "1", model=SLOW)
    body = dict(HELLO, max_tokens=60)
    with Reader(server, CHAT, body) as first:
        first.take(10)
        with Reader(server, first.id) as second, Reader(server, first.id, at=7) as third:
            second.take(3)
            third.take(5)
            check("readers that come while it runs", second.got == first.got[:3] and third.got[:3] == first.got[7:10], second.got, third.got)
            first.leave()
            model = second.rest()
            check("each from its place to the end", whole(model) and model[:10] == first.got[:10] and third.rest() == model[7:], model, third.got)
    check("the text", texts(model) == plain(server, CHAT, body))
    check("one generation", server.metrics()["weir_submitted_total"] == 2)
    reply = server.ask("HEAD", "/v1/streams/" + first.id)
    check("HEAD", reply.status == 200 and reply.headers["x-stream-id"] == first.id, reply.headers)
    check("an answer in whole is not resumed", server.post(CHAT, HELLO).headers.get("x-stream-id") is None)
    end(server)


@part
def positions():
    server = start("-np", "1", model=SLOW)
    with Reader(server, CHAT, LONG) as reader:
        reader.take(5)
        path = "/v1/streams/" + reader.id
        for bad in ("x", "-1", "1.5", "0x1", "5 5", "1" * 30, "1" * 300, "99999", "¹"):
            reply = server.get(path, headers=[f"Last-Event-ID: {bad}"])
            refused(f"Last-Event-ID {bad[:20]!r}", reply, 400, "Last-Event-ID", "invalid_value", "allowed: 0 to ")
        for bad in ("x", "", "99999", "1" * 300):
            refused(f"starting_after={bad[:20]}", server.get(f"{path}?starting_after={bad}"), 400, "starting_after", None, "allowed: 0 to ")
        for blanks in ("3 ", " 3", "\t3\t ", "3" + " " * 100):
            with Reader(server, reader.id, at=blanks) as other:
                check(f"blanks around a number: {blanks[:5]!r}", other.status == 200 and other.take(1)[0][0] == 4, other.status)
        for reply, allowed in ((server.post(path, {}), "GET, HEAD"), (server.ask("DELETE", path), "GET, HEAD"), (server.get(path + "/cancel"), "POST")):
            check("405 says what is allowed", reply.status == 405 and reply.headers["allow"] == allowed, reply.headers)
        for other in (reader.id[:-1], reader.id + "0", reader.id[:-1] + chr(ord(reader.id[-1]) ^ 1), "x", "x" * 200):
            refused(f"no stream {other[-8:]}", server.get("/v1/streams/" + other), 404, None, "stream_not_found")
        with Reader(server, reader.id, at=4, query=1) as other:
            check("what comes last goes before what the address says", other.take(1)[0][0] == 5, other.got)
    for name, reply, field in (("without a stream", server.post(CHAT, dict(HELLO, resume=True)), "resume"), ("no flag", server.post(CHAT, dict(HELLO, stream=True, resume=5)), "resume"),
                               ("best_of", server.post(TEXT, dict(ASK, stream=True, resume=True, best_of=2)), "best_of")):
        refused("resume " + name, reply, 400, field)
    refused("to cancel nothing", server.post("/v1/streams/x/cancel", {}), 404, None, "stream_not_found")
    check("to cancel", server.post(path + "/cancel", b"").status == 204)
    end(server)
    server = start("--resume-grace", "0")
    refused("where none are kept", server.post(CHAT, dict(HELLO, stream=True, resume=True)), 400, "resume", None, "--resume-grace")
    end(server)


# ---- How they end


@part
def grace():
    server = start("-np", "1", "--resume-grace", "600", "--resume-keep", "600", model=SLOW)
    with Reader(server, CHAT, LONG) as reader:
        reader.take(5)
    metrics = server.wait_for(lambda m: m["weir_streams_alone"] == 1)
    check("it goes on alone", metrics["weir_streams_alone"] == 1 and metrics["weir_slots_generating"] == 1, metrics)
    check("it is cancelled", cancel(server, reader).status == 204 and idle(server.wait_for(idle)))
    with Reader(server, CHAT, dict(HELLO, resume=True)) as reader:
        reader.rest()
    check("an ended one is kept", server.get("/v1/streams/" + reader.id).status == 200)
    end(server)
    server = start("-np", "1", "--resume-grace", "2", "--resume-keep", "1", model=SLOW)
    with Reader(server, CHAT, LONG) as reader:
        reader.take(5)
        time.sleep(2.5)
        check("with a reader there is no grace to be over", server.metrics()["weir_slots_generating"] == 1)
        reader.take(20)
    metrics = server.wait_for(idle)
    check("grace over: the slot is idle, cells are free or cached", idle(metrics) and metrics["weir_streams_abandoned_total"] == 1 and
          metrics["weir_kv_cells_used"] == metrics["weir_kv_cells_cached"] and metrics["weir_streams_kept"] == 0 and metrics["weir_streams_bytes"] == 0, metrics)
    refused("and nothing is there", server.get("/v1/streams/" + reader.id), 404, None, "stream_not_found", "2 s")
    with Reader(server, CHAT, LONG) as reader:
        reader.take(3)
        longest, left = 0, time.monotonic()
    for _ in range(5):
        time.sleep(0.6)
        with Reader(server, reader.id, at=reader.got[-1][0]) as again:
            longest = max(longest, time.monotonic() - left)
            if again.status != 200:
                break
            reader.got += again.take(2)
            left = time.monotonic()
    check("who comes back has the grace anew", [n for n, _ in reader.got] == list(range(1, 14)) or longest > 1.5, longest, reader.got)
    server.wait_for(idle)
    with Reader(server, CHAT, dict(HELLO, resume=True)) as reader:
        reader.rest()
    metrics = server.wait_for(lambda m: m["weir_streams_kept"] == 0)
    check("for a while", metrics["weir_streams_kept"] == 0 and server.get("/v1/streams/" + reader.id).status == 404, metrics)
    running = Reader(server, TEXT, dict(ASK, max_tokens=50000))
    with Reader(server, CHAT, LONG) as waiting:
        waiting.take(1)
    metrics = server.wait_for(lambda m: m['weir_cancelled_total{state="queued"}'] == 1)
    check("from the queue, too", metrics["weir_queue_depth"] == 0 and metrics['weir_cancelled_total{state="queued"}'] == 1, metrics)
    running.leave()
    server.wait_for(idle)
    end(server)


@part
def stopping():
    server = start("-np", "1", model=SLOW)
    with Reader(server, CHAT, dict(LONG, stream_options={"include_usage": True})) as reader, Reader(server, reader.id) as other:
        reader.take(5)
        check("cancelled", cancel(server, reader).status == 204)
        metrics = server.wait_for(idle)
        check("that stops the work", idle(metrics) and metrics["weir_streams_running"] == 0, metrics)
        for one in (reader, other):
            got = one.rest()
            last = events(got)[-2]["choices"][0]
            check("readers get an end", whole(got) and last["finish_reason"] == "stop" and last["finish_detail"] == "cancelled" and
                  events(got)[-1]["usage"]["completion_tokens"] >= 3, got)
    with Reader(server, reader.id) as again:
        check("what came is there for others", again.rest() == reader.got, again.got)
    check("an ended one can be cancelled, and that is all", cancel(server, reader).status == 204)
    check("as curl -X POST asks for it, without a length", server.ask("POST", f"/v1/streams/{reader.id}/cancel").status == 204)
    connection = server.connect()
    connection.send(f"POST /v1/streams/{reader.id}/cancel HTTP/1.1\r\nHost: localhost\r\n\r\nGET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
    check("what follows such a request is the next one", connection.reply().status == 204 and connection.reply().status == 200)
    connection.close()
    end(server)


@part
def draining():
    server = start("-np", "3", "--drain", "600", "--resume-grace", "600", model=SLOW)
    ahead = server.connect()
    ahead.request("GET", "/health")
    ahead.reply()
    with Reader(server, CHAT, LONG) as reader, Reader(server, TEXT, dict(ASK, max_tokens=50000)) as other, Reader(server, TEXT, dict(ASK, max_tokens=40)) as short:
        [one.take(3) for one in (reader, other, short)]
        server.process.send_signal(15)
        check("it drains", server.log(lambda e: e["event"] == "drain") is not None)
        check("a stream with a reader ends as it would have", whole(short.rest()), short.got)
        reader.leave()
        with Reader(server, reader.id, at=len(reader.got)) as again:
            check("who lost its connection reads on, by a new one", again.status == 200 and again.take(3)[0][0] == len(reader.got) + 1, again.status, again.got)
            refused("which is for nothing else", server.post(CHAT, HELLO), 503, None, "stopping")
            check("a stream can be cancelled", cancel(server, again).status == 204 and whole(reader.got + again.rest()), again.got)
        ahead.request("POST", f"/v1/streams/{other.id}/cancel", {})
        check("also by a connection that was there before", ahead.reply().status == 204)
        check("and nothing is waited for any more", server.wait() == 0 and whole(other.rest()), server.lines[-3:])
    server = start("-np", "1", "--drain", "600", "--resume-grace", "1", model=SLOW)
    with Reader(server, CHAT, dict(LONG, max_tokens=50000)) as reader:
        reader.take(3)
        server.process.send_signal(15)
    check("what nobody comes back for ends after its grace", server.wait() == 0, server.lines[-3:])
    server = start("-np", "1", "--drain", "1", model=SLOW)
    with Reader(server, CHAT, LONG) as reader, Reader(server, reader.id) as other:
        reader.take(3)
        code = server.stop()
        for one in (reader, other):
            got = one.rest()
            check("what a drain cuts off ends with an error", code == 0 and whole(got) and events(got)[-1].get("error", {}).get("type") == "unavailable_error", code, got[-3:])


@part
def failures():
    server = start("-np", "1", model=SLOW + ",fail_pass=8")
    with Reader(server, CHAT, LONG) as reader:
        head = list(reader.take(3))
    time.sleep(0.5)
    with Reader(server, reader.id, at=head[-1][0]) as again:
        got = head + again.rest()
    check("an answer that fails says so to who comes back", whole(got) and "error" in json.loads(got[-2][1]), got)
    end(server)


@part
def storm():
    """Clients that vanish at any moment, from requests of every kind."""
    server = start("-np", "3", "--resume-grace", "1", "--resume-keep", "1", "--queue", "0", model=QUICK)
    ids, wrong = [], []

    def many(dice):
        for _ in range(25):
            connection = server.connect()
            try:
                if ids and dice.random() < 0.3:
                    one = dice.choice(ids)
                    if dice.random() < 0.3:
                        connection.request("POST", f"/v1/streams/{one}/cancel", {})
                    else:
                        connection.request("GET", f"/v1/streams/{one}?starting_after={dice.randrange(4)}")
                else:
                    stream = dice.random() < 0.7
                    body = dict(HELLO, max_tokens=dice.choice([3, 30, 50000]), n=dice.choice([1, 1, 2]), stream=stream, resume=stream and dice.random() < 0.7)
                    connection.request("POST", CHAT, dict(body, share=True) if body["n"] == 1 and dice.random() < 0.5 else body)
                if dice.random() < 0.3:
                    continue
                status, headers = connection.head()
                if status not in (200, 204, 400, 404):
                    wrong.append(status)
                if "x-stream-id" in headers:
                    ids.append(headers["x-stream-id"])
                time.sleep(dice.random() * 0.02)
            except TimeoutError as e:
                wrong.append(e)
            finally:
                connection.close()
    dice = random.Random(SEED)
    threads = [threading.Thread(target=many, args=(random.Random(dice.random()),)) for _ in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    metrics = server.wait_for(lambda m: idle(m) and m["weir_http_live"] == 1 and m["weir_streams_kept"] == 0)
    check(f"100 clients that vanish, {len(ids)} streams: all comes back to idle", idle(metrics) and metrics["weir_http_live"] == 1 and metrics["weir_streams_kept"] == 0 and
          metrics["weir_streams_bytes"] == 0 and metrics["weir_kv_cells_used"] == metrics["weir_kv_cells_cached"] and not wrong, wrong, metrics)
    check("each request has its one end", metrics["weir_submitted_total"] == sum(v for k, v in metrics.items() if k.startswith("weir_finished_total")), metrics)
    end(server)


# ---- Who may read


@part
def keys():
    server = start("--api-key", "first", "--operator-key", "second", "--key-requests", "1", "--resume-grace", "2", "--cors", "https://app.example", "-np", "2", model=SLOW)
    with Reader(server, CHAT, LONG, key="first") as reader:
        reader.take(3)
        path = "/v1/streams/" + reader.id
        refused("another key", server.get(path, key="second"), 404, None, "stream_not_found")
        refused("another key may not stop it", server.post(path + "/cancel", {}, key="second"), 404, None, "stream_not_found")
        refused("no key", server.get(path), 401)
        with Reader(server, reader.id, key="first") as other:
            check("its own", other.take(3) == reader.got, other.got)
        refused("it is its key's request", server.post(CHAT, HELLO, key="first"), 429, None, "rate_limit_exceeded")
    refused("also without a reader", server.post(CHAT, HELLO, key="first"), 429, None, "rate_limit_exceeded")
    server.wait_for(idle, key="second")
    check("until its grace is over", server.post(CHAT, HELLO, key="first").status == 200)
    reply = server.ask("OPTIONS", path, headers=["Origin: https://app.example", "Access-Control-Request-Method: GET"])
    check("CORS", "Last-Event-ID" in reply.headers["access-control-allow-headers"], reply.headers)
    reply = server.post(CHAT, HELLO, key="second", headers=["Origin: https://app.example"])
    check("CORS: the id can be read", "X-Stream-Id" in reply.headers["access-control-expose-headers"], reply.headers)
    check("no id in the log but in the path of who asked", not any(reader.id in json.dumps({k: v for k, v in line.items() if k != "path"}) for line in server.lines))
    end(server)


# ---- Bounds


@part
def slow_readers():
    server = start("-np", "2", model="fake:tick_us=300,n_ctx_train=100000")
    body = dict(HELLO, max_tokens=10000, logprobs=True, top_logprobs=20)
    quick = Reader(server, CHAT, body)
    slow = [Reader(server, quick.id, room=4096) for _ in range(3)]
    model = quick.rest()
    kept = server.metrics()["weir_streams_bytes"]
    check("more was kept than a reader is given at a time", whole(model) and kept > 4 << 20, kept)
    unsent = server.metrics()["weir_http_unsent_bytes"]
    event = max(len(data) for _, data in model) + 64  # what the engine had merged when the server was slow is one event
    check("slow readers of a kept stream stay bounded", 0 < unsent <= 3 * ((256 << 10) + event), unsent, kept, event)
    [r.connection.hurry() for r in slow]
    check("and get all of it", all(r.rest() == model for r in slow))
    [r.leave() for r in slow + [quick]]
    end(server)


@part
def room():
    server = start("-np", "2", "--resume-memory", "1M", model=QUICK)
    first = Reader(server, CHAT, dict(HELLO, logprobs=True, top_logprobs=5))
    first.rest()
    first.leave()
    body = dict(HELLO, max_tokens=3000, logprobs=True, top_logprobs=10)
    with Reader(server, CHAT, body) as reader:
        model = reader.rest()
        metrics = server.metrics()
        check("memory is bounded, and the reader has missed nothing", whole(model) and metrics["weir_streams_bytes"] <= 1 << 20, metrics["weir_streams_bytes"])
        check("what had ended went first", metrics["weir_streams_dropped_total"] == 1 and server.get("/v1/streams/" + first.id).status == 404, metrics)
        reply = server.get("/v1/streams/" + reader.id)
        refused("the beginning is gone", reply, 410, "Last-Event-ID", "events_gone", "allowed: ")
        least, most = map(int, re.search(r"allowed: (\d+) to (\d+)", reply.error["message"]).groups())
        check("the range is what is there", most == len(model) and 0 < least < most, least, most)
        refused("before it", server.get("/v1/streams/" + reader.id, headers=[f"Last-Event-ID: {least - 1}"]), 410, "Last-Event-ID")
        with Reader(server, reader.id, at=least) as again:
            check("its first place", again.rest() == model[least:])
    end(server)
    server = start("-np", "2", "--queue", "0", "--drain", "1", model=SLOW)
    streams = [Reader(server, TEXT, dict(ASK, max_tokens=50000)) for _ in range(192)]  # of 256: see server_shares_test
    refused("one too many", server.post(TEXT, dict(ASK, stream=True, resume=True)), 429, None, "too_many_streams")
    check("others are answered", server.get("/health").status == 200)
    check("one less", cancel(server, streams[-1]).status == 204)
    streams[-1].rest()
    with Reader(server, TEXT, dict(ASK, max_tokens=50000)) as one:
        check("one more", one.status == 200)
    [s.leave() for s in streams]
    server.stop()


# ---- One generation for many


@part
def sharing():
    server = start("-np", "2", "--operator-key", "first", "--api-key", "second", model=SLOW)

    def counts():
        m = server.metrics(key="first")
        return m["weir_submitted_total"], m["weir_shared_total"]
    body = dict(HELLO, max_tokens=300, share=True)
    want = plain(server, CHAT, dict(HELLO, max_tokens=300), key="first")
    before = counts()
    with Reader(server, CHAT, body, key="first") as reader:
        reader.take(4)
        text = server.post(CHAT, body, key="first").json["choices"][0]["message"]["content"]
        check("an identical request joins, in whole and as a stream", texts(reader.rest()) == want == {0: text}, text, want)
    check("one generation", counts() == (before[0] + 1, before[1] + 1), before, counts())
    ids = set()
    for i, (name, change, more) in enumerate((("another key", {}, {"key": "second"}), ("another salt", {"cache_salt": "x"}, {}),
                                              ("another temperature", {"temperature": 1}, {}), ("another length", {"max_tokens": 299}, {}),
                                              ("one that does not ask for it", {"share": False}, {}))):
        mine = dict(body, seed=100 + i)  # none that ended a moment ago is like it
        before = counts()
        running = server.connect()
        running.request("POST", CHAT, dict(mine, stream=True), key="first")
        running.head()
        server.post(CHAT, dict(mine, **change), **dict({"key": "first"}, **more))
        check(f"{name} does not", counts() == (before[0] + 2, before[1]), before, counts())
        running.close()
        server.wait_for(idle, key="first")
    endless = dict(LONG, share=True, stream=True)
    connections = [server.connect() for _ in range(3)]
    for connection in connections:
        connection.request("POST", CHAT, endless, key="first")
        connection.head()
        stream = connection.events()
        ids |= {json.loads(next(stream))["id"] for _ in range(3)}
    check("each has its id", len(ids) == 3, ids)
    connections[0].close()
    connections[1].close()
    time.sleep(0.3)
    check("it goes on while one reads", server.metrics(key="first")["weir_slots_generating"] == 1)
    [next(stream) for _ in range(5)]
    connections[2].close()
    check("and ends with the last", idle(server.wait_for(idle, key="first")))
    with Reader(server, CHAT, dict(LONG, share=True), key="first") as one, Reader(server, CHAT, dict(LONG, share=True), key="first") as two:
        one.take(4)
        two.take(4)
        check("one of the streams is cancelled", cancel(server, one, key="first").status == 204 and whole(one.rest()))
        two.take(12)
        check("that leaves the other its generation", server.metrics(key="first")["weir_slots_generating"] == 1)
        cancel(server, two, key="first")
    check("the last one ends it", idle(server.wait_for(idle, key="first")))
    refused("several answers", server.post(CHAT, dict(HELLO, n=2, share=True), key="first"), 400, "share")
    refused("several prompts", server.post(TEXT, dict(ASK, prompt=["a", "b"], share=True), key="first"), 400, "share")
    end(server)


need_server(WEIR)
run_parts(at_once=4)
