"""POST /api/pull of weir serve, against a hub on this machine (support/hub_server.py): progress lines, whole answers, errors, limits; a download
ends with its client and with the server."""
# SPDX-License-Identifier: Apache-2.0
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from checks import PATIENCE, check, environment, finish  # noqa: E402
from hub_server import Hub  # noqa: E402
from serve import STRICT, Server, need_server  # noqa: E402

WEIR = os.path.abspath(os.environ["WEIR_BIN"])
need_server(WEIR)
scratch = tempfile.TemporaryDirectory()
hub = Hub()
CACHE = os.path.join(scratch.name, "cache")
ENV = environment(HF_HUB_CACHE=CACHE, HF_ENDPOINT=hub.url, HOME=scratch.name)
for name in ("HF_TOKEN", "HF_HUB_OFFLINE", "http_proxy", "https_proxy"):
    ENV.pop(name, None)
CONTENT = os.urandom(3 << 20)
DIGEST = "sha256:" + hashlib.sha256(CONTENT).hexdigest()
hub.repo("o/model", {"m-Q8_0.gguf": CONTENT})
hub.repo("o/parts", {f"p-0000{i}-of-00002.gguf": CONTENT[i:] for i in (1, 2)})
hub.repo("o/slow", {"s-Q8_0.gguf": CONTENT}, delay=0.5)
hub.repo("o/gated", {"g.gguf": CONTENT}, gated=True)
hub.repo("o/damaged", {"d.gguf": CONTENT}, sums={"d.gguf": "0" * 64})

if "without libcurl" in subprocess.run([WEIR, "pull", "hf:o/none"], capture_output=True, text=True, env=ENV).stderr:
    print("skipped: this weir was built without libcurl")
    sys.exit(77)


def cached(name):
    done = subprocess.run([WEIR, "pull", "--offline", name], capture_output=True, text=True, env=ENV)
    return done.returncode == 0 and open(done.stdout.strip(), "rb").read() == CONTENT


def lines(server, body):
    reply = server.post("/api/pull", body)
    check("lines of JSON", reply.status == 200 and reply.headers["content-type"] == "application/x-ndjson", reply.status, reply.headers, reply.body)
    return [json.loads(line) for line in reply.body.splitlines()]


def refused(name, reply, status, param, word):
    told = reply.json
    check(f"{name}: {status}", reply.status == status and told["param"] == param and word in told["error"], reply.status, reply.body)


# ---- Not allowed: the hub has seen the one request above

with Server(WEIR, "--alias", "tiny", env=ENV) as server:
    refused("without --pull", server.post("/api/pull", {"model": "hf:o/model"}), 501, None, "--pull")
    for name in ("tiny", "tiny:latest", "default"):
        check(f"{name} is there", lines(server, {"model": name}) == [{"status": "success"}])
    check("and nobody was asked", len(hub.seen) == 1 and not os.path.exists(CACHE), hub.seen)

# ---- Downloads

server = Server(WEIR, "--pull", "--drain", "0", env=ENV)
told = lines(server, {"model": "hf:o/model"})
status = [t["status"] for t in told]
progress = [t for t in told if "total" in t]
check("the first and the last lines", status[0] == "pulling manifest" and status[-3:] == ["verifying sha256 digest", "writing manifest", "success"], told)
check("progress between them", status[1:-3] == ["pulling " + DIGEST[7:19]] * len(progress) and all(t["digest"] == DIGEST and t["total"] == len(CONTENT) for t in progress), told)
done = [t["completed"] for t in progress]
check("which grows to the end", done == sorted(done) and done[-1:] == [len(CONTENT)], done)
check("the model is in the cache", cached("hf:o/model"))
n = len(hub.seen)
check("once more: it is there", [t["status"] for t in lines(server, {"name": "hf:o/model:Q8_0"})][-1] == "success" and not any("resolve" in path for _, path, _ in hub.seen[n:]), hub.seen[n:])
reply = server.post("/api/pull", {"model": "hf:o/parts", "stream": False})
check("as a whole", reply.status == 200 and reply.json == {"status": "success"}, reply.body)

# ---- Errors

refused("no name", server.post("/api/pull", {}), 400, "model", "missing")
refused("a name of another type", server.post("/api/pull", {"model": 5}), 400, "model", "string")
refused("insecure", server.post("/api/pull", {"model": "hf:o/model", "insecure": True}), 400, "insecure", "false")
refused("an unknown field", server.post("/api/pull", {"model": "hf:o/model", "x": 1}, headers=STRICT), 400, "x", "")
for name, status, word in (("hf:o/none", 404, "o/none"), ("hf:o/gated", 403, "gated"), ("hf:o/damaged", 502, "checksum"), ("hf:../x", 400, ""), ("llama3.2", 400, "hf:")):
    refused(name, server.post("/api/pull", {"model": name, "stream": False}), status, "model", word)
    told = lines(server, {"model": name})
    check(f"{name}, streamed: an error is the last line", told[0] == {"status": "pulling manifest"} and set(told[-1]) == {"error", "param", "code"} and word in told[-1]["error"], told)
check("a key", Server(WEIR, "--pull", "--api-key", "k", env=ENV).post("/api/pull", {"model": "hf:o/model"}).status == 401)

# ---- Clients that leave, and many


def threads():
    names = []
    for task in os.listdir(f"/proc/{server.process.pid}/task"):
        try:
            with open(f"/proc/{server.process.pid}/task/{task}/comm") as file:
                names.append(file.read().strip())
        except OSError:
            pass
    return names.count("weir-pull")


