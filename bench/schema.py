#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a JSON Schema costs: tokens per second with one against free text, over HTTP, weir serve and llama-server each by itself.

usage: schema.py ROUNDS

All answers are cut at ANSWER tokens, those with a schema too (it asks for more), and a new request comes for each that ended, so that as
many streams run at any time in both. Within a round each load follows the other at once, each first in turn; ratios are taken there.
The first round finds no grammar compiled and no mask known. Three rounds take some two minutes. Writes bench/results/schema.md and
schema.csv. Needs WEIR_BIN, WEIR_MODEL and LLAMA_SERVER in the environment; scripts/bench.sh sets them."""
import csv
import datetime
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile

from compare import Server
from engine import machine, requantize, run

RESULTS = pathlib.Path("bench/results")
STREAMS, EACH, PROMPT, ANSWER, LANE = [4, 8], 2, 40, 96, 1024
AIM = 0.9
RECORD = {"type": "object", "additionalProperties": False, "required": ["name", "age", "member", "city", "tags"],
          "properties": {"name": {"type": "string", "maxLength": 24}, "age": {"type": "integer", "minimum": 0, "maximum": 120},
                         "member": {"type": "boolean"}, "city": {"enum": ["Oslo", "Rome", "Lima", "Cairo"]},
                         "tags": {"type": "array", "items": {"type": "string", "maxLength": 12}, "minItems": 2, "maxItems": 3}}}
SCHEMA = {"type": "array", "items": RECORD, "minItems": 20, "maxItems": 40}


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that no server stays behind
    rounds = int(sys.argv[1])
    weir, model, program = (os.environ[name] for name in ("WEIR_BIN", "WEIR_MODEL", "LLAMA_SERVER"))
    threads, slots = str(os.cpu_count()), max(STREAMS)
    samples = []
    with tempfile.TemporaryDirectory() as folder:
        path, schema = f"{folder}/q8_0.gguf", f"{folder}/schema.json"
        pathlib.Path(schema).write_text(json.dumps(SCHEMA), encoding="utf-8")
        requantize(weir, model, path, "q8_0")
        common = ["-m", path, "-t", threads, "-tb", threads, "-np", str(slots), "--host", "127.0.0.1", "--offline"]
        sides = {"weir": Server("weir", [weir, "serve", *common, "-c", str(LANE)]),
                 "llama-server": Server("llama-server", [program, *common, "-c", str(LANE * slots), "--no-ui"])}

        def measure(url, n, kind, seed):
            words = [weir, "bench", "http", url, "--concurrency", str(n), "--requests", str(n * EACH), "--prompt", str(PROMPT), "--gen", str(ANSWER),
                     "--seed", str(seed), "--json", "-q", *(["--schema", schema] if kind == "schema" else ["--ignore-eos"])]
            result = json.loads(run(words))["runs"][0]
            if result["n_errors"]:
                sys.exit(f"schema: {result['errors']}")
            return result

        for side, server in sides.items():
            with server:
                measure(server.url, 1, "free", 1)  # pages of the model, threads
                for i in range(rounds):
                    for n in STREAMS:
                        print(f"{side}, round {i + 1} of {rounds}: {n} streams", file=sys.stderr, flush=True)
                        for kind in ("free", "schema") if i % 2 == 0 else ("schema", "free"):
                            got = measure(server.url, n, kind, 100 * i + n)
                            samples.append({"side": side, "round": i + 1, "streams": n, "kind": kind, "tok_s": round(got["generated_per_second"], 2),
                                            "itl_p50_ms": round(got["itl_ms"]["p50"], 3), "itl_p99_ms": round(got["itl_ms"]["p99"], 3),
                                            "tokens": got["generated_tokens"]})
    RESULTS.mkdir(parents=True, exist_ok=True)
    with open(RESULTS / "schema.csv", "w", newline="", encoding="utf-8") as f:
        writer = csv.DictWriter(f, samples[0].keys(), lineterminator="\n")
        writer.writeheader()
        writer.writerows(samples)
    write(rounds, weir, threads, samples)


def write(rounds, weir, threads, samples):
    def of(side, n, kind, key):
        return [s[key] for s in samples if (s["side"], s["streams"], s["kind"]) == (side, n, kind)]
    lines = ["# What a JSON Schema costs", "",
             f"`scripts/bench.sh {rounds} schema`, {datetime.date.today().isoformat()}, {run([weir, 'version']).splitlines()[0]}.", "",
             f"{machine()}; {threads} threads, SmolLM2-135M-Instruct requantized to Q8_0 (`weir quantize --requantize`), over HTTP; prompts of {PROMPT} words, answers cut at "
             f"{ANSWER} tokens, {EACH} a stream, greedy. Medians of {rounds} rounds; the ratio is that of tokens per second with the schema by those of free text "
             "within a round, median (least to most). The sides follow each other: their ratios may be compared, their speeds roughly. In the first round "
             "nothing is known of the schema yet.", "",
             "| | streams | free text, tok/s | with the schema | ratio | the first | ITL p50, free | with | ITL p99, free | with | aim |",
             "|---|---|---|---|---|---|---|---|---|---|---|"]
    for side in ("weir", "llama-server"):
        for n in STREAMS:
            free, bound = of(side, n, "free", "tok_s"), of(side, n, "schema", "tok_s")
            ratios = [b / f for b, f in zip(bound, free)]
            middle = statistics.median(ratios)
            aim = "–" if side != "weir" else f"≥ {AIM}" + ("" if middle >= AIM else ", missed")
            times = [f"{statistics.median(of(side, n, kind, key)):.1f} ms" for key in ("itl_p50_ms", "itl_p99_ms") for kind in ("free", "schema")]
            lines.append(f"| {side} | {n} | {statistics.median(free):.0f} | {statistics.median(bound):.0f} | {middle:.3f} ({min(ratios):.3f}–{max(ratios):.3f}) | "
                         f"{ratios[0]:.3f} | {' | '.join(times)} | {aim} |")
    (RESULTS / "schema.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
