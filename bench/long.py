#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Long contexts beside llama.cpp, beside ik_llama.cpp and beside an earlier weir.

usage: long.py ROUNDS

Each round runs every load on every side, one right after the other, in an order that turns with the rounds. Stock is the pin without
weir's patch, with upstream's own flags: its llama-batched-bench with -fa on. The sides beside weir are optional: STOCK_TOOLS, which
scripts/bench.sh sets; IK_TOOLS, a folder with ik_llama.cpp's llama-batched-bench, which runs with and without -rtr; and WEIR_BEFORE,
the program of an earlier weir. WEIR_LOADS chooses loads by their numbers (1,4), WEIR_MODELS models (1 to 7). Samples and models are
kept in build/release/long until all that was asked for is measured, so that an interrupted run goes on where it stopped as long as
the program is the same; WEIR_PIECE=N ends a run after N samples. Writes a section of bench/results/long.md, and long.csv or long_wide.csv.

WEIR_TURNS=1 compares the loads of one stream with stock in turns: both programs stay loaded and run one after the other, ROUNDS pairs,
while the other one is stopped (SIGSTOP).

Needs WEIR_BIN, WEIR_MODEL and WEIR_BENCH_DIR in the environment; scripts/bench.sh sets them."""
import csv
import datetime
import hashlib
import os
import pathlib
import re
import shutil
import signal
import statistics
import subprocess
import sys
import time

from engine import machine, replace_section, requantize, run, weir_rows
from first_layers import shorten

RESULTS = pathlib.Path("bench/results")
SETTINGS = ["STOCK_TOOLS", "IK_TOOLS", "WEIR_BEFORE", "WEIR_LOADS", "WEIR_MODELS"]
FIELDS = ["round", "model", "load", "side", "what", "per_second"]
LOADS = {"1": (1, 8000, 64), "2": (8, 4000, 32), "3": (1, 128, 64), "4": (8, 128, 64), "5": (32, 128, 64), "6": (8, 4128, 128)}  # streams, prompt, answer
SHARED = {LOADS["6"]: 4096}  # tokens with which all prompts begin; the others' prompts are one as a whole
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


MODELS = {DEFAULT: Model(30, 192, 576, 576 * (576 * 2 + 192 * 2 + 1536 * 3), 0, "123456"),
          **{name: wide(LAYERS, name, "345") for name in (Q8_0, Q4_K_M)},
          **{short: wide(layers, name, load) for short, (name, layers, load) in SHORT.items()}}


def batched_command(tools, model, threads, load, *more):
    """llama-batched-bench; no sampling, no text."""
    n, prompt, answer = load
    lane = -(-(prompt + answer) // 256) * 256
    shared = ["-pps"] if load in SHARED else []
    return [f"{tools}/llama-batched-bench", "-m", model, "-t", threads, "-c", str(lane * n), "-b", "2048", "-ub", "512", "-npp", str(prompt),
            "-ntg", str(answer), *shared, *more]


def batched_rows(out):
    """Both forks print the same table, one of them among its errors."""
    cells = [line.split("|") for line in out.splitlines() if line.startswith("|") and line[1:7].strip().isdigit() and line.count("|") > 10]
    return [{"prefill": float(row[6]), "decode": float(row[8])} for row in cells]


def batched(tools, model, threads, load, *more):
    return batched_rows(run(["sh", "-c", 'exec "$@" 2>&1', "sh", *batched_command(tools, model, threads, load, "-npl", str(load[0]), *more)]))[-1]


def measured(weir, model, threads, load):
    n, prompt, answer = load
    shared = ["--shared-prefix", str(SHARED[load])] if load in SHARED else []
    row = weir_rows(weir, model, threads, [n], prompt, answer, 1, "--no-plain", *shared)[n]["weir"]
    return {what: row[f"{what}_per_second"] for what in ("prefill", "decode")}


class Turns:
    """A program that measures one stream again and again, and is stopped between two measurements. Its first one warms up."""

    def __init__(self, command, out, rates, stdout):
        self.out, self.rates, self.n = out, rates, 0
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=stdout, stderr=subprocess.DEVNULL)
        self.next()

    def next(self):
        """The decode speed of one measurement. The next one begins before the program stops, but only its prompt does."""
        self.process.send_signal(signal.SIGCONT)
        while len(rates := self.rates(self.out.read_text() if self.out.exists() else "")) == self.n:
            if self.process.poll() is not None:
                sys.exit(f"{self.process.args[0]}: exit {self.process.returncode}")
            time.sleep(0.01)
        self.process.send_signal(signal.SIGSTOP)
        self.n += 1
        return rates[self.n - 1]

    def end(self):
        self.process.kill()
        self.process.wait()


def weir_turns(folder, model, load, times):
    threads, out = str(os.cpu_count()), folder / "weir.csv"
    return Turns([os.environ["WEIR_BIN"], "bench", "engine", "-m", model, "-t", threads, "--streams", ",".join(["1"] * times), "-p", str(load[1]), "-n", str(load[2]),
                  "--repeat", "1", "--layout", "per_slot", "--no-plain", "-q", "--csv", str(out)],
                 out, lambda text: [float(row.split(",")[9]) for row in text.split("\n")[1:-1]], subprocess.DEVNULL)


def stock_turns(folder, model, load, times):
    out = folder / "stock.out"
    with open(out, "w") as file:
        return Turns(batched_command(os.environ["STOCK_TOOLS"], model, str(os.cpu_count()), load, "-fa", "on", "-npl", ",".join(["1"] * times)),
                     out, lambda text: [row["decode"] for row in batched_rows(text.rpartition("\n")[0])], file)


def pairs_of(folder, model, load, rounds):
    """Decode speeds of weir and stock, the first side first in one round and last in the next."""
    both = []
    for name in ("weir.csv", "stock.out"):
        (folder / name).unlink(missing_ok=True)
    try:
        for side in (weir_turns, stock_turns):
            both.append(side(folder, model, load, rounds + 2))
        return [tuple(both[k].next() for k in (0, 1)) if i % 2 == 0 else tuple(both[k].next() for k in (1, 0))[::-1] for i in range(rounds)]
    finally:
        for side in both:
            side.end()


def compare_in_turns(runs, paths, folder, rounds):
    title = "## In turns with stock"
    out = [title, "",
           f"`WEIR_TURNS=1 {settings()}python3 bench/long.py {rounds}`, {datetime.date.today().isoformat()}, "
           f"{run([os.environ['WEIR_BIN'], 'version']).splitlines()[0]}.", "",
           f"{machine()}; {os.cpu_count()} threads, load average {os.getloadavg()[0]:.1f} before. Both programs stay loaded and decode in turns. tok/s, "
           f"medians of {rounds} turns; the ratio is the median of the pairs (least to most).", "",
           "| model | load | weir | stock | ratio |", "|---|---|---|---|---|"]
    for model, name in runs:
        n, prompt, _ = load = LOADS[name]
        if n > 1:
            continue
        print(f"{model}, load {name}, in turns", file=sys.stderr, flush=True)
        pairs = pairs_of(folder, paths[model], load, rounds)
        ratios = sorted(a / b for a, b in pairs)
        out.append(f"| {model} | decode, {n} × {prompt:,} | {statistics.median(a for a, _ in pairs):.1f} | {statistics.median(b for _, b in pairs):.1f} | "
                   f"{statistics.median(ratios):.2f} ({ratios[0]:.2f}–{ratios[-1]:.2f}) |")
    out.append("")
    replace_section(RESULTS / "long.md", out, title)
    print("\n".join(out))


def settings():
    """Folders and programs are the machine's own."""
    return "".join(f"{name}={'…' if '/' in os.environ[name] else os.environ[name]} " for name in SETTINGS if os.environ.get(name))


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


