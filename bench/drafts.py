#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Drafts from the texts of all requests beside drafts from each request's own text, in one process.

usage: drafts.py ROUNDS

bench/drafts.c runs the requests, each on both engines in turn. Writes the section "Drafts from all known texts" of
bench/results/long.md, and drafts.csv. Needs WEIR_BIN, WEIR_BENCH_DIR and WEIR_MODEL in the environment; scripts/bench.sh sets
them."""
import csv
import datetime
import json
import os
import pathlib
import statistics
import sys

from engine import machine, replace_section, run

RESULTS = pathlib.Path("bench/results")
TITLE = "## Drafts from all known texts"
AIMS = {"replay": 1.3, "prose": 0.97}
LOADS = {"session": "session", "replay": "the sessions again", "other edits": "other edits of the same files",
         "drawn again": "the sessions, drawn at 0.7", "prose": "prose, drawn at 0.8"}


def main():
    rounds = int(sys.argv[1])
    weir, model, programs = (os.environ[name] for name in ("WEIR_BIN", "WEIR_MODEL", "WEIR_BENCH_DIR"))
    samples = [json.loads(line) for line in run([f"{programs}/drafts", model, str(rounds)]).splitlines()]
    for s in samples:
        s["speed"] = s["tokens"] / s["ns"] * 1e9

    RESULTS.mkdir(parents=True, exist_ok=True)
    with open(RESULTS / "drafts.csv", "w", newline="") as f:
        table = csv.DictWriter(f, samples[0].keys(), lineterminator="\n")
        table.writeheader()
        table.writerows({k: round(v, 3) if isinstance(v, float) else v for k, v in s.items()} for s in samples)

    load = os.getloadavg()[0]
    out = [TITLE, "",
           f"`scripts/bench.sh {rounds} drafts`, {datetime.date.today().isoformat()}, "
           f"{run([weir, 'version']).splitlines()[0]}.", "",
           machine() + f"; {os.cpu_count()} threads, {pathlib.Path(model).name}, load average {load:.1f} at the end: more than "
           "2 means that other programs ran beside it. Two engines in "
           "one process, with `lookup_bytes` 0 and with the default, run each request one right after the other, each first in "
           "turn; all texts were the same. A session is an agent's: it sends a file, asks for three edits of it, each with all that "
           "was said before, greedy, and for a tool call with the file; 4 sessions, one after the other. The rows follow each other "
           "on the same engines. So small a model repeats itself often, which the own text predicts. Tokens per tick and tok/s are of ticks without prompts, over all rounds; the ratio of tok/s is the "
           "median of the rounds (least to most).", "",
           "| load | tokens per tick, own text | all texts | ratio | tok/s, own text | all texts | ratio | aim | drafted / right, own "
           "text | all texts |", "|---|---|---|---|---|---|---|---|---|---|"]
    for task, name in LOADS.items():
        sides = [[s for s in samples if s["task"] == task and s["on"] == on] for on in (0, 1)]
        total = [{k: sum(s[k] for s in side) for k in ("tokens", "ns", "ticks", "drafted", "accepted")} for side in sides]
        ratios = sorted(on["speed"] / off["speed"] for off, on in zip(*sides))
        per_tick = [t["tokens"] / t["ticks"] for t in total]
        speed = [t["tokens"] / t["ns"] * 1e9 for t in total]
        out.append(f"| {name} | {per_tick[0]:.2f} | {per_tick[1]:.2f} | {per_tick[1] / per_tick[0]:.3f} | {speed[0]:.0f} | {speed[1]:.0f} | "
                   f"{statistics.median(ratios):.3f} ({ratios[0]:.3f}–{ratios[-1]:.3f}) | {f'≥ {AIMS[task]}' if task in AIMS else '–'} | "
                   f"{total[0]['drafted']} / {total[0]['accepted']} | {total[1]['drafted']} / {total[1]['accepted']} |")
    out.append("")
    replace_section(RESULTS / "long.md", out, TITLE)
    print("\n".join(out))


if __name__ == "__main__":
    main()
