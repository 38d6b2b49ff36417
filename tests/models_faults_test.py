"""Several models whose files change or are damaged: loaded models go on as they were, the next load sees the file that is there, and nothing else
stops answering. On tiny models (tiny_gguf.py), each compared with a server of that file alone."""
# SPDX-License-Identifier: Apache-2.0
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from checks import check, eventually, run_tests  # noqa: E402
from program import WEIR  # noqa: E402
from serve import Server, need_server  # noqa: E402

scratch = tempfile.TemporaryDirectory()
here = os.path.dirname(os.path.abspath(__file__))
LIST = os.path.join(scratch.name, "models.conf")
WORDS = ("-np", "2", "-c", "512", "--cache-memory", "1M")
PROMPT = "The ship left the harbour in the morning and the wind was with her. " * 4


def tiny(name, *words):
    path = os.path.join(scratch.name, name)
    subprocess.run(["sh", os.path.join(here, "support", "tiny.sh"), path, "tiny_gguf.py", "llama", *words], check=True)
    return path


def replace(path, source):
    """As a download does: under another name first."""
    shutil.copyfile(source, path + ".new")
    os.rename(path + ".new", path)


def serve(models, *words):
    with open(LIST, "w", encoding="utf-8") as file:
        file.write("".join(f"[{name}]\nmodel = {path}\n" for name, path in models.items()))
    return Server(WEIR, "--models", LIST, *WORDS, *words, model=None)


def ask(server, model=None):
    """Text and cached tokens; of a refusal, its status, code and message."""
    reply = server.post("/v1/completions", dict({"model": model} if model else {}, prompt=PROMPT, max_tokens=24, temperature=0))
    if reply.status != 200:
        return reply.status, reply.error["code"], reply.error["message"]
    return reply.json["choices"][0]["text"], reply.json["usage"]["prompt_tokens_details"]["cached_tokens"]


def alone(path):
    with Server(WEIR, *WORDS, model=path) as server:
        return ask(server)[0]


def state(server, name):
    return server.get(f"/v1/models/{name}").json["state"]


def unload(server, name):
    server.post("/v1/models/unload", {"model": name})
    server.wait_for(lambda _: state(server, name) == "unloaded")


A, B = tiny("a.gguf", "--seed", "1"), tiny("b.gguf", "--seed", "2")
need_server(WEIR)
OF = {A: alone(A), B: alone(B)}
check("the models differ", OF[A] != OF[B])


def test_damaged():
    path = os.path.join(scratch.name, "damaged.gguf")
    shutil.copyfile(A, path)
    with open(A, "rb") as file:
        whole = file.read()
    with serve({"bad": path, "good": B}) as server:
        server.wait_for(lambda _: server.get("/v1/models/bad").json["bytes"] > 0)  # the file has been looked at
        for name, data in (("cut in its weights", whole[:-4096]), ("cut in its header", whole[:100]), ("empty", b""), ("no GGUF", b"x" * 5000)):
            with open(path + ".new", "wb") as file:
                file.write(data)
            os.rename(path + ".new", path)
            status, code, message = ask(server, "bad")
            check(f"{name}: refused with the file's name", status == 503 and code == "model_load_failed" and "damaged.gguf" in message, status, code, message)
            check(f"{name}: the other model answers", ask(server, "good")[0] == OF[B])
            check(f"{name}: the state has the reason", state(server, "bad") == "failed" and "damaged.gguf" in server.get("/v1/models/bad").json["error"])
        replace(path, A)
        check("a mended file is loaded", ask(server, "bad")[0] == OF[A])
        check("it ends in order", server.stop() == 0)


def test_replaced():
    path = os.path.join(scratch.name, "one.gguf")
    shutil.copyfile(A, path)
    with serve({"one": path}) as server:
        check("the file at first", ask(server, "one") == (OF[A], 0))
        replace(path, B)
        text, n_cached = ask(server, "one")
        check("replaced while loaded: nothing changes", text == OF[A] and n_cached > 0, text, n_cached)
        server.process.send_signal(signal.SIGHUP)
        server.log(lambda e: e.get("event") == "reload")
        check("a reload of the list does not load it again", ask(server, "one")[0] == OF[A])
        unload(server, "one")
        check("the next load has the new file, and no prefix of the former one", ask(server, "one") == (OF[B], 0))
        unload(server, "one")
        check("its own prefixes are found after a load", ask(server, "one")[1] > 0)
        unload(server, "one")
        shutil.copyfile(A, path)
        check("replaced while it is not loaded", ask(server, "one") == (OF[A], 0))
        check("no load has failed", server.metrics()["weir_pool_failed_loads_total"] == 0)


def write_into(path, source):
    """As cp does: the file stays the same, its content does not."""
    with open(source, "rb") as new, open(path, "r+b") as file:
        shutil.copyfileobj(new, file)


