"""A long prompt and a real model: after a restart it is not computed again, and the answer is the same."""
# SPDX-License-Identifier: Apache-2.0
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from checks import check, effort, environment, finish  # noqa: E402

WEIR, MODEL = os.path.abspath(os.environ["WEIR_BIN"]), os.environ.get("WEIR_TEST_MODEL", "")
if not os.path.exists(MODEL):
    print("skipped: WEIR_TEST_MODEL names no model")
    sys.exit(77)
scratch = tempfile.TemporaryDirectory()
prompt = os.path.join(scratch.name, "prompt")
with open(prompt, "w", encoding="utf-8") as file:
    file.write(" ".join(f"In the year {1000 + i}, the weir of town {i * 37 % 101} held back {i} boats." for i in range(effort(30, 20))))


def run(folder, layout, *words):
    done = subprocess.run([WEIR, "run", "-m", MODEL, "-f", prompt, "--raw", "-n", "24", "--ignore-eos", "--temp", "0", "-c", "4096", "-t", "1", "--json", "-q",
                           "--layout", layout, *(("--cache-dir", os.path.join(scratch.name, folder)) if folder else ()), *words],
                          capture_output=True, text=True, env=environment(), timeout=600)
    return json.loads(done.stdout) if done.returncode == 0 else sys.exit(done.stderr)


plain = run(None, "per_slot")
n = plain["usage"]["prompt_tokens"]
check("the prompt is long", effort(512, 300) < n < 4000, n)
for layout, words in (("per_slot", ()), ("unified", ()), ("per_slot", ("-ctk", "q8_0", "-ctv", "q8_0"))):
    name = " ".join((layout, *words))
    cold, warm = run(name, layout, *words), run(name, layout, *words)
    check(f"{name}: the first computes all", cold["usage"]["cached_tokens"] == 0, cold["usage"])
    check(f"{name}: the second one token", warm["usage"]["cached_tokens"] == n - 1, warm["usage"])
    check(f"{name}: the same tokens", warm["tokens"] == cold["tokens"] and warm["text"] == cold["text"], cold["text"], warm["text"])
check("as without a folder", run("per_slot", "per_slot")["tokens"] == plain["tokens"])
for folder, layout in (("per_slot", "unified"), ("unified", "per_slot")):
    other = run(folder, layout)
    check(f"{layout}: computed nothing of a {folder} state again", other["usage"]["cached_tokens"] == n - 1, other["usage"])
    check(f"{layout}: the same tokens", other["tokens"] == plain["tokens"])
check("other types' states are none", run("per_slot", "per_slot", "-ctk", "q8_0")["usage"]["cached_tokens"] == 0)
finish()
