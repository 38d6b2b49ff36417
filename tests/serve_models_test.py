"""weir serve with several models, from outside, on the fake model: the file of --models, presets, SIGHUP, weir ps."""
# SPDX-License-Identifier: Apache-2.0
import json
import os
import signal
import sys
import tempfile
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from checks import PATIENCE, check, environment, run_tests  # noqa: E402
from program import WEIR, expect, weir  # noqa: E402
from serve import Server, need_server  # noqa: E402

scratch = tempfile.TemporaryDirectory()
FILE = os.path.join(scratch.name, "models.conf")
CHAT = "/v1/chat/completions"
SLOW = "fake:seed=9,tick_us=20000,n_ctx_train=100000"
THREE = """# of all
ctx = 512
slots = 2
[one]
model = fake:seed=1
alias = gpt-4o
pinned = on
[two]
model = fake:seed=2
max-tokens = 3
idle = 10m
[three]
model = fake:seed=3
system = "Be brief."
"""


def written(text):
    with open(FILE, "w", encoding="utf-8") as file:
        file.write(text)


def ask(server, model, n=8, text="hello"):
    body = {"model": model, "messages": [{"role": "user", "content": text}], "temperature": 0, "ignore_eos": True}
    reply = server.post(CHAT, dict(body, max_tokens=n) if n else body)
    return reply.json["choices"][0]["message"]["content"] if reply.status == 200 else (reply.status, reply.error["param"], reply.error["message"])


def names(server):
    return [m["id"] for m in server.get("/v1/models").json["data"]]


def states(server):
    return {m["id"]: m["state"] for m in server.get("/v1/models").json["data"] if "state" in m}


def alone(seed, *words, **more):
    with Server(WEIR, "-c", "512", "-np", "2", *words, model=f"fake:seed={seed}") as server:
        return ask(server, "", **more)


def test_context():
    """A context beyond the training warns, of one model and of several; one within does not."""
    words = "-c 100 is longer than the 64 tokens that the model was trained for"
    for ctx, warned in (("100", True), ("64", False)):
        with Server(WEIR, "-c", ctx, model="fake:n_ctx_train=64") as server:
            said = [line["message"] for line in server.lines]
            check(f"weir serve -c {ctx}: {'a' if warned else 'no'} warning", any(words in line for line in said) == warned, said)
    written("ctx = 100\n[small]\nmodel = fake:n_ctx_train=64\npinned = on\n[large]\nmodel = fake:\npinned = on\n")
    with Server(WEIR, "--models", FILE, model=None) as server:
        check("weir serve --models: which model", server.log(lambda line: line.get("event") == "context" and "small: " + words in line["message"]), server.lines)
        check("and no other", not any(line["message"].startswith("large:") for line in server.lines if line.get("event") == "context"), server.lines)


def test_file():
    written(THREE)
    with Server(WEIR, "--models", FILE, model=None) as server:
        check("it says how many models there are", server.log(lambda e: e.get("event") == "ready")["message"].startswith("3 models at http"), server.lines)
        check("all are listed in the file's order", [n for n in names(server) if n in ("one", "two", "three")] == ["one", "two", "three"], names(server))
        got = {name: ask(server, name) for name in ("one", "three", "two", "gpt-4o")}
        check("each answers as it does alone", got["one"] == alone(1) == got["gpt-4o"] and got["three"] == alone(3, "--system", "Be brief.") != got["one"], got)
        check("and obeys its own settings", got["two"] == alone(2) and ask(server, "two", None) == alone(2, n=3), got, ask(server, "two", None))
        status, param, message = ask(server, "four")
        check("another name is refused, and the message has the names", status == 404 and param == "model" and all(f'"{n}"' in message for n in ("one", "two", "three")), status, message)
        for path in ("/v1/embeddings", "/api/embed"):
            check(f"{path}: a model that generates text", server.post(path, {"model": "two", "input": "x"}).status == 200)
        reply = server.post("/v1/rerank", {"model": "two", "query": "x", "documents": ["y"]})
        check("/v1/rerank: it ranks nothing", reply.status == 400 and "ranks no documents" in reply.error["message"], reply.body)
        check("what is used is loaded", set(states(server).values()) == {"loaded"}, states(server))
        shown = weir("ps", "--url", server.url)
        rows = [line.split() for line in shown.stdout.splitlines()]
        check("weir ps shows all models", any(r[:3] == ["models", "one", "loaded"] and r[-1] == "pinned" for r in rows) and any(r[:2] == ["three", "loaded"] for r in rows), shown.stdout, shown.stderr)
        check("and the slots of one of them", weir("ps", "--url", server.url, "-m", "two").stdout.splitlines()[0].startswith("two"), shown.stdout)
        expect("of one that there is", weir("ps", "--url", server.url, "-m", "f/o ur"), 4, "f/o ur")
        check("as JSON", [m["name"] for m in json.loads(weir("ps", "--url", server.url, "--json").stdout)["models"]] == ["one", "two", "three"])


