#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Four servers with one --cache-dir, one of which is killed every few seconds: are all texts those of a server without a cache?

usage: shared_folder.py MINUTES

Replaces its section of bench/results/machines.md. The model is a tiny random one of scripts/tiny_gguf.py. Needs WEIR_BIN in the
environment; scripts/bench.sh sets it."""
import datetime
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "support"))
sys.path.insert(0, str(ROOT / "bench"))
from engine import machine  # noqa: E402
from serve import Server  # noqa: E402

HEADING = "## One folder of several servers"
RESULTS = ROOT / "bench" / "results" / "machines.md"
N_SERVERS, N_PROMPTS, SEED = 4, 300, 1
# Little memory, so that prefixes go to the folder, which has no room for all of them.
WORDS = ("-c", "1024", "-np", "2", "-t", "1", "--cache-memory", "128K", "--cache-sequences", "1")
CACHED = ("--cache-disk", "3M")
BETWEEN_KILLS_S = 5


def prompts():
    """They share beginnings, and no two are the same."""
    dice = random.Random(SEED)
    heads = [" ".join(dice.choice(("the", "a", "tree", "and", "of")) for _ in range(120)) for _ in range(12)]
    return [f"{heads[i % len(heads)]} {i} " + "more " * dice.randrange(60) for i in range(N_PROMPTS)]


def ask(server, prompt):
    """The text and the number of cached tokens; None: the server was killed meanwhile."""
    try:
        reply = server.post("/v1/completions", {"prompt": prompt, "max_tokens": 12, "temperature": 0, "ignore_eos": True})
    except (OSError, ValueError, IndexError, AssertionError):
        return None
    if reply.status != 200:
        return None
    return reply.json["choices"][0]["text"], reply.json["usage"]["prompt_tokens_details"]["cached_tokens"]


def bytes_in(folder):
    n = 0
    for file in pathlib.Path(folder).iterdir():
        try:
            n += file.stat().st_size
        except FileNotFoundError:  # another server has removed it meanwhile
            pass
    return n


class Count:
    def __init__(self):
        self.lock = threading.Lock()
        self.answers = self.wrong = self.cached = self.lost = self.kills = self.restored = 0


def client(server, busy, texts, end, seed, count):
    dice = random.Random(seed)
    while time.monotonic() < end:
        prompt = dice.choice(list(texts))
        with busy:  # it is not being started again
            got = ask(server, prompt)
        with count.lock:
            if got is None:
                count.lost += 1
                continue
            count.answers += 1
            count.cached += got[1] >= 64
            count.wrong += got[0] != texts[prompt]


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    seconds, where = 60 * float(sys.argv[1]), machine()
    count = Count()
    with tempfile.TemporaryDirectory() as folder:
        model = f"{folder}/model.gguf"
        subprocess.run(["sh", f"{ROOT}/tests/support/tiny.sh", model, "tiny_gguf.py", "llama"], check=True)
        with Server(os.environ["WEIR_BIN"], *WORDS, model=model) as alone:
            texts = {prompt: ask(alone, prompt)[0] for prompt in prompts()}
        shared = f"{folder}/cache"
        servers = [Server(os.environ["WEIR_BIN"], *WORDS, *CACHED, "--cache-dir", shared, model=model) for _ in range(N_SERVERS)]
        busy = [threading.Lock() for _ in servers]
        end = time.monotonic() + seconds
        threads = [threading.Thread(target=client, args=(s, b, texts, end, i, count), daemon=True) for i, (s, b) in enumerate(zip(servers, busy))]
        for thread in threads:
            thread.start()
        dice, most, began = random.Random(SEED), 0, datetime.date.today()
        while time.monotonic() < end:
            time.sleep(min(BETWEEN_KILLS_S, max(end - time.monotonic(), 0)))
            most = max(most, bytes_in(shared))
            i = dice.randrange(N_SERVERS)
            count.restored += int(servers[i].metrics()["weir_cache_restored_total"])
            servers[i].stop(signal.SIGKILL)
            count.kills += 1
            with busy[i]:
                servers[i].start()
        for thread in threads:
            thread.join()
        for server in servers:
            count.restored += int(server.metrics()["weir_cache_restored_total"])
            server.stop()
    text = f"""{HEADING}

`python3 bench/shared_folder.py {sys.argv[1]}`, {began.isoformat()}: {N_SERVERS} servers with one `--cache-dir` of {CACHED[1]}, a tiny random model, {N_PROMPTS} prompts that
share beginnings. One server is killed (SIGKILL) every {BETWEEN_KILLS_S} s and started again. {where}.

| | |
|---|---|
| minutes | {seconds / 60:g} |
| answers | {count.answers:,} |
| of these with 64 cached tokens or more | {count.cached:,} |
| prefixes read from the folder | {count.restored:,} |
| servers killed | {count.kills} |
| requests that a kill ended | {count.lost} |
| most bytes in the folder | {most / 1e6:.1f} MB |
| texts that differ from those of a server without a cache | {count.wrong} |
"""
    page = RESULTS.read_text()
    before, _, after = page.partition(HEADING)
    rest = re.search(r"\n## ", after)
    RESULTS.write_text(before.rstrip("\n") + "\n\n" + text + ("\n" + after[rest.start() + 1:] if rest else ""))
    print(text)


main()
