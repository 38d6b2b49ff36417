#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What is left of weir's and stock llama.cpp's speed when others use the processors too; and the two layouts of the KV cache.

usage: neighbours.py ROUNDS

Each round measures each program alone, beside one thread that never rests, and twice at the same time on the same processors, each
with 1 and with 8 streams, then both layouts. weir is measured with the number of threads adapted and fixed; what is left is of the
speed alone in the same round. Writes bench/results/neighbours.md and neighbours.csv. Needs WEIR_BIN, WEIR_MODEL and STOCK_TOOLS in the
environment; scripts/bench.sh sets them."""
import concurrent.futures
import csv
import datetime
import json
import os
import pathlib
import statistics
import subprocess
import sys

from engine import batched, machine, run

STREAMS, PROMPT, ANSWER = (1, 8), 128, 192  # it takes some ten passes to notice a neighbour
LAYOUT_STREAMS = (1, 8, 32)
RESULTS = pathlib.Path("bench/results")


def ours(weir, model, threads, n, layout="auto", adapt="on"):
    row = json.loads(run(["env", f"WEIR_ADAPT={adapt}", weir, "bench", "engine", "-m", model, "-t", threads, "--streams", str(n),
                          "-p", str(PROMPT), "-n", str(ANSWER), "--repeat", "1", "--layout", layout, "--no-plain", "--json",
                          "-q"]))["rows"][0]["weir"]
    return {what: row[f"{what}_per_second"] for what in ("prefill", "decode")}


def at_once(measure):
    """The sum of two that run at the same time."""
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        both = [f.result() for f in [pool.submit(measure), pool.submit(measure)]]
    return {what: both[0][what] + both[1][what] for what in both[0]}


def beside_busy(measure):
    neighbour = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        return measure()
    finally:
        neighbour.kill()
        neighbour.wait()


def main():
    rounds = int(sys.argv[1])
    weir, model, tools = (os.environ[name] for name in ("WEIR_BIN", "WEIR_MODEL", "STOCK_TOOLS"))
    threads = str(os.cpu_count())
    programs = {"weir": lambda n: ours(weir, model, threads, n),
                "weir, fixed threads": lambda n: ours(weir, model, threads, n, adapt="off"),
                "stock": lambda n: batched(tools, model, threads, n, PROMPT, ANSWER)}
    conditions = {"alone": lambda f: f(), "busy neighbour": beside_busy, "two at once, together": at_once}
    samples = []
    for i in range(rounds):
        print(f"round {i + 1} of {rounds}", file=sys.stderr, flush=True)
        for condition, how in conditions.items():
            for program, measure in programs.items():
                for n in STREAMS:
                    samples.append({"round": i + 1, "condition": condition, "program": program, "streams": n,
                                    **how(lambda measure=measure, n=n: measure(n))})
        for n in LAYOUT_STREAMS:
            for layout in ("unified", "per_slot"):
                samples.append({"round": i + 1, "condition": "layout", "program": layout, "streams": n, **ours(weir, model, threads, n, layout)})
    RESULTS.mkdir(parents=True, exist_ok=True)
    with open(RESULTS / "neighbours.csv", "w", newline="") as f:
        writer = csv.DictWriter(f, samples[0].keys(), lineterminator="\n")
        writer.writeheader()
        writer.writerows({k: round(v, 2) if isinstance(v, float) else v for k, v in s.items()} for s in samples)

    def values(condition, program, what, n):
        return [s[what] for s in samples if (s["condition"], s["program"], s["streams"]) == (condition, program, n)]

    def middle(condition, program, what, n):
        return statistics.median(values(condition, program, what, n))

    def left(condition, program, what, n):
        pairs = zip(values(condition, program, what, n), values("alone", program, what, n))
        return statistics.median(now / alone for now, alone in pairs)

    lines = ["# Neighbours, and layouts", "",
             f"`scripts/bench.sh {rounds} neighbours`, {datetime.date.today().isoformat()}, {run([weir, 'version']).splitlines()[0]}.", "",
             machine() + f"; {threads} threads each, {pathlib.Path(model).name}, prompts of {PROMPT} and answers of {ANSWER} tokens. Medians of "
             f"{rounds} rounds in tok/s; of alone: of the same program's speed alone, in the same round.", "",
             "A busy thread beside as many of weir's as there are processors leaves a fair share of "
             f"{int(threads) / (int(threads) + 1):.2f}; two engines share 1.00."]
    for n in STREAMS:
        lines += ["", f"{n} stream{'s' if n > 1 else ''}:", "", "| | program | prefill | of alone | decode | of alone |",
                  "|---|---|---|---|---|---|"]
        for condition in conditions:
            for program in programs:
                cells = [f"{middle(condition, program, what, n):.0f} | {left(condition, program, what, n):.2f}"
                         for what in ("prefill", "decode")]
                lines.append(f"| {condition} | {program} | {' | '.join(cells)} |")
    lines += ["", "| streams | prefill, unified | per_slot | ratio | decode, unified | per_slot | ratio |", "|---|---|---|---|---|---|---|"]
    for n in LAYOUT_STREAMS:
        cells = []
        for what in ("prefill", "decode"):
            unified, lanes = (middle("layout", layout, what, n) for layout in ("unified", "per_slot"))
            cells.append(f"{unified:.0f} | {lanes:.0f} | {unified / lanes:.2f}")
        lines.append(f"| {n} | {' | '.join(cells)} |")
    (RESULTS / "neighbours.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