def comparable(side, load):
    """An earlier weir may lack --shared-prefix; in load 2 the sequences of ik_llama.cpp's program share one prompt."""
    return not (side == "before" and load in SHARED or side.startswith("ik") and load == LOADS["2"])


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
        cells = SHARED.get(load, 0) + n * (prompt - SHARED.get(load, 0) + answer / 2)
        return (size - costs.unread + cells * costs.cell) * speed / n / 1e9 / gb
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
    if os.environ.get("WEIR_TURNS"):
        compare_in_turns(runs, paths, folder, rounds)
        shutil.rmtree(folder)
        return
    left = int(os.environ.get("WEIR_PIECE", "1000000"))
    for i in range(rounds):
        for model, name in runs:
            for side in list(run_on) if i % 2 == 0 else list(reversed(run_on)):
                if samples.has(i + 1, model, name, side) or not comparable(side, loads[name]):
                    continue
                if left == 0:
                    sys.exit("long: the next run goes on here")
                left -= 1
                print(f"round {i + 1} of {rounds}: {model}, load {name}, {side}", file=sys.stderr, flush=True)
                samples.add(i + 1, model, name, side, run_on[side](paths[model], loads[name]))

    on = machine()
    gmac, gb = (float(re.search(rf"([\d.]+) {unit}", on)[1]) for unit in ("GMAC/s", "GB/s"))
    title = "## Beside others" if DEFAULT in models else "## Beside others: a model of ordinary width"
    random = "" if models == [DEFAULT] else (
        f" The random model has {LAYERS} layers, is 2,048 wide, has 32 heads, 8 of them with keys and values, and the default model's number of "
        f"tokens (`bench/random_model.py OUT whole VOCABULARY`). Its first layers alone run the loads that take too long with all.")
    others = [side for side in run_on if side != "weir"]
    out = [title, "",
           f"`{settings()}python3 bench/long.py {rounds}`, {datetime.date.today().isoformat()}, {run([weir, 'version']).splitlines()[0]}.", "",
           f"{on}; {os.cpu_count()} threads, load average {os.getloadavg()[0]:.1f} at the end.{random} tok/s, medians of {rounds} rounds; for each other side, "
           "its tok/s and weir's divided by them. KV in F16, a lane for each sequence. Limit: of decodes, the share of that bandwidth at which weights "
           "and cells are read; of prompts, the share of the time that the products would take alone, those of matrices at that number of GMAC/s and "
           "those of attention, of 16-bit integers, at half of it.", "",
           f"| model | load | weir | limit | {' | '.join(others)} |", "|---" * (4 + len(others)) + "|"]
    for model, name in runs:
        n, prompt, _ = loads[name]
        for what in ("decode",) if loads[name] in SHARED else ("decode", "prefill"):
            ours = statistics.median(samples.rates(model, name, "weir", what))
            share = share_of_limit(model, os.path.getsize(paths[model]), loads[name], what, ours, gmac, gb)
            out.append(f"| {model} | {what}, {n} × {prompt:,}{', shared' * (loads[name] in SHARED)} | {ours:.0f} | {100 * share:.0f} % | "
                       f"{' | '.join(samples.beside(model, name, side, what) for side in others)} |")
    out.append("")
    replace_section(RESULTS / "long.md", out, title)
    write(RESULTS / ("long.csv" if DEFAULT in models else "long_wide.csv"), "w", samples.rows)
    shutil.rmtree(folder)
    print("\n".join(out))


if __name__ == "__main__":
    main()
