"""weir serve, on the fake model: who may see and do what. The tables of docs/guides/access.md are the data: every path of server/http/paths.c with every role."""
# SPDX-License-Identifier: Apache-2.0
import json
import os
import re
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from checks import PATIENCE, check, environment  # noqa: E402
from parts import end, part, run_parts  # noqa: E402
from serve import Connection, Server, need_server  # noqa: E402

WEIR = os.path.abspath(os.environ["WEIR_BIN"])
SOURCE = os.environ.get("WEIR_SOURCE_DIR", ".")
CHAT, TEXT, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/responses"
ENDLESS = {"prompt": "tell", "max_tokens": 100000, "ignore_eos": True, "stream": True}
scratch = tempfile.TemporaryDirectory()
ROLES = ("no key", "local", "open", "key", "operator", "peer")
KEYS = {"no key": None, "local": None, "open": None, "key": "alice", "operator": "boss", "peer": "between-servers"}


def write(name, text):
    path = os.path.join(scratch.name, name)
    with open(path, "w") as f:
        f.write(text)
    return path


MODELS = write("models.conf", """slots = 4
ctx = 100000
[one]
model = fake:tick_us=20000,n_ctx_train=100000
lora = fake:1
[two]
model = fake:seed=2
""")


PAGE = "https://elsewhere.example"
PAGES = {"a page of any origin": "*", "a page of a named origin": PAGE}
KEYS.update(dict.fromkeys(PAGES))


class PageConnection(Connection):
    """A browser's, for a page of another origin."""

    def request(self, method, path, body=None, headers=(), key=None):
        super().request(method, path, body, [f"Origin: {PAGE}", *headers], key)


class PageServer(Server):
    """Asked by such a page only."""

    def connect(self, **more):
        return PageConnection(self, **more)


def start(*words, of=Server, **more):
    return of(WEIR, "--prefix-key", KEYS["peer"], *words, **more)


def keyed(*words, **more):
    return start("--api-key", "alice", "--api-key", "bob", "--operator-key", "boss", *words, **more)


def all_roles(*words, **more):
    """Each role's server; the caller ends them all. PAGES are "open" on a server that is local for everybody else."""
    with_keys, local, opened = keyed(*words, **more), start(*words, **more), start("--host", "0.0.0.0", *words, **more)
    pages = {page: start("--cors", allowed, *words, of=PageServer, **more) for page, allowed in PAGES.items()}
    return {role: {"local": local, "open": opened, **pages}.get(role, with_keys) for role in (*ROLES, *PAGES)}


def end_all(servers):
    for server in dict.fromkeys(servers.values()):
        end(server)


# ---- The page


def tables():
    """Rows of the page's tables whose columns are the roles: the first cell, and what stands below each role."""
    found, rows = [], None
    with open(os.path.join(SOURCE, "docs/guides/access.md")) as f:
        for line in f:
            cells = [cell.strip() for cell in line.strip().strip("|").split("|")] if line.startswith("|") else []
            if tuple(cells[1:]) == ROLES:
                rows = []
                found.append(rows)
            elif not cells:
                rows = None
            elif rows is not None and set(cells[0]) != {"-"}:
                rows.append((cells[0], dict(zip(ROLES, cells[1:]))))
                rows[-1][1].update((page, rows[-1][1]["open"]) for page in PAGES)
    return found


def routes_of(cell):
    """`POST /a`, `/b`: a method holds until the next one."""
    method = None
    for quoted in re.findall(r"`([^`]+)`", cell):
        match = re.fullmatch(r"(?:(GET|POST|DELETE) )?(/\S*)", quoted)
        if match:
            method = match[1] or method
            yield method, match[2]


def routes_of_source():
    with open(os.path.join(SOURCE, "server/http/paths.c")) as f:
        return [(method, path.replace("[/v1]", "/v1") or "/") for method, path in re.findall(r'^    \{"([A-Z]+)", (?:"([^"]+)"|NULL)', f.read(), re.M)]


PATHS, DATA = tables()
GIVEN = [(method, path) for method, path in routes_of_source() if method == "GET" and "*" not in path and path != "/events"]


