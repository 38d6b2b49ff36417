"""weir serve with three models of which two fit into --memory: tiny random ones of scripts/tiny_gguf.py."""
# SPDX-License-Identifier: Apache-2.0
import os
import random
import subprocess
import sys
import tempfile
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from checks import check, effort, run_tests  # noqa: E402
from program import WEIR, weir  # noqa: E402
from serve import Server, need_server  # noqa: E402

SOURCE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
NAMES = ("a", "b", "c")
WORDS = ("-c", "256", "-np", "2", "-t", "1", "--cache-memory", "1M")
N_THREADS, N_REQUESTS = 4, effort(60, 20)
scratch = tempfile.TemporaryDirectory()
FOLDER = os.path.join(scratch.name, "models")
os.mkdir(FOLDER)
for seed, name in enumerate(NAMES):
    subprocess.run(["sh", f"{SOURCE}/tests/support/tiny.sh", f"{FOLDER}/{name}.gguf", "tiny_gguf.py", "llama", "--seed", str(seed + 1)], check=True)


def start(*words):
    return Server(WEIR, "--models-dir", FOLDER, *WORDS, *words, model=None)


def ask(server, model, prompt, n=8):
    reply = server.post("/v1/completions", {"model": model, "prompt": prompt, "max_tokens": n, "temperature": 0, "ignore_eos": True})
    return reply.json["choices"][0]["text"] if reply.status == 200 else reply


def models(server):
    return {m["id"]: m for m in server.get("/v1/models").json["data"]}


def prompts(seed):
    """(model, prompt) of a client's requests."""
    dice = random.Random(seed)
    for _ in range(N_REQUESTS // N_THREADS):
        yield dice.choice(NAMES), f"{dice.choice(('the ', 'a ')) * dice.randint(1, 30)}{dice.randint(0, 5)}"


def sizes():
    """What each takes, loaded."""
    with start() as server:
        for name in NAMES:
            ask(server, name, "x")
        return {name: models(server)[name]["bytes"] for name in NAMES}


SIZES = None


def test_sizes_in_the_list_of_ollama():
    split = os.path.join(scratch.name, "split")
    os.mkdir(split)
    for i, n in ((1, 1000), (2, 234)):
        with open(f"{split}/big-0000{i}-of-00002.gguf", "wb") as file:
            file.write(b"x" * n)
    for folder, sizes in ((FOLDER, {f"{n}:latest": os.path.getsize(f"{FOLDER}/{n}.gguf") for n in NAMES}), (split, {"big:latest": 1234})):
        with Server(WEIR, "--models-dir", folder, *WORDS, model=None) as server:
            told = {m["name"]: (m["size"], m["digest"]) for m in server.get("/api/tags").json["models"]}
            check("/api/tags: sizes of models that are not loaded", {n: told[n][0] for n in sizes} == sizes, told)
            if folder == FOLDER:
                ask(server, "a", "x")
                again = {m["name"]: (m["size"], m["digest"]) for m in server.get("/api/tags").json["models"]}
                check("/api/tags: the same of one that is loaded", again == told, again)


def test_two_fit():
    global SIZES
    need_server(WEIR)
    SIZES = sizes()
    check("sizes are known", min(SIZES.values()) > 100000, SIZES)
    asked = {pair for seed in range(N_THREADS) for pair in prompts(seed)}
    alone = {}
    for name in NAMES:
        with Server(WEIR, *WORDS, model=f"{FOLDER}/{name}.gguf") as server:
            alone.update({(m, p): ask(server, "", p) for m, p in asked if m == name})
    budget = int(2.5 * max(SIZES.values()))
    with start("--memory", str(budget)) as server:
        wrong = []

        def client(seed):
            for name, prompt in prompts(seed):
                got = ask(server, name, prompt)
                if got != alone[name, prompt]:
                    wrong.append((name, prompt, getattr(got, "body", got), alone[name, prompt]))
        threads = [threading.Thread(target=client, args=(seed,)) for seed in range(N_THREADS)]
        for thread in threads:
            thread.start()
        most = 0
        while any(thread.is_alive() for thread in threads):
            most = max(most, server.metrics()["weir_pool_bytes"])  # all of one moment, unlike /v1/models
        for thread in threads:
            thread.join()
        check("no request fails, and every answer is the one of the model alone", not wrong, wrong[:3])
        check("the models stay within the budget", 0 < most <= budget, most, budget)
        states = [m["state"] for m in models(server).values()]
        check("one sleeps at the end", states.count("sleeping") == 1 and states.count("loaded") == 2, states)
        shown = weir("ps", "--url", server.url).stdout
        check("weir ps shows it", shown.count(" loaded ") == 2 and shown.count(" sleeping ") == 1, shown)
        check("a file's name is a name, too", ask(server, "a.gguf", "x") == ask(server, "a", "x"))
        check("it ends in order", server.stop() == 0, server.lines[-3:])


def test_too_small():
    with start("--memory", str(SIZES["a"] // 2)) as server:
        reply = ask(server, "a", "x")
        check("a budget that is smaller than the model: both sizes, and what to do", reply.status == 503 and "MiB" in reply.error["message"] and "more memory" in reply.error["message"], reply.body)
        check("nothing else stops", server.get("/health").status == 200 and server.get("/v1/models").status == 200)


def test_gone():
    """A file that goes while the server runs: that model fails, the others do not."""
    with start("--memory", str(int(1.5 * max(SIZES.values())))) as server:
        first = ask(server, "a", "x")
        ask(server, "b", "x")  # a sleeps now
        os.rename(f"{FOLDER}/a.gguf", f"{FOLDER}/a.gone")
        reply = ask(server, "a", "x")
        check("a missing file is an error of its requests", getattr(reply, "status", 200) in (500, 503) and "a.gguf" in reply.error["message"], getattr(reply, "body", reply))
        check("the model's state says why", models(server)["a"]["state"] == "failed" and models(server)["a"]["error"], models(server)["a"])
        check("others answer", isinstance(ask(server, "b", "x"), str))
        os.rename(f"{FOLDER}/a.gone", f"{FOLDER}/a.gguf")
        check("once the file is back, so is the model", ask(server, "a", "x") == first)


run_tests(globals())
