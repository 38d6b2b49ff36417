#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How far quantized models' logits lie from those of their weights in F32, with weir's CPU kernels and with ggml's.

usage: accuracy.py [ROUNDS], which does not matter: the figures are the same in each

The model is written anew in each format, and in F32 (`weir quantize --requantize`); bench/accuracy.c computes logits of the pinned
llama.cpp's documentation, which stays the same. Two distances are taken: from the source's weights in F32, which is what a format
costs in all, and from the format's own weights in F32, which is what its arithmetic costs. Writes bench/results/accuracy.md and
accuracy.csv; ends with an error where a bound is broken.

WEIR_WINDOWS=4096,8192 measures windows of these lengths instead, with cells of several types, and writes a section of the page;
WEIR_TOKENS sets the number of tokens.

Needs WEIR_BIN, WEIR_MODEL, WEIR_BENCH_DIR and WEIR_LLAMA_SOURCE in the environment; scripts/bench.sh sets them."""
import concurrent.futures
import csv
import datetime
import json
import math
import os
import pathlib
import statistics
import sys
import tempfile

from engine import machine, replace_section, requantize, run

FORMATS = ["q8_0", "q4_0", "q4_1", "q5_0", "q4_k_m", "q6_k", "bf16", "f16"]
WIDE = ["q4_k_m", "q6_k"]  # whose blocks of 256 do not divide the model's 576 columns: with random weights too
TOKENS, MORE = 4096, 16384  # the error of the ratios is as large as their bounds on 4,096
RMS, PERPLEXITY = 1.02, 0.003  # weir's rms / ggml's at the most; by how much its perplexity may be higher
COUNTS = {"model": MORE, "random": TOKENS}
WINDOW = 512
LONG_FORMATS, LONG_CELLS = ["f16", "q8_0"], ["f16", "q8_0"]  # of weights and cells, in long windows
LONG_TITLE = "## Long windows"
AT_ONCE = 2  # programs of one thread each
RESULTS = pathlib.Path("bench/results")
PAGES = ["README.md", "docs/multi-gpu.md", "docs/speculative.md", "docs/build.md", "docs/docker.md", "docs/function-calling.md"]


def rms_of(figure, squares):
    """Both sides' root of the mean square, their ratio and its standard error. squares: of each side, by position."""
    means = {side: statistics.mean(squares[side]) for side in squares}
    apart = [w / means["weir"] - g / means["ggml"] for w, g in zip(squares["weir"], squares["ggml"])]
    ratio = (means["weir"] / means["ggml"]) ** 0.5
    return {f"{side}_{figure}": means[side] ** 0.5 for side in squares} | {
        f"{figure}_ratio": ratio, f"{figure}_error": ratio / 2 * statistics.stdev(apart) / len(apart) ** 0.5}


def perplexity_of(figure, losses):
    more = [w - g for w, g in zip(losses["weir"], losses["ggml"])]
    return {f"{side}_{figure}": math.exp(statistics.mean(losses[side])) for side in losses} | {
        f"{figure}_ratio": math.exp(statistics.mean(more)), f"{figure}_error": statistics.stdev(more) / len(more) ** 0.5}


def show(row, figure):
    if f"ggml_{figure}" not in row:
        return " | "
    error = f" ± {row[f'{figure}_error']:.4f}" if f"{figure}_error" in row else ""
    return f"{row[f'ggml_{figure}']:.4f} → {row[f'weir_{figure}']:.4f} | {row[f'{figure}_ratio']:.4f}{error}"


