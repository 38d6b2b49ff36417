#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The processor time that the worst body of a request takes, for each path, and how much of it is left once its client has left.

usage: bodies.py [--size MIB] [--all] [ROUNDS | PATH…]

Sends every body of tests/support/bodies.py with the default limit's size to a server, alone, and counts the processor time of the server's
whole process until the answer is there; smaller ones, too, where that one is refused. Each path's slowest bodies are sent again, and their client leaves after 15, 40, 65 and 90 % of that
time: what the server then still uses is the second figure, the most of these. Prints a table (bench/results/bodies.md has one); --all prints
each body. It has one round, whatever scripts/bench.sh says. Needs WEIR_BIN and WEIR_MODEL in the environment; scripts/bench.sh sets them."""
import argparse
import collections
import json
import os
import pathlib
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "support"))
from bodies import every_body  # noqa: E402
from processor import Process  # noqa: E402
from serve import Server  # noqa: E402

LEAVES = (0.15, 0.4, 0.65, 0.9)  # of the whole time
SLOWEST = 3  # bodies of each path that are sent again


def ask(server, process, path, data, patience):
    before = process.settle(0.05)
    connection = server.connect(timeout=patience)
    try:
        connection.request("POST", path, data)
        reply = connection.reply()
        words = f"{reply.status}"
        if reply.status >= 400:
            error = json.loads(reply.body).get("error")
            words += " " + str(error.get("code") or error.get("type") if isinstance(error, dict) else "")
    except OSError:
        words = "none"
    finally:
        connection.close()
    return process.settle(0.05) - before, words


def leave(server, process, path, data, after):
    """The processor time after the client has left, `after` seconds of work into it."""
    before = process.settle(0.05)
    connection = server.connect()
    connection.request("POST", path, data)
    until = time.monotonic() + 30
    while process.used() - before < after and time.monotonic() < until:
        time.sleep(0.001)
    connection.close()
    left = process.used()
    return process.settle(0.05) - left


def measure(server, paths, size, patience, say):
    process = Process(server.process.pid)
    rows = collections.defaultdict(list)
    for body in every_body():
        if paths and body.path not in paths:
            continue
        tries = []
        # What is refused by its counts or bytes may be accepted with fewer.
        for n in (size, size // 2, size // 4, (2 << 20) - (64 << 10), (1 << 20) - (64 << 10)):
            data = body.make(n)
            seconds, words = ask(server, process, body.path, data, patience)
            tries.append([seconds, None, body, words, data])
            if words[0] == "2":
                break
        worst = max(tries, key=lambda row: row[0])
        rows[body.path].append(worst)
        say(f"{worst[0]:7.3f} s  {body.path}  {body.name}, {len(worst[4]) / (1 << 20):.1f} MiB: {worst[3]}")
        rows[body.path].sort(key=lambda row: -row[0])
        for row in rows[body.path][SLOWEST:]:
            row[4] = None
    for path, found in rows.items():
        for row in found[:SLOWEST]:
            row[1] = max(leave(server, process, path, row[4], row[0] * part) for part in LEAVES)
            say(f"{row[0]:7.3f} s, {row[1]:.3f} s after its client left  {path}  {row[2].name}")
    return rows


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--size", type=float, default=16)
    arguments.add_argument("--all", action="store_true")
    arguments.add_argument("--patience", type=float, default=120)
    arguments.add_argument("--model")
    arguments.add_argument("paths", nargs="*")
    given = arguments.parse_args()
    weir = os.environ["WEIR_BIN"]
    model = given.model or os.environ["WEIR_MODEL"]
    size = int(given.size * (1 << 20)) - 4096
    with Server(weir, "--embeddings", "--work-timeout", "600", model=model) as server:
        rows = measure(server, [path for path in given.paths if path.startswith("/")], size, given.patience, lambda line: print(line, flush=True) if given.all else None)
    lines = ["| path | worst body | MiB | processor seconds | after its client left | answer |", "|---|---|---|---|---|---|"]
    for path, found in rows.items():
        seconds, after, body, words, data = found[0]
        lines.append(f"| {path} | {body.name} | {len(data) / (1 << 20):.1f} | {seconds:.2f} | {max(row[1] for row in found[:SLOWEST]):.3f} | {words} |")
    table = "\n".join(lines) + "\n"
    print(table)


if __name__ == "__main__":
    main()