def test_reload():
    written(f"[slow]\nmodel = {SLOW}\n[one]\nmodel = fake:seed=1\n")
    with Server(WEIR, "--models", FILE, model=None) as server:
        ended = {}

        def read():
            ended["events"] = server.stream(CHAT, {"model": "slow", "messages": [{"role": "user", "content": "x"}], "max_tokens": 60, "temperature": 0, "ignore_eos": True})
        reader = threading.Thread(target=read)
        reader.start()
        server.wait_for(lambda m: sum(v for k, v in m.items() if k.startswith("weir_slots_generating")) == 1)
        written("[one]\nmodel = fake:seed=1\n[two]\nmodel = fake:seed=2\n")
        server.process.send_signal(signal.SIGHUP)
        check("SIGHUP reads the file again", server.log(lambda e: e.get("event") == "reload" and e["level"] == "info") is not None, server.lines[-3:])
        check("there are other models", ask(server, "two") == alone(2) and ask(server, "slow")[0] == 404 and set(names(server)) == {"one", "two"}, names(server))
        reader.join()
        check("a stream of one that has gone ends as it should", sum(len(e["choices"][0]["delta"].get("content") or "") > 0 for e in ended["events"] if e["choices"]) > 10 and
              ended["events"][-1]["choices"][0]["finish_reason"] == "length", ended)
        for bad, says in (("[one]\nmodel = fake:seed=1\nctx = many\n", "models.conf:3: ctx is"), ("[one]\nmodel = ./none.gguf\n", "models.conf:1"),
                          ("[one]\nmodel = hf:o/none:Q8_0\n", "none")):
            written(bad)
            n = len(server.lines)
            server.process.send_signal(signal.SIGHUP)
            warned = server.log(lambda e: e.get("event") == "reload" and e["level"] == "warning" and e in server.lines[n:])
            check(f"an error changes nothing: {says}", warned is not None and says in server.said and ask(server, "two") == alone(2), server.lines[n:])
        check("it ends in order", server.stop() == 0)


def test_long_contexts():
    """-c beyond the training warns when the model is loaded, as it does for a single model."""
    written("ctx = 100\n[small]\nmodel = fake:n_ctx_train=64\n[scaled]\nmodel = fake:n_ctx_train=64\nrope-scaling = linear\n[large]\nmodel = fake:n_ctx_train=128\n")
    with Server(WEIR, "--models", FILE, model=None) as server:
        for name in ("small", "scaled", "large"):
            check(f"{name} answers", isinstance(ask(server, name), str))
        warned = [e["message"] for e in server.lines if e.get("event") == "context"]
        check("one of them warns", len(warned) == 1 and warned[0].startswith("small: -c 100 is longer than the 64 tokens"), warned)
    written("[small]\nmodel = fake:n_ctx_train=64\n")
    with Server(WEIR, "--models", FILE, model=None) as server:
        check("the default warns of nothing", isinstance(ask(server, "small"), str) and not [e for e in server.lines if e.get("event") == "context"])


def own_cgroup():
    """(a new memory cgroup, the name of its limit), where this process may make one."""
    for mount, limit in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")):
        folder = os.path.join(mount, f"weir-test-{os.getpid()}")
        try:
            os.mkdir(folder)
        except OSError:
            continue
        if os.access(os.path.join(folder, limit), os.W_OK):
            return folder, limit
        os.rmdir(folder)
    return None, None


