#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How far quantized models' logits lie from those of their weights in F32, with weir's CPU kernels and with ggml's.

usage: accuracy.py [ROUNDS], which does not matter: the figures are the same in each

The model is written anew in each format, and in F32 (bench/requantize.c); bench/accuracy.c computes the logits of 4,096 tokens of
weir's and llama.cpp's own documentation. Two distances are taken: from the source's weights in F32, which is what a format costs in
all, and from the format's own weights in F32, which is what its arithmetic costs. Writes bench/results/accuracy.md and
accuracy.csv; ends with an error where a bound is broken. Needs WEIR_BIN, WEIR_MODEL, WEIR_BENCH_DIR and WEIR_LLAMA_SOURCE in the
environment; scripts/bench.sh sets them."""
import csv
import datetime
import json
import os
import pathlib
import subprocess
import sys
import tempfile

from engine import machine, run

FORMATS = ["q8_0", "q4_0", "q4_1", "q5_0", "q4_k_m", "q6_k"]
RMS, PERPLEXITY = 1.02, 0.003  # weir's rms / ggml's at the most; perplexities' distance from 1 : 1 at the most
RESULTS = pathlib.Path("bench/results")
OURS = ["README.md", "docs/architecture.md"]
THEIRS = ["README.md", "docs/multi-gpu.md", "docs/speculative.md"]
HALF = 8000  # bytes of ours; theirs follow, and are more than 4,096 tokens need


def text(llama):
    def read(folder, names):
        return "".join((pathlib.Path(folder) / name).read_text(encoding="utf-8") for name in names)
    return read(".", OURS)[:HALF] + read(llama, THEIRS)


def main():
    weir, model, programs, llama = (os.environ[name] for name in ("WEIR_BIN", "WEIR_MODEL", "WEIR_BENCH_DIR", "WEIR_LLAMA_SOURCE"))
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        page = f"{folder}/text"
        pathlib.Path(page).write_text(text(llama), encoding="utf-8")

        def write(source, name):
            path = f"{folder}/{name}.gguf"
            subprocess.run([f"{programs}/requantize", source, path, name], check=True, stdout=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL)
            return path

        def logits(path, what, how, kernels="off"):
            os.environ["WEIR_KERNELS"] = kernels
            return json.loads(run([f"{programs}/accuracy", path, page, f"{folder}/{what}", how]))

        oracle = logits(write(model, "f32"), "source", "write")["perplexity"]
        for name in FORMATS:
            print(name, file=sys.stderr, flush=True)
            path = write(model, name)
            logits(write(path, "f32"), "own", "write")
            row = {"format": name, "f32_perplexity": oracle}
            for side, kernels in (("ggml", "off"), ("weir", "auto")):
                source, own = (logits(path, what, "compare", kernels) for what in ("source", "own"))
                if (side == "weir") != (source["bytes_packed"] > 0):
                    sys.exit(f"{name}: {source['bytes_packed']} bytes were packed for weir's kernels with WEIR_KERNELS={kernels}")
                row |= {f"{side}_rms": source["rms"], f"{side}_own_rms": own["rms"], f"{side}_perplexity": source["perplexity"],
                        f"{side}_kernels": source["kernels"]}
            for what in ("rms", "own_rms", "perplexity"):
                row[f"{what}_ratio"] = row[f"weir_{what}"] / row[f"ggml_{what}"]
            rows.append(row)
    RESULTS.mkdir(parents=True, exist_ok=True)
    with open(RESULTS / "accuracy.csv", "w", newline="") as f:
        table = csv.DictWriter(f, rows[0].keys(), lineterminator="\n")
        table.writeheader()
        table.writerows({k: f"{v:.6f}" if isinstance(v, float) else v for k, v in row.items()} for row in rows)

    broken = [row["format"] for row in rows if row["rms_ratio"] > RMS or abs(row["perplexity_ratio"] - 1) > PERPLEXITY]
    lines = ["# Accuracy of the CPU kernels", "",
             f"`scripts/bench.sh 1 accuracy`, {datetime.date.today().isoformat()}, {run([weir, 'version']).splitlines()[0]}, kernels "
             f"{rows[0]['weir_kernels']}.", "",
             machine() + "; 2 threads. SmolLM2-135M-Instruct, whose Q4_1 file is the source of all formats (bench/requantize.c).", "",
             "Logits of 4,096 tokens in windows of 512, at all positions: the beginning of weir's own documentation and that of the pinned "
             "llama.cpp. rms: root of the mean square of the differences from the logits of the source's weights in F32, computed by ggml "
             "with keys and values in F32; own rms: from those of the format's own weights in F32, so without what rounding the "
             "weights costs. ggml: WEIR_KERNELS=off.", "",
             f"Bounds: rms ≤ {RMS} × ggml's, perplexity within {100 * PERPLEXITY:.1f} % of ggml's. "
             + (f"Broken by {', '.join(broken)}." if broken else "All are kept.") + f" Perplexity in F32: {oracle:.4f}.", "",
             "| format | rms ggml | weir | ratio | own rms ggml | weir | ratio | perplexity ggml | weir | ratio |",
             "|---|---|---|---|---|---|---|---|---|---|"]
    for row in rows:
        cells = [" | ".join(f"{row[f'{side}_{what}']:.4f}" for side in ("ggml", "weir")) + f" | {row[f'{what}_ratio']:.4f}"
                 for what in ("rms", "own_rms", "perplexity")]
        lines.append(f"| {row['format']} | {' | '.join(cells)} |")
    (RESULTS / "accuracy.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))
    if broken:
        sys.exit(f"accuracy: a bound is broken by {', '.join(broken)}")


if __name__ == "__main__":
    main()