def ask(server, key, method, path):
    """A request that is refused for what it lacks, if it is not refused for who asks. Its status, and the code of a refusal."""
    path = path.replace("**", "nothing").replace("*", "nothing")
    connection = server.connect()
    try:
        connection.request(method, path, {} if method == "POST" or path == "/api/delete" else None, key=key)
        if path == "/events":
            status, headers = connection.head()
            if status == 200:
                return 200, None
            body = connection.exactly(int(headers["content-length"]))
        else:
            reply = connection.reply()
            status, body = reply.status, reply.body
    finally:
        connection.close()
    if status < 400:
        return status, None
    error = json.loads(body)
    return status, error["code"] if isinstance(error["error"], str) else error["error"]["code"]


@part
def paths():
    listed = [route for cell, _ in PATHS for route in routes_of(cell)]
    check("the page has every path of the server, once", sorted(listed) == sorted(routes_of_source()) and len(listed) > 40,
          set(routes_of_source()) ^ set(listed), [route for route in listed if listed.count(route) > 1])
    servers = all_roles("--lora-dir", scratch.name)
    for cell, wanted in PATHS:
        for method, path in routes_of(cell):
            for role, want in wanted.items():
                status, code = ask(servers[role], KEYS[role], method, path)
                refusal = (status, code) in ((401, "invalid_api_key"), (401, "invalid_prefix_key"), (403, "operator_only"))
                good = refusal and str(status) == want if want in ("401", "403") else want in ("yes", "own", "by id", "part") and not refusal and status not in (401, 403)
                check(f"{method} {path}, {role}: {want}", good, status, code)
    for role, word in (("open", "strangers"), ("key", "word operator"), *((page, "page of another origin") for page in PAGES)):
        error = servers[role].post("/v1/models/load", {}, key=KEYS[role]).error
        good = word in error["message"] and ("--operator-key" in error["message"]) == (role != "key") and error["type"] == "permission_error"
        check(f"{role}: what to do", good, error)
        error = servers[role].post("/api/pull", {}, key=KEYS[role]).json
        check(f"{role}: in Ollama's form", isinstance(error["error"], str) and error["code"] == "operator_only", error)
    end_all(servers)
    with keyed("--metrics-need-no-key", "--health-needs-key") as server:
        check("--metrics-need-no-key: everybody", [server.get("/metrics", key=key).status for key in (None, "x", "alice", "boss")] == [200] * 4)
        check("--health-needs-key", [server.get("/health", key=key).status for key in (None, "x", "alice", "boss")] == [401, 401, 200, 200])
    with start("--host", "0.0.0.0", "--metrics-need-no-key") as server:
        check("and on an open server", server.get("/metrics").status == 200)


# ---- What each may see and do


def stream_of(server, key, body=ENDLESS, **more):
    """A stream that has begun, and its id."""
    connection = server.connect()
    connection.request("POST", TEXT, dict(body, **more), key=key)
    status, headers = connection.head()
    assert status == 200, connection.exactly(int(headers["content-length"]))
    return connection, json.loads(next(connection.events()))["id"]


def event(server, key, query="", wanted=lambda e: True):
    """The first event for which it holds; None: the server refuses."""
    connection = server.connect()
    connection.request("GET", "/events" + query, key=key)
    status, _ = connection.head()
    found = next((e for e in map(json.loads, (d for d in connection.events() if not d.startswith(":"))) if wanted(e)), None) if status == 200 else None
    connection.close()
    return found


def slots(server, key):
    reply = server.get("/slots", key=key)
    return reply.json if reply.status == 200 else []


def numbers_of(slots):
    return [s for s in slots if s["state"] != "idle" and "prompt" in s]


def of_own(server, key):
    return sees_running(server, key, key)


def of_others(server, key):
    return sees_running(server, key, "bob" if key else None)