def test_cgroup_that_shrinks():
    folder, limit = own_cgroup()
    if folder is None:
        print("skipped: no memory cgroup can be made here")
        return

    def put(name, value):
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.write(str(value))
    written("ctx = 512\nslots = 2\ncache-memory = 1M\nlookup-memory = 0\n" + "".join(
        f"[{name}]\nmodel = fake:seed={i},n_bytes=104857600,tick_us=20000,n_ctx_train=100000\n" for i, name in enumerate(("one", "two", "three"), 1)))
    try:
        with Server(WEIR, "--models", FILE, model=None) as server:
            put(limit, 600 << 20)
            put("cgroup.procs", server.process.pid)
            before = {name: ask(server, name) for name in ("one", "two", "three")}
            check("three models fit", set(states(server).values()) == {"loaded"}, states(server))
            put(limit, 240 << 20)
            server.wait_for(lambda _: sorted(states(server).values()) == ["loaded", "loaded", "sleeping"])
            check("the cgroup allows less: the one that was used longest ago sleeps", states(server)["one"] == "sleeping", states(server))
            check("it wakes in place of another one", ask(server, "one") == before["one"] and list(states(server).values()).count("loaded") == 2, states(server))
            put(limit, 600 << 20)
            server.wait_for(lambda _: ask(server, "two") == before["two"] and ask(server, "three") == before["three"] and set(states(server).values()) == {"loaded"})
            check("it ends in order", server.stop() == 0)
    finally:
        os.rmdir(folder)


def test_memory_that_shrinks():
    home = os.path.join(scratch.name, "shrinks")
    config = os.path.join(home, "weir", "config")
    os.makedirs(os.path.dirname(config))

    def memory(size):
        with open(config, "w", encoding="utf-8") as file:
            file.write(f"memory = {size}\n")
    memory("400M")
    written("ctx = 512\nslots = 2\ncache-memory = 1M\nlookup-memory = 0\n" + "".join(
        f"[{name}]\nmodel = fake:seed={i},n_bytes=104857600,tick_us=20000,n_ctx_train=100000\n" for i, name in enumerate(("one", "two", "three"), 1)))
    with Server(WEIR, "--models", FILE, model=None, env=environment(WEIR_CONFIG=config)) as server:
        before = {name: ask(server, name) for name in ("one", "two", "three")}
        check("three models fit", set(states(server).values()) == {"loaded"}, states(server))
        stream = server.connect()
        stream.request("POST", CHAT, {"model": "one", "messages": [{"role": "user", "content": "x"}], "max_tokens": 400, "ignore_eos": True, "stream": True})
        server.wait_for(lambda m: sum(v for k, v in m.items() if k.startswith("weir_slots_generating")) == 1)
        memory("150M")
        server.process.send_signal(signal.SIGHUP)
        server.wait_for(lambda _: sorted(states(server).values()) == ["loaded", "sleeping", "sleeping"])
        check("those that are idle sleep, and the one that answers stays", states(server) == {"one": "loaded", "two": "sleeping", "three": "sleeping"}, states(server))
        stream.close()
        check("the budget is the new one", ask(server, "two") == before["two"] and list(states(server).values()).count("loaded") == 1, states(server))
        memory("50M")
        server.process.send_signal(signal.SIGHUP)
        server.wait_for(lambda _: "loaded" not in states(server).values())
        status, _, message = ask(server, "one")
        check("what cannot fit any more is refused with both sizes", status == 503 and "50.0 MiB" in message and "one" in message, status, message)
        check("it ends in order", server.stop() == 0)


