#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""weir's products alone, without ggml's graph around them: in the caches beside the peak of the processor, and of one row beside the
bandwidth of memory.

usage: peak.py ROUNDS

The best of ten repetitions for each round. Writes bench/results/peak.md. Needs WEIR_BIN and WEIR_BENCH_DIR in the environment;
scripts/bench.sh sets them."""
import datetime
import json
import os
import pathlib
import sys

from engine import machine, run

FLOATS = ("bf16", "f16")  # the measured peak is one of bytes
RESULTS = pathlib.Path("bench/results")


def main():
    rounds = int(sys.argv[1])
    weir, programs = (os.environ[name] for name in ("WEIR_BIN", "WEIR_BENCH_DIR"))
    rows = [json.loads(line) for line in run([f"{programs}/peak", str(10 * rounds)]).splitlines()]
    if not rows:
        sys.exit("peak: no kernels for this processor")
    counts = sorted({row["threads"] for row in rows})
    most = {n: {what: max(row[f"most_{what}"] for row in rows if row["threads"] == n) for what in ("gmac_per_second", "gb_per_second")}
            for n in counts}

    def of(row, what):
        return row[what] / most[row["threads"]][what]

    lines = ["# CPU kernels alone", "",
             f"`scripts/bench.sh {rounds} peak`, {datetime.date.today().isoformat()}, {run([weir, 'version']).splitlines()[0]}.", "",
             machine() + f". bench/peak.c, the best of {10 * rounds} repetitions, each with a measurement of the limits after it; "
             "parts are of the most that was seen at all.", "",
             f"In the caches: 64 rows of activations, rounded before, by 128 rows of 1,024 weights; one thread, so that nothing waits for "
             f"another. Peak: {most[1]['gmac_per_second']:.0f} GMAC/s of one thread ({rows[0]['instruction']}, in registers). From memory: "
             "one row of activations by 256 MiB of weights, in matrices of 2,048 × 2,048. What memory gives: "
             + ", ".join(f"{most[n]['gb_per_second']:.1f} GB/s to {n} thread{'s' if n > 1 else ''}" for n in counts) + ".", "",
             "| format | in the caches, GMAC/s | of peak | " + " | ".join(
                 f"one row, GB/s, {n} thread{'s' if n > 1 else ''} | of memory" for n in counts) + " |",
             "|---|---|---" + "|---|---" * len(counts) + "|"]
    for row in rows:
        if row["threads"] != 1:
            continue
        peak = "" if row["format"] in FLOATS or most[1]["gmac_per_second"] == 0 else f"{100 * of(row, 'gmac_per_second'):.0f} %"
        cells = [row["format"], f"{row['gmac_per_second']:.0f}", peak]
        for n in counts:
            same = next(r for r in rows if r["threads"] == n and r["format"] == row["format"])
            cells += [f"{same['gb_per_second']:.1f}", f"{100 * of(same, 'gb_per_second'):.0f} %"]
        lines.append(f"| {' | '.join(cells)} |")
    (RESULTS / "peak.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
