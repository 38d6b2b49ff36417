#!/usr/bin/env python3
"""What recording costs: processor time of weir serve per generated token, with and without --record.

usage: bench/record.py WEIR [MODEL [REQUESTS [TOKENS [PAIRS]]]]

Eight clients of weir bench http send the same requests to a server with --record and to one without, in turns. The time is that of the
server's process, all threads, so it shows what recording takes even where other programs run beside it. MODEL fake: has no weights: its
time is weir's own. Prints a row of a table for each side."""
# SPDX-License-Identifier: Apache-2.0
import json
import os
import statistics
import subprocess
import sys
import tempfile


def processor_seconds(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        fields = file.read().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def microseconds(weir, model, requests, tokens, record):
    """Processor time per generated token."""
    environment = {**os.environ, "WEIR_CONFIG": ""}
    with tempfile.TemporaryDirectory() as folder:
        words = ["--record", os.path.join(folder, "records")] if record else []
        server = subprocess.Popen([weir, "serve", "-m", model, "-np", "8", "--port", "0", "--no-log", "--lookup-memory", "0", *words], stderr=subprocess.PIPE, text=True, env=environment)
        try:
            url = next(json.loads(line)["message"].rpartition(" at ")[2] for line in server.stderr if '"ready"' in line)
            before = processor_seconds(server.pid)
            subprocess.run([weir, "bench", "http", url, "--concurrency", "8", "--requests", str(requests), "-p", "64", "--gen", str(tokens), "--ignore-eos", "--json"],
                           stdout=subprocess.DEVNULL, env=environment, check=True)
            return (processor_seconds(server.pid) - before) / (requests * tokens) * 1e6
        finally:
            server.terminate()
            server.wait()


def main(weir, model="fake:", requests="800", tokens="64", pairs="5"):
    sides = {False: [], True: []}
    for i in range(int(pairs)):
        for record in (False, True) if i % 2 == 0 else (True, False):
            sides[record].append(microseconds(weir, model, int(requests), int(tokens), record))
    for record, times in sides.items():
        print(f"| {os.path.basename(model)} | {'with' if record else 'without'} --record | {statistics.median(times):.2f} | {min(times):.2f} to {max(times):.2f} |")


main(*sys.argv[1:])