def begin():
    connection = server.connect()
    connection.request("POST", "/api/pull", {"model": "hf:o/slow"})
    connection.head()
    return connection


waiting = [begin() for _ in range(4)]
server.wait_for(lambda _: threads() == 4)
check("four at a time", threads() == 4)
refused("a fifth", server.post("/api/pull", {"model": "hf:o/slow"}), 503, None, "4 models")
check("others are answered", server.post("/v1/completions", {"prompt": "x", "max_tokens": 2}).status == 200)
for connection in waiting:
    connection.close()
server.wait_for(lambda _: threads() == 0)
check("their downloads end with the clients", threads() == 0 and not cached("hf:o/slow"))
last = begin()
answer = {}
reader = threading.Thread(target=lambda: answer.update(lines=[json.loads(line) for line in b"".join(last.chunks()).splitlines()]))
reader.start()
server.stop()
reader.join(PATIENCE)
check("the server ends, and says so", server.process.returncode == 0 and "down" in answer["lines"][-1]["error"], server.process.returncode, answer)

# ---- A server of several models has it from then on

LIST = os.path.join(scratch.name, "models.conf")
TINY = os.path.join(scratch.name, "tiny.gguf")
with open(LIST, "w") as file:
    file.write("ctx = 256\n[one]\nmodel = fake:seed=1\n")
subprocess.run([sys.executable, os.path.join(os.environ["WEIR_SOURCE_DIR"], "scripts", "tiny_gguf.py"), "llama", TINY], check=True)
with open(TINY, "rb") as file:
    hub.repo("o/tiny", {"t-F32.gguf": file.read()})
hub.repo("o/other", {"u-Q8_0.gguf": CONTENT})
ASKED = {"messages": [{"role": "user", "content": "x"}], "options": {"num_predict": 3}, "stream": False}


def names():
    return {m["id"] for m in server.get("/v1/models").json["data"]}


def reload(server):
    """Sends SIGHUP; the level of the line that says how the list was read."""
    n = len(server.lines)
    server.process.send_signal(signal.SIGHUP)
    line = server.log(lambda e: e.get("event") == "reload" and any(e is later for later in server.lines[n:]))
    return line and line["level"]


with Server(WEIR, "--models", LIST, "--pull", "--drain", "0", model=None, env=ENV) as server:
    check("before", names() == {"one"} and server.post("/api/chat", {"model": "hf:o/tiny", **ASKED}).status == 404, names())
    check("pulled", lines(server, {"model": "hf:o/tiny"})[-1] == {"status": "success"})
    tags = {m["name"] for m in server.get("/api/tags").json["models"]}
    check("it is listed", names() == {"one", "hf:o/tiny"} and "hf:o/tiny" in tags, names(), tags)
    reply = server.post("/api/chat", {"model": "hf:o/tiny", **ASKED})
    check("and answers, where there is llama.cpp", reply.status == 200 and reply.json["model"] == "hf:o/tiny" or b"llama.cpp" in reply.body, reply.status, reply.body)
    check("the others still do", server.post("/api/chat", {"model": "one", **ASKED}).status == 200)
    together = [threading.Thread(target=lambda name=name: lines(server, {"model": name})) for name in ("hf:o/model", "hf:o/other")]
    for thread in together:
        thread.start()
    for thread in together:
        thread.join()
    check("two at once", names() == {"one", "hf:o/tiny", "hf:o/model", "hf:o/other"}, names())
    check("SIGHUP is heard", reload(server) == "info")
    check("SIGHUP keeps them", names() == {"one", "hf:o/tiny", "hf:o/model", "hf:o/other"}, names())
    removed = subprocess.run([WEIR, "rm", "--yes", "hf:o/other"], capture_output=True, text=True, env=ENV)
    check("one is removed", removed.returncode == 0, removed.stderr)
    check("the list without it", reload(server) == "info" and names() == {"one", "hf:o/tiny", "hf:o/model"}, names(), server.lines[-3:])
    with open(LIST, "a") as file:
        file.write("[mine]\nmodel = hf:o/tiny\nalias = hf:o/tiny\n")
    check("a name that the operator's file has is its", reload(server) == "info" and names() == {"one", "mine", "hf:o/model"}, names(), server.lines[-3:])
    check("pulled again", lines(server, {"model": "hf:o/other"})[-1] == {"status": "success"} and "hf:o/other" in names(), names())
    with open(LIST, "a") as file:
        file.write("nonsense = 1\n")
    hub.repo("o/late", {"l-Q8_0.gguf": CONTENT})
    told = lines(server, {"model": "hf:o/late"})[-1]
    check("a list with an error stays as it was, and that is told", "error" in told and "list of models" in told["error"] and "hf:o/late" not in names(), told)
    reply = server.post("/api/pull", {"model": "hf:o/late", "stream": False})
    check("it is not the client's error", reply.status == 502 and reply.json["code"] == "pull_failed", reply.status, reply.body)
    n = len(hub.seen)
    refused("a name that is too long for the list", server.post("/api/pull", {"model": "hf:o/" + "m" * 90 + ":" + "q" * 200 + ".gguf", "stream": False}), 400, "model", "255")
    check("is refused before a download", len(hub.seen) == n, hub.seen[n:])
    check("it ends in order", server.stop() == 0)
finish()
