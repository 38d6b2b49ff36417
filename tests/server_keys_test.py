"""weir serve, on the fake model: keys and their limits, secrecy between clients, keys that change while the server runs."""
# SPDX-License-Identifier: Apache-2.0
import json
import os
import pty
import re
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from checks import PATIENCE, check, environment  # noqa: E402
from parts import end, part, run_parts  # noqa: E402
from serve import STRICT, Server, need_server  # noqa: E402

WEIR = os.path.abspath(os.environ["WEIR_BIN"])
CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
HELLO = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 8, "temperature": 0}
ENDLESS = {"prompt": "tell", "max_tokens": 100000, "ignore_eos": True, "stream": True}
SLOW = "fake:tick_us=20000,n_ctx_train=100000"
scratch = tempfile.TemporaryDirectory()


def refused(name, reply, status, field=None, code=None, word=""):
    error = reply.error if reply.body else {}
    check(f"{name}: {status}" + (f", {field}" if field else ""), reply.status == status and error.get("param") == field and
          (code is None or error.get("code") == code) and word in error.get("message", ""), reply.status, reply.body)


def write(name, text):
    path = os.path.join(scratch.name, name)
    with open(path, "w") as f:
        f.write(text)
    return path


def open_stream(server, body, **more):
    """A stream that has begun, and its id."""
    connection = server.connect()
    connection.request("POST", TEXT, dict(body, stream=True), **more)
    status, headers = connection.head()
    assert status == 200, connection.exactly(int(headers["content-length"]))
    return connection, json.loads(next(connection.events()))["id"]


# ---- What of one client another one learns


@part
def control():
    path = CHAT + "/control"
    with Server(WEIR, "--api-key", "alice", "--api-key", "bob", "-np", "2", model=SLOW) as server:
        connection, one = open_stream(server, ENDLESS, key="alice")
        unknown = {"success": False, "message": "there is no running answer of this id"}
        for name, key, given in (("another key's", "bob", one), ("nobody's", "alice", "chatcmpl-1"), ("a long one", "alice", "x" * 1000)):
            reply = server.post(path, {"id": given, "action": "reasoning_end"}, key=key)
            check(f"control: {name} id is unknown", (reply.status, reply.json) == (200, unknown), reply.status, reply.body)
        reply = server.post(path, {"id": one, "action": "reasoning_end", "model": "x"}, key="alice")
        check("control: its own without reasoning", reply.status == 200 and reply.json["success"] is False and "no reasoning" in reply.json["message"], reply.body)
        refused("control without a key", server.post(path, {"id": one, "action": "reasoning_end"}), 401)
        refused("control of nothing", server.post(path, {"action": "reasoning_end"}, key="alice"), 400, "id")
        refused("another action", server.post(path, {"id": one, "action": "stop"}, key="alice"), 400, "action", word="reasoning_end")
        refused("an unknown member", server.post(path, {"id": one, "action": "reasoning_end", "x": 1}, key="alice", headers=STRICT), 400, "x")
        refused("a long body", server.post(path, {"id": one, "action": "x" * 5000}, key="alice"), 400, None, word="4096")
        refused("no object", server.post(path, [1], key="alice"), 400, None, "invalid_json")
        check("control: a GET", server.get(path, key="alice").status == 405)
        connection.close()


@part
def ids():
    server = Server(WEIR)
    given = [server.post(path, body).json["id"] for _ in range(4) for path, body in ((CHAT, HELLO), (TEXT, {"prompt": "x", "max_tokens": 1}))]
    events = [server.stream(CHAT, dict(HELLO, resume=resume))[0]["id"] for resume in (True, False)]
    given += events
    digits = [i.split("-", 1)[1] for i in given]
    check("ids are 128 bits", all(re.fullmatch("(chat)?cmpl-[0-9a-f]{32}", i) for i in given), given)
    # Of 10 × 32 random digits hardly any two neighbours are alike in half of their places; of numbers that count up, all are.
    alike = max(sum(a == b for a, b in zip(x, y)) for i, x in enumerate(digits) for y in digits[:i])
    check("that do not count up", len(set(digits)) == len(digits) and alike < 16, digits)
    replies = [server.get("/health").headers["x-request-id"] for _ in range(4)]
    check("the same of X-Request-Id", all(re.fullmatch("[0-9a-f]{32}", r) for r in replies) and len(set(replies)) == 4 and
          max(sum(a == b for a, b in zip(x, y)) for i, x in enumerate(replies) for y in replies[:i]) < 16, replies)
    reply = server.post(CHAT, HELLO)
    line = server.log(lambda e: e.get("id") == reply.headers["x-request-id"])
    check("the log tells a request's id, and not the answer's", line is not None and line["path"] == CHAT and
          reply.json["id"].split("-")[1] not in json.dumps(server.lines), line)
    end(server)


