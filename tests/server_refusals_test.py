"""What clients read in a refusal: whether to repeat it, and that a prompt is too long, each in its API's own words."""
# SPDX-License-Identifier: Apache-2.0
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from checks import check, finish  # noqa: E402
from serve import Server, need_server  # noqa: E402

WEIR = os.environ["WEIR_BIN"]
need_server(WEIR)
LONG = "word " * 2000
ASKED = [{"role": "user", "content": LONG}]
OPENAI = "This model's maximum context length is {} tokens. However, "


def retries(name, reply, status, code, again, after):
    """after: whether there is a Retry-After; None: there may be."""
    error = reply.json.get("error")
    given = error["code"] if isinstance(error, dict) else reply.json.get("code")
    check(name, reply.status == status and given == code and reply.headers.get("x-should-retry") == again and
          (after is None or ("retry-after" in reply.headers) == after), reply.status, reply.headers, reply.body)
    if "retry-after" in reply.headers:
        check(f"{name}: within two minutes", 1 <= int(reply.headers["retry-after"]) <= 120, reply.headers)


# ---- A prompt that is too long

with Server(WEIR, "-c", "512") as server:
    sentences = {
        ("/v1/chat/completions", "messages"): ({"messages": ASKED}, OPENAI.format(512)),
        ("/v1/completions", "prompt"): ({"prompt": LONG}, OPENAI.format(512)),
        ("/v1/responses", "input"): ({"input": LONG}, OPENAI.format(512)),
        ("/completion", "prompt"): ({"prompt": LONG}, OPENAI.format(512)),
        ("/v1/messages", "messages"): ({"messages": ASKED, "max_tokens": 4}, "prompt is too long: "),
        ("/v1/embeddings", "input"): ({"input": LONG}, "the request exceeds the available context size: "),
        ("/api/chat", "messages"): ({"messages": ASKED}, "the request exceeds the available context size: "),
        ("/api/generate", "prompt"): ({"prompt": LONG}, "the request exceeds the available context size: "),
    }
    for (path, field), (body, begin) in sentences.items():
        reply = server.post(path, dict(body, model="default"))
        error = reply.json["error"]
        error = {"message": error, "param": reply.json.get("param"), "code": reply.json.get("code")} if isinstance(error, str) else error
        check(f"{path}: too long, in words that its clients know", reply.status == 400 and error["message"].startswith(begin) and error["code"] == "context_length_exceeded" and
              error["param"] == field, reply.status, reply.body)
        check(f"{path}: nothing is said of a retry", "x-should-retry" not in reply.headers and "retry-after" not in reply.headers, reply.headers)

# ---- Whether to repeat a request

with Server(WEIR, "-np", "1", "--queue", "1", model="fake:tick_us=20000") as server:
    runs = []
    for depth in range(2):
        runs.append(server.connect())
        runs[-1].request("POST", "/v1/completions", {"prompt": "x", "max_tokens": 4000, "stream": True, "temperature": 0, "speculative.n_max": 0})
        server.wait_for(lambda m, depth=depth: m["weir_slots_generating"] + m["weir_queue_depth"] > depth)
    reply = server.post("/v1/completions", {"prompt": "y", "max_tokens": 4})
    late = "retry-after" not in reply.headers
    retries("a full queue", reply, 429, "queue_full", "false" if late else "true", not late)
    check("and what is too late is told", late == ("so there is no Retry-After" in reply.error["message"]), reply.body)
    for run in runs:
        run.close()
    retries("what one model cannot do", server.post("/v1/models/load", {"model": "x"}), 501, "not_supported", "false", False)
    reply = server.post("/v1/completions", {"prompt": "y", "max_tokens": -7})
    check("a mistake: clients do not repeat it anyway", reply.status == 400 and "x-should-retry" not in reply.headers, reply.headers)
    check("nor a success", "x-should-retry" not in server.get("/v1/models").headers)
    allowed = server.ask("GET", "/v1/models", headers=("Origin: https://a.example",)).headers
    check("pages of other origins are not told by default", "access-control-expose-headers" not in allowed, allowed)
with Server(WEIR, "--cors", "*") as server:
    check("pages may read it", "X-Should-Retry" in server.ask("GET", "/v1/models", headers=("Origin: https://a.example",)).headers["access-control-expose-headers"])
with Server(WEIR, "--key-rate", "2", "--api-key", "k") as server:
    for _ in range(2):
        server.post("/v1/completions", {"prompt": "x", "max_tokens": 1}, key="k")
    retries("a key's rate", server.post("/v1/completions", {"prompt": "x", "max_tokens": 1}, key="k"), 429, "rate_limit_exceeded", "true", True)
with Server(WEIR, model="fake:fail_pass=1") as server:
    retries("a pass that failed", server.post("/v1/completions", {"prompt": "x", "max_tokens": 9, "temperature": 0}), 500, "WEIR_BACKEND", "true", False)
with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "models.ini")
    with open(path, "w") as f:
        f.write("[gone]\nmodel = fake:fail_load=1\n[big]\nmodel = fake:n_bytes=99000000000000\n")
    with Server(WEIR, "--models", path, "--memory", "1G", model=None) as server:
        retries("a model that cannot be loaded", server.post("/v1/completions", {"model": "gone", "prompt": "x"}), 503, "model_load_failed", "false", False)
        retries("a model that is too large", server.post("/v1/completions", {"model": "big", "prompt": "x"}), 503, "model_too_large", "false", False)

finish()
