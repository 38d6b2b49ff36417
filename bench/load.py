#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How long a model takes until its first token, and the memory of its weights: as llama.cpp loads it, with weir's kernels, and from
a file of `weir optimize`.

usage: load.py ROUNDS

Each round loads every format in each of the three ways, in processes of their own; files lie in the page cache. Writes
bench/results/load.md and load.csv. Needs WEIR_BIN, WEIR_MODEL and WEIR_BENCH_DIR in the environment; scripts/bench.sh sets them."""
import csv
import datetime
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

from engine import machine, requantize, run

RANDOM = "q4_k_m (random, width 2048)"
FORMATS = ["q8_0", "q4_1", "q4_0", "bf16", RANDOM]
WAYS = {"llama.cpp": ("off", False), "kernels": ("auto", False), "optimized": ("auto", True)}
LONGEST = 1.5
LARGEST = 1.05
RESULTS = pathlib.Path("bench/results")


def main():
    rounds = int(sys.argv[1])
    weir, model, programs = (os.environ[name] for name in ("WEIR_BIN", "WEIR_MODEL", "WEIR_BENCH_DIR"))
    samples = []
    with tempfile.TemporaryDirectory() as folder:
        source = f"{folder}/random.gguf"
        subprocess.run([sys.executable, "bench/random_model.py", source], check=True)
        for name in FORMATS:
            requantize(weir, source if name == RANDOM else model, f"{folder}/{name}.gguf", name.split()[0])
        for name in FORMATS:
            path = f"{folder}/{name}.gguf"
            run([weir, "optimize", path, "-q"])
            vocab = json.loads(run([f"{programs}/load", path, "vocab"]))["loaded"]
            for i in range(rounds):
                for way, (kernels, optimized) in sorted(WAYS.items(), key=lambda item: (i + len(item[0])) % len(WAYS)):
                    os.environ["WEIR_KERNELS"] = kernels
                    here, there = (f"{path}.away", f"{path}.weir") if optimized else (f"{path}.weir", f"{path}.away")
                    if os.path.exists(here):
                        os.rename(here, there)
                    row = json.loads(run([f"{programs}/load", path]))
                    if optimized != (row["mapped"] > 0):
                        sys.exit(f"load: {name}: the optimized file was {'not ' if optimized else ''}used")
                    samples.append({"format": name, "way": way, "round": i + 1, "file": os.path.getsize(path), "vocab": vocab, **row})
            os.environ.pop("WEIR_KERNELS", None)

    RESULTS.mkdir(parents=True, exist_ok=True)
    with open(RESULTS / "load.csv", "w", newline="") as f:
        writer = csv.DictWriter(f, samples[0].keys(), lineterminator="\n")
        writer.writeheader()
        writer.writerows(samples)

    def middle(name, way, key):
        return statistics.median(s[key] for s in samples if s["format"] == name and s["way"] == way)

    lines = ["# Loads", "",
             f"`scripts/bench.sh {rounds} load`, {datetime.date.today().isoformat()}, {run([weir, 'version']).splitlines()[0]}.", "",
             machine() + f"; all processors, {pathlib.Path(model).name} in other formats as in kernels.md, files in the page cache; medians of "
             f"{rounds} rounds. First token: from the start of the load, with an engine of one slot of 256 tokens between. Resident: what "
             "weights added to the process, so the load less one of the vocabulary alone, pages of mapped files included; the second figure "
             "once the first token was there, less the KV cache, so with the buffers of a pass. Aims: first token at most "
             f"{LONGEST} × llama.cpp's, weights at most {LARGEST} × the file.", "",
             "| format | file, MB | way | load, ms | first token, ms | of llama.cpp's | resident, MB | of the file | after a token, MB |",
             "|---|---|---|---|---|---|---|---|---|"]
    for name in FORMATS:
        for way in WAYS:
            size, load, first, loaded, used = (middle(name, way, key) for key in ("file", "load_s", "first_s", "loaded", "used"))
            loaded, used = loaded - middle(name, way, "vocab"), used - middle(name, way, "vocab") - middle(name, way, "kv")
            ratio, part = first / middle(name, "llama.cpp", "first_s"), loaded / size
            lines.append(f"| {name} | {size / 1e6:.0f} | {way} | {1000 * load:.0f} | {1000 * first:.0f} | {ratio:.2f}{'' if ratio <= LONGEST else ', missed'} "
                         f"| {loaded / 1e6:.0f} | {part:.2f}{'' if part <= LARGEST or way == 'llama.cpp' else ', missed'} | {used / 1e6:.0f} |")
    (RESULTS / "load.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