@part
def forks():
    """A fork is not a way to read a prompt that another caller sent."""
    server = Server(WEIR, "--api-key", "alice", "--api-key", "bob")
    answer = server.post(TEXT, {"prompt": "alice's secret", "max_tokens": 8, "temperature": 0}, key="alice").json
    fork = {"fork": {"id": answer["id"], "at": 2}, "max_tokens": 2}
    for body in (fork, dict(fork, cache_salt="")):
        refused(f"another key's fork {sorted(body)}", server.post(TEXT, body, key="bob"), 404, "fork")
    refused("another key's prompt", server.post(TEXT, dict(fork, prompt_logprobs=0), key="bob"), 400, "prompt_logprobs")
    check("its own key's fork", server.post(TEXT, fork, key="alice").status == 200)
    for value in (0, 3, True):
        refused(f"a fork with prompt_logprobs {value}", server.post(TEXT, dict(fork, prompt_logprobs=value), key="alice"), 400, "prompt_logprobs", word="source")
    check("false is nothing said", server.post(TEXT, dict(fork, prompt_logprobs=False), key="alice").status == 200)
    end(server)
    server = Server(WEIR)
    answer = server.post(TEXT, {"prompt": "a secret", "max_tokens": 8, "temperature": 0}).json["id"]
    for wrong in (answer[:-1], answer + "0", answer[:-1] + ("0" if answer[-1] != "0" else "1"), answer.upper(), "", answer.split("-")[1], "x" * 200):
        refused(f"a fork of {wrong!r}", server.post(TEXT, {"fork": {"id": wrong}, "max_tokens": 1}), 404, "fork")
    refused("another cache_salt's", server.post(TEXT, {"fork": {"id": answer}, "cache_salt": "x", "max_tokens": 1}), 404, "fork")
    check("who has the id may fork it", server.post(TEXT, {"fork": {"id": answer}, "max_tokens": 1}).status == 200)
    end(server)


SECRET = "swordfish, card 4111 1111 1111 1111"
DIALECTS = [  # a path, the body for a prompt, whether usage has the report
    (TEXT, lambda text: {"prompt": text, "max_tokens": 1}, True),
    (TEXT, lambda text: {"prompt": [text, text + "?"], "max_tokens": 1}, True),
    (CHAT, lambda text: {"messages": [{"role": "system", "content": text}, {"role": "user", "content": "hello"}], "max_tokens": 1}, True),
    ("/v1/messages", lambda text: {"system": text, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 1}, True),
    ("/v1/responses", lambda text: {"instructions": text, "input": "hello", "max_output_tokens": 1}, True),
    ("/completion", lambda text: {"prompt": text, "n_predict": 1}, False),
    ("/infill", lambda text: {"input_prefix": text, "input_suffix": "", "prompt": text, "n_predict": 1}, False),
    ("/api/chat", lambda text: {"messages": [{"role": "system", "content": text}, {"role": "user", "content": "hello"}], "options": {"num_predict": 1}}, False),
    ("/api/generate", lambda text: {"prompt": text, "raw": True, "options": {"num_predict": 1}}, False),
    ("/v1/plan", lambda text: {"prompt": text, "max_tokens": 1}, False),
    ("/v1/plan", lambda text: {"messages": [{"role": "system", "content": text}, {"role": "user", "content": "hello"}], "max_tokens": 1}, False),
]


