"""How far a prompt is, told in the stream of its answer (return_progress)."""
# SPDX-License-Identifier: Apache-2.0
import json
import os
import re
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from checks import check, finish  # noqa: E402
from resumed import Reader  # noqa: E402
from serve import Connection, Server, need_server  # noqa: E402

WEIR = os.environ["WEIR_BIN"]
need_server(WEIR)
CHAT, COMPLETIONS, NATIVE, INFILL = "/v1/chat/completions", "/v1/completions", "/completion", "/infill"
MESSAGES, RESPONSES, OLLAMA, GENERATE = "/v1/messages", "/v1/responses", "/api/chat", "/api/generate"
MEMBERS = ["total", "cache", "processed", "time_ms"]


def said(text):
    return [{"role": "user", "content": text}]


def body_of(path, text, **more):
    asks = {CHAT: {"messages": said(text)}, COMPLETIONS: {"prompt": text}, NATIVE: {"prompt": text},
            INFILL: {"input_prefix": text, "input_suffix": "end"}, MESSAGES: {"messages": said(text), "max_tokens": 4},
            RESPONSES: {"input": text, "store": False}, OLLAMA: {"messages": said(text)}, GENERATE: {"prompt": text}}
    limit = {RESPONSES: {"max_output_tokens": 4}, OLLAMA: {"options": {"num_predict": 4, "temperature": 0}}, GENERATE: {"options": {"num_predict": 4, "temperature": 0}}}
    return dict(asks[path], stream=True, **limit.get(path, {"max_tokens": 4}), **({} if path in (OLLAMA, GENERATE) else {"temperature": 0}), **more)


def stream(server, path, body):
    """The pieces of a stream: events, comments, or lines."""
    connection = Connection(server)
    connection.request("POST", path, body)
    status, _ = connection.head()
    text = b"".join(connection.chunks()).decode()
    assert status == 200, text
    return text.strip("\n").split("\n" if path in (OLLAMA, GENERATE) else "\n\n")


def progress(piece):
    """What a piece tells of the prompt; None: nothing."""
    at = piece.find("{")
    if piece == "data: [DONE]" or at < 0:
        return None
    value = json.loads(piece[at:]).get("prompt_progress")
    if value is not None:
        assert list(value) == MEMBERS, value
    return value


def apart(pieces):
    """The pieces with progress, and the others, without those that keep a connection open."""
    told = [p for p in pieces if progress(p)]
    return told, [p for p in pieces if not progress(p) and not p.startswith((":", "event: ping"))]


def plain(pieces):
    """Without what differs from answer to answer."""
    text = "\n\n".join(pieces)
    text = re.sub(r'"(created|created_at|completed_at)":("[^"]*"|\d+)', r'"\1":0', text)
    text = re.sub(r'"[a-z_]*(duration|_ms|_per_second)":[\d.]+', '"time":0', text)
    return re.sub(r"\b(chatcmpl|cmpl|msg|resp|rs|fc)_?-?[A-Za-z0-9_-]{16,}", r"\1", text)


def fits(name, told, least=2):
    """A first with what was cached, a last with all, and nothing goes back."""
    at = [progress(p) for p in told]
    check(name + ": the first and the last", len(at) >= least and at[0]["processed"] == at[0]["cache"] and at[0]["time_ms"] == 0 and at[-1]["processed"] == at[-1]["total"], at)
    check(name + ": nothing goes back", all(a["total"] == b["total"] and a["cache"] <= b["cache"] and a["time_ms"] <= b["time_ms"] and (a["processed"] < b["processed"] or a["cache"] < b["cache"]) for a, b in zip(at, at[1:])), at)
    return at


# ---- Every dialect

LONG = "a long prompt that takes a while to read. " * 7  # five passes and more