def sees_running(server, key, owner):
    """Whether the numbers of a request of `owner` are in /slots and in /events; they must agree."""
    if server.get("/slots", key=key).status == 401:
        return event(server, key) is not None
    connection, _ = stream_of(server, owner)
    try:
        busy = event(server, key, wanted=lambda e: any(s["state"] != "idle" for s in e["slots"]))
        both = [numbers_of(found) for found in (slots(server, key), busy["slots"])]
        check(f"{owner}'s request as {key} sees it: the same in /slots and /events", len(both[0]) == len(both[1]) and
              all(s["state"] == "generating" and s["prompt"] == 5 for s in both[0]), both, busy)
        hidden = [s for s in slots(server, key) if s["state"] != "idle" and "prompt" not in s]
        check("what is hidden has no number", all(set(s) == {"id", "state"} and s["state"] == "busy" for s in hidden), hidden)
        return len(both[0]) == 1
    finally:
        connection.close()
        idle(server)


def idle(server):
    key = "boss" if server.get("/slots").status == 401 else None
    for _ in range(1000):
        if all(s["state"] == "idle" for s in slots(server, key)):
            return


def of_busy(server, key):
    owner = "bob" if server.get("/slots").status == 401 else None
    connection, _ = stream_of(server, owner)
    try:
        told = event(server, key, wanted=lambda e: any(s["state"] != "idle" for s in e["slots"]))
        return told is not None and "queue" in told and sum(s["state"] != "idle" for s in slots(server, key)) == 1
    finally:
        connection.close()
        idle(server)


def of_sums(server, key):
    told = event(server, key)
    if told is None:
        return server.get("/metrics", key=key).status == 200
    sums = {"cache", "total", "rates", "ttft_ms", "itl_ms", "tpot_ms"}
    whole = sums <= set(told) and "used" in told["kv"]
    check("all sums or none", whole or (not sums & set(told) and told["ticks"] == [] and set(told["kv"]) == {"size"} and told["operator"] is False), told)
    check("in /metrics as in /events", (server.get("/metrics", key=key).status == 200) == whole)
    return whole


def answer_of(server, owner):
    """A kept response, a stream that can be resumed, an answer that can be forked; how each is asked for."""
    response = server.post(RESPONSES, {"input": "hello", "max_output_tokens": 2}, key=owner).json["id"]
    text = server.post(TEXT, {"prompt": "secret", "max_tokens": 4, "temperature": 0}, key=owner).json["id"]
    connection, stream = stream_of(server, owner, {"prompt": "secret", "max_tokens": 2, "stream": True}, resume=True)
    list(connection.events())
    connection.close()
    return (lambda key: server.get(f"{RESPONSES}/{response}", key=key), lambda key: server.get(f"/v1/streams/{stream}?starting_after=0", key=key),
            lambda key: server.post(TEXT, {"fork": {"id": text}, "max_tokens": 1}, key=key))


def of_answers(server, key, owner):
    got = [ask(key).status for ask in answer_of(server, owner)]
    check(f"{owner}'s answers, {key} asks: all or none", set(got) in ({200}, {401}, {404}), got)
    return got[0] == 200


def of_words(server, key):
    owner = "bob" if server.get("/v1/models").status == 401 else None
    server.post(TEXT, {"prompt": "Alpha beta gamma delta: the password is swordfish.", "max_tokens": 1}, key=owner)
    reply = server.post(TEXT, {"prompt": "Alpha beta gamma delta: the weather is fine.", "max_tokens": 1}, key=key)
    return "swordfish" in reply.body.decode()


def of_texts(server, key):
    """True if anything the server reports contains a word or the tokens of another caller's prompt or answer."""
    owner = "bob" if server.get("/v1/models").status == 401 else None
    secret = {"prompt": "Alpha beta, the password is swordfish.", "max_tokens": 1}
    tokens = server.post("/tokenize", {"content": "swordfish"}, key=owner).json["tokens"]
    connection, _ = stream_of(server, owner, {**ENDLESS, "prompt": secret["prompt"]})
    try:
        server.post(TEXT, secret, key=owner)
        event(server, key, wanted=lambda e: any(s["state"] != "idle" for s in e["slots"]))
        told = [json.dumps(event(server, key)), *(server.get(path, key=key).body.decode() for _, path in GIVEN)]
        return any(word in text.replace(" ", "") for text in told for word in ("swordfish", json.dumps(tokens)[1:-1].replace(" ", "")))
    finally:
        connection.close()
        idle(server)


