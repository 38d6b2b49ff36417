#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A hybrid model of the shape of Qwen3.5 0.8B (bench/random_model.py hybrid) beside stock llama.cpp.

usage: hybrid.py ROUNDS [THREADS...]

Each round runs both sides on each shape, one at once after the other and each first in turn; stock and figures are those of kernels.py.
Writes a section of bench/results/models.md. Needs WEIR_BIN, WEIR_MODEL and STOCK_TOOLS in the environment; scripts/bench.sh sets them."""
import datetime
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

from engine import machine, replace_section, run
from kernels import pair

RESULT = pathlib.Path("bench/results/models.md")
TITLE = "## A hybrid model"
SHAPES = [(1, 256, 16), (8, 32, 12)]  # streams, tokens of a prompt, of an answer
AIMS = {("prefill", 1): 5, ("decode", 1): 1.6, ("decode", 8): 3.5}


def measure(path, rounds, threads):
    weir, tools = os.environ["WEIR_BIN"], os.environ["STOCK_TOOLS"]
    samples = {}
    for i in range(rounds):
        for t in threads:
            for shape in SHAPES:
                samples.setdefault((t, shape), []).append(pair(weir, tools, path, t, shape, "auto", i % 2 == 0))
    return samples


def rows(samples):
    for (t, (n, prompt, _)), pairs in samples.items():
        for what in ("prefill", "decode"):
            best = [max(side[what] for side in sides) for sides in zip(*pairs)]
            ratios = sorted(ours[what] / theirs[what] for ours, theirs in pairs)
            aim = AIMS.get((what, n), "")
            yield (f"| {t} | {n} | {prompt} | {what} | {best[1]:.1f} → {best[0]:.1f} | {best[0] / best[1]:.2f} | "
                   f"{statistics.median(ratios):.2f} | {ratios[0]:.2f} | {aim} |")


def main():
    rounds, threads = int(sys.argv[1]), sys.argv[2:] or [str(os.cpu_count())]
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/hybrid.gguf"
        subprocess.run([sys.executable, "bench/random_model.py", path, "hybrid", os.environ["WEIR_MODEL"]], check=True)
        samples = measure(path, rounds, threads)
    version = run([os.environ["WEIR_BIN"], "--version"]).splitlines()[0]
    lines = [TITLE, "", f"`python3 bench/hybrid.py {' '.join(sys.argv[1:])}`, {datetime.date.today().isoformat()}, {version}.", "",
             machine() + ".", "",
             "A random model of the shape of Qwen3.5 0.8B in Q8_0: 24 layers of width 1,024, of which 18 have gated delta nets. Stock: "
             "llama-batched-bench of the pin without weir's patch, with upstream's own flags, OpenMP included; it does not sample. "
             f"Tokens per second, stock → weir, the best of {rounds} rounds; ratio: of these; median and least: of the ratios within the rounds.", "",
             "| threads | streams | prompt | | tok/s | ratio | median | least | aim |", "|---|---|---|---|---|---|---|---|---|", *rows(samples)]
    replace_section(RESULT, lines, TITLE)
    print("\n".join(lines))


if __name__ == "__main__":
    main()
