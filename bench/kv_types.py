#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the types of keys and values cost in accuracy, with weir's attention and with ggml's, behind thousands of tokens.

usage: kv_types.py [ROUNDS], which does not matter: the figures are the same in each

bench/accuracy.c computes the logits of 16,384 tokens of the pinned llama.cpp's documentation in windows of 4,096 and of 8,192 tokens, as
bench/accuracy.py does in windows of 512. Writes bench/results/kv_types.md. Needs WEIR_BIN, WEIR_MODEL, WEIR_BENCH_DIR and
WEIR_LLAMA_SOURCE in the environment; scripts/bench.sh sets them."""
import concurrent.futures
import datetime
import json
import math
import os
import pathlib
import statistics
import tempfile

from accuracy import AT_ONCE, PAGES
from engine import machine, requantize, run

TOKENS, WINDOWS = 16384, [4096, 8192]
WEIGHTS, CELLS, KERNELS = ["q8_0", "f16"], ["f16", "q8_0", "q4_0"], ["off", "auto"]


def main():
    weir, model, programs, llama = (os.environ[name] for name in ("WEIR_BIN", "WEIR_MODEL", "WEIR_BENCH_DIR", "WEIR_LLAMA_SOURCE"))
    got, plain = {}, {}
    with tempfile.TemporaryDirectory() as folder:
        page = pathlib.Path(folder) / "text"
        page.write_text("".join((pathlib.Path(llama) / name).read_text(encoding="utf-8") for name in PAGES), encoding="utf-8")
        for name in [*WEIGHTS, "f32"]:
            requantize(weir, model, f"{folder}/{name}.gguf", name)

        def logits(window, weights, cells, kernels):
            out = json.loads(run(["env", f"WEIR_KERNELS={kernels}", f"{programs}/accuracy", f"{folder}/{weights}.gguf", page, str(TOKENS),
                                  str(window), cells, f"{folder}/oracle"]))
            perplexity = math.exp(statistics.mean(out["losses"]))
            return perplexity, None if cells == "write" else statistics.mean(out["squares"][0]) ** 0.5
        for window in WINDOWS:
            plain[window] = logits(window, "f32", "write", "off")[0]
            with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
                runs = [(window, weights, cells, kernels) for weights in WEIGHTS for cells in CELLS for kernels in KERNELS]
                got |= zip(runs, pool.map(lambda r: logits(*r), runs))
    lines = ["# Types of keys and values", "",
             f"`scripts/bench.sh 1 kv_types`, {datetime.date.today().isoformat()}, {run([weir, 'version']).splitlines()[0]}.", "",
             machine() + f"; one thread, SmolLM2-135M-Instruct. Logits at all positions of {TOKENS:,} tokens of the pinned llama.cpp's "
             "documentation, in windows that begin anew. rms: root of the mean square of the differences from the logits of weights, keys and "
             "values in F32, computed by ggml. ggml's attention and products (WEIR_KERNELS=off) → weir's. Perplexity in F32: "
             + ", ".join(f"{plain[window]:.4f} in windows of {window:,}" for window in WINDOWS) + ".", "",
             "| weights | keys, values | window | rms | ratio | perplexity | ratio | to F16's |", "|---" * 8 + "|"]
    for weights in WEIGHTS:
        for cells in CELLS:
            for window in WINDOWS:
                (theirs, their_rms), (ours, our_rms) = (got[window, weights, cells, kernels] for kernels in KERNELS)
                lines.append(f"| {weights} | {cells} | {window:,} | {their_rms:.4f} → {our_rms:.4f} | {our_rms / their_rms:.4f} | "
                             f"{theirs:.4f} → {ours:.4f} | {ours / theirs:.4f} | {ours / got[window, weights, 'f16', 'auto'][0]:.4f} |")
    pathlib.Path("bench/results/kv_types.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