def of_prefixes(server, key):
    """A prompt with neither key nor salt goes to whoever has --prefix-key; one with a key goes to nobody without its salt."""
    def given(server, owner, text):
        asks = {"prompt": text, "max_tokens": 1}
        server.post(TEXT, asks, key=owner)
        tokens = server.post("/tokenize", {"content": text, "add_special": True}, key=owner).json["tokens"]
        return server.post("/v1/prefixes", {"tokens": tokens}, key=key).status == 200

    owner = "bob" if server.get("/v1/models").status == 401 else None
    found = given(server, owner, "A prompt that somebody sent before. " * 4)
    if key != KEYS["peer"]:
        return found
    check("a peer gets no prompt of a key's", not found)
    with start() as keyless:
        return given(keyless, None, "A prompt that somebody sent before. " * 4)


def of_models(server, key):
    return server.get("/v1/models", key=key).status == 200


def of_adapters(server, key):
    reply = server.get("/lora-adapters?model=one", key=key)
    return reply.status == 200 and [a["name"] for a in reply.json] == ["fake:1"]


def of_choice(server, key):
    texts = [server.post(TEXT, {"model": "one", "prompt": "x", "max_tokens": 4, "temperature": 0, "lora": lora}, key=key).body for lora in ([], [{"id": 0, "scale": 1}])]
    return b'"text"' in texts[0] and b'"text"' in texts[1]


def of_scales(server, key):
    asker = "bob" if server.get("/v1/models").status == 401 else None
    before, reply, after = (f() for f in (lambda: scale(server, asker), lambda: server.post("/lora-adapters?model=one", [{"id": 0, "scale": 0.25}], key=key), lambda: scale(server, asker)))
    return reply.status == 200 and before != after == 0.25


def scale(server, key):
    return server.get("/lora-adapters?model=one", key=key).json[0]["scale"]


def state(server):
    key = "boss" if server.get("/v1/models").status == 401 else None
    return {m["id"]: m.get("state") for m in server.get("/v1/models", key=key).json["data"]}["two"]


def of_unloading(server, key, path="/v1/models/unload", body={"model": "two"}):
    """Another's answer in the model can be forked as long as the model is there."""
    owner = "bob" if server.get("/v1/models").status == 401 else None
    source = server.post(TEXT, {"model": "two", "prompt": "x", "max_tokens": 4}, key=owner).json["id"]
    reply = server.post(path, body, key=key)
    fork = server.post(TEXT, {"model": "two", "fork": {"id": source}, "max_tokens": 1}, key=owner)
    gone = state(server) != "loaded" or fork.status != 200
    check(f"{path}: what is done is what is said", gone == (reply.status == 200 and reply.headers.get("x-weir-relaxed") != "keep_alive"), reply.status, reply.headers, fork.body)
    return gone


def of_keep_alive(server, key):
    return of_unloading(server, key, "/api/generate", {"model": "two", "keep_alive": 0, "stream": False})


def of_fixed(server, key):
    reply = server.post("/v1/unload_lora_adapter?model=one", {"lora_name": "fake:1"}, key=key)
    if reply.status != 401 and reply.error["code"] != "operator_only":
        check("the refusal says why", reply.status == 403 and "came with the model" in reply.error["message"] and reply.error["param"] == "lora_name", reply.body)
        again = server.post("/v1/load_lora_adapter?model=one", {"lora_name": "fake:1", "lora_path": "x.gguf"}, key=key)
        check("nor is it replaced", again.status in (400, 404), again.body)
    return reply.status == 200


