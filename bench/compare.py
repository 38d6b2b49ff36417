#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""weir beside llama-server: the same loads, model file, threads and KV size.

usage: compare.py ROUNDS [LOAD...]

llama-server is the pin as upstream builds it; both are driven over HTTP by `weir bench http`. In each round the sides take turns, load by
load, each first in turn; ratios are taken within a round, and their median counts. Prompts differ from round to round, so that nothing
cached helps where it should not. Writes bench/results/compare.md, compare.csv and plots. Where loads are named, the other loads keep the
figures of the run before, which are in build/bench. WEIR_WIDE=q8_0 or q4_k_m: with random weights of an ordinary width in that format
and the default model's vocabulary, so that each token has a text, into compare-wide-FORMAT.*; its loads are shorter. Needs WEIR_BIN,
WEIR_MODEL and LLAMA_SERVER in the environment; scripts/bench.sh sets them."""
import csv
import datetime
import json
import os
import pathlib
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

from engine import machine, requantize, run
from plot import plot

RESULTS = pathlib.Path("bench/results")
WIDE_FORMAT = os.environ.get("WEIR_WIDE")
NAME = f"compare-wide-{WIDE_FORMAT}" if WIDE_FORMAT else "compare"
WORK = pathlib.Path("build/bench")
SLOTS, LANE = 8, 4096
MANY_SLOTS, MANY_LANE = 32, 1024  # of the load that has 32 streams
MEMORY_LANE = 1024 if WIDE_FORMAT else LANE
STREAMS = [1, 2, 4, 8, 16, 32, 64]
SCHEMA = {"type": "object", "additionalProperties": False, "required": ["name", "age", "city", "tags"],
          "properties": {"name": {"type": "string", "maxLength": 24}, "age": {"type": "integer", "minimum": 0, "maximum": 120},
                         "city": {"type": "string", "maxLength": 24},
                         "tags": {"type": "array", "items": {"type": "string", "maxLength": 12}, "minItems": 3, "maxItems": 3}}}
FULL = ["--ignore-eos"]


def load(concurrency, prompt, answer, *more):
    return ["--concurrency", str(concurrency), "--requests", str(concurrency), "--prompt", str(prompt), "--gen", str(answer), *more]


# The options of each load; prompts in words, answers in tokens. With the wide model none takes more than about a minute on two cores.
LOADS = {
    "late": load(4, 40, 128, "--late-prompt", "1211", *FULL),
    "prefix": load(8, 16, 8, "--shared-prefix", "609", "--repeat", "2", *FULL),
    "eight": load(8, 69, 64, *FULL),
    "many": load(32, 69, 64, *FULL),
    "schema": load(4, 40, 96),
} if not WIDE_FORMAT else {
    "late": load(4, 40, 48, "--late-prompt", "611", *FULL),
    "prefix": load(8, 16, 4, "--shared-prefix", "309", "--repeat", "2", *FULL),
    "eight": load(8, 69, 64, *FULL),
    "many": load(32, 69, 16, *FULL),
    "schema": load(4, 40, 48),
}
# The figures: key, load, run, how it is read, its name, unit, aim of the ratio, whether at most.
FIGURES = [
    ("late gap", "late", 0, lambda r: r["worst_gap_ms"]["max"], "worst gap of 4 running streams while a long prompt arrives", "ms", 1 / 20, True),
    ("late total", "late", 0, lambda r: r["total_s"], "the same load, total time", "s", 1.1, True),
    ("late ttft", "late", 0, lambda r: r["late"]["ttft_ms"], "TTFT of the long prompt in it", "ms", None, True),
    ("prefix new", "prefix", 0, lambda r: r["ttft_ms"]["p50"], "8 simultaneous requests with one new prefix: TTFT p50", "ms", 1 / 8, True),
    ("prefix cached", "prefix", 1, lambda r: r["ttft_ms"]["p50"], "the same again: TTFT p50", "ms", 0.5, True),
    ("eight", "eight", 0, lambda r: r["generated_per_second"], "8 streams: answers' tokens per second of the whole load", "tok/s", 2.2, False),
    ("many", "many", 0, lambda r: r["generated_per_second"], f"32 streams, {MANY_SLOTS} slots: the same", "tok/s", 2.2, False),
    ("schema", "schema", 0, lambda r: r["generated_per_second"], "4 streams with a JSON Schema: the same", "tok/s", None, False),
]

# When memory is read: the figure's key, the work before it, in one server one after another, and the load's options.
MEMORY = {
    "memory few": (f"after {SLOTS} short requests", load(SLOTS, 69, 64, *FULL)),
    "memory full": (f"after {SLOTS} requests that fill it", load(SLOTS, MEMORY_LANE - 150, 16)),
}


class Server:
    """A server on a free port; stopped at the end of the with."""

    def __init__(self, name, command):
        self.name, self.command = name, command

    def __enter__(self):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        self.log = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen([*self.command, "--port", str(port)], stdout=self.log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
        self.url = f"http://127.0.0.1:{port}"
        give_up = time.monotonic() + 120
        while time.monotonic() < give_up and self.process.poll() is None:
            try:
                urllib.request.urlopen(self.url + "/health", timeout=5).read()
                return self
            except (urllib.error.URLError, OSError):
                time.sleep(0.2)
        self.__exit__()
        sys.exit(f"compare: {self.name} did not start:\n{self.tail}")

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.seek(0)
        self.tail = self.log.read()[-4000:]
        self.log.close()

    def most_resident(self):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text(encoding="utf-8")
        return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))) * 1024


class Results:
    """The figures of all loads. They are kept from run to run, so that a comparison can be measured in parts."""

    def __init__(self):
        self.path = WORK / f"{NAME}.json"
        self.samples, self.timelines, self.decode, self.memory, self.tokens, self.parts = [], {}, [], {}, {}, {}

    def recall(self):
        if self.path.exists():
            vars(self).update(json.loads(self.path.read_text(encoding="utf-8")), path=self.path)

    def forget(self, load):
        figures = {"decode": [f"decode {n}" for n in STREAMS], "memory": list(MEMORY)}.get(load, [])
        figures += [key for key, of, *_ in FIGURES if of == load] + [f"{load} not JSON"]
        self.samples = [s for s in self.samples if s["figure"] not in figures]
        for key in [load, *figures]:
            self.tokens.pop(key, None)
        if load == "decode":
            self.decode = []

    def keep(self):
        kept = {name: value for name, value in vars(self).items() if name != "path"}
        self.path.write_text(json.dumps(kept), encoding="utf-8")

    def add(self, number, figure, side, value):
        self.samples.append({"round": number, "figure": figure, "side": side, "value": value})


def wide_model(weir, vocabulary):
    """The path of the model, which parts of a comparison share."""
    path = WORK / f"wide-{WIDE_FORMAT}.gguf"
    maker = pathlib.Path("bench/random_model.py")
    if not path.exists() or path.stat().st_mtime < maker.stat().st_mtime:
        source = WORK / "wide.gguf"
        subprocess.run([sys.executable, maker, source, "whole", vocabulary], check=True)
        requantize(weir, source, path, WIDE_FORMAT)
        source.unlink()
    return path


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that no server stays behind
    rounds, chosen = int(sys.argv[1]), sys.argv[2:] or [*LOADS, "memory", *([] if WIDE_FORMAT else ["decode"])]
    weir, model, program = (os.environ[name] for name in ("WEIR_BIN", "WEIR_MODEL", "LLAMA_SERVER"))
    threads = str(os.cpu_count())
    WORK.mkdir(parents=True, exist_ok=True)
    results = Results()
    if sys.argv[2:]:
        results.recall()
    for name in chosen:
        results.forget(name)
        results.parts[name] = rounds

    def servers(slots, lane):
        common = ["-m", path, "-t", threads, "-tb", threads, "-np", str(slots), "--host", "127.0.0.1", "--offline"]
        return {"llama-server": Server("llama-server", [program, *common, "-c", str(slots * lane), "--no-ui"]),
                "weir": Server("weir", [weir, "serve", *common, "-c", str(lane), "--kv", str(slots * lane)])}

    def measure(name, number, sides):
        for side in sorted(sides, reverse=number % 2 == 0):
            words = [weir, "bench", "http", sides[side].url, *LOADS[name], "--seed", str(1000 * number + list(LOADS).index(name)), "--json", "-q"]
            if name == "schema":
                words += ["--schema", f"{folder}/schema.json"]
            runs = json.loads(run(words))["runs"]
            if name == "late":
                if any(r["late"] is None for r in runs):
                    sys.exit("compare: the late prompt was not sent: the streams were over before it")
                results.timelines[side] = runs[0]
            results.tokens.setdefault(name, {})[side] = runs[0]
            for key, of, n, read, *_ in FIGURES:
                if of == name:
                    results.add(number, key, side, read(runs[n]))
            if name == "schema":
                results.add(number, "schema not JSON", side, runs[0]["not_json"])

    with tempfile.TemporaryDirectory() as folder:
        path = str(wide_model(weir, model)) if WIDE_FORMAT else f"{folder}/model.gguf"
        pathlib.Path(f"{folder}/schema.json").write_text(json.dumps(SCHEMA), encoding="utf-8")
        if not WIDE_FORMAT:
            requantize(weir, model, path, "q8_0")
        for loads, slots, lane in (([n for n in LOADS if n in chosen and n != "many"], SLOTS, LANE),
                                   (["many"] if "many" in chosen else [], MANY_SLOTS, MANY_LANE)):
            if not loads:
                continue
            sides = servers(slots, lane)
            with sides["llama-server"], sides["weir"]:
                for i in range(rounds):
                    for name in loads:
                        print(f"round {i + 1} of {rounds}: {name}", file=sys.stderr, flush=True)
                        measure(name, i + 1, sides)
        if "decode" in chosen:
            for i in range(rounds):
                print(f"round {i + 1} of {rounds}: decode", file=sys.stderr, flush=True)
                rows = json.loads(run([weir, "bench", "engine", "-m", path, "-t", threads, "--streams", ",".join(map(str, STREAMS)), "-p", "32",
                                       "-n", "64", "--repeat", "1", "--no-plain", "--json", "-q"]))["rows"]
                results.decode.append([[row["streams"], row["weir"]["decode_per_second"]] for row in rows])
                for n, value in results.decode[-1]:
                    results.add(i + 1, f"decode {n}", "weir", value)
        if "memory" in chosen:  # the time does not matter
            sides = servers(SLOTS, MEMORY_LANE)
            with sides["llama-server"], sides["weir"]:
                for key, (_, what) in MEMORY.items():
                    print(key, file=sys.stderr, flush=True)
                    for side, server in sides.items():
                        results.tokens.setdefault(key, {})[side] = json.loads(
                            run([weir, "bench", "http", server.url, *what, "--timeout", "3000", "--json", "-q"]))["runs"][0]
                        results.memory.setdefault(key, {})[side] = server.most_resident()
                        results.add(1, key, side, results.memory[key][side])
    results.keep()
    RESULTS.mkdir(parents=True, exist_ok=True)
    with open(RESULTS / f"{NAME}.csv", "w", newline="", encoding="utf-8") as f:
        writer = csv.DictWriter(f, results.samples[0].keys(), lineterminator="\n")
        writer.writeheader()
        writer.writerows({**s, "value": round(s["value"], 4)} for s in results.samples)
    write(weir, threads, results)


def pieces(run_):
    """Of the streams' answers, without the long prompt's: pieces of text, and tokens."""
    tokens = run_["generated_tokens"] - (run_["late"]["generated_tokens"] if run_["late"] else 0)
    return f"{run_['ttft_ms']['n'] + run_['itl_ms']['n']} pieces of {tokens}"


def write(weir, threads, results):
    def values(key, side):
        return [s["value"] for s in results.samples if s["figure"] == key and s["side"] == side]

    def show(value, unit):
        return f"{value:.2f} {unit}" if unit == "s" else f"{value:.1f} {unit}" if value < 100 else f"{value:.0f} {unit}"

    def judge(ratio, aim, at_most):
        if aim is None:
            return "–"
        return f"{'≤' if at_most else '≥'} {aim:.3g}" + ("" if (ratio <= aim if at_most else ratio >= aim) else ", missed")
    vocabulary = ", with the default model's vocabulary" if WIDE_FORMAT else ""
    name = ("random weights, 16 layers of width 2,048, 32/8 heads, in " if WIDE_FORMAT else "SmolLM2-135M-Instruct requantized to ")
    name += f"{(WIDE_FORMAT or 'q8_0').upper()}{vocabulary} ({'`bench/random_model.py OUT whole VOCABULARY`, ' if WIDE_FORMAT else ''}`weir quantize --requantize`)"
    command = f"WEIR_WIDE={WIDE_FORMAT} scripts/bench.sh ROUNDS compare" if WIDE_FORMAT else "scripts/bench.sh ROUNDS compare"
    lines = ["# Beside llama-server" + (f", a model of ordinary width in {WIDE_FORMAT.upper()}" if WIDE_FORMAT else ""), "",
             f"`{command}`, {datetime.date.today().isoformat()}, {run([weir, 'version']).splitlines()[0]}.", "",
             machine() + f"; {threads} threads, {name}, {SLOTS} slots of {LANE} tokens; 32 streams "
             f"have {MANY_SLOTS} slots of {MANY_LANE}.", "",
             "`weir serve` and llama-server, which is the pin as upstream builds it, with their default options besides; both over HTTP on the loopback "
             "interface, from the same program (`weir bench http`). ollama runs llama-server since its version 0.30, so the comparison stands for it, too.",
             "",
             "Medians of the rounds, the sides in turn; the ratio is weir's figure by llama-server's within a round, median (least to most)."]
    lines += ["", "| load | llama-server | weir | ratio | aim |", "|---|---|---|---|---|"]
    for key, _, _, _, name, unit, aim, at_most in FIGURES:
        theirs, ours = values(key, "llama-server"), values(key, "weir")
        if not theirs:
            continue
        ratios = sorted(o / t for o, t in zip(ours, theirs))
        ratio = statistics.median(ratios)
        lines.append(f"| {name} | {show(statistics.median(theirs), unit)} | {show(statistics.median(ours), unit)} | {ratio:.3f} "
                     f"({ratios[0]:.3f}–{ratios[-1]:.3f}) | {judge(ratio, aim, at_most)} |")
    for key, sides in results.memory.items():
        ratio = sides["weir"] / sides["llama-server"]
        lines.append(f"| most resident memory with room for {SLOTS} × {MEMORY_LANE} tokens, {MEMORY[key][0]} | {sides['llama-server'] / 1e9:.2f} GB | "
                     f"{sides['weir'] / 1e9:.2f} GB | {ratio:.3f} | {judge(ratio, 0.8, True)} |")
    shapes = {**LOADS, **{key: what for key, (_, what) in MEMORY.items()}}
    lines += ["", "The loads: rounds, options of `weir bench http` (prompts in words, answers in tokens), and tokens in prompts and answers in the last "
              "round, as each side counts them. Gaps and times to the first token are taken at pieces of text: a token each, but those of an accepted "
              "draft come together.", "",
              "| load | rounds | options | llama-server | weir |", "|---|---|---|---|---|"]
    for load_name, sides in sorted(results.tokens.items(), key=lambda item: list(shapes).index(item[0])):
        cells = [f"{r['prompt_tokens']} ({r['cached_tokens']} cached) + {r['generated_tokens']}, {pieces(r)}"
                 + (f"; long prompt {r['late']['prompt_tokens']}" if r["late"] else "") for r in (sides["llama-server"], sides["weir"])]
        lines.append(f"| {load_name} | {results.parts.get(load_name, 1)} | `{' '.join(shapes[load_name])}` | {cells[0]} | {cells[1]} |")
    bad = {side: sum(values("schema not JSON", side)) for side in ("llama-server", "weir")}
    if any(s["figure"] == "schema" for s in results.samples):
        lines += ["", f"Answers with a JSON Schema that ended by themselves and are no JSON: llama-server {bad['llama-server']}, weir {bad['weir']}."]
    if results.timelines:
        plot(RESULTS / f"{NAME}-late.svg", "The longest gap between tokens while a long prompt arrives", "seconds since the first request", "gap, ms",
             {side: results.timelines[side]["gaps"] for side in ("llama-server", "weir")}, stems=True,
             marks=[(f"long prompt, {side}", results.timelines[side]["late"]["sent_s"]) for side in ("llama-server", "weir")])
        lines += ["", f"![gaps over time]({NAME}-late.svg)"]
    if results.decode:
        middle = {n: statistics.median(dict(d)[n] for d in results.decode) for n in STREAMS}
        plot(RESULTS / f"{NAME}-decode.svg", "Decode by number of streams (weir)", "streams", "tok/s in all", {"weir": list(middle.items())}, log_x=True)
        lines += ["", "Decode in tok/s (`weir bench engine`, prompts of 32, answers of 64):", "", "| streams | " + " | ".join(map(str, STREAMS)) + " |",
                  "|---" * (len(STREAMS) + 1) + "|", "| weir | " + " | ".join(f"{v:.0f}" for v in middle.values()) + " |", "",
                  f"![decode by number of streams]({NAME}-decode.svg)"]
    (RESULTS / f"{NAME}.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
