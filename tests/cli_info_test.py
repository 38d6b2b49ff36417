"""Model files on the command line, from outside: bad files, weir info, weir optimize."""
# SPDX-License-Identifier: Apache-2.0
import json
import os
import random
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from checks import check, environment, run_tests  # noqa: E402
from program import FAKE, MODEL, PATIENCE, WEIR, expect, path_of, scratch, weir  # noqa: E402


def test_models():
    expect("a model that is missing", weir("run", "-m", "/nonexistent/model.gguf", "-p", "x"), 3, "/nonexistent/model.gguf")
    expect("a model that is empty", weir("run", "-m", path_of("empty.gguf", b""), "-p", "x"), 3, "empty.gguf")
    expect("a model that is noise", weir("run", "-m", path_of("noise.gguf", random.Random(1).randbytes(5000)), "-p", "x"), 3, "noise.gguf")
    expect("a model that is a folder", weir("info", "-m", scratch.name), 3, scratch.name)
    expect("a fake model with a wrong parameter", weir("info", "-m", "fake:n_vocab=-4"), 3, "n_vocab")
    nowhere = environment(HOME="/nonexistent", XDG_CACHE_HOME="/nonexistent")
    for command in (["run", "-p", "x"], ["info"], ["bench", "engine"]):
        expect(f"no model at all: {command[0]}", weir(*command, env=nowhere), 3, "-m FILE", "WEIR_MODEL", "make run")
    if not FAKE:
        with open(MODEL, "rb") as file:
            head = file.read(1 << 20)
        expect("a model that was cut", weir("run", "-m", path_of("cut.gguf", head), "-p", "x"), 3, "cut.gguf")
        cache = os.path.join(scratch.name, "cache", "weir", "models")
        os.makedirs(cache)
        os.symlink(os.path.abspath(MODEL), os.path.join(cache, "SmolLM2-135M-Instruct.Q4_1.gguf"))
        done = weir("run", "-p", "x", "-n", "2", env=environment(XDG_CACHE_HOME=os.path.join(scratch.name, "cache")))
        expect("the model from the cache", done, 0)


def test_devices():
    devices = json.loads(weir("info", "-m", MODEL, "--json").stdout)["devices"]
    for words in (("run",), ("serve",), ("bench", "engine")):
        done = weir(*words, "--list-devices")
        check(f"weir {' '.join(words)} --list-devices", done.returncode == 0 and [line.split(":")[0] for line in done.stdout.splitlines()] == [d["name"] for d in devices],
              done.stdout, done.stderr)
    names = [d["name"] for d in json.loads(weir("run", "--list-devices", "--json").stdout)["devices"]]
    check("and as JSON", names == [d["name"] for d in devices], names)
    expect("a share that is negative", weir("info", "-m", MODEL, "--tensor-split", "3,-1.5"), 2, "--tensor-split[1] is -1.5")
    expect("shares that are none", weir("info", "-m", MODEL, "-ts", "3;1"), 2, "-ts", "3,1")
    expect("shares", weir("info", "-m", MODEL, "-ts", "3,1", "-sm", "row"), 0)
    expect("a way to split that is none", weir("info", "-m", MODEL, "--split-mode", "tensor"), 2, "none, layer, row")

    gpu = any(d["type"] in ("gpu", "igpu") for d in json.loads(weir("run", "--list-devices", "--json").stdout)["devices"])
    for words, warned in (((), False), (("-ngl", "0"), False), (("-ngl", "9"), not gpu)):
        done = weir("run", "-m", MODEL, *words, "-p", "hello", "-n", "1")
        check(f"layers on a GPU that is not there: {words}", done.returncode == 0 and ("--gpu-layers has no effect" in done.stderr) == warned, done.stderr)


