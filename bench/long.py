#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Long contexts beside llama.cpp, beside ik_llama.cpp and beside an earlier weir.

usage: long.py ROUNDS

Each round runs every load on every side, one right after the other, in an order that turns with the rounds. Stock is the pin without
weir's patch, with upstream's own flags: its llama-batched-bench with -fa on. The sides beside weir are optional: STOCK_TOOLS, which
scripts/bench.sh sets; IK_TOOLS, a folder with ik_llama.cpp's llama-batched-bench, which runs with and without -rtr; and WEIR_BEFORE,
the program of an earlier weir. WEIR_LOADS chooses loads by their numbers (1,4), WEIR_MODELS models (1 to 7). Samples and models are
kept in build/release/long until all that was asked for is measured, so that an interrupted run goes on where it stopped as long as
the program is the same; WEIR_PIECE=N ends a run after N samples. Writes a section of bench/results/long.md, and long.csv or long_wide.csv. Needs WEIR_BIN, WEIR_MODEL and
WEIR_BENCH_DIR in the environment; scripts/bench.sh sets them."""
import csv
import datetime
import hashlib
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys

from engine import machine, replace_section, requantize, run, weir_rows
from first_layers import shorten

RESULTS = pathlib.Path("bench/results")
SETTINGS = ["STOCK_TOOLS", "IK_TOOLS", "WEIR_BEFORE", "WEIR_LOADS", "WEIR_MODELS"]
FIELDS = ["round", "model", "load", "side", "what", "per_second"]
LOADS = {"1": (1, 8000, 64), "2": (8, 4000, 32), "3": (1, 128, 64), "4": (8, 128, 64), "5": (32, 128, 64)}  # streams, prompt, answer
DEFAULT, Q8_0, Q4_K_M = "default, Q8_0", "random, Q8_0", "random, Q4_K_M"
SHORT = {f"{name}, {n} layers": (name, n, load) for n, load in ((4, "1"), (2, "2")) for name in (Q8_0, Q4_K_M)}  # which, and its load
EMBEDDINGS = {Q8_0: 49152 * 2048 * 34 // 32, Q4_K_M: 49152 * 2048 * 18 // 32}  # bytes that a decoded token does not read
LAYERS = 16


class Model:
    """What it costs: bytes of an F16 cell, bytes of the file that a decoded token does not read; products per token of a prompt, and per
    cell that it sees; and the loads that it runs, since some take too long."""

    def __init__(self, layers, kv_width, width, matrices, unread, loads):
        self.cell, self.products, self.attention = layers * 2 * kv_width * 2, layers * matrices, layers * 2 * width
        self.unread, self.loads = unread, loads


def wide(layers, name, loads):
    return Model(layers, 512, 2048, 2048 * (2048 * 2 + 512 * 2 + 8192 * 3), EMBEDDINGS[name], loads)


MODELS = {DEFAULT: Model(30, 192, 576, 576 * (576 * 2 + 192 * 2 + 1536 * 3), 0, "12345"),
          **{name: wide(LAYERS, name, "345") for name in (Q8_0, Q4_K_M)},
          **{short: wide(layers, name, load) for short, (name, layers, load) in SHORT.items()}}


def batched(tools, model, threads, load, *more):
    """llama-batched-bench, whose table both forks print, one of them among its errors. No sampling, no text."""
    n, prompt, answer = load
    lane = -(-(prompt + answer) // 256) * 256
    out = run(["sh", "-c", 'exec "$@" 2>&1', "sh", f"{tools}/llama-batched-bench", "-m", model, "-t", threads, "-c", str(lane * n), "-b", "2048", "-ub", "512", "-npp", str(prompt),
               "-ntg", str(answer), "-npl", str(n), *more])
    cells = [line.split("|") for line in out.splitlines() if line.startswith("|") and line[1:7].strip().isdigit()][-1]
    return {"prefill": float(cells[6]), "decode": float(cells[8])}


def measured(weir, model, threads, load):
    n, prompt, answer = load
    row = weir_rows(weir, model, threads, [n], prompt, answer, 1, "--no-plain")[n]["weir"]
    return {what: row[f"{what}_per_second"] for what in ("prefill", "decode")}


def sides():
    threads, tools, ik = str(os.cpu_count()), os.environ.get("STOCK_TOOLS"), os.environ.get("IK_TOOLS")
    out = {"weir": lambda model, load: measured(os.environ["WEIR_BIN"], model, threads, load)}
    if os.environ.get("WEIR_BEFORE"):
        out["before"] = lambda model, load: measured(os.environ["WEIR_BEFORE"], model, threads, load)
    if tools:
        out["stock"] = lambda model, load: batched(tools, model, threads, load, "-fa", "on")
    if ik:
        out["ik"] = lambda model, load: batched(ik, model, threads, load, "-fa", "1")
        out["ik -rtr"] = lambda model, load: batched(ik, model, threads, load, "-fa", "1", "-rtr")
    return out


def kept(path, make):
    """The file, which `make` writes unless it is there."""
    if not path.exists():
        part = path.with_suffix(".part")
        make(str(part))
        part.rename(path)
    return str(path)


def file_of(model, folder):
    path = folder / (re.sub(r"\W+", "_", model) + ".gguf")
    if model == DEFAULT:
        return kept(path, lambda out: requantize(os.environ["WEIR_BIN"], os.environ["WEIR_MODEL"], out, "q8_0"))
    if model in SHORT:
        return kept(path, lambda out: shorten(file_of(SHORT[model][0], folder), SHORT[model][1], out))
    if model == Q4_K_M:
        return kept(path, lambda out: requantize(os.environ["WEIR_BIN"], file_of(Q8_0, folder), out, "q4_k_m"))
    return kept(path, lambda out: subprocess.run([sys.executable, "bench/random_model.py", out, "whole", os.environ["WEIR_MODEL"]], check=True))


class Samples:
    """Speeds, in a file that outlives an interrupted run."""

    def __init__(self, path):
        same = "# " + hashlib.sha256(pathlib.Path(os.environ["WEIR_BIN"]).read_bytes()).hexdigest()
        if not path.exists() or path.read_text().split("\n")[0] != same:
            path.write_text(f"{same}\n{','.join(FIELDS)}\n")
        self.path = path
        with open(path, newline="") as file:
            next(file)
            self.rows = [{**row, "round": int(row["round"]), "per_second": float(row["per_second"])} for row in csv.DictReader(file)]

    def has(self, number, model, load, side):
        return any((s["round"], s["model"], s["load"], s["side"]) == (number, model, load, side) for s in self.rows)

    def add(self, number, model, load, side, speeds):
        rows = [dict(zip(FIELDS, (number, model, load, side, what, round(speeds[what], 2)))) for what in ("prefill", "decode")]
        self.rows += rows
        write(self.path, "a", rows)

    def rates(self, model, load, side, what):
        return [s["per_second"] for s in self.rows if (s["model"], s["load"], s["side"], s["what"]) == (model, load, side, what)]

    def beside(self, model, load, side, what):
        ours, theirs = self.rates(model, load, "weir", what), self.rates(model, load, side, what)
        if not theirs:
            return "–"
        return f"{statistics.median(theirs):.0f}, {statistics.median(a / b for a, b in zip(ours, theirs)):.2f}"


def write(path, mode, rows):
    with open(path, mode, newline="") as file:
        table = csv.DictWriter(file, FIELDS, lineterminator="\n")
        if mode == "w":
            table.writeheader()
        table.writerows(rows)


def share_of_limit(model, size, load, what, speed, gmac, gb):
    """Of the speed at which memory would be read all the time, or bytes and 16-bit integers (half as fast) be multiplied."""
    n, prompt, answer = load
    costs = MODELS[model]
    if what == "decode":
        return (size - costs.unread + n * (prompt + answer / 2) * costs.cell) * speed / n / 1e9 / gb
    return (costs.products + 2 * costs.attention * prompt / 2) * speed / 1e9 / gmac


def main():
    rounds, weir = int(sys.argv[1]), os.environ["WEIR_BIN"]
    loads = {name: LOADS[name] for name in os.environ.get("WEIR_LOADS", ",".join(LOADS)).split(",")}
    models = [list(MODELS)[int(i) - 1] for i in os.environ.get("WEIR_MODELS", "1,2,3,4,5,6,7").split(",")]
    runs = [(model, name) for model in models for name in loads if name in MODELS[model].loads]
    folder = pathlib.Path(os.environ["WEIR_BENCH_DIR"]).parent / "long"
    folder.mkdir(exist_ok=True)
    run_on, samples = sides(), Samples(folder / "samples.csv")
    paths = {model: file_of(model, folder) for model in models}
    left = int(os.environ.get("WEIR_PIECE", "1000000"))
    for i in range(rounds):
        for model, name in runs:
            for side in list(run_on) if i % 2 == 0 else list(reversed(run_on)):
                if samples.has(i + 1, model, name, side):
                    continue
                if left == 0:
                    sys.exit("long: the next run goes on here")
                left -= 1
                print(f"round {i + 1} of {rounds}: {model}, load {name}, {side}", file=sys.stderr, flush=True)
                samples.add(i + 1, model, name, side, run_on[side](paths[model], loads[name]))

    on = machine()
    gmac, gb = (float(re.search(rf"([\d.]+) {unit}", on)[1]) for unit in ("GMAC/s", "GB/s"))
    title = "## Beside others" if DEFAULT in models else "## Beside others: a model of ordinary width"
    # Folders and programs are the machine's own.
    settings = [f"{name}={'…' if '/' in os.environ[name] else os.environ[name]} " for name in SETTINGS if os.environ.get(name)]
    random = "" if models == [DEFAULT] else (
        f" The random model has {LAYERS} layers, is 2,048 wide, has 32 heads, 8 of them with keys and values, and the default model's number of "
        f"tokens (`bench/random_model.py OUT whole VOCABULARY`). Its first layers alone run the loads that take too long with all.")
    others = [side for side in run_on if side != "weir"]
    out = [title, "",
           f"`{''.join(settings)}python3 bench/long.py {rounds}`, {datetime.date.today().isoformat()}, {run([weir, 'version']).splitlines()[0]}.", "",
           f"{on}; {os.cpu_count()} threads, load average {os.getloadavg()[0]:.1f} at the end.{random} tok/s, medians of {rounds} rounds; for each other side, "
           "its tok/s and weir's divided by them. KV in F16, a lane for each sequence. Limit: of decodes, the share of that bandwidth at which weights "
           "and cells are read; of prompts, the share of the time that the products would take alone, those of matrices at that number of GMAC/s and "
           "those of attention, of 16-bit integers, at half of it.", "",
           f"| model | load | weir | limit | {' | '.join(others)} |", "|---" * (4 + len(others)) + "|"]
    for model, name in runs:
        n, prompt, _ = loads[name]
        for what in ("decode", "prefill"):
            ours = statistics.median(samples.rates(model, name, "weir", what))
            share = share_of_limit(model, os.path.getsize(paths[model]), loads[name], what, ours, gmac, gb)
            out.append(f"| {model} | {what}, {n} × {prompt:,} | {ours:.0f} | {100 * share:.0f} % | "
                       f"{' | '.join(samples.beside(model, name, side, what) for side in others)} |")
    out.append("")
    replace_section(RESULTS / "long.md", out, title)
    write(RESULTS / ("long.csv" if DEFAULT in models else "long_wide.csv"), "w", samples.rows)
    shutil.rmtree(folder)
    print("\n".join(out))


if __name__ == "__main__":
    main()