def test_written_into():
    """The one model of a server."""
    path = os.path.join(scratch.name, "mapped.gguf")
    shutil.copyfile(A, path)
    with Server(WEIR, *WORDS, "-c", "65536", model=path) as server:
        check("the file at first", ask(server)[0] == OF[A])
        connection = server.connect()
        connection.request("POST", "/v1/completions", {"prompt": "x", "max_tokens": 10**6, "ignore_eos": True, "stream": True, "temperature": 0})
        connection.head()
        events = connection.events()
        next(events)
        write_into(path, B)
        said = [json.loads(e) for e in events if e.startswith("{")]
        sentence = said[-1].get("error", {}).get("message", "")
        check("a running stream ends with the reason", "mapped.gguf was changed while the model was in use" in sentence, said[-1])
        connection.close()
        check("a new request is refused with the same sentence", ask(server) == (503, "model_lost", sentence), ask(server))
        health = server.get("/health")
        if eventually(lambda: server.get("/health").status == 503):
            health = server.get("/health")
        check("/health is red", health.status == 503 and health.error["message"] == sentence, health.body)
        check("the log says so", server.log(lambda e: e.get("event") == "model_lost" and e["message"] == sentence))
        check("it ends in order", server.stop() == 0)
    shutil.copyfile(A, path)
    with Server(WEIR, *WORDS, "--no-mmap", model=path) as server:
        check("without a mapping", ask(server)[0] == OF[A])
        write_into(path, B)
        time.sleep(0.5)
        check("there is nothing to notice", ask(server)[0] == OF[A] and server.get("/health").status == 200)


def test_written_into_among_several():
    path = os.path.join(scratch.name, "several.gguf")
    shutil.copyfile(A, path)
    with serve({"one": path, "two": B}) as server:
        check("both at first", ask(server, "one")[0] == OF[A] and ask(server, "two")[0] == OF[B])
        write_into(path, B)
        time.sleep(0.5)
        answers = [ask(server, "one") for _ in range(2)]
        check("it is loaded again, from what is there now", answers[-1][0] == OF[B] and all(a[0] in (OF[B], 503) for a in answers), answers)
        check("/health stays green, and the other one answers", server.get("/health").status == 200 and ask(server, "two")[0] == OF[B])


def test_cut_while_mapped():
    """A shorter file is noticed before its missing pages are read, in a server that computes nothing at the time."""
    path = os.path.join(scratch.name, "cut.gguf")
    shutil.copyfile(A, path)
    with Server(WEIR, *WORDS, model=path) as server:
        check("the whole file", ask(server)[0] == OF[A])
        os.truncate(path, 4096)
        time.sleep(0.5)
        check("refused, and it does not crash", ask(server)[:2] == (503, "model_lost"), ask(server))
        check("it ends in order", server.stop() == 0)


def test_same_size_and_time():
    """Whoever copies files with their times, from a build that sets one time for all."""
    path = os.path.join(scratch.name, "same.gguf")
    check("both files have one size", os.path.getsize(A) == os.path.getsize(B))
    shutil.copyfile(A, path)
    with serve({"one": path}) as server:
        os.utime(path, (1_000_000_000, 1_000_000_000))
        ask(server, "one")
        unload(server, "one")
        replace(path, B)
        os.utime(path, (1_000_000_000, 1_000_000_000))
        check("other weights are another file", ask(server, "one") == (OF[B], 0))


def test_two_names():
    with serve({"one": A, "two": A}) as server:
        check("two names of one file answer alike", ask(server, "one") == (OF[A], 0) and ask(server, "two")[0] == OF[A])
        unload(server, "one")
        check("one goes, the other stays", state(server, "two") == "loaded" and ask(server, "two")[0] == OF[A] and state(server, "one") == "unloaded")


def test_smaller():
    """The size that the last load had is that of another file."""
    large, path = tiny("large.gguf", "--layers", "24"), os.path.join(scratch.name, "shrinks.gguf")
    shutil.copyfile(large, path)
    with serve({"one": path}) as server:
        ask(server, "one")
        n_large = server.get("/v1/models/one").json["bytes"]
        unload(server, "one")
        replace(path, A)
        ask(server, "one")
        n_small = server.get("/v1/models/one").json["bytes"]
        check("the models' sizes differ", n_small * 3 < n_large * 2, n_small, n_large)
    replace(path, large)
    with serve({"one": path, "two": A}, "--memory", str(n_large + n_small // 2)) as server:
        got = ask(server, "one")
        check("a large file is loaded alone", got[1] == 0, got)
        unload(server, "one")
        replace(path, A)
        check("a smaller one takes its place beside the other", ask(server, "two")[0] == OF[A] and ask(server, "one")[0] == OF[A] and
              state(server, "two") == "loaded", server.get("/v1/models").body)


run_tests(globals())