with Server(WEIR, "-np", "4", "-c", "2048", "-b", "64", "--cache-sequences", "0", "--sse-ping-interval", "1", model="fake:tick_us=130000,fim=1,n_ctx_train=8192") as server:
    results = {}

    def both(path):
        results[path] = [stream(server, path, body_of(path, LONG, **more)) for more in ({}, {"return_progress": False}, {"return_progress": True})]

    paths = [CHAT, COMPLETIONS, NATIVE, INFILL, MESSAGES, RESPONSES, OLLAMA, GENERATE]
    threads = [threading.Thread(target=both, args=(path,)) for path in paths]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for path in paths:
        without, no, with_progress = results[path]
        told, rest = apart(with_progress)
        fits(path, told, least=3)
        check(path + ": nothing without the field", not apart(without)[0] and not apart(no)[0] and plain(apart(without)[1]) == plain(apart(no)[1]))
        check(path + ": nothing else changes", plain(rest) == plain(apart(without)[1]), rest, without)
    shapes = {path: apart(results[path][2])[0][1] for path in paths}
    chat = json.loads(shapes[CHAT][6:])
    check("a chunk of a chat", chat["object"] == "chat.completion.chunk" and chat["choices"] == [{"index": 0, "delta": {}, "logprobs": None, "finish_reason": None}], chat)
    text = json.loads(shapes[COMPLETIONS][6:])
    check("of a completion", text["object"] == "text_completion" and text["choices"] == [{"index": 0, "text": "", "logprobs": None, "finish_reason": None}], text)
    for path in (NATIVE, INFILL):
        native = json.loads(shapes[path][6:])
        check("of llama-server's " + path, native["content"] == "" and native["stop"] is False and native["tokens_predicted"] == 0 and native["tokens_evaluated"] == native["prompt_progress"]["total"], native)
    check("a ping of a message", shapes[MESSAGES].startswith('event: ping\ndata: {"type":"ping","prompt_progress":{'), shapes[MESSAGES])
    check("a comment of a response", shapes[RESPONSES].startswith(': {"prompt_progress":{'), shapes[RESPONSES])
    numbers = [json.loads(p[p.index("{"):])["sequence_number"] for p in results[RESPONSES][2] if not p.startswith((":", "event: ping"))]
    check("the events of a response have their numbers", numbers == list(range(len(numbers))), numbers)
    line = json.loads(shapes[OLLAMA])
    check("a line of Ollama's chat", line["done"] is False and line["message"] == {"role": "assistant", "content": ""}, line)
    line = json.loads(shapes[GENERATE])
    check("and of its generate", line["done"] is False and line["response"] == "", line)
    pieces = results[CHAT][2]
    check("all of it before the first text", max(i for i, p in enumerate(pieces) if progress(p)) < min(i for i, p in enumerate(pieces) if '"delta":{"content":"' in p and '"role"' not in p), pieces)

    for path in (CHAT, NATIVE, MESSAGES, RESPONSES, OLLAMA):
        reply = server.post(path, dict(body_of(path, "x", return_progress=True), stream=False))
        check(path + ": not without a stream", reply.status == 400 and "return_progress" in json.dumps(reply.json), reply.body)
        reply = server.post(path, body_of(path, "x", return_progress="yes"))
        check(path + ": true or false", reply.status == 400 and "return_progress" in json.dumps(reply.json), reply.body)

# ---- Fast passes: most of them are not told

with Server(WEIR, "-np", "1", "-c", "8192", "-b", "32", model="fake:n_ctx_train=8192") as server:
    began = time.monotonic()
    at = fits("fast passes", apart(stream(server, CHAT, body_of(CHAT, "x" * 7000, return_progress=True)))[0])
    took = time.monotonic() - began
    check("fast passes: eight a second, besides the first and the last", len(at) - 2 <= took * 8, len(at), took)

# ---- Several answers, cached and shared prompts

