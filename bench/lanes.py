#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What several answers, logprobs and forks cost: bench/lanes.c, ROUNDS times.

usage: lanes.py ROUNDS

Writes bench/results/lanes.md. Needs WEIR_BIN, WEIR_MODEL and WEIR_BENCH_DIR in the environment; scripts/bench.sh sets them."""
import datetime
import os
import pathlib
import statistics
import sys

from engine import machine, run

REPEATS = 4  # in each round
# name, what, numerator, denominator, aim: columns of lanes.c
ROWS = [
    ("8 answers", "a prompt of 512 tokens and the first token of 8 answers, beside 1", 4, 3, 1.15),
    ("8 answers, all lanes cached", "the same where up to 7 prompts of others are saved to host memory for them", 1, 0, None),
    ("logprobs, 1 stream", "128 tokens with the 5 likeliest of each, beside none", 6, 5, 1.05),
    ("logprobs, 4 streams", "the same of 4 streams", 8, 7, 1.05),
    ("prompt logprobs", "512 tokens of a prompt scored, with the 5 likeliest of each, beside none", 2, 0, None),
    ("a fork", "its first token at 576 tokens, beside a request with these as its prompt", 10, 9, None),
]


def main():
    rounds, weir = int(sys.argv[1]), os.environ["WEIR_BIN"]
    words = [os.path.join(os.environ["WEIR_BENCH_DIR"], "lanes"), os.environ["WEIR_MODEL"], str(REPEATS)]
    lines = [[float(x) for x in line.split()] for _ in range(rounds) for line in run(words).splitlines()]
    median = [statistics.median(column) for column in zip(*lines)]
    out = ["# What several answers, logprobs and forks cost", "",
           f"`scripts/bench.sh {rounds} lanes`, {datetime.date.today().isoformat()}, {run([weir, 'version']).splitlines()[0]}.", "",
           f"{machine()}; {pathlib.Path(os.environ['WEIR_MODEL']).name}; an engine of 8 slots, by turns; medians of {rounds} × {REPEATS}. The ratio is the "
           "median of the ratios of each turn.", "",
           "| | what | ms | beside, ms | ratio |", "|---|---|---|---|---|"]
    for name, what, top, bottom, aim in ROWS:
        ratio = statistics.median(line[top] / line[bottom] for line in lines)
        word = "" if aim is None else f" (aim ≤ {aim}{'' if ratio <= aim else ', missed'})"
        out.append(f"| {name} | {what} | {median[top]:.1f} | {median[bottom]:.1f} | {ratio:.3f}{word} |")
    pathlib.Path("bench/results/lanes.md").write_text("\n".join(out) + "\n", encoding="utf-8")
    print("\n".join(out))


if __name__ == "__main__":
    main()
