#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A long prompt that one server has cached and another one fetches: time to the first token, and speed of the transfer, beside computing it.

usage: prefixes.py ROUNDS [TOKENS]

Replaces its section of bench/results/machines.md. Needs WEIR_BIN and WEIR_MODEL in the environment; scripts/bench.sh sets them."""
import datetime
import json
import os
import pathlib
import re
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "support"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from engine import machine, run  # noqa: E402
from serve import Server  # noqa: E402

HEADING = "## A prompt from another server"
KEY = "bench"
RESULTS = pathlib.Path(__file__).resolve().parent / "results" / "machines.md"
LEAST_GB, MOST_SHARE = 1.0, 0.10


def first_token(server, tokens, headers=()):
    """Seconds to the first event with text, and the usage."""
    connection = server.connect(timeout=600)
    began = time.monotonic()
    connection.request("POST", "/v1/completions", {"prompt": tokens, "max_tokens": 8, "temperature": 0, "ignore_eos": True, "stream": True,
                                                   "stream_options": {"include_usage": True}}, headers=headers)
    status, _ = connection.head()
    assert status == 200, status
    took, last, text = None, None, ""
    for event in connection.events():
        if event.startswith(":") or event == "[DONE]":
            continue
        if took is None:
            took = time.monotonic() - began
        last = json.loads(event)
        text += "".join(choice["text"] for choice in last["choices"])
    connection.close()
    return took, last["usage"]["prompt_tokens_details"]["cached_tokens"], text


def read_all(server, tokens):
    """Bytes and seconds of the transfer alone, by a plain socket."""
    connection = server.connect(timeout=600)
    began = time.monotonic()
    connection.request("POST", "/v1/prefixes", {"tokens": tokens[:-1]}, key=KEY)
    status, headers = connection.head()
    waited = time.monotonic() - began
    assert status == 200, connection.exactly(int(headers["content-length"]))
    left = size = int(headers["content-length"])
    left -= len(connection.buffer)
    room = memoryview(bytearray(1 << 20))
    while left > 0:
        got = connection.sock.recv_into(room)
        assert got > 0
        left -= got
    took = time.monotonic() - began
    connection.close()
    return size, waited, took - waited


def main():
    rounds, n = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 8000
    weir, model = os.environ["WEIR_BIN"], os.environ["WEIR_MODEL"]
    words = ["-np", "2", "-c", str(n + 64), "--prefix-key", KEY]
    rows = []
    for i in range(rounds):
        with Server(weir, *words, model=model) as first, Server(weir, *words, "--prefix-peer", first.url, model=model) as second:
            tokens = [1] + [(j * (i + 7) + j * j // 3) % 40000 + 100 for j in range(n - 1)]
            computed, cached, text = first_token(first, tokens)
            assert cached == 0, cached
            size, waited, sent = read_all(first, tokens)
            fetched, cached, other = first_token(second, tokens, [f"X-Weir-Prefix-From: {first.url}"])
            line = second.log(lambda l: l.get("event") == "prefix")["message"]
            again, _, _ = first_token(second, tokens)
            rows.append({"computed": computed, "fetched": fetched, "again": again, "size": size, "waited": waited, "sent": sent, "cached": cached, "same": text == other,
                         "whole": float(re.search(r"in ([\d.]+) ms", line).group(1)) / 1000})
            print(rows[-1], line, file=sys.stderr, flush=True)
    mid = {name: statistics.median(row[name] for row in rows) for name in rows[0]}
    rate, whole, share = mid["size"] / mid["sent"] / 1e9, mid["size"] / mid["whole"] / 1e9, mid["fetched"] / mid["computed"]
    good = all(row["same"] and row["cached"] == n - 1 for row in rows)
    text = f"""{HEADING}

`scripts/bench.sh {rounds} prefixes`, {datetime.date.today()}, {run([weir, "--version"]).splitlines()[0]}.

{machine()}; two servers on loopback, {os.path.basename(model)}, a prompt of {n:,} tokens, a state of {mid["size"] / 1e6:.0f} MB. Medians of {rounds} rounds. Aims:
at least {LEAST_GB:.0f} GB/s, and a first token in at most {MOST_SHARE:.0%} of the time of computing.

| | |
|---|---|
| time to the first token, computed | {mid["computed"] * 1000:,.0f} ms |
| fetched from the other server | {mid["fetched"] * 1000:,.0f} ms, {share:.1%} ({min(r["fetched"] / r["computed"] for r in rows):.1%} to {max(r["fetched"] / r["computed"] for r in rows):.1%}) |
| cached in the same server | {mid["again"] * 1000:,.0f} ms |
| the fetch as a whole, with the copies out of the cache and into it and all checks | {mid["whole"] * 1000:,.0f} ms, {whole:.2f} GB/s |
| of this, until the first byte: copy out of the cache, checksum | {mid["waited"] * 1000:,.0f} ms |
| the bytes from there on, read by a socket that drops them | {mid["sent"] * 1000:,.0f} ms, {rate:.2f} GB/s |
| the same text, and all tokens but one not computed | {"all rounds" if good else "no"} |
"""
    before = RESULTS.read_text(encoding="utf-8")
    at = before.find(HEADING)
    if at >= 0:
        end = before.find("\n## ", at + 1)
        before = before[:at] + (before[end + 1:] if end >= 0 else "")
    RESULTS.write_text(before.rstrip("\n") + "\n\n" + text, encoding="utf-8")
    return 0 if good and rate >= LEAST_GB and share <= MOST_SHARE else 1


sys.exit(main())