def test_presets():
    home = os.path.join(scratch.name, "home")
    os.makedirs(os.path.join(home, ".config/weir/presets"))
    env = {k: v for k, v in environment(HOME=home).items() if not k.startswith("XDG_")}
    expect("without presets", weir("serve", "--models", "presets", env=env), 2, "there are no presets")
    for name, seed in (("a", 1), ("b", 2)):
        weir("preset", name, "-m", f"fake:seed={seed}", "-c", "512", "-np", "2", env=env)
    with Server(WEIR, "--models", "presets", model=None, env=env) as server:
        check("all presets are served", set(names(server)) == {"a", "b"} and ask(server, "a") == alone(1) and ask(server, "b") == alone(2), names(server))

    # A preset without a model is one of the default model, which is not there.
    weir("preset", "plain", "--system", "Be brief.", env=env)
    written("[brief]\nmodel = plain\n")
    expect("a preset without a model", weir("serve", "--models", FILE, env=env), 3, "weir pull default")
    files = os.path.join(home, "models", "files")
    os.makedirs(files)
    open(os.path.join(files, "brief.gguf"), "w").close()
    expect("and a file of the section's name", weir("serve", "--models", FILE, "--models-dir", files, env=env), 3, "weir pull default")


def test_refusals():
    for text, code, says in (("[a]\nmodel = fake:\ntemp = warm\n", 2, "models.conf:3: temp is \"warm\"; expected: a number"),
                             ("[a]\nmodel = fake:\ntemp = -7\n", 2, "models.conf:3: temp"),
                             ("top-p = 3\n[a]\nmodel = fake:\n", 2, "models.conf:1: top-p"),
                             ("[a]\nmodel = fake:\nslots = 100000\n", 2, "models.conf:3: slots"),
                             ("[a]\nmodel = fake:\nidle = 1y\n", 2, "models.conf:3: idle is \"1y\"; expected: a time"),
                             ("[a]\nmodel = fake:\nlora = fake:1=900\n", 2, "scale"),
                             ("[a]\nmodel = ./none.gguf\n", 3, "models.conf:1: the model a is")):
        written(text)
        done = weir("serve", "--models", FILE, "--port", "0", timeout=PATIENCE)
        expect(f"refused: {says}", done, code, says)
    written("[a]\nmodel = fake:\nsystem = x\0y\n")
    expect("a NUL byte", weir("serve", "--models", FILE), 2, "models.conf:3: the line has a NUL byte")
    written(THREE)
    expect("a model beside them", weir("serve", "--models", FILE, "fake:"), 2, "-m is one model")
    expect("a budget of a single model", weir("serve", "-m", "fake:", "--memory", "8G"), 2, "--memory is for several models: --models FILE")
    expect("a budget that is no size", weir("serve", "--models", FILE, "--memory", "much"), 2, "--memory is \"much\"; expected: a number of bytes")
    expect("a folder without models", weir("serve", "--models-dir", scratch.name), 2, "there are no models in it")


def threads(server):
    return len(os.listdir(f"/proc/{server.process.pid}/task"))


def crowd(server, names):
    """A connection for each name, which all ask at once."""
    connections = [server.connect() for _ in names]
    for connection, name in zip(connections, names):
        connection.request("POST", CHAT, {"model": name, "messages": [{"role": "user", "content": "x"}], "max_tokens": 2})
    return connections


def answers(connections):
    """How many of them have which status and code."""
    counts = {}
    for connection in connections:
        reply = connection.reply()
        key = (reply.status, reply.error["code"] if reply.status >= 400 else "")
        counts[key] = counts.get(key, 0) + 1
        connection.close()
    return counts