def report_of(body):
    """The report on the cache and the cached tokens, wherever the dialect has them."""
    usage = body.get("usage", {})
    details = usage.get("prompt_tokens_details") or usage.get("input_tokens_details") or usage
    report = details.get("miss") or next((m for m in details.get("misses", []) if m), {})
    return report, details.get("cached_tokens", details.get("cache_read_input_tokens", 0))


def overheard(server, name, theirs, ours, words=False, **more):
    """Somebody sends a prompt, theirs with it; then somebody asks with its beginning, ours with it. words: the second one may see words of the first."""
    secretly = bool(ours.get("cache_salt") or more.get("key"))  # then there may be words of one's own earlier prompts
    for i, (path, body, reports) in enumerate(DIALECTS):
        if path.startswith("/api/") and (theirs or ours):
            continue  # Ollama has no such field
        sends = path if path != "/v1/plan" else TEXT if "prompt" in body("") else CHAT
        for streams in (False, True) if path not in ("/v1/plan", "/completion", "/infill") else (False,):
            start = f"{name} {i}{streams}, the password is"
            server.post(sends, dict(body(f"{start} {SECRET}"), **theirs), **more)
            asked = dict(body(f"{start} what?"), stream=streams, **ours)
            if path in (TEXT, CHAT) and streams:
                asked["stream_options"] = {"include_usage": True}
            reply = server.post(path, {k: v for k, v in asked.items() if k != "stream" or path != "/v1/plan"}, **more)
            said = b"swordfish" in reply.body or (not secretly and (b'"cached":"' in reply.body or b'"line":"' in reply.body))
            check(f"{name}: {path}, {'stream' if streams else 'whole'}: {'words' if words and reports else 'no words'} of the other prompt",
                  reply.status == 200 and said == (words and reports), reply.status, reply.body)
            if reports and not streams and theirs == ours and reply.status == 200:
                report, cached = report_of(reply.json)
                check(f"{name}: {path}: where one's own prompt stands", report.get("reason") == "diverged" and "what?" in report.get("prompt", "") and
                      0 < report["matched_tokens"] <= cached, report, cached)
    told = [e for e in server.lines if "swordfish" in json.dumps(e)]
    check(f"{name}: the log has no texts", not told, told[:2])


@part
def texts():
    """Who sent a prompt is not known without a salt or a key, wherever the server listens."""
    path = os.path.join(scratch.name, "texts.sock")
    server = Server(WEIR, "--cors", "*", "--unix", path, unix=path, model="fake:fim=1")
    overheard(server, "loopback", {}, {})
    overheard(server, "a page's", {}, {}, headers=["Origin: https://evil.example"])
    overheard(server, "an empty salt", {"cache_salt": ""}, {"cache_salt": ""})
    overheard(server, "no salt and an empty one", {}, {"cache_salt": ""})
    overheard(server, "another salt", {"cache_salt": "a"}, {"cache_salt": "b"})
    overheard(server, "a salt and none", {"cache_salt": "a"}, {})
    overheard(server, "none and a salt", {}, {"cache_salt": "a"})
    overheard(server, "the same salt", {"cache_salt": "a"}, {"cache_salt": "a"}, words=True)
    server.kind = "unix"
    overheard(server, "a local socket", {}, {})
    server.kind = "tcp"
    start = "Dear all, the code is"
    server.post(TEXT, {"prompt": f"{start} {SECRET}", "max_tokens": 1})
    found = server.post(TEXT, {"prompt": start + " !", "max_tokens": 1}).json["id"]
    fork = server.post(TEXT, {"fork": {"id": found}, "max_tokens": 1})
    check("a fork tells nothing of others, either", fork.status == 200 and b"swordfish" not in fork.body and b'"cached":"' not in fork.body, fork.body)
    end(server)
    server = Server(WEIR, "--api-key", "alice", "--api-key", "bob", model="fake:fim=1")
    overheard(server, "one's own key", {}, {}, words=True, key="alice")
    server.post(TEXT, {"prompt": f"{start} {SECRET}", "max_tokens": 1, "cache_salt": "user-7"}, key="alice")
    for salted in ({}, {"cache_salt": "user-7"}):
        reply = server.post(TEXT, dict(salted, prompt=start + " what?", max_tokens=1), key="bob")
        check(f"another key's with {salted}", reply.json["usage"]["prompt_tokens_details"] == {"cached_tokens": 0}, reply.body)
    reply = server.post(TEXT, {"prompt": start + " what?", "max_tokens": 1, "cache_salt": ""}, key="bob").json
    check("an empty salt is none, under a key, too", reply["usage"]["prompt_tokens_details"]["cached_tokens"] == reply["usage"]["prompt_tokens"] - 1, reply)
    end(server)
    server = Server(WEIR, "--log-text")
    overheard_by_log = {}
    for salt in ("", "mine"):
        server.post(TEXT, {"prompt": f"{salt} {start} {SECRET}", "max_tokens": 1, "cache_salt": salt})
        id = server.post(TEXT, {"prompt": f"{salt} {start} what?", "max_tokens": 1, "cache_salt": salt}).headers["x-request-id"]
        line = server.log(lambda e, id=id: id in (e.get("id"), e.get("request_id")))
        overheard_by_log[salt] = line["choices"][0]["miss"]
    check("the log with texts", "cached" not in overheard_by_log[""] and "what?" in overheard_by_log[""]["prompt"] and "swordfish" in overheard_by_log["mine"]["cached"], overheard_by_log)
    end(server)


