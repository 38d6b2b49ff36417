"""Heads that guess, from the command line and over HTTP: the lines of `weir info` about them, the same texts with them and without, heads
that are refused."""
# SPDX-License-Identifier: Apache-2.0
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from checks import PATIENCE, check, finish  # noqa: E402
from serve import Server, environment, need_server  # noqa: E402

WEIR = os.path.abspath(os.environ["WEIR_BIN"])
SOURCE = os.environ["WEIR_SOURCE_DIR"]
folder = tempfile.TemporaryDirectory()


def model(kind, *words):
    path = os.path.join(folder.name, f"{kind}{len(os.listdir(folder.name))}.gguf")
    subprocess.run([sys.executable, os.path.join(SOURCE, "scripts", "tiny_gguf.py"), kind, path, *words], check=True)
    return path


def weir(*words):
    return subprocess.run([WEIR, *words], capture_output=True, text=True, env=environment(), timeout=PATIENCE)


def run(*words):
    return weir("run", "-p", "Once upon a time", "-n", "40", "--temp", "0", "--json", "--no-prompt-lookup", *words)


def check_kind(name, of, more):
    info = weir("info", *of, *more)
    check(f"{name}: info", info.returncode == 0 and f"by lookup+{name}" in info.stdout, info.stdout, info.stderr)
    info = weir("info", "--json", *of, *more)
    check(f"{name}: info as JSON", info.returncode == 0 and json.loads(info.stdout)["engine"]["drafters"] == f"lookup+{name}", info.stdout, info.stderr)
    memory, alone = (json.loads(weir("info", "--json", *of, *words).stdout)["memory"] for words in (more, ("--draft-max", "0")))
    check(f"{name}: info counts its memory", memory["kv_bytes"] > alone["kv_bytes"] and memory["compute_bytes"] > alone["compute_bytes"], memory, alone)
    without, guessed = run(*of, "--draft-max", "0"), run(*of, *more)
    a, b = json.loads(without.stdout), json.loads(guessed.stdout)
    check(f"{name}: the same text", a["text"] == b["text"] and len(a["text"]) > 20, a, b)
    server = Server(WEIR, "-np", "2", "-c", "512", "--no-prompt-lookup", *more, model=of[1])
    try:
        ask = {"prompt": "Once upon a time", "max_tokens": 40, "temperature": 0}
        plain, reply = server.post("/v1/completions", dict(ask, **{"speculative.n_max": 0})), server.post("/v1/completions", ask)
        details = reply.json["usage"].get("completion_tokens_details", {})
        check(f"{name}: over HTTP", reply.status == 200 and reply.json["choices"][0]["text"] == plain.json["choices"][0]["text"], reply.body, plain.body)
        check(f"{name}: not where a request wants none", "completion_tokens_details" not in plain.json["usage"], plain.body)
        # How many there are, if any, is up to the clock.
        check(f"{name}: no guess is wrong", details.get("draft_tokens", 0) == details.get("accepted_draft_tokens", 0), reply.body)
        check(f"{name}: nor a prediction", details.get("accepted_prediction_tokens", 0) == details.get("rejected_prediction_tokens", 0) == 0, reply.body)
        check(f"{name}: it ends with 0", server.stop() == 0)
    finally:
        server.stop()


need_server(WEIR)
llama, glm, eagle = model("llama", "--layers", "12", "--chain", "0"), model("glm", "--layers", "12", "--chain", "0", "--guess", "token"), model("eagle", "--guess", "token")
check_kind("eagle3", ["-m", llama], ["--draft-model", eagle])
check_kind("mtp", ["-m", glm], [])
done = weir("info", "-m", glm, "--no-mtp")
check("mtp: not where it is not wanted", "by lookup\n" in done.stdout and "a layer of its own (MTP)" in done.stdout, done.stdout, done.stderr)
done = weir("info", "-m", eagle)
check("a head alone is told for what it is", done.returncode == 0 and "only drafts for another model" in done.stdout, done.stdout, done.stderr)
for name, words, says in [("a head of another model", ["-m", llama, "-md", model("eagle", "--taps", "0,1,40")], "layer 40"),
                          ("a head for another kind of model", ["-m", glm, "-md", eagle], "glm4moe"),
                          ("a head as the model", ["-m", eagle], "only drafts for another model")]:
    done = run(*words)
    check(name, 0 < done.returncode < 128 and says in done.stderr, done.returncode, done.stdout, done.stderr)
finish()