with Server(WEIR, "-np", "4", "-c", "2048", "-b", "64", model="fake:tick_us=20000,n_ctx_train=8192") as server:
    def ask(path, text, **more):
        pieces = stream(server, path, body_of(path, text, return_progress=True, stream_options={"include_usage": True}, **more))
        told, rest = apart(pieces)
        return told, json.loads(rest[-2][6:])["usage"]

    told, usage = ask(CHAT, LONG)
    at = fits("cold", told)
    check("cold: the usage's counts", at[-1]["total"] == usage["prompt_tokens"] and at[-1]["cache"] == usage["prompt_tokens_details"]["cached_tokens"] == 0, at, usage)
    told, usage = ask(CHAT, LONG)
    at = fits("cached", told)
    check("cached: the usage's counts", len(at) == 2 and at[0]["cache"] == at[1]["cache"] == usage["prompt_tokens_details"]["cached_tokens"] == usage["prompt_tokens"] - 1, at, usage)
    told, usage = ask(CHAT, "two answers " * 40, n=2)
    fits("two answers", told)
    check("two answers: one prompt", {json.loads(p[6:])["choices"][0]["index"] for p in told} == {0}, told)
    connection = Connection(server)
    connection.request("POST", COMPLETIONS, dict(body_of(COMPLETIONS, "", return_progress=True, n=2), prompt=["one " * 100, "another " * 60]))
    connection.head()
    told = ["data: " + e for e in connection.events() if progress("data: " + e)]
    for index in (0, 2):
        fits(f"two prompts: choice {index}", [p for p in told if json.loads(p[6:])["choices"][0]["index"] == index])
    check("two prompts: one series each", {json.loads(p[6:])["choices"][0]["index"] for p in told} == {0, 2}, told)

    got = [None] * 3
    other = "a prompt of several at a time " * 30

    def together(i, **more):
        got[i] = ask(CHAT, other, **more)
    threads = [threading.Thread(target=together, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i, (told, usage) in enumerate(got):
        at = fits(f"three at a time: {i}", told)
        check(f"three at a time: {i}: the usage's counts", at[-1]["cache"] == usage["prompt_tokens_details"]["cached_tokens"], at, usage)

    other = "a generation of several readers " * 30
    before = server.metrics()["weir_prompt_tokens_total"]
    threads = [threading.Thread(target=together, args=(i,), kwargs={"share": True}) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i, (told, usage) in enumerate(got):
        fits(f"shared: reader {i}", told)
    check("shared: one prefill", server.metrics()["weir_prompt_tokens_total"] - before <= got[0][1]["prompt_tokens"], before)

    # ---- Streams that can be resumed

    reader = Reader(server, CHAT, body_of(CHAT, "a stream to come back to " * 40, return_progress=True))
    reader.rest()
    told = ["data: " + data for number, data in reader.got if progress("data: " + data)]
    fits("resumable", told)
    check("resumable: no numbers", all(number is None for number, data in reader.got if progress("data: " + data)), reader.got)
    numbered = [(number, data) for number, data in reader.got if number is not None]
    check("resumable: the others have theirs", [number for number, _ in numbered] == list(range(1, len(numbered) + 1)), numbered)
    again = Reader(server, reader.id, at=0)
    again.rest()
    check("resumed: what was kept, without the progress", again.got == numbered, again.got, numbered)

    # ---- A client that leaves, and drafts

    connection = Connection(server)
    connection.request("POST", CHAT, body_of(CHAT, "a client that leaves " * 60, return_progress=True))
    connection.head()
    events = connection.events()
    while not progress("data: " + next(events)):
        pass
    connection.sock.close()
    told, usage = ask(CHAT, "the next client " * 30)
    fits("after a client that left", told)

with Server(WEIR, "-np", "1", "-b", "64", model="fake:longest=1,tick_us=3000,n_ctx_train=8192") as server:
    def text_of(**more):
        pieces = stream(server, CHAT, dict(body_of(CHAT, LONG, return_progress=True), max_tokens=80, **more))
        fits("with drafts " + json.dumps(more)[:20], apart(pieces)[0])
        return "".join(json.loads(p[6:])["choices"][0]["delta"].get("content", "") for p in pieces if p.startswith("data: {") and json.loads(p[6:])["choices"])

    plain_text = text_of(**{"speculative.n_max": 0})
    check("drafts change nothing", plain_text == text_of(prediction={"type": "content", "content": plain_text}), plain_text)

finish()