@part
def open_ports():
    server = Server(WEIR)
    check("on the loopback interface alone there is no warning", not [e for e in server.lines if e["event"] == "open"], server.lines)
    end(server)
    for host in ("0.0.0.0", "::", "*"):
        if ":" in host:
            try:
                socket.socket(socket.AF_INET6).bind(("::1", 0))
            except OSError:
                continue
        server = Server(WEIR, "--host", host)
        line = server.log(lambda e: e["event"] == "open")
        check(f"{host} without keys: a warning", line is not None and line["level"] == "warning" and "key" in line["message"], server.lines)
        end(server)
    server = Server(WEIR, "--host", "0.0.0.0", "--api-key", "k")
    check("with keys there is none", not [e for e in server.lines if e["event"] == "open"], server.lines)
    end(server)


@part
def log_lines():
    """The requests of each key."""
    server = Server(WEIR, "--alias", "tiny", "--unix", os.path.join(scratch.name, "log.sock"), unix=os.path.join(scratch.name, "log.sock"))

    def line(path, word, **more):
        id = server.post(path, HELLO, **more).headers["x-request-id"]
        told = server.log(lambda e: id in (e.get("id"), e.get("request_id")))
        check(f"{word}: its line", told is not None, server.lines[-2:])
        return told or {}

    told = line(CHAT, "all", headers=["User-Agent: my client/1.0 (x; y)", "X-Request-Id: abc-123"])
    check("address, agent, request id, model", (told.get("client"), told.get("agent"), told.get("request_id"), told.get("model")) == ("127.0.0.1", "my client/1.0 (x; y)", "abc-123", "tiny"), told)
    for header in ("X-Session-Id", "x-claude-code-session-id", "session-id", "x-session-affinity"):
        told = line(CHAT, header, headers=[f"{header}: conversation-7"])
        check(header + " is the session's", told.get("session") == "conversation-7", told)
    with Server(WEIR, "-np", "4", "-c", "512", "--cache-memory", "0", "--layout", "per_slot") as small, Server(WEIR, "-np", "4", "-c", "512", "--cache-memory", "0", "--layout", "per_slot", "--session-keep", "0") as plain:
        def cached_after(server, headers):
            """Tokens of a conversation that are still cached after others' requests have gone through all lanes."""
            def ask(text, headers=()):
                return server.post("/v1/completions", {"prompt": text, "max_tokens": 4, "temperature": 0}, headers=headers).json["usage"]["prompt_tokens_details"]["cached_tokens"]
            talk = f"a conversation {headers} " * 5
            ask(talk, headers)
            for i in range(10):
                ask(f"{i} somebody asks once {headers} " * 3)
            return ask(talk, headers)
        check("a conversation goes in the order of its use", cached_after(small, []) == 0)
        for header in ("X-Session-Id", "x-claude-code-session-id", "session-id", "x-session-affinity"):
            check(f"{header} keeps it", cached_after(small, [f"{header}: 7"]) > 50)
        check("--session-keep 0", cached_after(plain, ["X-Session-Id: 7"]) == 0)
    for given in ("abc-123", "x" * 126):
        check(f"an id of {len(given)} characters comes back", server.get("/health", headers=["X-Request-Id: " + given]).headers["x-request-id"] == given)
    for given in ("a b", "é", "x" * 127, ""):
        id = server.get("/health", headers=["X-Request-Id: " + given]).headers["x-request-id"]
        check(f"one of {len(given)} that no header holds does not", len(id) == 32 and id != given, id)
    told = line(CHAT, "nothing said")
    check("what is not said is left out", told.get("client") == "127.0.0.1" and not {"agent", "request_id", "session"} & set(told), told)
    told = line("/nowhere", "refused", headers=["User-Agent: x"])
    check("a refusal, too", told.get("status") == 404 and told.get("agent") == "x" and told.get("client") == "127.0.0.1", told)
    told = line(CHAT, "long", headers=["User-Agent: " + "é" * 500, 'X-Request-Id: "\\'])
    check("cut, in UTF-8, and as JSON", len(told.get("agent", "").encode()) <= 127 and set(told["agent"]) == {"é"} and told.get("request_id") == '"\\', told)
    connection = server.connect(kind="unix")
    connection.request("GET", "/health", headers=["User-Agent: here"])
    id = connection.reply().headers["x-request-id"]
    connection.close()
    told = server.log(lambda e: e.get("id") == id)
    check("a Unix socket has no address", told is not None and "client" not in told and told["agent"] == "here", told)
    # A worker is busy until it looks for its next job, which may be after its answer is out.
    metrics = server.wait_for(lambda m: m["weir_workers_busy"] == 0)
    check("workers", metrics["weir_workers"] == 3 and metrics["weir_workers_busy"] == 0 and metrics["weir_workers_queue_depth"] == 0, metrics)
    end(server)


