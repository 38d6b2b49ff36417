#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""weir's CPU kernels beside ggml's, format by format, in the same engine.

usage: kernels.py ROUNDS

Each round runs `weir bench engine` on each format with the kernels and without (WEIR_KERNELS=off), one at once after the other and
each first in turn; a ratio is taken within such a pair, and the median over the rounds is what counts. Beside it stand the best
speeds of each, which a busy machine disturbs least. Writes bench/results/kernels.md and kernels.csv.

Then `weir bench kernels` measures single products and attention beside ggml's and beside the limits of the processor: kernels-shapes.md
and kernels-shapes.csv. Needs WEIR_BIN, WEIR_MODEL and WEIR_BENCH_DIR in the environment; `make bench` sets them."""
import csv
import datetime
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

from engine import machine, run

RANDOM = "q4_k_m (random, width 2048)"
FORMATS = ["q8_0", "q4_1", "q4_0", "q5_0", RANDOM, "q6_k", "bf16", "f16"]
STREAMS = [1, 8, 32]
PROMPT, ANSWER = 128, 32
RESULTS = pathlib.Path("bench/results")


def speeds(weir, model, threads, kernels):
    os.environ["WEIR_KERNELS"] = kernels
    out = run([weir, "bench", "engine", "-m", model, "-t", threads, "--streams", ",".join(map(str, STREAMS)), "-p", str(PROMPT), "-n",
               str(ANSWER), "--repeat", "1", "--layout", "per_slot", "--no-plain", "--json", "-q"])
    return {row["streams"]: row["weir"] for row in json.loads(out)["rows"]}


def shapes(weir, rounds):
    """Products and attention by shape, the best of ten repetitions for each round."""
    parsed = json.loads(run([weir, "bench", "kernels", "--repeat", str(10 * rounds), "--csv", str(RESULTS / "kernels-shapes.csv"),
                             "--json", "-q"]))

    def speed(side):
        return "" if side is None else f"{side['gmac_per_second']:.1f}"

    def part(value):
        return "" if value is None else f"{100 * value:.0f} %"

    lines = ["# CPU kernels by shape", "",
             f"`make bench` (kernels, {rounds} rounds), {datetime.date.today().isoformat()}, weir {parsed['weir']}, llama.cpp "
             f"{parsed['backend']}; weir's kernels: {parsed['kernels'] or 'none'}.", "",
             machine() + f"; weir built with {parsed['compiler']}.", "",
             f"GMAC/s through ggml's graphs and threads, the best of {parsed['repetitions']} repetitions, in which the sides take turns. "
             f"Products read {parsed['memory_mb']} MB of weights in turn, as a model's layers do. repack: ggml's on weights in its own layout. "
             "Ratio: weir's by the faster of ggml's. Of peak: of what multiplications in registers reach; of memory: of what reading "
             "memory reaches, by weir's weights. Attention: heads of queries / of keys × size × cells; rows are queries.", "",
             "| threads | peak, GMAC/s | memory, GB/s |", "|---|---|---|"]
    for limit in parsed["limits"]:
        peak = "" if limit["gmac_per_second"] is None else f"{limit['gmac_per_second']:.0f} ({limit['instruction']})"
        lines.append(f"| {limit['threads']} | {peak} | {limit['gb_per_second']:.1f} |")
    lines += ["", "| kernel | shape | rows | threads | weir | ggml | repack | ratio | of peak | weights, GB/s | of memory |",
              "|---|---|---|---|---|---|---|---|---|---|---|"]
    for row in parsed["rows"]:
        ratio = "" if row["ratio"] is None else f"{row['ratio']:.2f}"
        read = "" if row["weir"] is None else f"{row['weir']['gb_per_second']:.1f}"
        lines.append(f"| {row['kernel']} | {row['shape']} | {row['rows']} | {row['threads']} | {speed(row['weir'])} | {speed(row['ggml'])} | "
                     f"{speed(row['repacked'])} | {ratio} | {part(row['of_peak'])} | {read} | {part(row['of_bandwidth'])} |")
    (RESULTS / "kernels-shapes.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))


def main():
    rounds = int(sys.argv[1])
    weir, model, programs = (os.environ[name] for name in ("WEIR_BIN", "WEIR_MODEL", "WEIR_BENCH_DIR"))
    threads = str(os.cpu_count())
    samples = []
    with tempfile.TemporaryDirectory() as folder:
        source = f"{folder}/random.gguf"
        subprocess.run([sys.executable, "bench/random_model.py", source], check=True)
        for name in FORMATS:
            subprocess.run([f"{programs}/requantize", source if name == RANDOM else model, f"{folder}/{name}.gguf", name.split()[0]],
                           check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for i in range(rounds):
            print(f"round {i + 1} of {rounds}", file=sys.stderr, flush=True)
            for name in FORMATS:
                pair = {}
                for kernels in ("off", "auto") if i % 2 == 0 else ("auto", "off"):
                    pair[kernels] = speeds(weir, f"{folder}/{name}.gguf", threads, kernels)
                for n in STREAMS:
                    samples.append({"round": i + 1, "format": name, "streams": n,
                                    **{f"{side}_{what}": round(pair[kernels][n][f"{what}_per_second"], 2)
                                       for side, kernels in (("ggml", "off"), ("weir", "auto")) for what in ("prefill", "decode")}})
    RESULTS.mkdir(parents=True, exist_ok=True)
    with open(RESULTS / "kernels.csv", "w", newline="") as f:
        table = csv.DictWriter(f, samples[0].keys(), lineterminator="\n")
        table.writeheader()
        table.writerows(samples)

    def cell(name, n, what):
        rows = [s for s in samples if s["format"] == name and s["streams"] == n]
        ratio = statistics.median(s[f"weir_{what}"] / s[f"ggml_{what}"] for s in rows)
        return f"{max(s[f'ggml_{what}'] for s in rows):.0f} → {max(s[f'weir_{what}'] for s in rows):.0f} | {ratio:.2f}"

    lines = ["# CPU kernels", "",
             f"`make bench` (kernels, {rounds} rounds), {datetime.date.today().isoformat()}, {run([weir, 'version']).splitlines()[0]}.", "",
             machine() + f"; {threads} threads, SmolLM2-135M-Instruct requantized from its Q4_1 file (bench/requantize.c), whose 576 "
             "columns Q4_K does not divide, so that this runs a model of random weights (bench/random_model.py), prompts of "
             f"{PROMPT} and answers of {ANSWER} tokens, a lane for each sequence. ggml: the same engine with WEIR_KERNELS=off, that is the pin "
             "with its AVX-512 code and its own repacked formats, without OpenMP.", "",
             "Speeds are the best of all rounds in tok/s, ggml's → weir's; ratios are medians of the pairs'.", "",
             "| format | streams | prefill | ratio | decode | ratio |", "|---|---|---|---|---|---|"]
    for name in FORMATS:
        for n in STREAMS:
            lines.append(f"| {name} | {n} | {cell(name, n, 'prefill')} | {cell(name, n, 'decode')} |")
    (RESULTS / "kernels.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))
    os.environ.pop("WEIR_KERNELS", None)
    shapes(weir, rounds)


if __name__ == "__main__":
    main()
