"""Embeddings of a server that was not started for them: their context is created for the first request."""
# SPDX-License-Identifier: Apache-2.0
import os
import sys
import tempfile
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from checks import check, finish  # noqa: E402
from serve import Server, need_server  # noqa: E402

WEIR = os.environ["WEIR_BIN"]
need_server(WEIR)
EMBEDDINGS = "/v1/embeddings"
CREATED, BYTES = "weir_embedders_total", "weir_embedder_bytes"


def refused(name, reply, status, field, code, word=""):
    check("refused: " + name, reply.status == status and reply.error["param"] == field and reply.error["code"] == code and word in reply.error["message"], reply.status, reply.body)


def together(n, act):
    """The results of n threads that begin together."""
    results, gate = [None] * n, threading.Barrier(n)

    def run(i):
        gate.wait()
        results[i] = act(i)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


with Server(WEIR, "--embeddings") as server:
    before = server.metrics()
    check("--embeddings: it is there before the first request", before.get(CREATED) == 1 and before[BYTES] > 0, before.get(CREATED))
    wanted = server.post(EMBEDDINGS, {"input": "two"}).json["data"][0]["embedding"]
    check("and no other one is made", server.metrics()[CREATED] == 1)

with Server(WEIR) as server:
    before = server.metrics()
    check("none is made at the start", before[CREATED] == 0 and before[BYTES] == 0, before.get(CREATED))
    check("the model can do it", "embeddings" in server.get("/v1/models").json["data"][0]["abilities"])
    for path, body, get in ((EMBEDDINGS, {"input": "two"}, lambda j: j["data"][0]["embedding"]), ("/embeddings", {"input": "two"}, lambda j: j["data"][0]["embedding"]),
                            ("/api/embed", {"input": "two"}, lambda j: j["embeddings"][0]), ("/api/embeddings", {"prompt": "two"}, lambda j: j["embedding"])):
        reply = server.post(path, body)
        vector = get(reply.json) if reply.status == 200 else []
        same = sum(a * b for a, b in zip(vector, wanted, strict=True)) / (sum(a * a for a in vector) or 1) ** 0.5 if vector else 0
        check(f"{path} without the option", reply.status == 200 and abs(same - 1) < 1e-4, reply.status, reply.body[:300])
    check("by one context", server.metrics()[CREATED] == 1)
    refused("a model that ranks nothing", server.post("/v1/rerank", {"query": "a", "documents": ["b"]}), 400, "model", "unsupported_value", "ranks no documents")

# Two first requests, and a chat that runs meanwhile: ticks go on while the context is created, which takes two seconds.
with Server(WEIR, "-np", "2", model="fake:embedder_us=2000000,tick_us=1000") as server:
    chat = server.connect()
    chat.request("POST", "/v1/completions", {"prompt": "x", "max_tokens": 4000, "stream": True, "temperature": 0, "speculative.n_max": 0})
    chat.head()
    ticks = []
    replies = together(3, lambda i: server.post(EMBEDDINGS, {"input": f"text {i}"}) if i < 2 else ticks.extend(server.metrics()["weir_ticks_total"] for _ in range(20)))
    check("two first requests", all(r.status == 200 for r in replies[:2]), *[r.body[:200] for r in replies[:2]])
    check("make one context", server.metrics()[CREATED] == 1, server.metrics()[CREATED])
    check("and the chat goes on meanwhile", ticks[-1] > ticks[0], ticks)
    chat.close()

with Server(WEIR, model="fake:fail_embedders=2") as server:
    for i in range(2):
        refused(f"a context that cannot be made, {i + 1}", server.post(EMBEDDINGS, {"input": "x"}), 500, None, "WEIR_BACKEND", "the next request tries again: the fake model fails")
    check("then it can", server.post(EMBEDDINGS, {"input": "x"}).status == 200 and server.metrics()[CREATED] == 1)
with Server(WEIR, "--embeddings", model="fake:fail_embedders=1") as server:
    check("at the start the log says so", server.log(lambda e: e.get("event") == "embeddings") is not None)
    check("and the first request tries again", server.post(EMBEDDINGS, {"input": "x"}).status == 200)

# Several models: the context counts in the budget.
with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "models.ini")

    def listed(memory, *sections):
        with open(path, "w") as f:
            f.write("".join(f"[{name}]\nmodel = {model}\nctx = 256\nslots = 1\ncache-memory = 0\nlookup-memory = 0\n" for name, model in sections))
        return Server(WEIR, "--models", path, "--memory", memory, "--operator-key", "k", model=None)

    with listed("1G", ("one", "fake:n_bytes=50000000")) as server:
        server.post("/v1/completions", {"model": "one", "prompt": "x", "max_tokens": 1}, key="k")
        used = server.metrics(key="k")["weir_pool_bytes"]
        reply = server.post(EMBEDDINGS, {"model": "one", "input": "two"}, key="k")
        metrics = server.metrics(key="k")
        check("of several models", reply.status == 200 and metrics[BYTES] > 0, reply.body[:200])
        check("it counts in the budget", metrics["weir_pool_bytes"] == used + metrics[BYTES], metrics["weir_pool_bytes"], used, metrics[BYTES])
        bytes_needed, own = int(metrics[BYTES]), int(used)
        server.post("/v1/models/unload", {"model": "one"}, key="k")
        check("until the model is unloaded", server.wait_for(lambda m: m["weir_pool_bytes"] == 0, key="k")[BYTES] == 0)
    with listed(str(own + bytes_needed // 2), ("one", "fake:n_bytes=50000000")) as server:
        check("half as much memory is enough for shorter texts", server.post(EMBEDDINGS, {"model": "one", "input": "x" * 1500}, key="k").status == 200)
        refused("a longer one", server.post(EMBEDDINGS, {"model": "one", "input": "x" * 2500}, key="k"), 400, "input", "context_length_exceeded", "tokens; a text to embed may have 1 to 2048")
    with listed(str(own + bytes_needed // 20), ("one", "fake:n_bytes=50000000")) as server:
        reply = server.post(EMBEDDINGS, {"model": "one", "input": "two"}, key="k")
        refused("more than the budget", reply, 503, None, "embeddings_too_large", "no memory for embeddings")
        check("which no retry helps", "retry-after" not in reply.headers and reply.headers["x-should-retry"] == "false", reply.headers)
        check("text goes on", server.post("/v1/completions", {"model": "one", "prompt": "x", "max_tokens": 1}, key="k").status == 200)
    with listed(str(2 * own + bytes_needed // 2), ("one", "fake:n_bytes=50000000"), ("two", "fake:n_bytes=50000000,seed=2")) as server:
        for name in ("two", "one"):
            check(f"{name} is loaded", server.post("/v1/completions", {"model": name, "prompt": "x", "max_tokens": 1}, key="k").status == 200)
        reply = server.post(EMBEDDINGS, {"model": "one", "input": "two"}, key="k")
        refused("while an idle model has the memory", reply, 503, None, "embeddings_busy", "try again")
        check("and when to come again", int(reply.headers["retry-after"]) >= 1 and reply.headers["x-should-retry"] == "true", reply.headers)
        server.wait_for(lambda m: m["weir_pool_bytes"] < 2 * own, key="k")
        reply = server.post(EMBEDDINGS, {"model": "one", "input": "two"}, key="k")
        check("which sleeps for it", reply.status == 200, reply.body[:200])

finish()