PROBES = {
    "own answers: read again, resumed, forked": lambda server, key: of_answers(server, key, key) if key != KEYS["peer"] and of_models(server, key) else False,
    "others' answers": lambda server, key: of_answers(server, key, "bob" if server.get("/v1/models").status == 401 else None),
    "words of others' prompts, in the explanation of a cache miss": of_words,
    "words and tokens of others, in everything the server reports about itself": of_texts,
    "others' cached prompts, from `/v1/prefixes`": of_prefixes,
    "that a slot is busy, and how many requests wait": of_busy,
    "lengths, states and priorities of one's own requests": of_own,
    "lengths, states and priorities of others' requests": of_others,
    "sums and times over all requests": of_sums,
    "names, sizes and states of the models": of_models,
    "names and scales of the adapters": of_adapters,
    "choose adapters for one's own request": of_choice,
    "change the adapters of requests that name none": of_scales,
    "unload a model": of_unloading,
    'unload a model by `"keep_alive": 0`': of_keep_alive,
    "unload an adapter of `--lora`": of_fixed,
}


@part
def data():
    check("every row of the page has its check, and each check its row", [row for row, _ in DATA] == list(PROBES), [row for row, _ in DATA])
    for row, wanted in DATA:
        servers = all_roles("--models", MODELS, "--lora-dir", scratch.name, model=None)
        for server in dict.fromkeys(servers.values()):  # both are in memory
            key = "boss" if server.get("/v1/models").status == 401 else None
            for model in ("one", "two"):
                server.post(TEXT, {"model": model, "prompt": "x", "max_tokens": 1}, key=key)
        for role, want in wanted.items():
            got = PROBES[row](servers[role], KEYS[role])
            check(f"{row}, {role}: {want}", want in ("yes", "no", "by id", "unsalted") and got == (want != "no"), got)
        end_all(servers)


@part
def pages():
    """A page of another origin and a local user: each gets its own view of /events, whichever connects first."""
    server = start("--cors", "*", "-np", "2", model="fake:tick_us=20000,n_ctx_train=100000")
    running, _ = stream_of(server, None)
    for first in (True, False, True):
        readers = []
        for foreign in (first, not first):
            connection = server.connect()
            connection.request("GET", "/events", headers=[f"Origin: {PAGE}"] * foreign)
            assert connection.head()[0] == 200
            events = (json.loads(d) for d in connection.events() if not d.startswith(":"))
            readers.append((foreign, [next(events), next(events)]))
        for foreign, told in readers:
            check(f"{'the page' if foreign else 'the person'}: {'in short' if foreign else 'whole'}", all((e.get("operator") is False and not numbers_of(e["slots"])) == foreign for e in told), told)
    for value, wanted in (("http://localhost", 501), ("null", 403), ("https://" + "a" * 240 + ".example", 403), ("https://" + "a" * 400 + ".example", 403), ("http://localhost:3000", 403), ("", 501)):
        reply = server.post("/v1/models/load", {"model": "x"}, headers=[f"Origin: {value}"])
        check(f"a page at {value[:40]!r}: {wanted}", reply.status == wanted, reply.status, reply.body)
    running.close()
    end(server)
    server = keyed("--cors", "*")
    codes = [server.post("/v1/models/load", {"model": "x"}, key=key, headers=[f"Origin: {PAGE}"]).status for key in (None, "alice", "boss")]
    check("where there are keys, a page has the rights of the key that it sends", codes == [401, 403, 501], codes)
    end(server)


# ---- Keys that change


