#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What HTTP, JSON and the template, and beside them the tokenizer, add to the time to the first token, on an idle engine.

usage: overhead.py ROUNDS

One client asks `weir serve` for chats, one after the other. Of each request two times are known: from sending it to the first text, as the
client sees it (`weir bench http --csv`), and from submit to the first token, as the engine counts it (the server's log). What is between
them was added on the way: by the client, the sockets, the server's threads, JSON, the template, the tokenizer. What of it is the tokenizer's,
which is llama.cpp's and which every way to the model needs, is measured apart, in this process, on texts of as many of the same words. Beside
it the same load to an engine in the client's process, which has template and tokenizer, but no HTTP. On the fake backend, whose passes take
no time, and on the model. Writes bench/results/overhead.md. Needs WEIR_BIN and WEIR_MODEL in the environment; scripts/bench.sh sets them."""
import csv
import ctypes
import datetime
import json
import os
import pathlib
import random
import re
import signal
import statistics
import sys
import tempfile
import time

from compare import Server
from engine import machine, run

RESULTS = pathlib.Path("bench/results")
WORDS, REQUESTS, ANSWER, AIM_MS = [20, 200, 1000], 40, 4, 3.0


class Logged(Server):
    """Its log may be read while it runs."""

    def engine_times(self, seen):
        """ms from submit to the first token, of the requests that ended since `seen` of them had."""
        give_up = time.monotonic() + 30
        while True:
            self.log.flush()
            text = pathlib.Path(f"/proc/self/fd/{self.log.fileno()}").read_text(encoding="utf-8")
            entries = [json.loads(line) for line in text.splitlines() if line.startswith("{") and line.endswith("}")]
            times = [c["ttft_ms"] for e in entries if e.get("event") == "request" for c in e.get("choices", [])]
            if len(times) >= seen + REQUESTS or time.monotonic() > give_up:
                return times[seen:], len(times)
            time.sleep(0.05)


class Tokenizer:
    """The library's own, on the words that `weir bench http` makes prompts of."""

    def __init__(self, model):
        self.weir = ctypes.CDLL(str(pathlib.Path(os.environ["WEIR_BIN"]).parent / "libweir.so"))
        self.weir.weir_tokenize.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_bool, ctypes.c_bool, ctypes.c_void_p,
                                            ctypes.c_size_t, ctypes.c_void_p, ctypes.c_void_p]
        self.weir.weir_model_release.argtypes = [ctypes.c_void_p]
        self.model = ctypes.c_void_p()
        if self.weir.weir_model_load(model.encode(), None, ctypes.byref(self.model), None) != 0:
            sys.exit(f"overhead: {model} cannot be loaded")
        table = pathlib.Path("bench/cli/traffic.c").read_text(encoding="utf-8")
        self.words = re.findall(r'"(\w+)"', table[table.index("words[] = {"):table.index("};")])

    def times(self, n_words, n):
        """ms for each of n texts."""
        ids, count, found = (ctypes.c_int32 * (16 * n_words + 64))(), ctypes.c_size_t(), []
        for i in range(n):
            text = " ".join(random.Random(i).choices(self.words, k=n_words)).encode()
            start = time.perf_counter()
            status = self.weir.weir_tokenize(self.model, text, len(text), True, True, ids, len(ids), ctypes.byref(count), None)
            found.append(1000 * (time.perf_counter() - start))
            if status != 0 or count.value < n_words // 2:
                sys.exit(f"overhead: tokenize gives {status}, {count.value} tokens")
        return found

    def close(self):
        self.weir.weir_model_release(self.model)


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that no server stays behind
    rounds = int(sys.argv[1])
    weir, model = os.environ["WEIR_BIN"], os.environ["WEIR_MODEL"]
    threads = str(os.cpu_count())
    rows = []
    for name, path in (("fake", "fake:n_ctx_train=16384"), (pathlib.Path(model).name, model)):
        with tempfile.TemporaryDirectory() as folder, \
                Logged("weir", [weir, "serve", "-m", path, "-t", threads, "-np", "2", "-c", "8192", "--host", "127.0.0.1"]) as server:
            table, seen, tokenizer = f"{folder}/times.csv", 0, Tokenizer(path)

            def load(target, words, seed):
                return json.loads(run([weir, "bench", "http", *target, "--concurrency", "1", "--requests", str(REQUESTS), "--prompt", str(words),
                                       "--gen", str(ANSWER), "--seed", str(seed), "--ignore-eos", "--csv", table, "--json", "-q"]))["runs"][0]
            for words in WORDS:
                added, whole, inside, tokenizing = [], [], [], []
                for i in range(rounds):
                    print(f"{name}, {words} words: round {i + 1} of {rounds}", file=sys.stderr, flush=True)
                    load([server.url], words, 100 * i + words)
                    with open(table, newline="", encoding="utf-8") as f:
                        seen_by_client = [float(row["ttft_ms"]) for row in csv.DictReader(f)]
                    counted, seen = server.engine_times(seen)
                    if len(counted) != len(seen_by_client):
                        sys.exit(f"overhead: {len(seen_by_client)} answers, but {len(counted)} in the server's log")
                    whole += seen_by_client
                    added += [a - b for a, b in zip(seen_by_client, counted)]
                    tokenizing += tokenizer.times(words, REQUESTS)
                    inside.append(load(["engine:", "-m", path, "-t", threads, "--slots", "2", "-c", "8192"], words, 100 * i + words)["ttft_ms"]["p50"])
                rows.append((name, words, statistics.median(whole), statistics.median(added), statistics.quantiles(added, n=100)[98],
                             statistics.median(tokenizing), statistics.median(inside)))
            tokenizer.close()
    lines = ["# What HTTP, JSON and the template add to the first token", "",
             f"`scripts/bench.sh {rounds} overhead`, {datetime.date.today().isoformat()}, {run([weir, 'version']).splitlines()[0]}.", "",
             f"{machine()}; {threads} threads, one client, {REQUESTS} chats a row and round, {rounds} rounds, no other requests. *Added*: the client's time to the first text "
             "less the engine's from submit to the first token, of the same request. *Tokenizer*: the median of as many calls of "
             "weir_tokenize on texts of as many such words; what is left of *added* is HTTP's, JSON's and the template's. *Without HTTP*: the same chats to an engine in the client's process, "
             "template included.", "",
             "| model | words | TTFT over HTTP, p50 | added, p50 | added, p99 | tokenizer | HTTP, JSON, template (aim ≤ "
             f"{AIM_MS:.0f} ms) | TTFT without HTTP, p50 | difference |",
             "|---|---|---|---|---|---|---|---|---|"]
    for name, words, whole, added, worst, tokenizing, inside in rows:
        rest = added - tokenizing
        lines.append(f"| {name} | {words} | {whole:.2f} ms | {added:.2f} ms | {worst:.2f} ms | {tokenizing:.2f} ms | {rest:.2f} ms"
                     f"{'' if rest <= AIM_MS else ', missed'} | {inside:.2f} ms | {whole - inside:+.2f} ms |")
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / "overhead.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
