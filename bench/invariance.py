#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The whole matrix of tests/invariance_model_test.c: all prompts in every combination of layout, chunk size and company.

usage: invariance.py [ROUNDS], which does not matter

The model is the first LAYERS layers of WEIR_MODEL. WEIR_LAYERS chooses another number.

What is done is kept in build/release/invariance.csv, so that an interrupted run goes on where it stopped, as long as the program, the
model and WEIR_KERNELS are the same. Writes bench/results/invariance.md; ends with an error where an answer differs. Needs WEIR_BIN, WEIR_MODEL
and WEIR_BENCH_DIR in the environment; scripts/bench.sh sets them."""
import datetime
import hashlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile

from engine import machine, run
from first_layers import shorten

SEED = 1
CELLS = 84
LAYERS = int(os.environ.get("WEIR_LAYERS", "2"))
RESULTS = pathlib.Path("bench/results")


def compare(test, model, done):
    """Appends a line to the file `done` for each combination that it does not have yet."""
    parts = [path.read_bytes() for path in (test, test.parents[1] / "libweir_test.so", pathlib.Path(model))]
    same = "# " + hashlib.sha256(b"".join(parts) + os.environ.get("WEIR_KERNELS", "").encode()).hexdigest()
    if not done.exists() or done.read_text().split("\n")[0] != same:
        done.write_text(same + "\n")
    os.environ |= {"WEIR_TEST_MODEL": model, "WEIR_TEST_MATRIX": str(done), "WEIR_TEST_SEED": str(SEED)}
    subprocess.run([str(test)], stdout=sys.stderr)  # the file has the result


def main():
    weir, model, programs = (os.environ[name] for name in ("WEIR_BIN", "WEIR_MODEL", "WEIR_BENCH_DIR"))
    test = pathlib.Path(programs).parent / "tests/invariance_model_test"
    done = pathlib.Path(programs).parent / "invariance.csv"
    with tempfile.TemporaryDirectory() as folder:
        short = f"{folder}/short.gguf"
        shorten(model, LAYERS, short)
        kernels = json.loads(run([weir, "info", "-m", short, "--json"]))["model"]["kernels"]
        compare(test, short, done)

    cells = [line.split(",") for line in done.read_text().splitlines()[1:]]
    compared, different, seconds = (sum(int(cell[i]) for cell in cells) for i in (4, 5, 6))
    lines = ["# Batch invariance", "",
             f"`scripts/bench.sh 1 invariance`, {datetime.date.today().isoformat()}, {run([weir, 'version']).splitlines()[0]}.", "",
             f"{machine()}; the first {LAYERS} layers of {pathlib.Path(model).name}; kernels: {kernels}.", "",
             f"64 prompts of 1 to 8,176 tokens (seed {SEED}), three of them of 8,176; greedy answers of 16, so contexts up to 8,192. The reference "
             "is each prompt alone: one slot, chunks of 512, one thread. Every combination of layout, chunk size and company then runs all 64 in an "
             "order of its own, with one and two threads in turn; company of n is an engine of n + 1 slots that is kept full while there are "
             "prompts left. Tokens and their logprobs must be equal to the last bit.", "",
             "A few layers are enough: each layer runs the same kernels at the same widths, heads and formats, so an operation whose result depended "
             "on the company would do so in the first layer too. A logprob is computed from the whole row of logits, so it shows differences "
             "of rounding, whereas tokens alone show only those that decide a near-tie.", "",
             f"{len(cells)} of {CELLS} combinations, {compared} comparisons, **{different} different**; {seconds / 60:.0f} minutes.", "",
             "| layout | chunk | " + " | ".join(f"{n} others" for n in (0, 1, 2, 4, 8, 16, 32)) + " |", "|---" * 9 + "|"]
    found = {tuple(cell[:3]): cell for cell in cells}
    for layout in ("unified", "per_slot"):
        for chunk in (16, 32, 64, 128, 256, 512):
            row = [found.get((layout, str(chunk), str(n))) for n in (0, 1, 2, 4, 8, 16, 32)]
            lines.append(f"| {layout} | {chunk} | " + " | ".join("–" if c is None else f"{c[5]} of {c[4]}" for c in row) + " |")
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / "invariance.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))
    if different != 0 or len(cells) != CELLS:
        sys.exit(f"invariance: {different} answers differ, {CELLS - len(cells)} combinations are left")


if __name__ == "__main__":
    main()
