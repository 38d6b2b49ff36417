#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Answers with prompt lookup beside answers without, in one process, each first in turn.

usage: speculate.py ROUNDS

bench/speculate.c runs them. The bound: what ticks of the same rows would take if they cost what passes of so many rows cost when
measured alone, and nothing else came with drafts. Writes bench/results/speculate.md and speculate.csv. Needs WEIR_BIN,
WEIR_BENCH_DIR and WEIR_MODEL in the environment; scripts/bench.sh sets them."""
import csv
import datetime
import json
import os
import pathlib
import statistics
import subprocess
import sys

from engine import machine, run

RESULTS = pathlib.Path("bench/results")
AIMS = {"edit": 1.8, "prose": 0.97}


def main():
    rounds = int(sys.argv[1])
    weir, model, programs = (os.environ[name] for name in ("WEIR_BIN", "WEIR_MODEL", "WEIR_BENCH_DIR"))
    done = subprocess.run([f"{programs}/speculate", model, str(rounds)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"speculate: exit {done.returncode}\n{done.stderr}")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    rows_ms = next(line["rows_ms"] for line in lines if "rows_ms" in line)
    samples = [line for line in lines if "task" in line]
    for s in samples:
        s["speed"] = s["tokens"] / s["ns"] * 1e9

    RESULTS.mkdir(parents=True, exist_ok=True)
    with open(RESULTS / "speculate.csv", "w", newline="") as f:
        table = csv.DictWriter(f, samples[0].keys(), lineterminator="\n")
        table.writeheader()
        table.writerows({k: round(v, 3) if isinstance(v, float) else v for k, v in s.items()} for s in samples)

    out = ["# Speculation", "",
           f"`scripts/bench.sh {rounds} speculate`, {datetime.date.today().isoformat()}, {run([weir, 'version']).splitlines()[0]}.", "",
           machine() + f"; {os.cpu_count()} threads, {pathlib.Path(model).name}, 4 slots, default layout. Edit: code in the prompt "
           "is to be repeated with a name changed, greedy; prose: free answers at temperature 0.8. 4 prompts each, one after the "
           "other or 4 at once. Two engines in one process, with and without drafts, run each group one right after the other, each "
           "first in turn; all texts were the same. Speeds are of ticks without prompts, tok/s, medians over the rounds; ratios are "
           "within a round, median (least to most).", "",
           "| task | off | on | ratio | aim | tokens a tick | drafted / right | bound | ratio / bound |",
           "|---|---|---|---|---|---|---|---|---|"]
    for task in dict.fromkeys(s["task"] for s in samples):
        pairs = [({s["on"]: s for s in samples if s["task"] == task and s["round"] == i}) for i in range(rounds)]
        ratios = sorted(p[1]["speed"] / p[0]["speed"] for p in pairs)
        on = [p[1] for p in pairs]
        total = {k: sum(s[k] for s in on) for k in ("tokens", "ticks", "drafted", "accepted")}
        ratio = statistics.median(ratios)
        bound = "–"
        against = "–"
        if "streams" not in task:
            mean_rows = 1 + total["drafted"] / total["ticks"]  # rows cost alike, so the mean says enough
            low = min(int(mean_rows), len(rows_ms) - 1)
            ms = rows_ms[low - 1] + (mean_rows - low) * (rows_ms[low] - rows_ms[low - 1])
            value = total["tokens"] / total["ticks"] * rows_ms[0] / ms
            bound, against = f"{value:.2f}", f"{ratio / value:.2f}"
        aim = AIMS.get(task)
        out.append(f"| {task} | {statistics.median(p[0]['speed'] for p in pairs):.0f} | {statistics.median(s['speed'] for s in on):.0f} | "
                   f"{ratio:.3f} ({ratios[0]:.3f}–{ratios[-1]:.3f}) | {f'≥ {aim}' if aim else '–'} | "
                   f"{total['tokens'] / total['ticks']:.2f} | {total['drafted']} / {total['accepted']} | {bound} | {against} |")
    out += ["", "Bound: as many tokens a tick, at the cost of a pass of that many rows behind 512 tokens, measured by itself:", "",
            "| rows | " + " | ".join(str(i + 1) for i in range(len(rows_ms))) + " |", "|---" * (len(rows_ms) + 1) + "|",
            "| ms | " + " | ".join(f"{ms:.2f}" for ms in rows_ms) + " |", ""]
    (RESULTS / "speculate.md").write_text("\n".join(out))
    print("\n".join(out))


if __name__ == "__main__":
    main()
