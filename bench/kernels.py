#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""weir with its CPU kernels beside stock llama.cpp, format by format.

usage: kernels.py ROUNDS

Stock is the pin without weir's patch, with upstream's own flags (OpenMP included): its llama-batched-bench, which does not sample.
Each round runs both on each format and shape, one at once after the other and each first in turn. A ratio is that of the best speeds of
all rounds, which a busy machine disturbs least; beside it stands the median of the ratios within the rounds. The AVX2 level stands
beside stock built for AVX2. A table says how near weir comes to the machine's limits. Writes bench/results/kernels.md and kernels.csv. Needs WEIR_BIN, WEIR_MODEL, STOCK_TOOLS
and STOCK_AVX2_TOOLS in the environment; scripts/bench.sh sets them."""
import csv
import datetime
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

from engine import batched, limits, machine, requantize, run, weir_rows

RANDOM = "q4_k_m (random, width 2048)"
FORMATS = ["q8_0", "q4_1", "q4_0", "q5_0", RANDOM, "q6_k", "bf16", "f16"]
AVX2 = ["q8_0", RANDOM]
SHAPES = [(1, 512, 32), (8, 128, 32), (32, 128, 32)]  # streams, tokens of a prompt, of an answer
RESULTS = pathlib.Path("bench/results")
AIMS = {("q8_0", 1): 1.6, (RANDOM, 1): 1.5, ("bf16", 32): 1.8}  # decode beside stock
LAYERS = 30 * 576 * (576 * 2 + 192 * 2 + 1536 * 3)  # products of a token in the layers of the default model
RANDOM_LAYERS = 4 * 2048 * (2048 * 2 + 512 * 2 + 5632 * 3)


def pair(weir, tools, path, threads, shape, kernels, weir_first):
    """Speeds of both sides."""
    n, prompt, answer = shape
    os.environ["WEIR_KERNELS"] = kernels

    def ours():
        row = weir_rows(weir, path, threads, [n], prompt, answer, 1, "--no-plain")[n]["weir"]
        return {what: row[f"{what}_per_second"] for what in ("prefill", "decode")}
    first = ours() if weir_first else None
    theirs = batched(tools, path, threads, n, prompt, answer)
    return first if weir_first else ours(), theirs


def table(samples, names, level):
    lines = ["| format | streams | prompt | prefill, tok/s | ratio | median | decode, tok/s | ratio | median |", "|---|---|---|---|---|---|---|---|---|"]
    for name in names:
        for n, prompt, _ in SHAPES:
            rows = [s for s in samples if s["format"] == name and s["streams"] == n and s["level"] == level]
            cells = []
            for what in ("prefill", "decode"):
                ours, theirs = (max(s[f"{side}_{what}"] for s in rows) for side in ("weir", "stock"))
                median = statistics.median(s[f"weir_{what}"] / s[f"stock_{what}"] for s in rows)
                cells += [f"{theirs:.0f} → {ours:.0f}", f"{ours / theirs:.2f}", f"{median:.2f}"]
            lines.append(f"| {name} | {n} | {prompt} | {' | '.join(cells)} |")
    return lines


def nearness(samples, names, sizes, products, bytes_read):
    """Shares of the time that products take alone at the first limit, and weights at the second."""
    lines = ["| format | streams | prefill: of the products | decode: of the products | decode: of memory | decode beside stock, aim |",
             "|---|---|---|---|---|---|"]
    for name in names:
        for n, _, _ in SHAPES:
            rows = [s for s in samples if s["format"] == name and s["streams"] == n and s["level"] == "auto"]
            prefill, decode, stock = (max(s[what] for s in rows) for what in ("weir_prefill", "weir_decode", "stock_decode"))
            per_token = RANDOM_LAYERS if name == RANDOM else LAYERS
            aim = AIMS.get((name, n))
            reached = "" if aim is None else f"{decode / stock:.2f}, {aim}{'' if decode / stock >= aim else ', missed'}"
            lines.append(f"| {name} | {n} | {prefill * per_token / products:.0%} | {decode * per_token / products:.0%} "
                         f"| {decode / n * sizes[name] / bytes_read:.0%} | {reached} |")
    return lines


def main():
    rounds = int(sys.argv[1])
    weir, model = (os.environ[name] for name in ("WEIR_BIN", "WEIR_MODEL"))
    tools = {"auto": os.environ["STOCK_TOOLS"], "avx2": os.environ["STOCK_AVX2_TOOLS"]}
    threads = str(os.cpu_count())
    samples, sizes, known = [], {}, limits()
    with tempfile.TemporaryDirectory() as folder:
        source = f"{folder}/random.gguf"
        subprocess.run([sys.executable, "bench/random_model.py", source], check=True)
        for name in FORMATS:
            requantize(weir, source if name == RANDOM else model, f"{folder}/{name}.gguf", name.split()[0])
            sizes[name] = os.path.getsize(f"{folder}/{name}.gguf")
        for i in range(rounds):
            print(f"round {i + 1} of {rounds}", file=sys.stderr, flush=True)
            for level, name in [("auto", f) for f in FORMATS] + [("avx2", f) for f in AVX2]:
                for shape in SHAPES:
                    ours, theirs = pair(weir, tools[level], f"{folder}/{name}.gguf", threads, shape, level, i % 2 == 0)
                    samples.append({"round": i + 1, "level": level, "format": name, "streams": shape[0], "prompt": shape[1],
                                    **{f"{side}_{what}": round(of[what], 2)
                                       for side, of in (("stock", theirs), ("weir", ours)) for what in ("prefill", "decode")}})
    os.environ.pop("WEIR_KERNELS", None)
    RESULTS.mkdir(parents=True, exist_ok=True)
    with open(RESULTS / "kernels.csv", "w", newline="") as f:
        writer = csv.DictWriter(f, samples[0].keys(), lineterminator="\n")
        writer.writeheader()
        writer.writerows(samples)

    lines = ["# CPU kernels", "",
             f"`scripts/bench.sh {rounds} kernels`, {datetime.date.today().isoformat()}, {run([weir, 'version']).splitlines()[0]}.", "",
             machine(known) + f"; {threads} threads, SmolLM2-135M-Instruct requantized from its Q4_1 file (`weir quantize --requantize`), whose 576 "
             "columns K formats do not divide: q4_k_m is a model of random weights (bench/random_model.py), and q6_k holds mostly Q8_0. "
             f"Answers of {SHAPES[0][2]} tokens, a lane for each sequence. Stock: llama-batched-bench of the pin without weir's patch, with "
             "upstream's own flags, OpenMP included; it does not sample.", "",
             f"Speeds are the best of {rounds} rounds, stock → weir; ratio: of these; median: of the ratios within the rounds.", "",
             *table(samples, FORMATS, "auto"), "", "## How near the limits", "",
             "The limits are those of the machine, above, measured before the first round. A prompt needs the products of the layers' matrices "
             "for each token; here stands how much of its time they take at that limit. A token of each stream needs the same products, and "
             "all streams together read the weights once. Attention, norms, the vocabulary's products and sampling come on top.", "",
             *nearness(samples, FORMATS, sizes, *known), "", "## AVX2", "",
             "WEIR_KERNELS=avx2 beside stock built for AVX2.", "", *table(samples, AVX2, "avx2")]
    (RESULTS / "kernels.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