# ---- What a key may ask for


@part
def priorities():
    server = Server(WEIR, "--api-key", "plain", "--api-key-file", write("priorities", "boss priority=50\nlow priority=-10\n"))
    for key, most in (("plain", 0), ("boss", 50), ("low", -10)):
        for path, body in ((TEXT, {"prompt": "x", "max_tokens": 1}), (CHAT, HELLO), ("/v1/plan", {"prompt": "x"})):
            check(f"{key}, {path}: up to {most}", all(server.post(path, dict(body, priority=p), key=key).status == 200 for p in (-100, most)))
            refused(f"{key}, {path}: no more", server.post(path, dict(body, priority=most + 1), key=key), 400, "priority", word=f"-100 to {most}")
    refused("100", server.post(TEXT, {"prompt": "x", "priority": 100}, key="plain"), 400, "priority", word="operator")
    for bad in (-101, 1.5, "0", True):
        refused(f"{bad!r}", server.post(TEXT, {"prompt": "x", "priority": bad}, key="boss"), 400, "priority")
    end(server)
    for words, most in (((), 100), (("--max-priority", "3"), 3), (("--max-priority", "3", "--api-key", "k"), 3), (("--max-priority", "-100"), -100)):
        server = Server(WEIR, *words)
        key = "k" if "k" in words else None
        check(f"{words}: {most}", server.post(TEXT, {"prompt": "x", "max_tokens": 1, "priority": most}, key=key).status == 200)
        refused(f"{words}: no more", server.post(TEXT, {"prompt": "x", "priority": most + 1}, key=key), 400, "priority")
        end(server)


