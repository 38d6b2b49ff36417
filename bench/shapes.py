#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""weir's CPU kernels by shape, beside ggml's and beside the limits of the processor, as `weir bench kernels` measures them.

usage: shapes.py ROUNDS

The best of ten repetitions for each round. Writes bench/results/shapes.md and shapes.csv. Needs WEIR_BIN in the environment;
scripts/bench.sh sets it."""
import datetime
import json
import os
import pathlib
import sys

from engine import machine, run

RESULTS = pathlib.Path("bench/results")


def main():
    rounds = int(sys.argv[1])
    weir = os.environ["WEIR_BIN"]
    parsed = json.loads(run([weir, "bench", "kernels", "--repeat", str(10 * rounds), "--csv", str(RESULTS / "shapes.csv"),
                             "--json", "-q"]))

    def speed(side):
        return "" if side is None else f"{side['gmac_per_second']:.1f}"

    def part(value):
        return "" if value is None else f"{100 * value:.0f} %"

    lines = ["# CPU kernels by shape", "",
             f"`scripts/bench.sh {rounds} shapes`, {datetime.date.today().isoformat()}, weir {parsed['weir']}, llama.cpp "
             f"{parsed['backend']}; weir's kernels: {parsed['kernels'] or 'none'}.", "",
             machine() + f"; weir built with {parsed['compiler']}.", "",
             f"GMAC/s through ggml's graphs and threads, the best of {parsed['repetitions']} repetitions, in which the sides take turns. "
             f"Products read {parsed['memory_mb']} MB of weights in turn, as a model's layers do. repack: ggml's on weights in its own layout. "
             "Ratio: weir's by the faster of ggml's. Of peak: of what multiplications in registers reach; of memory: of what reading "
             "memory reaches, by weir's weights. Attention: heads of queries / of keys × size × cells; rows are queries.", "",
             "| threads | peak, GMAC/s | memory, GB/s |", "|---|---|---|"]
    for limit in parsed["limits"]:
        peak = "" if limit["gmac_per_second"] is None else f"{limit['gmac_per_second']:.0f} ({limit['instruction']})"
        lines.append(f"| {limit['threads']} | {peak} | {limit['gb_per_second']:.1f} |")
    lines += ["", "| kernel | shape | rows | threads | weir | ggml | repack | ratio | of peak | weights, GB/s | of memory |",
              "|---|---|---|---|---|---|---|---|---|---|---|"]
    for row in parsed["rows"]:
        ratio = "" if row["ratio"] is None else f"{row['ratio']:.2f}"
        read = "" if row["weir"] is None else f"{row['weir']['gb_per_second']:.1f}"
        lines.append(f"| {row['kernel']} | {row['shape']} | {row['rows']} | {row['threads']} | {speed(row['weir'])} | {speed(row['ggml'])} | "
                     f"{speed(row['repacked'])} | {ratio} | {part(row['of_peak'])} | {read} | {part(row['of_bandwidth'])} |")
    (RESULTS / "shapes.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
