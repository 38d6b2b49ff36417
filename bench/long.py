#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Long contexts beside llama.cpp, beside ik_llama.cpp and beside an earlier weir.

usage: long.py ROUNDS

Each round runs every load on every side, one right after the other, in an order that turns with the rounds. Stock is the pin without
weir's patch, with upstream's own flags: its llama-batched-bench with -fa on. The sides beside weir are optional: STOCK_TOOLS, which
scripts/bench.sh sets; IK_TOOLS, a folder with ik_llama.cpp's llama-batched-bench, which runs with and without -rtr; and WEIR_BEFORE,
the program of an earlier weir. WEIR_LOADS chooses loads by their numbers (1,4), WEIR_MODELS models (1 to 3). Writes the section
"Beside others" of bench/results/long.md, and long.csv. Needs WEIR_BIN and WEIR_MODEL in the environment; scripts/bench.sh sets them."""
import csv
import datetime
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

from engine import machine, replace_section, requantize, run, weir_rows

RESULTS = pathlib.Path("bench/results")
TITLE = "## Beside others"
SETTINGS = ["STOCK_TOOLS", "IK_TOOLS", "WEIR_BEFORE", "WEIR_LOADS", "WEIR_MODELS"]
DEFAULT, Q8_0, Q4_K_M = "default, Q8_0", "random, Q8_0", "random, Q4_K_M"
# Bytes of an F16 cell, and bytes of the file that a decoded token does not read (embeddings that are not the output's weights).
MODELS = {DEFAULT: (30 * 2 * 192 * 2, 0), Q8_0: (16 * 2 * 512 * 2, 49152 * 2048 * 34 // 32), Q4_K_M: (16 * 2 * 512 * 2, 49152 * 2048 * 18 // 32)}
LOADS = {"1": (1, 8000, 64), "2": (8, 4000, 32), "3": (1, 128, 64), "4": (8, 128, 64), "5": (32, 128, 64)}  # streams, prompt, answer


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


def main():
    rounds = int(sys.argv[1])
    weir, default = (os.environ[name] for name in ("WEIR_BIN", "WEIR_MODEL"))
    loads = {name: LOADS[name] for name in os.environ.get("WEIR_LOADS", ",".join(LOADS)).split(",")}
    models = [list(MODELS)[int(i) - 1] for i in os.environ.get("WEIR_MODELS", "1,2,3").split(",")]
    run_on, samples, sizes = sides(), [], {}
    with tempfile.TemporaryDirectory() as folder:
        paths = {model: f"{folder}/{i}.gguf" for i, model in enumerate(MODELS)}
        requantize(weir, default, paths[DEFAULT], "q8_0")
        if models != [DEFAULT]:
            subprocess.run([sys.executable, "bench/random_model.py", paths[Q8_0], "whole"], check=True)
            requantize(weir, paths[Q8_0], paths[Q4_K_M], "q4_k_m")
        for model in models:
            sizes[model] = os.path.getsize(paths[model])
        for i in range(rounds):
            for model in models:
                for name, load in loads.items():
                    print(f"round {i + 1} of {rounds}: {model}, load {name}", file=sys.stderr, flush=True)
                    turned = list(run_on) if i % 2 == 0 else list(reversed(run_on))
                    for side in turned:
                        got = run_on[side](paths[model], load)
                        samples += [{"round": i + 1, "model": model, "load": name, "side": side, "what": what, "per_second": got[what]}
                                    for what in ("prefill", "decode")]
    with open(RESULTS / "long.csv", "w", newline="") as f:
        table = csv.DictWriter(f, samples[0].keys(), lineterminator="\n")
        table.writeheader()
        table.writerows({k: round(v, 2) if isinstance(v, float) else v for k, v in s.items()} for s in samples)

    def rates(model, load, side, what):
        return [s["per_second"] for s in samples if (s["model"], s["load"], s["side"], s["what"]) == (model, load, side, what)]

    def beside(model, load, side, what):
        ours, theirs = rates(model, load, "weir", what), rates(model, load, side, what)
        if not theirs:
            return "–"
        return f"{statistics.median(theirs):.0f}, {statistics.median(a / b for a, b in zip(ours, theirs)):.2f}"

    on = machine()
    gb = float(re.search(r"([\d.]+) GB/s", on)[1])
    # Folders and programs are the machine's own.
    settings = [f"{name}={'…' if '/' in os.environ[name] else os.environ[name]} " for name in SETTINGS if os.environ.get(name)]
    random = "" if models == [DEFAULT] else (" The random model has 16 layers, is 2,048 wide, has 32 heads, 8 of them with keys and values, and "
                                             "the default model's number of tokens (`bench/random_model.py OUT whole`).")
    others = [side for side in run_on if side != "weir"]
    out = [TITLE, "",
           f"`{''.join(settings)}python3 bench/long.py {rounds}`, {datetime.date.today().isoformat()}, {run([weir, 'version']).splitlines()[0]}.", "",
           f"{on}; {os.cpu_count()} threads, load average {os.getloadavg()[0]:.1f} at the end.{random} tok/s, medians of {rounds} rounds; for each other side, "
           "its tok/s and weir's divided by them. KV in F16, a lane for each sequence. Memory: the share of that bandwidth at which weights and cells are "
           "read for the decoded tokens.", "",
           f"| model | load | weir | memory | {' | '.join(others)} |", "|---" * (4 + len(others)) + "|"]
    for model in models:
        cell, unread = MODELS[model]
        for name, (n, prompt, answer) in loads.items():
            for what in ("decode", "prefill"):
                ours = rates(model, name, "weir", what)
                passes = statistics.median(ours) / n
                read = (sizes[model] - unread + n * (prompt + answer / 2) * cell) * passes / 1e9
                share = f"{100 * read / gb:.0f} %" if what == "decode" else ""
                length = f"{n} × {prompt:,}"
                out.append(f"| {model} | {what}, {length} | {statistics.median(ours):.0f} | {share} | "
                           f"{' | '.join(beside(model, name, side, what) for side in others)} |")
    out.append("")
    replace_section(RESULTS / "long.md", out, TITLE)
    print("\n".join(out))


if __name__ == "__main__":
    main()
