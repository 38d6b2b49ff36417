"""weir serve with adapters, on a small random model (scripts/tiny_gguf.py, tiny_lora.py): who gets which, lists, loading, unloading, scales."""
# SPDX-License-Identifier: Apache-2.0
import concurrent.futures
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from checks import PATIENCE, check, finish  # noqa: E402
from serve import STRICT, Server, environment, need_server  # noqa: E402

WEIR = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else os.environ["WEIR_BIN"])
SCRIPTS = os.path.join(os.environ.get("WEIR_SOURCE_DIR", "."), "scripts")
CHAT, TEXT, EMBED = "/v1/chat/completions", "/v1/completions", "/v1/embeddings"


def make(script, *words):
    subprocess.run([sys.executable, os.path.join(SCRIPTS, script), *words], check=True)


def ask(server, **more):
    return server.post(TEXT, dict({"prompt": "Once upon a time", "max_tokens": 16, "temperature": 0}, **more))


def say(server, **more):
    reply = ask(server, **more)
    return reply.json["choices"][0]["text"] if reply.status == 200 else reply.body


def embed(server, **more):
    return server.post(EMBED, dict({"input": "Once upon a time"}, **more)).json["data"][0]["embedding"]


def refused(name, reply, status, field, word=""):
    error = reply.error if reply.status >= 400 else {}
    check(f"{name}: {status}, {field}", reply.status == status and error.get("param") == field and word in error.get("message", ""),
          reply.status, reply.body)


need_server(WEIR)