def test_crowd():
    gone = os.path.join(scratch.name, "gone.gguf")
    with open(gone, "wb") as file:
        file.write(b"GGUF")
    written(f"[busy]\nmodel = {SLOW}\n[gone]\nmodel = {gone}\n[slow]\nmodel = fake:load_us=3600000000\n")
    with Server(WEIR, "--models", FILE, model=None) as server:
        os.unlink(gone)
        stream = server.connect()
        stream.request("POST", CHAT, {"model": "busy", "messages": [{"role": "user", "content": "x"}], "ignore_eos": True, "stream": True})
        check("a stream runs", stream.head()[0] == 200)
        events = stream.events()
        alone, n = [next(events) for _ in range(5)], threads(server)
        for name, what, reasons in (("none", "no such model", {(404, "model_not_found")}), ("gone", "a file that is gone", {(503, "model_load_failed"), (503, "model_busy")})):
            asking = crowd(server, [name] * 1000)
            check(f"1000 ask for {what}: others are answered meanwhile", server.get("/health").status == 200 and isinstance(ask(server, "busy", 2), str) and
                  len([next(events) for _ in range(5)]) == len(alone))
            check("they take no threads", threads(server) <= n + 2, threads(server), n)
            got = answers(asking)
            check("each has its answer", sum(got.values()) == 1000 and set(got) <= reasons, got)
        waiting = crowd(server, ["slow"] * 250)
        metrics = server.wait_for(lambda m: m["weir_pool_waiting"] == 192 and m['weir_http_responses_total{code="503"}'] >= 58 and states(server)["slow"] == "loading")
        check("192 of one caller wait for a load, without threads", metrics["weir_pool_waiting"] == 192 and threads(server) <= n + 2, metrics, threads(server))
        waiting.append(server.connect(source="127.0.0.2"))
        waiting[-1].request("POST", CHAT, {"model": "slow", "messages": [{"role": "user", "content": "x"}]})
        check("and another one's", server.wait_for(lambda m: m["weir_pool_waiting"] == 193)["weir_pool_waiting"] == 193)
        for connection in waiting:
            connection.close()
        check("they leave, and the load ends", server.wait_for(lambda m: m["weir_pool_waiting"] == 0)["weir_pool_waiting"] == 0 and isinstance(ask(server, "busy", 2), str))
        server.wait_for(lambda _: states(server)["slow"] != "loading")
        check("it was no failure", states(server)["slow"] == "unloaded", states(server))
        stream.close()
        check("it ends in order", server.stop() == 0)


def test_keep_alive():
    written(THREE.replace("idle = 10m", "embeddings = on"))
    with Server(WEIR, "--models", FILE, model=None) as server:
        before = ask(server, "two")
        check("an unload is told", server.post("/api/generate", {"model": "two", "keep_alive": 0}).json["done_reason"] == "unload")
        for path, body in (("/api/generate", {}), ("/api/chat", {"messages": []}), ("/api/generate", {"prompt": "x", "options": {"num_predict": 2}}),
                           ("/api/chat", {"messages": [{"role": "user", "content": "x"}], "options": {"num_predict": 2}, "stream": False}), ("/api/embed", {"input": "x"})):
            reply = server.post(path, dict(body, model="two", keep_alive=0))
            server.wait_for(lambda _: states(server)["two"] == "unloaded")
            check(f"keep_alive 0 unloads: {path} {body}", states(server)["two"] == "unloaded" and "x-weir-relaxed" not in reply.headers and ask(server, "two") == before, states(server), reply.body)
        reply = server.post("/api/generate", {"model": "one", "keep_alive": "0s"})
        check("a pinned model stays", reply.json["done_reason"] == "load" and reply.headers.get("x-weir-relaxed") == "keep_alive" and states(server)["one"] == "loaded", reply.headers, reply.body)
        reply = server.post("/api/generate", {"model": "two", "keep_alive": "5m"})
        check("another time has no effect", reply.json["done_reason"] == "load" and reply.headers.get("x-weir-relaxed") == "keep_alive" and states(server)["two"] == "loaded", reply.headers, reply.body)
        for more in ({"format": 5}, {"options": {"top_k": -5}}, {"prompt": "word " * 100000}):
            reply = server.post("/api/generate", {"model": "two", "prompt": "x", "keep_alive": 0, **more})
            check(f"a refused request unloads nothing: {list(more)}", reply.status == 400 and states(server)["two"] == "loaded", reply.status, reply.body, states(server))
    written("[a]\nmodel = fake:load_us=50000\nembeddings = on\n")
    with Server(WEIR, "--models", FILE, model=None) as server:
        for path, body in (("/api/generate", {"prompt": "x"}), ("/api/chat", {"messages": [{"role": "user", "content": "x"}]}), ("/api/embed", {"input": "x"})):
            body = dict(body, model="a") if path == "/api/embed" else dict(body, model="a", stream=False, options={"num_predict": 2})
            first, second = (server.post(path, dict(body, **more)).json for more in ({}, {"keep_alive": 0}))
            check(f"{path}: the time of a load", first["total_duration"] > first["load_duration"] > 0 and second["load_duration"] == 0, first, second)
            server.wait_for(lambda _: states(server)["a"] == "unloaded")
    written(f"[slow]\nmodel = {SLOW}\n")
    with Server(WEIR, "--models", FILE, model=None) as server:
        stream = server.connect()
        stream.request("POST", CHAT, {"model": "slow", "messages": [{"role": "user", "content": "x"}], "ignore_eos": True, "stream": True})
        stream.head()
        events = stream.events()
        next(events)
        server.post("/api/generate", {"model": "slow", "keep_alive": 0})
        check("others keep a model loaded", len([next(events) for _ in range(5)]) == 5 and states(server)["slow"] == "loaded", states(server))
        stream.close()


