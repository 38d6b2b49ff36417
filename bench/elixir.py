#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The Elixir package's benchmarks (elixir/bench): a server beside the C engine, how long native
functions hold a scheduler, what one caller pays, 64 callers at once, and a new project with the package.

usage: elixir.py ROUNDS

Writes bench/results/elixir.md: the output of the programs, with the command of each. Needs WEIR_BIN, WEIR_MODEL and WEIR_BENCH_DIR
in the environment; scripts/bench.sh sets them."""
import datetime
import os
import pathlib
import subprocess
import sys

from engine import machine, run

ROOT = pathlib.Path(__file__).resolve().parent.parent
AIMS = """Aims: `Weir.Server` with a strategy in C at least 0.98 of the C engine, with one in Elixir 0.95;
native functions over 1 ms on a normal scheduler no more often than doing nothing is."""


def main():
    rounds, model = sys.argv[1], os.environ["WEIR_MODEL"]
    env = {**os.environ, "MIX_ENV": "prod", "WEIR_TEST_MODEL": model, "LC_ALL": "C.UTF-8"}
    subprocess.run(["mix", "compile"], cwd=ROOT / "elixir", env=env, check=True, stdout=subprocess.DEVNULL)
    steps = [
        ("Many callers", "", ["server.exs", model, rounds]),
        ("Many callers, schedulers that do not spin", "+sbwt none +sbwtdcpu none", ["server.exs", model, rounds]),
        ("How long native functions hold a scheduler", "", ["schedulers.exs"]),
        ("One caller, the fake model", "", ["single.exs"]),
        ("One caller", "", ["single.exs", model]),
        ("64 callers at once of a server with its defaults", "", ["callers.exs", model]),
    ]
    versions = subprocess.run(["elixir", "--short-version"], capture_output=True, text=True, check=True).stdout.strip()
    lines = ["# The Elixir package", "",
             f"`scripts/bench.sh {rounds} elixir`, {datetime.date.today()}, {run([os.environ['WEIR_BIN'], 'version']).splitlines()[0]}, Elixir {versions}. {machine()}",
             "", AIMS]
    for title, flags, words in steps:
        shown = " ".join([f'ERL_FLAGS="{flags}"' if flags else "", "mix run", "bench/" + " ".join(pathlib.Path(w).name for w in words)]).strip()
        print(shown, flush=True)
        done = subprocess.run(["mix", "run", "bench/" + words[0], *words[1:]], cwd=ROOT / "elixir", env={**env, "ERL_FLAGS": flags},
                              capture_output=True, text=True, check=True)
        lines += ["", f"## {title}", "", f"`{shown}`", "", "```", done.stdout.rstrip(), "```"]
    lines += ["", "## A new project", "", "`scripts/mix_check.sh`, with a warm compiler cache; docs/adr/0117 says what a mix command took before",
              "", "```", run([str(ROOT / "scripts/mix_check.sh")]).rstrip(), "```"]
    path = ROOT / "bench/results/elixir.md"
    path.write_text("\n".join(lines) + "\n")
    print(path)


main()
