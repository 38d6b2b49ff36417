#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Four streams beside a prompt of 16,000 tokens: how long their tokens are apart, by how much of the prompt is computed.

usage: beside.py ROUNDS

With latency-target, 50 ms. Streams of 200 tokens follow one another, so that their own contexts stay short. The figures come from the
engine's record of ticks (weir stream --ring). The default model in Q8_0 was trained with 8,192 tokens: behind these only times mean
something. Replaces its section of bench/results/long.md.

Needs WEIR_BIN, WEIR_MODEL and WEIR_BENCH_DIR in the environment; scripts/bench.sh sets them."""
import collections
import datetime
import json
import os
import pathlib
import random
import statistics
import sys
import tempfile

from engine import machine, replace_section, requantize, run

PAGE, TITLE = pathlib.Path("bench/results/long.md"), "## Streams beside a long prompt"
TOKENS, STREAMS, ANSWER, TARGET_MS = 16000, 4, 200, 50
DEPTHS = [(0, 1000), (3500, 4500), (7500, 8500), (11500, 12500), (14500, 15500)]  # cells before a tick's tokens
WORDS = "the of and to in is that for it as was with be by on not he his but at are this have from or had an they which one you were her all she".split()


def requests():
    """The prompt first: words that are one token each, in an order of their own."""
    dice = random.Random(1)
    long = {"prompt": " ".join(dice.choice(WORDS) for _ in range(TOKENS)), "max_tokens": 1}
    streams = [{"prompt": f"{i}. Once", "max_tokens": ANSWER, "ignore_eos": True, "seed": i} for i in range(16 * STREAMS)]
    return {"requests": [long, *streams]}


def ticks_of(path):
    """(cells before, tokens of the prompt, ms since the end of the tick before) of each tick with all streams."""
    before = None
    for line in open(path, encoding="utf-8"):
        tick = json.loads(line)
        if "tick" not in tick:
            continue
        end = tick["start_ns"] + tick["tick_ns"]
        part = next((p for p in tick["slots"] if p["request"] == 0 and p.get("n_tokens", 0) > 0), None)
        if before is not None and part is not None and tick.get("n_decode", 0) == STREAMS:
            yield part.get("n_past", 0), part["n_tokens"], (end - before) / 1e6
        before = end


def main():
    samples, folder = collections.defaultdict(list), pathlib.Path(os.environ["WEIR_BENCH_DIR"])
    weir, model = os.environ["WEIR_BIN"], str(folder / "beside-q8_0.gguf")
    requantize(weir, os.environ["WEIR_MODEL"], model, "q8_0")
    with tempfile.TemporaryDirectory() as scratch:
        asked, ring = pathlib.Path(scratch, "requests.json"), pathlib.Path(scratch, "ring.jsonl")
        asked.write_text(json.dumps(requests()), encoding="utf-8")
        for _ in range(int(sys.argv[1])):
            run([weir, "stream", str(asked), "-m", model, "-c", "16640", "--slots", str(STREAMS + 1), "--strategy", "latency-target",
                 "--itl-target", str(TARGET_MS), "--draft-max", "0", "--ring", str(ring), "-q"])
            for n_past, n, ms in ticks_of(ring):
                for depth in DEPTHS:
                    if depth[0] <= n_past < depth[1]:
                        samples[depth].append((n, ms))
    rows = []
    for depth in DEPTHS:
        if len(samples[depth]) < 2:
            sys.exit(f"too few ticks behind {depth[0]} cells: {len(samples[depth])}")
        tokens, times = zip(*samples[depth])
        n, ms = statistics.quantiles(tokens, n=20), statistics.quantiles(times, n=20)
        rows.append(f"| {depth[0]:,} to {depth[1]:,} | {n[0]:.0f}–{n[18]:.0f} | {statistics.median(times):.1f} | {ms[18]:.1f} | "
                    f"{sum(tokens) / sum(times) * 1e3:.0f} |")
    replace_section(PAGE, [
        TITLE, "", f"`scripts/bench.sh {sys.argv[1]} beside`, {datetime.date.today().isoformat()}, {run([weir, '--version']).strip()}.", "",
        f"{machine()}; {os.cpu_count()} threads. The default model in Q8_0, cells in F16, lanes, latency-target with {TARGET_MS} ms. {STREAMS} streams "
        f"of {ANSWER} tokens each, one after another, beside one prompt of {TOKENS:,} tokens. Time between the ends of ticks that have tokens of the "
        f"prompt and of all streams, over {sys.argv[1]} rounds.", "", "| cells before | prompt tokens per tick, p5 to p95 | p50, ms | p95 | prompt tok/s |",
        "|---|---|---|---|---|", *rows, "", "Where the time of such a tick goes, and what it was before:",
        "[cost_model.md](cost_model.md#where-the-time-of-a-tick-with-a-long-prompt-goes).", ""], TITLE)


if __name__ == "__main__":
    main()