@part
def removed():
    """What is left of a key that a reload removes, or that is no operator's any more."""
    path = write("keys", "alice\nboss operator\nother operator\n")
    server = Server(WEIR, "-np", "4", "--resume-grace", "1", "--api-key-file", path, model="fake:tick_us=20000,n_ctx_train=100000")

    def again(text):
        write("keys", text)
        n = sum(e["event"] == "reload" for e in server.lines)
        server.process.send_signal(signal.SIGHUP)
        server.log(lambda e: e["event"] == "reload" and sum(x["event"] == "reload" for x in server.lines) > n)

    def watch(key):
        connection = server.connect()
        connection.request("GET", "/events", key=key)
        assert connection.head()[0] == 200
        events = (json.loads(d) for d in connection.events() if not d.startswith(":"))
        return events, next(events)

    running, stream = stream_of(server, "alice", resume=True)
    reader = server.connect()
    reader.request("GET", f"/v1/streams/{stream}", key="alice")
    check("it reads its stream again", reader.head()[0] == 200)
    asleep = server.post(RESPONSES, {"input": "hello", "background": True, "max_output_tokens": 90000, "temperature": 0}, key="alice").json["id"]
    (alice, first), (boss, whole), (other, _) = watch("alice"), watch("boss"), watch("other")
    check("an ordinary key's events are short, an operator's whole", first["operator"] is False and "rates" in whole and "operator" not in whole, first, whole)
    again("boss\nother operator\n")
    check("its events end", next((e for e in alice if not e), None) is None)
    rest = list(reader.events())
    check("and the stream that it came back to, with the reason", json.loads(rest[-1])["error"]["code"] == "invalid_api_key", rest[-1:])
    check("its own answer goes on", next(running.events()) and next(running.events()))
    check("an operator's still come, with numbers", "rates" in next(other))
    check("a key that is no operator's any more: in short", next(e for e in boss if "rates" not in e)["operator"] is False)
    check("and it may no longer change anything", server.post("/v1/models/unload", {}, key="boss").error["code"] == "operator_only")
    check("the answer in the background ends", server.wait_for(lambda m: m["weir_slots_generating"] == 1, key="other")["weir_slots_generating"] == 1)
    again("alice\nboss operator\nother operator\n")
    check("a key that returns finds its stream", server.get(f"/v1/streams/{stream}/cancel", key="alice").status == 405 and server.post(f"/v1/streams/{stream}/cancel", {}, key="alice").status == 204)
    ended = server.get(f"{RESPONSES}/{asleep}", key="alice")
    check("not what has ended", ended.status == 404 or ended.json["status"] != "in_progress", ended.status, ended.body)
    check("and is an operator again", "rates" in next(e for e in boss if "rates" in e))
    running.close()
    end(server)
    server = Server(WEIR, "--unix", os.path.join(scratch.name, "s"), env=environment(WEIR_CONFIG=write("conf", "\n")))
    connection = server.connect()
    connection.request("GET", "/events")
    connection.head()
    write("conf", "api-key = k\n")
    server.process.send_signal(signal.SIGHUP)
    list(connection.events())  # to its end; one that goes on ends the test here
    check("where keys are wanted from now on, callers without one are disconnected", server.get("/events").status == 401)
    end(server)


# ---- Programs


@part
def programs():
    server = keyed("-np", "2", "--resume-grace", "1", model="fake:tick_us=20000,n_ctx_train=100000")
    mine, _ = stream_of(server, "alice", resume=True)
    others, _ = stream_of(server, "bob", max_tokens=90000)

    def ps(key, *words):
        done = subprocess.run([WEIR, "ps", "--url", server.url, "--api-key", key, *words], capture_output=True, text=True, env=environment(), timeout=PATIENCE)
        return done.returncode, done.stdout, done.stderr

    code, said, _ = ps("boss")
    check("weir ps with an operator's key", code == 0 and "2 running" in said and said.count("generating") == 2 and "cells" in said and "operator" not in said, code, said)
    code, said, _ = ps("alice")
    check("with an ordinary one: its own request, and why no more", code == 0 and "2 running" in said and said.count("generating") == 1 and said.count("busy") == 1 and
          "operator's key" in said and not re.search("^(cells|cache|so far)", said, re.M), code, said)
    told = json.loads(ps("alice", "--json")[1])
    check("as JSON", told["operator"] is False and len(numbers_of(told["slots"])) == 1, told)
    code, _, said = ps("nobody")
    check("with a wrong one", code == 4 and "requires a key" in said, code, said)
    top = subprocess.Popen([WEIR, "top", "--json", "--url", server.url, "--api-key", "alice"], stdout=subprocess.PIPE, text=True, env=environment())
    check("weir top with an ordinary one", json.loads(top.stdout.readline())["operator"] is False)
    top.kill()
    top.wait()
    for connection in (mine, others):
        connection.close()
    end(server)


need_server(WEIR)
run_parts()
