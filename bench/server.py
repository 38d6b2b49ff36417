#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""weir serve under load, on the fake model: 1,000 streams at a time on 8 slots at 400 tokens/s and more, again and again; then clients that vanish.

usage: server.py ROUNDS

Writes bench/results/serve.md. Needs WEIR_BIN in the environment; scripts/bench.sh sets it."""
import datetime
import json
import os
import pathlib
import re
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "support"))
from engine import machine, run  # noqa: E402
from serve import Server  # noqa: E402

STREAMS, REQUESTS, GEN, SLOTS, TICK_US, VANISH = 1000, 1000, 8, 8, 16000, 10000
RING = 4096  # ticks that the engine remembers: memory that is taken as they come, and then is full
SHARE, GROWTH = 0.20, 1.05
THREADS = ["weir-http", "weir-work", "weir-engine"]


def read_events(server, over):
    connection = server.connect()
    connection.request("GET", "/events")
    connection.head()
    for _ in connection.events():
        if over.is_set():
            break
    connection.close()


def load(weir, rounds, watched):
    """Rows of a server with its log to a file and a reader of /events, or with neither."""
    rows = []
    words = ["-np", str(SLOTS), "--queue", str(2 * STREAMS)] + ([] if watched else ["--no-log"])
    with Server(weir, *words, model=f"fake:tick_us={TICK_US}") as server:
        over = threading.Event()
        reader = threading.Thread(target=read_events, args=(server, over))
        if watched:
            reader.start()
        ask = [weir, "bench", "http", server.url, "--concurrency", str(STREAMS), "--prompt", "8", "--gen", str(GEN), "--ignore-eos", "--json", "-q", "--requests"]
        run(ask + [str(RING * SLOTS // GEN)])
        for _ in range(rounds):
            before, cpu, began = server.metrics(), [server.cpu(name) for name in THREADS], time.monotonic()
            got = json.loads(run(ask + [str(REQUESTS)]))["runs"][0]
            wall = time.monotonic() - began
            shares = [(server.cpu(name) - c) / wall for name, c in zip(THREADS, cpu)]
            after = server.wait_for(lambda m: m["weir_http_live"] == 1 + watched)
            time.sleep(1)
            rows.append({"watched": watched, "answered": got["answered"], "errors": got["n_errors"], "events": got["itl_ms"]["n"] + got["ttft_ms"]["n"],
                         "tokens": got["generated_tokens"], "counted": after["weir_generated_tokens_total"] - before["weir_generated_tokens_total"],
                         "rate": got["generated_per_second"], "shares": shares, "resident": server.resident(), "idle": after["weir_slots_generating"] + after["weir_queue_depth"] == 0})
            print(rows[-1], file=sys.stderr, flush=True)
        over.set()
        if watched:
            reader.join()
    return rows


def main():
    rounds, weir = int(sys.argv[1]), os.environ["WEIR_BIN"]
    rows = load(weir, rounds, False) + load(weir, rounds, True)
    environment = dict(os.environ, WEIR_FAULTS=str(VANISH))
    done = subprocess.run([sys.executable, "tests/server_faults_test.py", "vanishing"], env=environment, stdout=subprocess.PIPE, text=True)
    vanished = [line.strip() for line in done.stdout.splitlines()]
    lines = ["# The server", "",
             f"`scripts/bench.sh {rounds} server`, {datetime.date.today().isoformat()}, {run([weir, 'version']).splitlines()[0]}.", "",
             f"{machine()}; the fake model with ticks of {TICK_US // 1000} ms, {SLOTS} slots, so {SLOTS * 1000000 // TICK_US} tokens/s; `weir bench http`, {STREAMS} clients at a time, "
             f"{REQUESTS} requests of {GEN} tokens in each run; client and server share the processors.", "",
             f"*Events*: pieces of text that came, {REQUESTS * GEN} are right. *Threads*: processor time of the service thread, of the workers and of the engine's, as a share of a core over the run "
             f"(aim for the first: under {SHARE:.0%}). *Resident*: after the run, memory of the whole process (aim: at most {GROWTH} × after the first run). Before the first, {RING * SLOTS // GEN} requests fill what the engine remembers of its ticks.", "",
             "| | run | answered | events | tokens, as the server counts | tokens/s | service thread | workers | engine | resident, MB |", "|---|---|---|---|---|---|---|---|---|---|"]
    for i, row in enumerate(rows):
        first = rows[0 if not row["watched"] else rounds]["resident"]
        lines.append(f"| {'log and /events' if row['watched'] else 'neither log nor /events'} | {i % rounds + 1} | {row['answered']}{'' if row['answered'] == REQUESTS else ', missed'} | "
                     f"{row['events']}{'' if row['events'] == REQUESTS * GEN else ', missed'} | {row['counted']:.0f} | {row['rate']:.0f} | "
                     f"{row['shares'][0]:.1%}{'' if row['shares'][0] < SHARE else ', missed'} | {row['shares'][1]:.1%} | {row['shares'][2]:.1%} | "
                     f"{row['resident'] / 1e6:.1f}{'' if row['resident'] <= first * GROWTH else ', missed'} |")
    lines += ["", f"`WEIR_FAULTS={VANISH} tests/server_faults_test.py vanishing`: clients that vanish in every state, 64 at a time, half of them by a reset:", ""]
    lines += [f"- {re.sub('^ok +', '', line)}" for line in vanished if line and not line.startswith("----")]
    pathlib.Path("bench/results/serve.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