def test_info():
    done = weir("info", "-m", MODEL)
    check("weir info", done.returncode == 0 and all(word in done.stdout for word in
          ("model", "vocabulary", "chat template", "KV memory", "devices", "build")), done.stdout, done.stderr)
    if not FAKE:
        check("weir info: the model's own name and its parameters", re.search(r"^model +Smollm2 135M .*, 134\.5M parameters, Q4_1 \(", done.stdout), done.stdout)
    info = json.loads(weir("info", "-m", MODEL, "-np", "4", "-c", "512", "--json").stdout)
    check("weir info --json: the engine as asked for", info["engine"]["n_slots"] == 4 and info["engine"]["n_ctx"] == 512 and
          info["engine"]["n_kv"] >= 2048 and info["engine"]["kv_bytes"] > 0 and info["model"]["n_vocab"] > 0 and
          info["devices"] and "weir" in info["build"], info)
    weights = info["model"]["weights"]
    check("weir info --json: who multiplies which weights", (weights == []) == FAKE and
          sum(w["n_bytes"] for w in weights if w["kernels"]) == info["model"]["n_bytes_kernels"] and
          all(w["n_tensors"] > 0 and (w["reason"] == "") == w["kernels"] for w in weights), info)
    check("weir info --json: whether answers depend on company", info["engine"]["batch_invariant"] == (FAKE or info["model"]["kernels"] != ""), info)
    off = weir("info", "-m", MODEL, "-np", "1", "-c", "512", env=environment(WEIR_KERNELS="off")).stdout
    check("weir info: the same without the kernels", ("same answers    yes" if FAKE else "same answers    nearly") in off, off)
    half = json.loads(weir("info", "-m", MODEL, "-np", "2", "-c", "512", "--json").stdout)
    check("half the slots, half the memory", half["engine"]["kv_bytes"] * 2 == info["engine"]["kv_bytes"], half, info)
    small = json.loads(weir("info", "-m", MODEL, "-np", "4", "-c", "512", "--kv", "1024", "--json").stdout)
    check("--kv limits the cells", small["engine"]["n_kv"] < info["engine"]["n_kv"], small)
    odd = os.path.join(scratch.name.encode(), b"caf\xe9.gguf")
    os.symlink(os.path.abspath(MODEL) if not FAKE else "/nonexistent", odd)
    done = subprocess.run([WEIR, "info", "-m", odd, "--json"], capture_output=True, env=environment(), timeout=PATIENCE)
    check("a path that is no UTF-8 is shown as UTF-8", done.returncode == (3 if FAKE else 0) and "caf\ufffd.gguf" in
          (done.stderr if FAKE else done.stdout).decode() and json.loads(done.stdout), done.returncode, done.stdout, done.stderr)
    expect("two models", weir("info", "-m", MODEL, "other.gguf"), 2, "one model")


def test_drafts_of_recurrent_models():
    """They draft, and the copies of their states are counted: one for each slot."""
    def info(model, *words):
        found = weir("info", model, "-c", "512", "--json", *words)
        check(f"weir info {os.path.basename(model)} {' '.join(words)}", found.returncode == 0, found.stderr)
        return json.loads(found.stdout)

    if FAKE:
        models = ["fake:recurrent=1", "fake:hybrid=1"]
    else:
        models = [os.path.join(scratch.name, f"drafts-{kind}.gguf") for kind in ("mamba", "jamba", "delta")]
        tiny = os.path.join(os.path.dirname(os.path.abspath(__file__)), "support", "tiny.sh")
        for path in models:
            subprocess.run(["sh", tiny, path, "tiny_gguf.py", path.split("-")[-1].split(".")[0]], check=True)
    for model in models:
        none, one, four = info(model, "-np", "4", "--draft-max", "0"), info(model, "-np", "1"), info(model, "-np", "4")
        check(f"{model}: drafters", (none["engine"]["drafters"], four["engine"]["drafters"]) == ("", "lookup"), none, four)
        copies = four["memory"]["kv_bytes"] - none["memory"]["kv_bytes"]
        alone = one["memory"]["kv_bytes"] - info(model, "-np", "1", "--draft-max", "0")["memory"]["kv_bytes"]
        check(f"{model}: copies of states", copies == 4 * alone > 0, copies, alone)


