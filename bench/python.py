#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The Python package beside the C engine, and what Python costs.

usage: python.py ROUNDS [PROMPTS]

One stream, and 64 of one event loop, beside `weir bench engine` with the same lengths and threads, each side first in turn; PROMPTS
(1000) different prompts in one call; loglikelihoods whose contexts share a beginning; then, on the model without weights, a token's
price, memory over 10,000 streams, and the import. Wall time is that of the work; the processor's is that of the whole process, its
start included. Writes bench/results/python.md. Needs WEIR_BIN and WEIR_MODEL in the environment, and a Python that has the package."""
import asyncio
import ctypes
import datetime
import json
import os
import pathlib
import random
import resource
import statistics
import subprocess
import sys
import time

PROMPT, ANSWER, THREADS = 128, 64, str(os.cpu_count())


class MallInfo(ctypes.Structure):
    """What mallinfo2() of glibc returns."""

    _fields_ = [(name, ctypes.c_size_t) for name in "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()]


def tokens_of(n, seed, vocabulary):
    dice = random.Random(seed)
    return [dice.randrange(10, vocabulary) for _ in range(n)]


def engine_of(weir, n_slots):
    return weir.Engine(os.environ["WEIR_MODEL"], n_ctx=PROMPT + ANSWER + 16, n_slots=n_slots, n_threads=int(THREADS), queue_limit=0)


FIXED = {"max_tokens": ANSWER, "ignore_eos": True, "temp": 0}


# ---- What a process of its own measures: numbers by name ----


def streams(weir, n):
    n = int(n)
    with engine_of(weir, n) as engine:
        prompts = [tokens_of(PROMPT, i, engine.model.info["n_vocab"]) for i in range(n)]
        started = time.perf_counter()

        async def one(prompt):
            return sum([len(chunk.tokens) async for chunk in engine.astream(prompt, **FIXED)])

        async def main():
            return sum(await asyncio.gather(*(one(prompt) for prompt in prompts)))

        made = asyncio.run(main()) if n > 1 else sum(len(chunk.tokens) for chunk in engine.stream(prompts[0], **FIXED))
        assert made == n * ANSWER
        return {"wall": time.perf_counter() - started}


def prompts(weir, n):
    n = int(n)
    with engine_of(weir, 16) as engine:
        texts = [tokens_of(PROMPT, i, engine.model.info["n_vocab"]) for i in range(n)]
        started = time.perf_counter()
        results = engine.generate(texts, **FIXED)
        assert len(results) == n
        return {"wall": time.perf_counter() - started}


def scores(weir, n):
    n = int(n)
    with engine_of(weir, 16) as engine:
        size = engine.model.info["n_vocab"]
        contexts = [tokens_of(PROMPT, i, size) for i in range(-(-n // 4))]
        pairs = [(contexts[i // 4], tokens_of(8, 10**6 + i, size)) for i in range(n)]  # four answers to each question
        started = time.perf_counter()
        assert len(engine.loglikelihood(pairs)) == n
        return {"wall": time.perf_counter() - started}


def overhead(weir, n):
    n = int(n)
    with weir.Engine("fake:", n_slots=1, n_ctx=n + 64) as engine:
        options = {"max_tokens": n, "ignore_eos": True}
        figures = {}
        for name in ("stream", "astream"):
            started = time.process_time()  # the engine's thread too

            async def main():
                return sum([len(chunk.tokens) async for chunk in engine.astream("a", **options)])

            made = sum(len(chunk.tokens) for chunk in engine.stream("a", **options)) if name == "stream" else asyncio.run(main())
            figures[name] = (time.process_time() - started) / made * 1e6
        started = time.process_time()
        made = len(engine.generate("a", interval=1 << 30, **options).tokens)
        figures["one chunk"] = (time.process_time() - started) / made * 1e6
        return figures


def leak(weir, n):
    # What malloc has handed out: pages that the engine reserved at its start are touched for the first time for long.
    libc = ctypes.CDLL(None)
    libc.mallinfo2.restype = MallInfo

    with weir.Engine("fake:eos_every=9", n_slots=8) as engine:
        marks = []
        for i in range(int(n)):
            if i % 2:
                engine.stream("a", max_tokens=4, temp=0).result()
            else:
                next(engine.stream("a", max_tokens=400, temp=0))  # dropped, which cancels it
            if i + 1 in (int(n) // 5, int(n)):
                marks.append(libc.mallinfo2().uordblks)
        return {"grown": marks[1] - marks[0]}


WORK = {f.__name__: f for f in (streams, prompts, scores, overhead, leak)}


# ---- The comparison ----


def timed(command):
    """What a command prints, and its processor seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    out = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return out, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def python(*words):
    out, cpu = timed([sys.executable, __file__, "work", *map(str, words)])
    return {**json.loads(out), "cpu": cpu}


