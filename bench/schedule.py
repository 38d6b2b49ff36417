#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What deciding costs: `weir bench schedule` on the fake backend, ROUNDS times for each strategy in turn, with 64 slots and a prefix tree
of 10,000 prompts and more.

usage: schedule.py ROUNDS

Writes bench/results/schedule.md. Needs WEIR_BIN in the environment; scripts/bench.sh sets it."""
import datetime
import json
import os
import pathlib
import statistics
import sys

from engine import machine, run

STRATEGIES = ["decode-maximal", "prefill-priority", "balanced", "latency-target"]
SLOTS, NODES, AIM_US = 64, 10000, 50
PARTS = [("decide_us", key) for key in ("mean", "p50", "p99", "max")] + [("tick_us", key) for key in ("mean", "p50", "p99")]


def main():
    rounds, weir = int(sys.argv[1]), os.environ["WEIR_BIN"]
    got = {name: [] for name in STRATEGIES}
    for _ in range(rounds):
        for name in STRATEGIES:
            words = [weir, "bench", "schedule", "--strategy", name, "--slots", str(SLOTS), "--cache-nodes", str(NODES), "--json"]
            got[name].append(json.loads(run(words)))
    lines = ["# What deciding costs", "",
             f"`scripts/bench.sh {rounds} schedule`, {datetime.date.today().isoformat()}, {run([weir, 'version']).splitlines()[0]}.", "",
             f"{machine()}; `weir bench schedule`, {SLOTS} slots, {NODES} prompts before, the fake backend; medians of {rounds} rounds, µs a tick.", "",
             "*Deciding*: looking for cancels and deadlines, finishing, suspending, admitting with a search of the prefix tree, and the plan. *The rest*: "
             "the tick without its pass, so sampling and text of up to 64 streams too. Requests are equally long, so they are admitted many at a time.", "",
             "| strategy | prefixes kept | deciding: mean | p50 | p99 | most | the rest: mean | p50 | p99 | both, mean |",
             "|---|---|---|---|---|---|---|---|---|---|"]
    for name, results in got.items():
        cells = [statistics.median(r[part][key] for r in results) for part, key in PARTS]
        both = statistics.median(r["decide_us"]["mean"] + r["tick_us"]["mean"] for r in results)
        lines.append(f"| {name} | {results[-1]['cache_entries']} | " + " | ".join(f"{c:.1f}" for c in cells) +
                     f" | {both:.1f} (aim ≤ {AIM_US}{'' if both <= AIM_US else ', missed'}) |")
    pathlib.Path("bench/results/schedule.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
