#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The first token of a prompt that a process before this one has computed and left in a folder (--cache-dir).

usage: snapshot.py ROUNDS

Each round takes an empty folder: one process computes the prompt, and another one, started after it, is asked the same; so the file was
written moments before, and the system still has it in memory. TTFT is from the submit on: loading the model and finding the files come
before. Then the same in the other layout. Writes bench/results/snapshot.md. Needs WEIR_BIN and WEIR_MODEL in the environment;
scripts/bench.sh sets them."""
import datetime
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

from engine import machine

TOKENS, ANSWER, AIM = (500, 2000), 16, 0.1
RESULTS = pathlib.Path("bench/results")


def ask(weir, model, prompt, layout, folder):
    done = subprocess.run([weir, "run", "-m", model, "-f", prompt, "--raw", "-n", str(ANSWER), "--ignore-eos", "--temp", "0", "-c", "4096", "--json", "-q",
                           "--layout", layout, "--cache-dir", folder], text=True, stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)


def prompt_of(weir, model, n, path):
    """A text of about n tokens: words of ours, cut where the count is reached."""
    words = pathlib.Path("docs/architecture.md").read_text(encoding="utf-8").split()
    low, high = 1, len(words)
    while low < high:
        middle = (low + high + 1) // 2
        path.write_text(" ".join(words[:middle]), encoding="utf-8")
        count = json.loads(subprocess.run([weir, "tokenize", "-m", model, "-f", str(path), "--json"], text=True, stdout=subprocess.PIPE,
                                          check=True).stdout)
        low, high = (middle, high) if len(count["tokens"]) <= n else (low, middle - 1)
    path.write_text(" ".join(words[:low]), encoding="utf-8")


def main():
    rounds = int(sys.argv[1])
    weir, model = os.environ["WEIR_BIN"], os.environ["WEIR_MODEL"]
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        for n in TOKENS:
            prompt = pathlib.Path(scratch, f"{n}.txt")
            prompt_of(weir, model, n, prompt)
            for layout in ("per_slot", "unified"):
                samples = []
                for i in range(rounds):
                    print(f"{n} tokens, {layout}, round {i + 1} of {rounds}", file=sys.stderr, flush=True)
                    with tempfile.TemporaryDirectory() as folder:
                        cold, warm = (ask(weir, model, str(prompt), layout, folder) for _ in range(2))
                        if warm["tokens"] != cold["tokens"] or warm["usage"]["cached_tokens"] != warm["usage"]["prompt_tokens"] - 1:
                            sys.exit(f"the answers differ, or the prompt was not cached: {cold} {warm}")
                        samples.append((cold["timings"]["ttft_ms"], warm["timings"]["ttft_ms"],
                                        sum(file.stat().st_size for file in pathlib.Path(folder).iterdir()), warm["usage"]["prompt_tokens"]))
                ratios = [warm / cold for cold, warm, _, _ in samples]
                rows.append((samples[0][3], layout, statistics.median(s[0] for s in samples), statistics.median(s[1] for s in samples),
                             statistics.median(ratios), max(ratios), samples[0][2]))
    version = subprocess.run([weir, "version"], text=True, stdout=subprocess.PIPE, check=True).stdout.strip()
    lines = ["# A prompt after a restart", "",
             f"`scripts/bench.sh {rounds} snapshot`, {datetime.date.today().isoformat()}, {version}; {pathlib.Path(model).name}.", "", machine(), "",
             "TTFT of a prompt that is computed (cold), and of the same in a new process that finds it in a folder of the one before (warm): medians of "
             f"{rounds} round{'s' if rounds != 1 else ''}. Both gave the same {ANSWER} tokens each time, and the second computed one token of the prompt. The ratio "
             f"is within each round. Aim: at most {AIM} at 2,000 tokens.", "",
             "| prompt tokens | layout | cold, ms | warm, ms | ratio, median | ratio, most | file, MB |", "|---|---|---|---|---|---|---|"]
    lines += [f"| {n} | {layout} | {cold:.0f} | {warm:.1f} | {ratio:.4f} | {most:.4f} | {size / 1e6:.1f} |"
              for n, layout, cold, warm, ratio, most, size in rows]
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / "snapshot.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