def c_engine(n):
    out, cpu = timed([os.environ["WEIR_BIN"], "bench", "engine", "-m", os.environ["WEIR_MODEL"], "-t", THREADS, "--streams", str(n),
                      "-p", str(PROMPT), "-n", str(ANSWER), "--repeat", "1", "--no-plain", "--json", "-q"])  # fmt: skip
    row = json.loads(out)["rows"][0]["weir"]
    return {"wall": row["total_s"], "cpu": cpu}


def main(rounds, n_prompts):
    from engine import machine, run

    def median(rows, name):
        return statistics.median(row[name] for row in rows)

    lines = []
    for n in (1, 64):
        ours, theirs = [], []
        for i in range(rounds):
            for side in ("cp", "pc")[i % 2]:
                (theirs if side == "c" else ours).append(c_engine(n) if side == "c" else python("streams", n))
        ratio = statistics.median(c["wall"] / p["wall"] for c, p in zip(theirs, ours, strict=True))
        cpu = statistics.median(c["cpu"] / p["cpu"] for c, p in zip(theirs, ours, strict=True))
        lines.append(f"| {n} {'stream' if n == 1 else 'streams of an event loop'} | {median(ours, 'wall'):.2f} s; C {median(theirs, 'wall'):.2f} s | "
                     f"{ratio:.3f} × C | {median(ours, 'cpu'):.2f} s; {cpu:.3f} × C |")  # fmt: skip
        print(lines[-1], flush=True)
    row = python("prompts", n_prompts)
    lines.append(f"| {n_prompts} prompts in one call | {row['wall']:.1f} s | {n_prompts * (PROMPT + ANSWER) / row['wall']:.0f} tokens/s | {row['cpu']:.1f} s |")
    print(lines[-1], flush=True)
    row = python("scores", n_prompts)
    lines.append(f"| {n_prompts} loglikelihoods, four to a context | {row['wall']:.1f} s | {n_prompts / row['wall']:.1f} /s | {row['cpu']:.1f} s |")
    print(lines[-1], flush=True)
    rows = [python("overhead", 20000) for _ in range(max(rounds, 3))]
    costs = ", ".join(f"{median(rows, name):.1f} µs by `{name}`" for name in ("stream", "astream"))
    grown = python("leak", 10000)["grown"]
    imports = [timed([sys.executable, "-c", f"import {name}"])[1] for _ in range(max(rounds, 5)) for name in ("sys", "weir")]
    wall = []
    for _ in range(max(rounds, 5)):
        wall.append(float(timed([sys.executable, "-c", "import time; a = time.perf_counter(); import weir; print(time.perf_counter() - a)"])[0]))
    facts = [f"- A token: {costs} of processor time, the engine's part with the fake model included; {median(rows, 'one chunk'):.2f} µs where the answer is one chunk.",
             f"- 10,000 streams, every second one dropped after a chunk: what malloc has handed out grew by {grown} bytes from the 2,000th on.",
             f"- `import weir`: {1000 * statistics.median(wall):.0f} ms, {1000 * (statistics.median(imports[1::2]) - statistics.median(imports[::2])):.0f} ms of processor time."]  # fmt: skip
    load = os.getloadavg()[0]
    path = pathlib.Path("bench/results/python.md")
    path.write_text("\n".join([
        "# The Python package", "",
        f"`bench/python.py {rounds} {n_prompts}`, {datetime.date.today()}, {run([os.environ['WEIR_BIN'], 'version']).splitlines()[0]}, Python {sys.version.split()[0]}. {machine()}; load {load:.1f} at the end.", "",
        "Aims: one stream at least 0.98 of the C engine, 64 streams 0.95, an import of 100 ms at most, no memory that grows.",
        *(["", f"**Other work ran beside it (a load of {load:.0f} for {os.cpu_count()} processors): the wall times say nothing.**"] if load > 1.5 * os.cpu_count() else []),
        "", f"Prompts of {PROMPT} tokens, answers of {ANSWER}, {THREADS} threads; medians of {rounds} rounds.", "",
        "| | wall time | | processor time, start and load of the model included |", "|---|---|---|---|", *lines, "", *facts, ""]))  # fmt: skip
    print(path)


if sys.argv[1] == "work":
    import weir as package

    print(json.dumps(WORK[sys.argv[2]](package, *sys.argv[3:])))
else:
    main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1000)