@part
def places():
    """Several answers and prompts take several of a key's places."""
    server = Server(WEIR, "-np", "8", "--api-key", "alice", "--api-key", "bob", "--operator-key", "boss", "--key-requests", "4", model=SLOW)
    for body, field in (({"prompt": "x", "n": 5}, "n"), ({"prompt": ["x"] * 5}, "prompt"), ({"prompt": ["x"] * 2, "n": 3}, "n"), ({"prompt": "x", "best_of": 5}, "best_of")):
        refused(f"{body}: never", server.post(TEXT, dict(body, max_tokens=1), key="alice"), 400, field, word="4")
    refused("chat: never", server.post(CHAT, dict(HELLO, n=5), key="alice"), 400, "n", word="4")
    check("as many as it may have", server.post(TEXT, {"prompt": ["x", "y"], "n": 2, "max_tokens": 1}, key="alice").status == 200)
    running, _ = open_stream(server, dict(ENDLESS, n=3), key="alice")
    refused("two more than it has left", server.post(TEXT, {"prompt": "x", "n": 2, "max_tokens": 1}, key="alice"), 429, None, "rate_limit_exceeded")
    refused("two prompts", server.post(TEXT, {"prompt": ["x", "y"], "max_tokens": 1}, key="alice"), 429, None, "rate_limit_exceeded")
    check("one is left", server.post(TEXT, {"prompt": "x", "max_tokens": 1}, key="alice").status == 200)
    check("another key has its own", server.post(TEXT, {"prompt": "x", "n": 4, "max_tokens": 1}, key="bob").status == 200)
    running.close()
    server.wait_for(lambda m: m["weir_slots_generating"] == 0, key="boss")
    check("all are free again", server.post(TEXT, {"prompt": "x", "n": 4, "max_tokens": 1}, key="alice").status == 200)
    end(server)


# ---- Given, but empty


def refusal(*words, config="", pass_fds=(), **env):
    """What a server says that ends at once; None: it serves."""
    env = environment(WEIR_CONFIG=write("refusal.conf", config) if config else "", **env)
    process = subprocess.Popen([WEIR, "serve", "-m", "fake:", "--port", "0", *words], stderr=subprocess.PIPE, text=True, env=env, pass_fds=pass_fds)
    said = ""
    for line in process.stderr:
        said += line
        if '"event":"ready"' in line:
            process.kill()
            process.wait()
            return None
    return said if process.wait() == 2 else f"{process.returncode}: {said}"


GUARDS = ("api-key", "api-key-file", "operator-key", "key-requests", "key-rate", "max-priority", "health-needs-key", "tls-cert", "tls-key", "prefix-key", "unix")