def write_long(rows):
    """The section about long windows, which the other figures leave where it is."""
    settings = " ".join(f"{name}={os.environ[name]}" for name in ("WEIR_WINDOWS", "WEIR_TOKENS") if os.environ.get(name))
    lines = [LONG_TITLE, "",
             f"`{settings} scripts/bench.sh 1 accuracy`, {datetime.date.today().isoformat()}, {run([os.environ['WEIR_BIN'], 'version']).splitlines()[0]}.", "",
             machine() + f"; one thread, {os.path.basename(os.environ['WEIR_MODEL'])}. {int(os.environ.get('WEIR_TOKENS', MORE)):,} tokens of the text above "
             "in windows of this length. rms and perplexity as above; both sides attend by flash attention, ggml's own (WEIR_KERNELS=off) → weir's.", "",
             "| window | weights | cells | rms | ratio | perplexity | ratio |", "|---" * 7 + "|", *rows, ""]
    replace_section(RESULTS / "accuracy.md", lines, LONG_TITLE)
    print("\n".join(lines))


def main():
    weir, model, programs, llama = (os.environ[name] for name in ("WEIR_BIN", "WEIR_MODEL", "WEIR_BENCH_DIR", "WEIR_LLAMA_SOURCE"))
    with tempfile.TemporaryDirectory() as folder:
        page = f"{folder}/text"
        text = "".join((pathlib.Path(llama) / name).read_text(encoding="utf-8") for name in PAGES)
        pathlib.Path(page).write_text(text, encoding="utf-8")

        sources = {"model": model, "random": f"{folder}/random.gguf"}

        def write(source, name, path):
            requantize(weir, source, path, name)
            return path

        def logits(path, n, how, files, kernels="off", window=WINDOW):
            return json.loads(run(["env", f"WEIR_KERNELS={kernels}", f"{programs}/accuracy", path, page, str(n), str(window), how, *files]))

        def in_f32(path, to, n, window=WINDOW):
            plain = write(path, "f32", f"{to}.gguf")
            losses = logits(plain, n, "write", [to], window=window)["losses"]
            os.unlink(plain)
            return math.exp(statistics.mean(losses))

        def compare(weights, name):
            path = write(sources[weights], name, f"{folder}/{weights}-{name}.gguf")
            own = f"{folder}/{weights}-{name}.f32"
            in_f32(path, own, TOKENS)
            got = {}
            for side, kernels in (("ggml", "off"), ("weir", "auto")):
                n = COUNTS[weights]
                got[side] = logits(path, n, "f16", [f"{folder}/{weights}.f32", own], kernels)
                if (side == "weir") != (got[side]["bytes_packed"] > 0):
                    sys.exit(f"{name}: {got[side]['bytes_packed']} bytes were packed with WEIR_KERNELS={kernels}")
            os.unlink(own)
            row = {"weights": weights, "format": name, "kernels": got["weir"]["kernels"]}
            for i, figure in enumerate(("rms", "own_rms")):
                row |= rms_of(figure, {side: got[side]["squares"][i] for side in got})
            n = len(got["ggml"]["losses"])
            for figure, end in (("perplexity", n * TOKENS // MORE), ("long_perplexity", n)) if weights == "model" else ():
                row |= perplexity_of(figure, {side: got[side]["losses"][:end] for side in got})
            print(row, file=sys.stderr, flush=True)
            return row

        def compare_cells(window, name, cells, path, oracle, n):
            got = {side: logits(path, n, cells, [oracle], kernels, window) for side, kernels in (("ggml", "off"), ("weir", "auto"))}
            row = rms_of("rms", {side: got[side]["squares"][0] for side in got})
            row |= perplexity_of("perplexity", {side: got[side]["losses"] for side in got})
            print(window, name, cells, row, file=sys.stderr, flush=True)
            return f"| {window:,} | {name} | {cells} | {show(row, 'rms')} | {show(row, 'perplexity')} |"

        def compare_long(windows, n, pool):
            paths = {name: write(model, name, f"{folder}/{name}.gguf") for name in LONG_FORMATS}
            oracles = {window: f"{folder}/{window}.f32" for window in windows}
            perplexity = dict(zip(windows, pool.map(lambda window: in_f32(model, oracles[window], n, window), windows)))
            rows = {window: [pool.submit(compare_cells, window, name, cells, paths[name], oracles[window], n)
                             for name in LONG_FORMATS for cells in LONG_CELLS] for window in windows}
            return [line for window in windows for line in (f"| {window:,} | f32 | f32 |  |  | {perplexity[window]:.4f} |  |",
                                                            *(row.result() for row in rows[window]))]

        if os.environ.get("WEIR_WINDOWS"):
            windows = [int(window) for window in os.environ["WEIR_WINDOWS"].split(",")]
            with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
                write_long(compare_long(windows, int(os.environ.get("WEIR_TOKENS", MORE)), pool))
            return

        run([sys.executable, "bench/random_model.py", sources["random"]])
        oracle = {weights: in_f32(path, f"{folder}/{weights}.f32", COUNTS[weights]) for weights, path in sources.items()}
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            rows = list(pool.map(compare, ["model"] * len(FORMATS) + ["random"] * len(WIDE), FORMATS + WIDE))
    RESULTS.mkdir(parents=True, exist_ok=True)
    with open(RESULTS / "accuracy.csv", "w", newline="") as f:
        table = csv.DictWriter(f, rows[0].keys(), lineterminator="\n")
        table.writeheader()
        table.writerows({k: f"{v:.6f}" if isinstance(v, float) else v for k, v in row.items()} for row in rows)

    broken = [row["format"] for row in rows if row["rms_ratio"] > RMS or row.get("long_perplexity_ratio", 1) > 1 + PERPLEXITY]
    better = [row["format"] for row in rows if row.get("long_perplexity_ratio", 1) < 1 - PERPLEXITY]
    lines = ["# Accuracy of the CPU kernels", "",
             f"`scripts/bench.sh 1 accuracy`, {datetime.date.today().isoformat()}, {run([weir, 'version']).splitlines()[0]}, kernels "
             f"{rows[0]['kernels']}.", "",
             machine() + "; one thread. SmolLM2-135M-Instruct, whose Q4_1 file is the source of all formats (`weir quantize --requantize`). Its 576 columns "
             "are no multiple of the K formats' 256, and most of their matrices are Q5_0 or Q8_0 instead; so these formats appear once more, "
             "with the random weights of bench/random_model.py, 2,048 wide, where a perplexity says nothing.", "",
             f"Logits at all positions of {MORE:,} tokens ({TOKENS:,} with random weights) in windows of 512 of the pinned llama.cpp's "
             "documentation. rms: root of the mean square of the differences from the logits of the source's weights in F32, computed by "
             f"ggml with keys and values in F32; own rms, of the first {TOKENS:,} tokens: from those of the format's own weights in F32, so "
             "without what rounding the weights costs. ggml's (WEIR_KERNELS=off) → weir's. ±: the ratio's standard error, from the "
             "differences token by token.", "",
             f"Bounds: rms ≤ {RMS} × ggml's; perplexity at most {100 * PERPLEXITY:.1f} % above ggml's on {MORE:,} tokens. "
             + (f"Broken by {', '.join(broken)}." if broken else "All are kept.")
             + (f" More than {100 * PERPLEXITY:.1f} % below ggml's: {', '.join(better)}." if better else "")
             + f" Perplexity of {MORE:,} tokens in F32: {oracle['model']:.4f}.", "",
             f"| format | rms | ratio | own rms | ratio | perplexity, {TOKENS:,} tokens | ratio | {MORE:,} tokens | ratio |",
             "|---" * 9 + "|"]
    for row in rows:
        cells = [show(row, figure) for figure in ("rms", "own_rms", "perplexity", "long_perplexity")]
        lines.append(f"| {row['format']}{', random' * (row['weights'] == 'random')} | {' | '.join(cells)} |")
    page = RESULTS / "accuracy.md"
    kept = page.read_text(encoding="utf-8").partition(LONG_TITLE) if page.exists() else ("", "", "")
    page.write_text("\n".join(lines) + "\n" + ("\n" + "".join(kept[1:]) if kept[1] else ""), encoding="utf-8")
    print("\n".join(lines))
    if broken:
        sys.exit(f"accuracy: a bound is broken by {', '.join(broken)}")


if __name__ == "__main__":
    main()
