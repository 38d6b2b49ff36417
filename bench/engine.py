#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The engine's figures: beside a plain llama.h loop, beside llama-batched-bench, and by itself.

usage: engine.py ROUNDS

A ratio is taken between two runs that follow each other at once, each side first in turn, so that a machine whose speed drifts
does so under both; the median over many such pairs is what counts. First the two ratios that have an aim, in PAIRS pairs each;
then ROUNDS rounds over all numbers of streams. Writes bench/results/engine.md and engine.csv. Needs WEIR_BIN, WEIR_MODEL and
LLAMA_TOOLS in the environment; `make bench` sets them."""
import csv
import datetime
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys

PROMPT, ANSWER = 128, 64
PAIRS, SHORT_PROMPT, SHORT_ANSWER = 48, 32, 48
STREAMS = [1, 2, 4, 8, 16, 32]
TARGETS = {"single": 0.98, "eight": 0.97}
RESULTS = pathlib.Path("bench/results")


def run(command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit {done.returncode}\n{done.stderr}")
    return done.stdout


def requantize(weir, source, path, name):
    run([weir, "quantize", "-m", source, "--type", name.upper(), "--requantize", "-o", path, "-q"])


def weir_rows(weir, model, threads, streams, prompt, answer, repeat, *more):
    out = run([weir, "bench", "engine", "-m", model, "-t", threads, "--streams", ",".join(map(str, streams)), "-p", str(prompt),
               "-n", str(answer), "--repeat", str(repeat), "--layout", "per_slot", "--json", "-q", *more])
    return {row["streams"]: row for row in json.loads(out)["rows"]}


def batched(tools, model, threads, n, prompt, answer):
    """llama-batched-bench: no sampling, no text; the same lengths, a lane for each sequence, as weir's layout here."""
    lane = -(-(prompt + answer) // 256) * 256
    out = run([f"{tools}/llama-batched-bench", "-m", model, "-t", threads, "-c", str(lane * n), "-b", "2048", "-ub", "512",
               "-npp", str(prompt), "-ntg", str(answer), "-npl", str(n), "--output-format", "jsonl"])
    row = next(json.loads(line) for line in out.splitlines() if line.startswith("{"))
    return {"prefill": row["speed_pp"], "decode": row["speed_tg"]}


def eight_pair(weir, model, tools, threads, weir_first):
    def ours():
        return weir_rows(weir, model, threads, [8], SHORT_PROMPT, SHORT_ANSWER, 1, "--no-plain")[8]["weir"]["decode_per_second"]
    first = ours() if weir_first else None
    theirs = batched(tools, model, threads, 8, SHORT_PROMPT, SHORT_ANSWER)["decode"]
    return (first if weir_first else ours()) / theirs


def limits():
    """The two limits that every figure depends on: products and bytes from memory per second, of all processors together."""
    measured = json.loads(run(["env", "-u", "WEIR_KERNELS", os.environ["WEIR_BIN"], "bench", "kernels", "--kernel", "q8_0", "--shape",
                               "2048x2048", "--rows", "1", "--threads", str(os.cpu_count()), "--json", "-q"]))["limits"][0]
    return measured["gmac_per_second"] * 1e9, measured["gb_per_second"] * 1e9


def machine(known=None):
    """The processor, what `limits` says, the system and the compiler, in a line."""
    products, bytes_read = known or limits()
    lines = [line.split(":", 1) for line in open("/proc/cpuinfo") if ":" in line]
    cpu = {name.strip(): value.strip() for name, value in reversed(lines)}  # the first processor
    # In virtual machines the name may be the maker's alone.
    kind = [f"family {cpu['cpu family']} model {cpu['model']}"] if "cpu family" in cpu else []
    best = [f for f in ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_int8") if f in cpu.get("flags", "").split()]
    compiler = run(["cc", "--version"]).splitlines()[0]
    return (f"{cpu.get('model name', 'unknown')} ({', '.join(kind + best)}), {os.cpu_count()} cores, {products / 1e9:.0f} GMAC/s, "
            f"{bytes_read / 1e9:.1f} GB/s from memory ({os.cpu_count()} threads), "
            f"{platform.system()} {platform.machine()}; {compiler}")


def replace_section(path, lines, title):
    """Writes the section of a page in place of the one that has this title, or at the end."""
    text = path.read_text(encoding="utf-8")
    before, found, after = text.partition(title + "\n")
    rest = after.partition("\n## ")[2] if found else ""
    path.write_text(before.rstrip("\n") + "\n\n" + "\n".join(lines) + ("\n## " + rest if rest else ""), encoding="utf-8")


def main():
    rounds = int(sys.argv[1])
    os.environ["WEIR_KERNELS"] = "off"  # the engine is measured, on the same kernels as what stands beside it
    weir, model, tools = (os.environ[name] for name in ("WEIR_BIN", "WEIR_MODEL", "LLAMA_TOOLS"))
    threads = str(os.cpu_count())
    print(f"one stream beside the plain loop, {PAIRS} pairs", file=sys.stderr, flush=True)
    single = weir_rows(weir, model, threads, [1], SHORT_PROMPT, SHORT_ANSWER, PAIRS)[1]["ratio"]["decode"]
    print(f"8 streams beside llama-batched-bench, {PAIRS // 2} pairs", file=sys.stderr, flush=True)
    eight = sorted(eight_pair(weir, model, tools, threads, i % 2 == 0) for i in range(PAIRS // 2))
    samples = []
    for i in range(rounds):
        print(f"round {i + 1} of {rounds}", file=sys.stderr, flush=True)
        for n in STREAMS:
            b = batched(tools, model, threads, n, PROMPT, ANSWER)
            row = weir_rows(weir, model, threads, [n], PROMPT, ANSWER, 1)[n]
            w, p = row["weir"], row["plain"]
            samples.append({"round": i + 1, "streams": n, "weir_prefill": w["prefill_per_second"], "plain_prefill": p["prefill_per_second"],
                            "batched_prefill": b["prefill"], "weir_decode": w["decode_per_second"], "plain_decode": p["decode_per_second"],
                            "batched_decode": b["decode"], "weir_ttft_p50_ms": w["ttft_p50_ms"], "weir_itl_p50_ms": w["itl_p50_ms"],
                            "weir_itl_p99_ms": w["itl_p99_ms"], "weir_worst_gap_ms": w["worst_gap_ms"]})

    RESULTS.mkdir(parents=True, exist_ok=True)
    with open(RESULTS / "engine.csv", "w", newline="") as f:
        table = csv.DictWriter(f, samples[0].keys(), lineterminator="\n")
        table.writeheader()
        table.writerows({k: round(v, 3) if isinstance(v, float) else v for k, v in s.items()} for s in samples)

    def middle(n, key):
        return statistics.median(s[key] for s in samples if s["streams"] == n)

    def ratio(n, ours, theirs):
        values = sorted(s[ours] / s[theirs] for s in samples if s["streams"] == n)
        return statistics.median(values), values[0], values[-1]

    lines = ["# Engine", "",
             f"`make bench` ({rounds} rounds), {datetime.date.today().isoformat()}, {run([weir, 'version']).splitlines()[0]}.", "",
             machine() + f"; {threads} threads, {pathlib.Path(model).name}, prompts of {PROMPT} and answers of {ANSWER} tokens, greedy, "
             "a lane for each sequence.", "",
             "Speeds are medians over the rounds in tok/s, ratios medians of the ratios within a round (least to most). The plain loop "
             "and llama-batched-bench have the same pin, flags, kernels (ggml's) and batch shapes; llama-batched-bench does not sample.", "",
             "| streams | weir prefill | / plain | / batched-bench | weir decode | / plain | / batched-bench | ITL p50 | ITL p99 |",
             "|---|---|---|---|---|---|---|---|---|"]

    def show(r):
        return f"{r[0]:.3f} ({r[1]:.3f}–{r[2]:.3f})"
    for n in STREAMS:
        lines.append(f"| {n} | {middle(n, 'weir_prefill'):.0f} | {show(ratio(n, 'weir_prefill', 'plain_prefill'))} | "
                     f"{show(ratio(n, 'weir_prefill', 'batched_prefill'))} | {middle(n, 'weir_decode'):.0f} | "
                     f"{show(ratio(n, 'weir_decode', 'plain_decode'))} | {show(ratio(n, 'weir_decode', 'batched_decode'))} | "
                     f"{middle(n, 'weir_itl_p50_ms'):.1f} ms | {middle(n, 'weir_itl_p99_ms'):.1f} ms |")
    checks = [(f"decode of one stream / plain llama.h loop ({PAIRS} pairs of {SHORT_PROMPT} + {SHORT_ANSWER} tokens)", single,
               TARGETS["single"]),
              (f"decode of 8 streams / llama-batched-bench's S_TG ({len(eight)} pairs of {SHORT_PROMPT} + {SHORT_ANSWER} tokens)",
               statistics.median(eight), TARGETS["eight"])]
    lines += ["", "| figure | measured | aim |", "|---|---|---|"]
    lines += [f"| {name} | {value:.3f} | ≥ {aim}{'' if value >= aim else ', missed'} |" for name, value, aim in checks]
    (RESULTS / "engine.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