@part
def empties():
    """What protects the server and is given is never taken for not given."""
    for name, text in (("of no bytes", ""), ("of a line's end", "\n"), ("of comments", "# alice\n  # bob\n"), ("of blanks", " \t\r\n\n")):
        for said in (refusal("--api-key-file", write("none", text)), refusal(WEIR_API_KEY_FILE=write("none", text)), refusal(config=f"api-key-file = {write('none', text)}\n"),
                     refusal("--api-key", "k", "--api-key-file", write("none", text))):
            check(f"a key file {name}", said is not None and "there is no key in the file" in said and "--api-key-file" in said, said)
    for text in ("operator\n", "alice\n priority=3\n", "rate=1 operator\n", '"" operator\n', "''\n"):
        check(f"a line without its key: {text!r}", "the key is missing" in (refusal("--api-key-file", write("none", text)) or ""))
    for key in (" ", "\t", "a b", "\u00a0", "\ufeffalice"):
        check(f"a key that no header has: {key!r}", "API key 1" in (refusal("--api-key", key) or ""))
    check("nor from a file", "API key 1" in (refusal("--api-key-file", write("none", "\ufeffalice\n")) or ""))
    check("/dev/null", "no key in the file" in (refusal("--api-key-file", "/dev/null") or ""))
    read, unwritten = os.pipe()
    os.close(unwritten)
    check("what a command that failed has written", "no key in the file" in (refusal("--api-key-file", f"/dev/fd/{read}", pass_fds=(read,)) or ""))
    os.close(read)
    for name in GUARDS:
        variable = "WEIR_" + name.upper().replace("-", "_")
        for shown, said in ((f"--{name}", refusal(f"--{name}=")), (variable, refusal(**{variable: ""})), (f": {name}", refusal(config=f"{name} =\n")), (f": {name}", refusal(config=f'{name} = ""\n'))):
            check(f"{shown} without a value", said is not None and shown in said and "is empty" in said, said)
    for words in (("--tls-cert", "", "--tls-key", ""), ("--api-key", "k", "--api-key", ""), ("--allowed-hosts", ""), ("--cors", ""), ("--media-host", ""), ("--prefix-peer", "", "--prefix-key", "k"), ("--host", "")):
        check(f"{words}", refusal(*words) is not None)
    check("no host in the environment is none, as on the command line", "there is no address to listen on" in (refusal(WEIR_HOST="") or ""))
    check("nor in the file", "there is no address to listen on" in (refusal(config="host =\n") or ""))
    for command in (("ps",), ("top", "--json"), ("bench", "http", "http://127.0.0.1:1")):
        for words, env in ((("--api-key", ""), {}), ((), {"WEIR_API_KEY": ""})):
            done = subprocess.run([WEIR, *command, *words], capture_output=True, text=True, env=environment(**env), timeout=PATIENCE)
            check(f"weir {command[0]} with an empty key {words}", done.returncode == 2 and "is empty" in done.stderr, done.returncode, done.stderr)

    path = write("filled", "alice\n")
    server = Server(WEIR, "--api-key", "bob", "--api-key-file", path)
    for text in ("", "\n", "# alice\n"):
        write("filled", text)
        n = sum(e["event"] == "reload" for e in server.lines)
        server.process.send_signal(signal.SIGHUP)
        line = server.log(lambda e: e["event"] == "reload" and sum(x["event"] == "reload" for x in server.lines) > n)
        reloads = [e for e in server.lines if e["event"] == "reload"]
        check(f"{text!r} at a reload: the log stays JSON", all(e["event"] != "text" for e in server.lines) and
              any(e["event"] == "options" and e["level"] == "warning" and "no key in the file" in e["message"] for e in server.lines), server.lines)
        check(f"{text!r} at a reload: everything stays as it was", line is not None and reloads[-1]["level"] == "warning" and
              [server.get("/v1/models", key=key).status for key in ("alice", "bob", None)] == [200, 200, 401], reloads)
    end(server, words=["no key in the file"])


# ---- Other keys


@part
def reloads():
    path = write("keys", "alice\nbob\n")
    server = Server(WEIR, "-np", "4", "--api-key-file", path, model=SLOW)
    kept, stream = open_stream(server, dict(ENDLESS, resume=True), key="alice")
    running, _ = open_stream(server, ENDLESS, key="bob")
    before = server.post(TEXT, {"prompt": "the same words", "max_tokens": 1}, key="bob").json["usage"]["prompt_tokens"]

    def again(text, event="info"):
        write("keys", text)
        n = len([e for e in server.lines if e["event"] == "reload"])
        server.process.send_signal(signal.SIGHUP)
        return server.log(lambda e: e["event"] == "reload" and len([x for x in server.lines if x["event"] == "reload"]) > n and e is [x for x in server.lines if x["event"] == "reload"][-1])

    line = again("carol priority=5\nbob\n")
    check("SIGHUP reads the keys anew", line is not None and line["level"] == "info" and "2 keys" in line["message"], server.lines[-3:])
    refused("a key that is gone", server.post(TEXT, {"prompt": "x", "max_tokens": 1}, key="alice"), 401)
    refused("nor reads it its stream", server.get(f"/v1/streams/{stream}", key="alice"), 401)
    refused("nor does the one that came", server.get(f"/v1/streams/{stream}", key="carol"), 404)
    check("a key that came, with what it may", server.post(TEXT, {"prompt": "x", "max_tokens": 1, "priority": 5}, key="carol").status == 200)
    reply = server.post(TEXT, {"prompt": "the same words", "max_tokens": 1}, key="bob")
    check("a key that stayed has its cache", reply.json["usage"]["prompt_tokens_details"]["cached_tokens"] == before - 1, reply.body)
    check("and its stream", next(running.events()))
    for bad, word in (("", "no key"), ("carol\nbob x=1\n", "line 2")):
        line = again(bad)
        check(f"{bad!r}: everything stays", line is not None and line["level"] == "warning" and server.post(TEXT, {"prompt": "x", "max_tokens": 1}, key="bob").status == 200 and
              server.post(TEXT, {"prompt": "x", "max_tokens": 1}, key="alice").status == 401, server.lines[-3:])
        check("and why", server.log(lambda e: e["event"] == "options" and word in e["message"]) is not None, server.lines[-3:])
    line = again("alice\n")
    check("a key that comes back has its stream", line["level"] == "info" and server.post(f"/v1/streams/{stream}/cancel", None, key="alice").status in (200, 204), server.lines[-3:])
    for connection in (kept, running):
        connection.close()
    check("SIGTERM ends it", server.stop() == 0, server.lines[-3:])