with tempfile.TemporaryDirectory() as folder:
    base, kept = os.path.join(folder, "base.gguf"), os.path.join(folder, "kept")
    os.mkdir(kept)
    make("tiny_gguf.py", "llama", base)
    files = {name: os.path.join(kept, name + ".gguf") for name in ("sql", "prose", "third")}
    for seed, path in enumerate(files.values()):
        make("tiny_lora.py", base, path, "--seed", str(seed + 2), "--strength", "1")
    make("tiny_lora.py", base, os.path.join(kept, "wrong.gguf"), "--but", "rows")
    outside = os.path.join(folder, "outside.gguf")
    make("tiny_lora.py", base, outside)
    os.symlink(outside, os.path.join(kept, "link.gguf"))

    # ---- What the command line names

    plain = Server(WEIR, "-np", "4", "--embeddings", model=base)
    nothing, unadapted = say(plain), embed(plain)
    refused("no adapters: a name", ask(plain, model="sql"), 404, "model")
    check("no adapters: an empty list", plain.get("/lora-adapters").json == [])
    check("no adapters: an empty wish", say(plain, lora=[]) == nothing)
    refused("no adapters: a number", ask(plain, lora=[{"id": 0, "scale": 1}]), 404, "lora")
    for path in ("/lora-adapters", "/v1/load_lora_adapter", "/v1/unload_lora_adapter"):
        refused(f"not allowed: {path}", plain.post(path, [] if "adapters" in path else {"lora_name": "a", "lora_path": "sql.gguf"}), 403, None, "--lora-dir")
    plain.stop()

    server = Server(WEIR, "-np", "4", "--embeddings", "--lora", files["sql"] + "=0.5", "--lora", files["prose"] + "=0", "--lora-dir", kept, model=base)
    listed = server.get("/lora-adapters").json
    check("the list", [(a["id"], a["name"], a["path"], a["scale"]) for a in listed] ==
          [(0, "sql", "sql.gguf", 0.5), (1, "prose", "prose.gguf", 0)], listed)
    models = server.get("/v1/models").json["data"]
    check("models", [m["id"] for m in models] == ["base.gguf", "sql", "prose"] and models[1]["parent"] == "base.gguf", models)
    check("one model", server.get("/v1/models/prose").json["id"] == "prose" and server.get("/v1/models/third").status == 404)
    standard, half, whole = say(server), say(server, lora=[{"id": 0, "scale": 0.5}]), say(server, lora=[{"id": 0}])
    prose, both = say(server, model="prose"), say(server, lora=[{"id": 0, "scale": 1}, {"id": 1, "scale": -0.5}])
    check("who says nothing has the command line's", standard == half)
    check("a name is that one alone, at its scale", say(server, model="sql") == half)
    check("a name whose scale is 0 counts as 1", prose == say(server, lora=[{"id": 1, "scale": 1.0}]))
    check("none at all", say(server, lora=[]) == nothing and say(server, lora=[{"id": 0, "scale": 0}]) == nothing)
    check("all of these differ", len({nothing, half, whole, prose, both}) == 5, nothing, half, whole, prose, both)
    check("the list beats the name", say(server, model="sql", lora=[{"id": 1}]) == prose)
    reply = ask(server, model="prose").json
    check("the answer tells the adapter's name", reply["model"] == "prose" and ask(server).json["model"] == "base.gguf", reply)
    events = server.stream(TEXT, {"prompt": "Once upon a time", "max_tokens": 16, "temperature": 0, "model": "prose"})
    check("the same as a stream", "".join(e["choices"][0]["text"] for e in events if e["choices"]) == prose and events[0]["model"] == "prose")
    chat = {"messages": [{"role": "user", "content": "Who are you?"}], "max_tokens": 8, "temperature": 0}
    texts = [server.post(CHAT, dict(chat, **more)).json["choices"][0]["message"]["content"] for more in ({"lora": []}, {"model": "sql"}, {"model": "prose"})]
    check("chats", len(set(texts)) == 3, texts)
    check("tokenize knows the name", server.post("/tokenize", {"content": "a", "model": "sql"}).status == 200)

    # ---- Embeddings

    vectors = [embed(server, **more) for more in ({"lora": []}, {"model": "sql"}, {"model": "prose"}, {"lora": [{"id": 0}]})]
    check("embeddings: who asks for an adapter has it", len({str(v) for v in vectors}) == 4, vectors)
    check("embeddings: who says nothing has the command line's", embed(server) == embed(server, lora=[{"id": 0, "scale": 0.5}]) == vectors[1])
    check("embeddings: by number as by name", embed(server, lora=[{"id": 1}]) == vectors[2])
    check("embeddings: none at all is as without adapters", embed(server, lora=[]) == vectors[0] == unadapted)
    check("embeddings: the answer tells the adapter's name", server.post(EMBED, {"input": "a", "model": "prose"}).json["model"] == "prose")
    refused("embeddings: a name that is none", server.post(EMBED, {"input": "a", "model": "third"}), 404, "model")
    refused("embeddings: a number that there is not", server.post(EMBED, {"input": "a", "lora": [{"id": 7}]}), 404, "lora")

    # ---- What is refused

    for bad in ({}, "sql", [0], [{"scale": 1}], [{"id": "0"}], [{"id": 0, "scale": "1"}], [{"id": 0, "scale": 1000}], [{"id": 0, "scale": 1, "name": "sql"}]):
        refused(f"lora {bad}", ask(server, lora=bad), 400, "lora", "GET /lora-adapters")
    refused("a number that there is not", ask(server, lora=[{"id": 7}]), 404, "lora")
    source = ask(server, model="prose").json
    refused("a fork with adapters", server.post(TEXT, {"fork": {"id": source["id"]}, "lora": [], "max_tokens": 1}), 400, "lora", "fork")
    fork = server.post(TEXT, {"fork": {"id": source["id"], "at": 5}, "temperature": 0, "max_tokens": 11}).json
    check("a fork has its source's", prose.endswith(fork["choices"][0]["text"]), prose, fork)
    check("and its name", fork["model"] == "prose", fork)
    again = {"fork": {"id": fork["id"], "at": 1}, "max_tokens": 1}
    check("which a fork of it has", server.post(TEXT, dict(again, model="prose")).json["model"] == "prose")
    refused("a fork that names another", server.post(TEXT, dict(again, model="sql")), 400, "model", "fork")
    unnamed = {"fork": {"id": ask(server).json["id"]}, "max_tokens": 1}
    refused("a fork that names one where its source did not", server.post(TEXT, dict(unnamed, model="sql")), 400, "model", "fork")
    check("a fork that names the model", server.post(TEXT, dict(unnamed, model="base.gguf")).status == 200)

    # ---- Caches and company

    miss = ask(server, model="prose", prompt="x" * 200).json["usage"]["prompt_tokens_details"]["cached_tokens"]
    other = ask(server, model="sql", prompt="x" * 200).json["usage"]["prompt_tokens_details"]["cached_tokens"]
    again = ask(server, model="prose", prompt="x" * 200).json["usage"]["prompt_tokens_details"]["cached_tokens"]
    check("a prompt is cached for its adapter", miss == 0 and other == 0 and again > 0, miss, other, again)
    wishes = [({"lora": []}, nothing), ({}, half), ({"lora": [{"id": 0}]}, whole), ({"model": "prose"}, prose)] * 4
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        got = list(pool.map(lambda wish: say(server, **wish[0]), wishes))
    check("in company as alone", got == [want for _, want in wishes], got)

    # ---- Loading, scales, unloading

    reply = server.post("/v1/load_lora_adapter", {"lora_name": "mine", "lora_path": "third.gguf"})
    check("load", reply.status == 200 and b"'mine' added" in reply.body, reply.status, reply.body)
    third = say(server, model="mine")
    check("it is its own", third not in (nothing, half, whole, prose) and say(server) == half)
    refused("the name is taken", server.post("/v1/load_lora_adapter", {"lora_name": "mine", "lora_path": "third.gguf"}), 400, "lora_name", "already")
    refused("the model's name", server.post("/v1/load_lora_adapter", {"lora_name": "base.gguf", "lora_path": "third.gguf"}), 400, "lora_name")
    for path in ("../outside.gguf", outside, "link.gguf", "no.gguf", "/etc/passwd", ""):
        refused(f"not in the folder: {path!r}", server.post("/v1/load_lora_adapter", {"lora_name": "x", "lora_path": path}),
                404, "lora_path")
    refused("not for this model", server.post("/v1/load_lora_adapter", {"lora_name": "x", "lora_path": "wrong.gguf"}), 400, "lora_path", "shape")
    refused("no name", server.post("/v1/load_lora_adapter", {"lora_path": "third.gguf"}), 400, "lora_name")
    refused("an unknown field", server.post("/v1/load_lora_adapter", {"lora_name": "x", "lora_path": "third.gguf", "y": 1}, headers=STRICT), 400, "y")
    check("an absolute path in the folder", server.post("/v1/load_lora_adapter", {"lora_name": "x", "lora_path": files["third"]}).status == 200)
    check("the same contents, the same text", say(server, model="x") == third)
    check("scales", server.post("/lora-adapters", [{"id": 1, "scale": 1.0}]).json == {"success": True} and say(server) == prose)
    check("scales are told", [a["scale"] for a in server.get("/lora-adapters").json] == [0, 1, 0, 0])
    refused("a body that is no list", server.post("/lora-adapters", {"id": 1}), 400, None, "the body must be an array")
    check("no scales", server.post("/lora-adapters", []).json == {"success": True} and say(server) == nothing)
    refused("the command line's stays", server.post("/v1/unload_lora_adapter", {"lora_name": "prose"}), 403, "lora_name", "came with the model (--lora)")
    refused("nor is it replaced", server.post("/v1/load_lora_adapter", {"lora_name": "prose", "lora_path": "third.gguf"}), 400, "lora_name", "came with the model")
    reply = server.post("/v1/unload_lora_adapter", {"lora_name": "x"})
    check("unload", reply.status == 200 and b"'x' removed" in reply.body, reply.body)
    check("it is gone", ask(server, model="x").status == 404 and say(server, model="prose") == prose)
    refused("twice", server.post("/v1/unload_lora_adapter", {"lora_name": "x"}), 404, "lora_name")
    server.post("/v1/load_lora_adapter", {"lora_name": "y", "lora_path": "third.gguf"})
    check("numbers are not given again", [a["id"] for a in server.get("/lora-adapters").json] == [0, 1, 2, 4])
    with concurrent.futures.ThreadPoolExecutor(2) as pool:  # while it runs
        running = pool.submit(lambda: say(server, model="mine", max_tokens=300, ignore_eos=True))
        texts = [say(server, model="mine", max_tokens=300, ignore_eos=True), running.result()]
        running = pool.submit(lambda: say(server, model="mine", max_tokens=300, ignore_eos=True))
        server.post("/v1/unload_lora_adapter", {"lora_name": "mine"})
        late = running.result()
    check("who has it keeps it", texts[0] == texts[1] and (late == texts[0] or "model_not_found" in str(late)), late)
    check("changes are counted", b"weir_adapter_changes_total" in server.get("/metrics").body)
    check("it ends with 0", server.stop() == 0)

    with Server(WEIR, "--lora", files["sql"], "--api-key", "alice", "--operator-key", "boss", model=base) as server:
        shown = [server.get("/lora-adapters", key=key).json[0]["path"] for key in ("alice", "boss")]
        check("nobody sees where a file lies", shown == ["sql.gguf"] * 2, shown)

    # ---- What the server does not begin with

    def begin(*more, model=base):
        return subprocess.run([WEIR, "serve", "-m", model, "--port", "0", *more], capture_output=True, text=True, env=environment(), timeout=PATIENCE)

    many = [word for i in range(9) for word in ("--lora", os.path.join(folder, f"{i}.gguf"))]
    for path in many[1::2]:
        os.symlink(files["sql"], path)
    for name, words, hint in (("a scale", ["--lora", files["sql"] + "=101"], "-100 to 100"), ("no scale", ["--lora", files["sql"] + "=nan"], "-100 to 100"),
                              ("more than fit together", many, "up to 8"), ("no folder", ["--lora-dir", outside], "no folder")):
        done = begin(*words)
        check(f"serve: {name}", done.returncode == 2 and hint in done.stderr, done.returncode, done.stderr)
    done = begin("--lora", files["sql"], "--alias", "sql")
    check("serve: the model's name", done.returncode != 0 and "own name" in done.stderr, done.returncode, done.stderr)
    os.symlink(base, os.path.join(folder, "sql"))
    done = begin("--lora", files["sql"], model=os.path.join(folder, "sql"))
    check("serve: the model file's name", done.returncode != 0 and "own name" in done.stderr, done.returncode, done.stderr)
    server = Server(WEIR, "--alias", "*", "--lora-dir", kept, *many[:-2], "--lora", many[-1] + "=0", model=base)
    check("eight, and one by name", ask(server).status == 200 and say(server, model="8") == whole)
    check("any name: load", server.post("/v1/load_lora_adapter", {"lora_name": "mine", "lora_path": "third.gguf"}).status == 200)
    check("any name: the adapter's", say(server, model="mine") == third and say(server, model="whatever", lora=[]) == nothing)
    server.stop()

    # ---- Files whose names are no UTF-8

    odd, adapter = (os.path.join(folder, os.fsdecode(name)) for name in (b"caf\xe9.gguf", b"\xfflora.gguf"))
    os.symlink(base, odd)
    os.symlink(files["prose"], adapter)
    server = Server(WEIR, "--lora", adapter + "=0", "--log-text", model=odd)
    check("odd names: every line of the log is JSON, and tells where", server.address == server.url and not [e for e in server.lines if e["event"] == "text"], server.lines)
    names = [m["id"] for m in server.get("/v1/models").json["data"]]
    check("odd names: listed as UTF-8", names == ["caf\ufffd.gguf", "\ufffdlora"], names)
    check("odd names: and asked for so", [say(server, model=name) for name in names] == [nothing, prose] and ask(server, model=names[0]).json["model"] == names[0])
    listed = server.get("/lora-adapters").json
    check("odd names: adapters", [(a["name"], os.path.basename(a["path"])) for a in listed] == [(names[1], "\ufffdlora.gguf")], listed)
    connection = server.connect()
    connection.request("GET", "/events")
    connection.head()
    check("odd names: events", json.loads(next(connection.events()))["model"] == names[0])
    connection.close()
    check("odd names: a body that is none is in the log as UTF-8", server.post(TEXT, b'{"prompt": "\xff"}').status == 400 and
          server.log(lambda e: "\ufffd" in e.get("body", "")) is not None, server.lines)
    check("odd names: it ends with 0", server.stop() == 0 and not [e for e in server.lines if e["event"] == "text"], server.lines)

    # ---- The command line alone

    words = [WEIR, "run", "-m", base, "--raw", "-n", "16", "--temp", "0", "-q", "-p", "Once upon a time"]

    def run(*more):
        return subprocess.run(words + list(more), capture_output=True, text=True, env=environment())

    check("run: without", run().stdout.rstrip("\n") == nothing.rstrip("\n"), run().stdout)
    check("run: one", run("--lora", files["sql"] + "=0.5").stdout.rstrip("\n") == half.rstrip("\n"))
    check("run: two", run("--lora", files["sql"], "--lora", files["prose"] + "=-0.5").stdout.rstrip("\n") == both.rstrip("\n"))
    done = run("--lora", os.path.join(kept, "wrong.gguf"))
    check("run: a wrong one", done.returncode == 3 and "cannot load the adapter" in done.stderr and done.stderr.count("wrong.gguf") == 1 and "shape" in done.stderr, done.returncode, done.stderr)
    done = run("--lora", files["sql"] + "=101")
    check("run: a wrong scale", done.returncode == 2 and "-100 to 100" in done.stderr, done.stderr)
finish()
