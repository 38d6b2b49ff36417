#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""weir serve's requests per second on the fake model, whose passes take no time, beside those of another build.

usage: requests.py ROUNDS

64 connections, small chats, keys: what the server does for a request, and nothing else. The rounds of both builds take turns.
Prints rows of Markdown. Needs WEIR_BIN in the environment, and WEIR_BEFORE, the other build's program; scripts/bench.sh sets the first."""
import json
import os
import pathlib
import statistics
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "support"))
from engine import run  # noqa: E402
from serve import Server  # noqa: E402

CONNECTIONS, REQUESTS, GEN, KEYS = 64, 6000, 4, 16


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    weir = os.environ["WEIR_BIN"]
    programs = {"now": weir, **({"before": os.environ["WEIR_BEFORE"]} if "WEIR_BEFORE" in os.environ else {})}
    rates = {name: [] for name in programs}
    with tempfile.NamedTemporaryFile("w", suffix=".keys") as keys:
        keys.write("".join(f"key-number-{i}\n" for i in range(KEYS)))
        keys.flush()
        os.environ["WEIR_API_KEY"] = "key-number-7"  # the client's
        for i in range(rounds + 1):
            for name, program in sorted(programs.items(), reverse=i % 2 == 1):
                with Server(program, "-np", "64", "--queue", "256", "--api-key-file", keys.name, "--no-log") as server:
                    words = ["bench", "http", server.url, "--concurrency", str(CONNECTIONS), "--requests", str(REQUESTS), "--prompt", "8", "--gen", str(GEN), "--ignore-eos"]
                    got = json.loads(run([weir, *words, "--json", "-q"]))["runs"][0]
                    if got["answered"] != REQUESTS or got["n_errors"]:
                        sys.exit(f"{name}: {got}")
                    rate = REQUESTS / got["total_s"]
                    if i > 0:  # the first round warms up
                        rates[name].append(rate)
                    print(f"{name}: {rate:.0f} requests/s", file=sys.stderr, flush=True)
    print("| build | requests/s, median | least | most |\n|---|---|---|---|")
    for name, values in rates.items():
        print(f"| {name} | {statistics.median(values):.0f} | {min(values):.0f} | {max(values):.0f} |")
    if len(rates) == 2:
        print(f"\nNow / before, median of pairs: {statistics.median(a / b for a, b in zip(rates['now'], rates['before'])):.3f}")


if __name__ == "__main__":
    main()