@part
def without_hangups():
    """nohup starts a server with SIGHUP ignored; a reload has to come all the same, or a key that was removed goes on."""
    path = write("keys", "alice\nbob\n")
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    server = Server(WEIR, "--api-key-file", path)
    signal.signal(signal.SIGHUP, before)
    write("keys", "alice\n")
    server.process.send_signal(signal.SIGHUP)
    check("SIGHUP reads the keys anew", server.log(lambda e: e["event"] == "reload") is not None, server.lines)
    refused("a key that is gone", server.post(TEXT, {"prompt": "x", "max_tokens": 1}, key="bob"), 401)
    end(server)


@part
def configuration():
    """Settings in the file, and those that nothing can change."""
    path = write("config", "[serve]\ncors = https://a.example\nmax-body = 4K\n")
    env = dict(os.environ, WEIR_CONFIG=path)
    server = Server(WEIR, env={k: v for k, v in env.items() if k == "WEIR_CONFIG" or not k.startswith("WEIR_")})
    big = json.dumps(dict(HELLO, user="x" * 5000)).encode()
    check("before", server.get("/v1/models", headers=["Origin: https://a.example"]).status == 200 and server.get("/v1/models", headers=["Origin: https://b.example"]).status == 403 and
          server.post(CHAT, big).status == 413)
    write("config", "[serve]\ncors = https://b.example\nmax-body = 1M\n")
    server.process.send_signal(signal.SIGHUP)
    check("it is read", server.log(lambda e: e["event"] == "reload") is not None, server.lines)
    check("and holds", server.get("/v1/models", headers=["Origin: https://a.example"]).status == 403 and server.get("/v1/models", headers=["Origin: https://b.example"]).status == 200 and
          server.post(CHAT, big).status == 200)
    end(server)


@part
def terminals():
    """In a terminal SIGHUP reads anew as well, unless the terminal has gone: that ends the server."""
    pid, master = pty.fork()
    if pid == 0:
        os.execve(WEIR, [WEIR, "serve", "-m", "fake:", "--port", "0"], environment())
    said = b""

    def says(word, patience=PATIENCE):
        nonlocal said
        until = time.monotonic() + patience
        while word not in said and time.monotonic() < until:
            if select.select([master], [], [], 0.2)[0]:
                said += os.read(master, 65536)
        return word in said

    check("it starts", says(b"weir is ready"), said)
    # The thread sanitizer keeps a signal that arrives just before the server waits for one until it does something else.
    for _ in range(30):
        os.kill(pid, signal.SIGHUP)
        if says(b"were read again", 2):
            break
    check("SIGHUP reads anew", b"were read again" in said, said)
    os.close(master)
    until, ended = time.monotonic() + PATIENCE, 0
    while not ended and time.monotonic() < until:
        ended, status = os.waitpid(pid, os.WNOHANG)
        time.sleep(0.05)
    check("a closed terminal ends it", ended == pid and os.waitstatus_to_exitcode(status) == 0)
    if not ended:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


need_server(WEIR)
run_parts()