def test_deadline_amid_a_load():
    written("[first]\nmodel = fake:seed=1\n[slow]\nmodel = fake:load_us=3600000000\n[soon]\nmodel = fake:load_us=300000\nctx = 100000\n")
    short = {"prompt": "x", "max_tokens": 2, "deadline_ms": 300}
    with Server(WEIR, "--models", FILE, model=None) as server:
        waiting = crowd(server, ["slow"])
        server.wait_for(lambda _: states(server)["slow"] == "loading")
        for path, body in (("/v1/completions", short), (CHAT, {"messages": [{"role": "user", "content": "x"}], "deadline_ms": 300, "stream": True})):
            reply = server.post(path, dict(body, model="slow"))
            check(f"{path}: a deadline ends the wait for a model", (reply.status, reply.error["code"], reply.error["param"]) == (503, "model_busy", "deadline_ms") and
                  "retry-after" in reply.headers and '"slow" was not loaded within deadline_ms' in reply.error["message"], reply.status, reply.body)
        reply = server.post("/v1/messages", dict(short, model="slow"))
        check("in another dialect", reply.status == 503 and "deadline_ms" in reply.json["error"]["message"], reply.body)
        check("the load goes on for others", states(server)["slow"] == "loading" and server.metrics()["weir_pool_waiting"] == 1, states(server))
        waiting[0].close()
        reply = server.post("/v1/completions", dict(short, model="soon", deadline_ms=60000))
        check("a longer deadline: the answer", reply.status == 200 and reply.json["usage"]["completion_tokens"] > 0, reply.body)
        reply = server.post("/v1/completions", dict(short, model="first", deadline_ms=-1))
        check("a deadline out of range", reply.status == 400 and reply.error["param"] == "deadline_ms", reply.body)


def test_signal_amid_a_load():
    written("[one]\nmodel = fake:seed=1\n[slow]\nmodel = fake:load_us=3600000000\n[next]\nmodel = fake:load_us=3600000000\npinned = on\n")
    with Server(WEIR, "--models", FILE, "--drain", "0", model=None) as server:
        waiting = crowd(server, ["slow"] * 20 + ["next"] * 20)
        server.wait_for(lambda m: m["weir_pool_waiting"] == 40 and "loading" in states(server).values())
        check("one loads, one waits", sorted(states(server).values()) == ["loading", "unloaded", "unloaded"], states(server))
        server.process.send_signal(signal.SIGTERM)
        got = answers(waiting)
        check("SIGTERM during a load: all are answered", sum(got.values()) == 40 and {status for status, _ in got} == {503}, got)
        check("and the program ends", server.wait() == 0, server.lines[-3:])


def test_another_signal_waits_for_nothing():
    slow = "fake:free_us=3600000000"
    written(f"[slow]\nmodel = {slow}\n")
    # Threads that have ended and were not joined when the process ends at once are no fault.
    unjoined = os.environ.get("TSAN_OPTIONS", "") + ":report_thread_leaks=0"
    for words, model in ((("--models", FILE), None), ((), slow)):
        with Server(WEIR, *words, model=model, env=environment(TSAN_OPTIONS=unjoined)) as server:
            ask(server, "slow" if words else "fake:")
            server.process.send_signal(signal.SIGTERM)
            line = server.log(lambda e: e.get("event") in ("stopping", "stopped"))
            check(f"nothing has ended that has not: {words}", line and line["event"] == "stopping", server.lines[-4:])
            server.process.send_signal(signal.SIGTERM)
            check(f"another signal ends the process at once: {words}", server.wait() == 143 and server.lines[-1] == line, server.lines[-4:])


need_server(WEIR)
run_tests(globals())
