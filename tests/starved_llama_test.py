"""Each allocation that weir, llama.cpp, jansson and libstdc++ make for a request fails once, alone and with all after it: no crash, and no
result but the right one or WEIR_NO_MEMORY. Argument: the helper. WEIR_ROUNDS=all: every allocation, else a part of them."""
# SPDX-License-Identifier: Apache-2.0
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from checks import check, environment, finish  # noqa: E402

SOURCE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PRELOAD = os.path.join(os.environ["WEIR_BUILD_DIR"], "tests", "starve.so")
# One of about so many allocations fails: seconds for each case.
CASES = {"plain": 499, "form": 1999, "tools": 9999, "required": 9999, "either": 4999, "sampler": 29, "state": 7, "context": 97, "adapter": 17, "projector": 199, "quantize": 97}
if not os.path.exists(PRELOAD):
    print("skipped: sanitizers have a malloc of their own, and the preloaded one needs glibc")
    sys.exit(77)
with tempfile.TemporaryDirectory() as scratch:
    model, adapter, projector, out = (os.path.join(scratch, name) for name in ("tiny.gguf", "lora.gguf", "mmproj.gguf", "out.gguf"))
    tiny = ["sh", f"{SOURCE}/tests/support/tiny.sh"]
    subprocess.run([*tiny, model, "tiny_gguf.py", "llama"], check=True)
    subprocess.run([*tiny, adapter, "tiny_lora.py", model], check=True)
    subprocess.run([*tiny, projector, "tiny_mmproj.py", "ultravox"], check=True)
    for case, step in CASES.items():
        if len(sys.argv) > 2 and case not in sys.argv[2:]:
            continue
        for many in (1, 1 << 30):
            step = 1 if os.environ.get("WEIR_ROUNDS") == "all" else step
            done = subprocess.run([sys.argv[1], model, adapter, projector, out, str(step), str(many), case], capture_output=True, text=True, env=environment(LD_PRELOAD=PRELOAD))
            check(f"{case}, {'one fails' if many == 1 else 'all fail'}: {done.stdout.strip()}", done.returncode == 0, done.returncode, done.stderr.split("\r")[-1][-2000:])
finish()