def test_attention():
    def attention(model, *words, env=None):
        text, found = (weir("info", model, "-c", "512", *words, *more, env=env) for more in ([], ["--json"]))
        check(f"weir info {os.path.basename(model)} {' '.join(words)}", text.returncode == found.returncode == 0, text.stderr, found.stderr)
        return re.search(r"^attention +(.*)$", text.stdout, re.M)[1], json.loads(found.stdout)["engine"]["attention"]

    backend = ("by the backend's kernels", "backend")
    if FAKE:
        check("weir info: attention of a fake model", attention(MODEL) == backend)
        return
    here = ("by weir's own kernels", "weir") if json.loads(weir("info", "-m", MODEL, "--json").stdout)["model"]["kernels"] else backend

    def tiny(kind, *words):
        path = os.path.join(scratch.name, kind + "".join(words) + ".gguf")
        subprocess.run(["sh", os.path.join(os.path.dirname(os.path.abspath(__file__)), "support", "tiny.sh"), path, "tiny_gguf.py", kind, *words], check=True)
        return path

    off = environment(WEIR_KERNELS="off")
    llama = tiny("llama", "--type", "q8_0")
    for name, want, found in (("a plain model", here, attention(llama)),
                              ("keys and values in bf16", here, attention(llama, "-ctk", "bf16", "-ctv", "bf16")),
                              ("without flash attention", backend, attention(llama, "-fa", "off")),
                              ("without kernels", backend, attention(llama, env=off)),
                              ("heads of 2", backend, attention(tiny("llama", "--small"))),
                              ("compressed keys and values", backend, attention(tiny("mla", "--type", "q8_0"))),
                              ("no attention", ("none: the model is recurrent", "none"), attention(tiny("mamba"))),
                              ("attention in some layers", here, attention(tiny("jamba")))):
        check(f"weir info: attention: {name}", found == want, found, want)


def test_optimize():
    if FAKE:
        expect("nothing to optimize", weir("optimize", "-m", MODEL), 1, "no weights")
        expect("two models to optimize", weir("optimize", MODEL, "other.gguf"), 2, "one model")
        return
    model, other = os.path.join(scratch.name, "o.gguf"), os.path.join(scratch.name, "other.weir")
    os.symlink(os.path.abspath(MODEL), model)
    before = json.loads(weir("info", model, "--json").stdout)["model"]
    done = weir("optimize", "-m", model)
    if before["n_bytes_kernels"] == 0:
        expect("without kernels nothing is written", done, 1, "kernels")
        check("and nothing lies there", not os.path.exists(model + ".weir"))
        return
    expect("weir optimize", done, 0, out=model + ".weir")
    after = json.loads(weir("info", model, "--json").stdout)["model"]
    check("the weights are mapped", before["n_bytes_mapped"] == 0 and
          after["n_bytes_mapped"] == after["n_bytes_kernels"] == before["n_bytes_kernels"], before, after)
    expect("weir info says so", weir("info", model), 0, out="mapped from an optimized file")
    words = ("-p", "Name three rivers.", "-n", "8", "--temp", "0")
    packed = weir("run", "-m", model, "--optimized", "", *words)
    mapped = weir("run", "-m", model, *words)
    check("and answer the same", packed.returncode == mapped.returncode == 0 and packed.stdout == mapped.stdout,
          packed.stdout, mapped.stdout)
    done = weir("optimize", model, "-o", other, "--json")
    check("-o, --json", done.returncode == 0 and json.loads(done.stdout)["n_bytes"] == os.path.getsize(other), done.stdout)
    with open(other, "rb") as a, open(model + ".weir", "rb") as b:
        check("twice the same bytes", a.read() == b.read())
    expect("--check", weir("optimize", model, "--check", "-o", other), 0, out="whole")
    with open(other, "r+b") as file:
        file.seek(-1000000, os.SEEK_END)
        file.write(b"damage")
    expect("--check of damaged weights", weir("optimize", model, "--check", "-o", other), 1, "damaged")
    with open(other, "r+b") as file:
        file.seek(100)
        file.write(b"damage")
    expect("a damaged file is not used", weir("run", "-m", model, "--optimized", other, *words), 0, "damaged", "packed anew",
           out=mapped.stdout)
    expect("--check without a file", weir("optimize", MODEL, "--check", "-o", "/nonexistent"), 1, "/nonexistent")
    expect("a folder that is missing", weir("optimize", MODEL, "-o", "/nonexistent/m.weir"), 1, "/nonexistent")
    expect("the model itself", weir("optimize", model, "-o", model), 2, "the model itself")
    precious = os.path.join(scratch.name, "precious")
    with open(precious, "w") as file:
        file.write("somebody's")
    expect("what is no optimized file stays", weir("optimize", model, "-o", precious), 2, "not replaced")
    check("and is what it was", open(precious).read() == "somebody's")
    expect("no model to optimize", weir("optimize", "/nonexistent.gguf"), 3, "nonexistent.gguf")
    expect("without kernels", weir("optimize", model, env=environment(WEIR_KERNELS="off")), 1, "kernels")
    os.unlink(model + ".weir")
    os.unlink(other)


if __name__ == "__main__":
    run_tests(globals())
