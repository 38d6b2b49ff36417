"""/v1/rerank, and servers whose model generates no text: on tiny models that embed and rank."""
# SPDX-License-Identifier: Apache-2.0
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from checks import check, finish  # noqa: E402
from serve import STRICT, Server, need_server  # noqa: E402

WEIR = os.environ["WEIR_BIN"]
need_server(WEIR)
here = os.path.dirname(os.path.abspath(__file__))
RERANK = "/v1/rerank"
QUERY = "which river"
DOCUMENTS = ["the water of the river", "a house", "once upon a time there was a small dog", "the", "a house"]


def refused(name, reply, status, field, code=None, word=""):
    check("refused: " + name, reply.status == status and reply.error["param"] == field and (code is None or reply.error["code"] == code) and
          word in reply.error["message"], reply.status, reply.body)


def tiny(kind, path, *words):
    subprocess.run(["sh", os.path.join(here, "support", "tiny.sh"), path, "tiny_gguf.py", kind, *words], check=True)
    return path


# A model that generates, and one that ranks nothing.
with Server(WEIR) as server:
    refused("a model that ranks nothing", server.post(RERANK, {"query": "a", "documents": ["b"]}), 400, "model", "unsupported_value", "reranking model")

with tempfile.TemporaryDirectory() as folder:
    with Server(WEIR, "--alias", "ranker", "--alias", "other", "--operator-key", "k", model=tiny("rank", os.path.join(folder, "rank.gguf"))) as server:
        def post(body, path=RERANK):
            return server.post(path, body, key="k")

        def tokens(text):
            return post({"content": text, "add_special": False, "parse_special": False}, "/tokenize").json["tokens"]

        # The oracle: the pair put together by hand, [CLS] query [SEP] document, and its score as an embedding of width 1.
        bos, sep = 2, 3
        pairs = [[bos, *tokens(QUERY), sep, *tokens(d)] for d in DOCUMENTS]
        scores = [d["embedding"][0] for d in post({"input": pairs}, "/v1/embeddings").json["data"]]
        check("the oracle tells documents apart", min(abs(a - b) for i, a in enumerate(scores[:4]) for b in scores[:i]) > 0.01 and abs(scores[1] - scores[4]) < 1e-5, scores)
        order = sorted(range(len(DOCUMENTS)), key=lambda i: (-scores[i], i))
        reply = post({"query": QUERY, "documents": DOCUMENTS})
        results = reply.json["results"]
        check("the best first, equals in their order", [r["index"] for r in results] == order, reply.body, scores)
        check("each with its score", [r["relevance_score"] for r in results] == [scores[i] for i in order], results, scores)
        n = sum(map(len, pairs))
        check("model and usage", reply.json["model"] == "ranker" and reply.json["usage"] == {"prompt_tokens": n, "total_tokens": n} and reply.json["object"] == "list", reply.body)
        check("no documents, unless they are asked for", all(set(r) == {"index", "relevance_score"} for r in results))
        for path in ("/rerank", "/reranking", "/v1/reranking"):
            check(path, post({"query": QUERY, "documents": DOCUMENTS}, path).body == reply.body)
        named = post({"query": QUERY, "model": "other", "documents": [{"text": d} for d in DOCUMENTS], "top_n": 2, "return_documents": True}).json["results"]
        check("the best two, with their texts", named == [{**r, "document": {"text": DOCUMENTS[r["index"]]}} for r in results[:2]], named)
        check("more than there are", post({"query": QUERY, "documents": DOCUMENTS, "top_n": 99999999999}).json["results"] == results)
        many = post({"query": QUERY, "documents": DOCUMENTS * 60}).json["results"]
        check("several turns of the context", len(many) == 300 and all(abs(r["relevance_score"] - scores[r["index"] % 5]) < 1e-3 for r in many), len(many), [(r, scores[r["index"] % 5]) for r in many if abs(r["relevance_score"] - scores[r["index"] % 5]) > 1e-3])
        long = "river " * 600
        for name, body, field, word in (
                ("no query", {"documents": ["a"]}, "query", "not empty"), ("an empty query", {"query": "", "documents": ["a"]}, "query", ""),
                ("no documents", {"query": "a"}, "documents", "1 to 2048"), ("an empty list", {"query": "a", "documents": []}, "documents", ""),
                ("too many", {"query": "a", "documents": ["b"] * 2049}, "documents", "2048"), ("a number", {"query": "a", "documents": ["b", 3]}, "documents[1]", "text"),
                ("an object without a text", {"query": "a", "documents": [{"title": "b"}]}, "documents[0]", ""), ("top_n 0", {"query": "a", "documents": ["b"], "top_n": 0}, "top_n", "above 0"),
                ("top_n as a text", {"query": "a", "documents": ["b"], "top_n": "1"}, "top_n", ""), ("return_documents", {"query": "a", "documents": ["b"], "return_documents": 1}, "return_documents", ""),
                ("a long query", {"query": long, "documents": ["b"]}, "query", "3000 tokens"), ("a long document", {"query": "a", "documents": ["b", long]}, "documents[1]", "up to 512"),
                ("an unknown field", {"query": "a", "documents": ["b"], "max_chunks_per_doc": 3}, "max_chunks_per_doc", "")):
            refused(name, server.post(RERANK, body, key="k", headers=STRICT), 400, field, word=word)
        refused("another model", post({"query": "a", "documents": ["b"], "model": "third"}), 404, "model", "model_not_found")
        check("a key is needed", server.post(RERANK, {"query": "a", "documents": ["b"]}).status == 401)
        check("GET", server.get(RERANK, key="k").status == 405)
        check("what it can do", server.get("/v1/models/ranker", key="k").json["abilities"] == ["rerank"], server.get("/v1/models", key="k").body)

        # What generates text is no part of this server.
        for path, body in (("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]}), ("/v1/completions", {"prompt": "x"}), ("/v1/plan", {"prompt": "x"}), ("/infill", {})):
            reply = server.post(path, body, key="k")
            check(path + " of a model that generates nothing", reply.status == 400 and reply.error["code"] == "unsupported_value" and "/v1/rerank" in reply.error["message"], reply.body)
        check("/v1/messages has its own form of that", server.post("/v1/messages", {}, key="k").json["type"] == "error")
        for path in ("/slots", "/events", "/props"):
            check(path + " without an engine", server.get(path, key="k").status == 400)
        model = server.get("/v1/models", key="k").json["data"][0]
        check("the model is told", model["id"] == "ranker" and model["meta"]["n_ctx"] == 512, model)
        check("health and metrics", server.get("/health").status == 200 and "weir_http_requests_total" in server.get("/metrics", key="k").body.decode())
        check("it ends as any other", server.stop() == 0)

    with Server(WEIR, model=tiny("bert", os.path.join(folder, "bert.gguf"))) as server:
        vector = server.post("/v1/embeddings", {"input": "the river"}).json["data"][0]["embedding"]
        check("a model for embeddings needs no --embeddings", len(vector) == 64 and abs(sum(v * v for v in vector) - 1) < 1e-4, vector)
        check("what that can do", server.get("/v1/models").json["data"][0]["abilities"] == ["embeddings"])
        refused("an embedding model ranks nothing", server.post(RERANK, {"query": "a", "documents": ["b"]}), 400, "model", "unsupported_value")

    # Several models: a request that names none gets the first one of the list, or the only one that can serve it.
    conf = os.path.join(folder, "models.conf")

    def several(**models):
        with open(conf, "w", encoding="utf-8") as file:
            file.write("".join(f"[{name}]\nmodel = {model}\n" for name, model in models.items()))
        server = Server(WEIR, "--models", conf, "-c", "256", model=None)
        server.wait_for(lambda _: all(m["kind"] != "unknown" for m in server.get("/v1/models").json["data"]))
        return server

    rank, bert, fake = (os.path.join(folder, "rank.gguf"), os.path.join(folder, "bert.gguf"), "fake:")
    ask = {"query": QUERY, "documents": DOCUMENTS}
    with several(writer=fake, embedder=bert, ranker=rank) as server:
        check("what each is for", {m["id"]: m["kind"] for m in server.get("/v1/models").json["data"]} == {"writer": "text", "embedder": "embedding", "ranker": "ranking"}, server.get("/v1/models").body)
        for path in (RERANK, "/rerank", "/v1/reranking"):
            for more in ({}, {"model": None}, {"model": ""}, {"model": "default"}):
                reply = server.post(path, {**ask, **more})
                check(f"{path}, {more}: the one that ranks", reply.status == 200 and [r["index"] for r in reply.json["results"]] == order, reply.body)
        reply = server.post("/v1/embeddings", {"input": "the river"})
        check("the one that embeds", reply.status == 200 and reply.json["model"] == "embedder" and reply.json["data"][0]["embedding"] == vector, reply.body[:200])
        check("for Ollama's clients too", server.post("/api/embed", {"input": "the river"}).json["model"] == "embedder")
        check("the first one writes", server.post("/v1/completions", {"prompt": "x", "max_tokens": 1}).json["model"] == "writer")
        refused("a model that is named and cannot", server.post(RERANK, {**ask, "model": "writer"}), 400, "model", "unsupported_value")
    with several(ranker=rank, writer=fake, other=rank) as server:
        check("the first one ranks", server.post(RERANK, ask).json["model"] == "ranker")
        reply = server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1})
        check("the only one that writes", reply.status == 200 and reply.json["model"] == "writer", reply.body)
    with several(writer=fake, one=rank, two=rank) as server:
        reply = server.post(RERANK, ask)
        refused("two that rank", reply, 400, "model", "invalid_value", '"one", "two"')
        check("and no other name", "writer" not in reply.error["message"], reply.body)
        check("nothing is loaded for that", {m["state"] for m in server.get("/v1/models").json["data"]} == {"unloaded"}, server.get("/v1/models").body)
        reply = server.post("/v1/embeddings", {"input": "x"})
        check("where none is made for embeddings, the first one has them", reply.status == 200 and reply.json["model"] == "writer", reply.body[:200])

finish()
