"""The random model of the benches, of scripts/tiny_gguf.py's parts: the same bytes each time, and weir computes with it."""
# SPDX-License-Identifier: Apache-2.0
import hashlib
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from checks import check, environment, finish  # noqa: E402

WEIR = os.path.abspath(os.environ["WEIR_BIN"])
MAKER = os.path.join(os.environ["WEIR_SOURCE_DIR"], "bench", "random_model.py")
scratch = tempfile.TemporaryDirectory()
path = os.path.join(scratch.name, "random.gguf")


def make(*words):
    made = subprocess.run([sys.executable, MAKER, path, *words], capture_output=True, text=True)
    if made.returncode != 0:
        sys.exit(made.stderr)


def digest():
    make()
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def run(*words):
    done = subprocess.run([WEIR, *words], capture_output=True, text=True, env=environment(), timeout=600)
    return json.loads(done.stdout) if done.returncode == 0 else sys.exit(done.stderr)


check("the same bytes each time", digest() == digest())
model = run("info", "-m", path, "--json")["model"]
check("2,048 wide, 4 layers", (model["n_embd"], model["n_layer"]) == (2048, 4), model)
answer = run("run", "-m", path, "--raw", "-n", "2", "--ignore-eos", "--temp", "0", "-c", "64", "--json", "-q", "once")
check("two tokens", len(answer["tokens"]) == 2, answer)
make(os.environ["WEIR_TEST_MODEL"])
told = [run("tokenize", "-m", model_path, "Weirs hold water.", "--json") for model_path in (path, os.environ["WEIR_TEST_MODEL"])]
check("another file's vocabulary", told[0] == told[1] and len(told[0]["tokens"]) > 3, *told)
answer = run("run", "-m", path, "-n", "8", "--ignore-eos", "--temp", "0", "-c", "64", "--json", "-q", "once")
check("its tokens have texts", len(answer["tokens"]) == 8 and len(answer["text"]) >= 8, answer)
finish()
