#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Products of each format that has a kernel of weir's, for one row and for 64, beside ggml's own, as `weir bench kernels` measures them.

usage: formats.py ROUNDS

The sides take turns within a repetition, and the best of three repetitions for each round counts. Runs once with the processor's best
kernels and once with those for AVX2. Writes bench/results/formats.md. Needs WEIR_BIN in the environment; scripts/bench.sh sets it."""
import datetime
import json
import os
import pathlib
import statistics
import sys

from engine import machine, run

RESULTS = pathlib.Path("bench/results")
FORMATS = ["q2_K", "q3_K", "iq4_xs", "iq3_xxs", "iq3_s", "iq2_xxs", "iq2_xs", "iq2_s", "iq1_s", "iq1_m", "tq1_0", "tq2_0", "q1_0", "q2_0",
           "nvfp4"]


def measure(weir, rounds, kernels):
    command = [weir, "bench", "kernels", "--rows", "1,64", "--shape", "2048x2048", "--memory", "64", "--repeat", str(3 * rounds), "--json", "-q"]
    for name in FORMATS:
        command += ["--kernel", name]
    os.environ["WEIR_KERNELS"] = kernels
    return json.loads(run(command))


def main():
    rounds = int(sys.argv[1])
    weir = os.environ["WEIR_BIN"]
    lines = []
    for kernels in ("auto", "avx2"):
        parsed = measure(weir, rounds, kernels)
        if not lines:
            lines = ["# Formats of few bits", "",
                     f"`scripts/bench.sh {rounds} formats`, {datetime.date.today().isoformat()}, weir {parsed['weir']}, llama.cpp "
                     f"{parsed['backend']}.", "", machine() + f"; weir built with {parsed['compiler']}; load average at the end "
                     f"{os.getloadavg()[0]:.1f}.", "",
                     f"GMAC/s of a matrix of 2048x2048 through ggml's graphs and threads, the best of {parsed['repetitions']} repetitions, in "
                     f"which weir, ggml and ggml's repacked weights take turns; the ratio is to the faster of the last two. "
                     f"Products read {parsed['memory_mb']} MB of weights in turn.", ""]
        lines += [f"## {parsed['kernels']}", "", "| format | rows | threads | weir | ggml | repacked | ratio |", "|---|---|---|---|---|---|---|"]
        for row in parsed["rows"]:
            repacked = "" if row["repacked"] is None else f"{row['repacked']['gmac_per_second']:.1f}"
            lines.append(f"| {row['kernel']} | {row['rows']} | {row['threads']} | {row['weir']['gmac_per_second']:.1f} | "
                         f"{row['ggml']['gmac_per_second']:.1f} | {repacked} | {row['ratio']:.2f} |")
        ratios = [row["ratio"] for row in parsed["rows"]]
        lines += ["", f"Ratios: {min(ratios):.2f} to {max(ratios):.2f}, median {statistics.median(ratios):.2f}.", ""]
    (RESULTS / "formats.md").write_text("\n".join(lines), encoding="utf-8")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
