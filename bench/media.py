#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Streams that run while images arrive: weir beside llama-server, with the same model, projector, images and threads.

usage: media.py ROUNDS [LAYERS]

Four streams of text run; after a second three requests with an image each arrive. Measured: the longest gap between two pieces of a
running stream from then until the images' first tokens, those requests' time to first token, and that of a second question about one of
the images. The projector has SigLIP's shape and random weights, LAYERS (4) of its 27 layers, heads of 64 numbers; images are noise. Writes
the second part of bench/results/media.md. Needs WEIR_BIN, WEIR_MODEL and LLAMA_SERVER in the environment; scripts/bench.sh sets them."""
import base64
import datetime
import http.client
import json
import os
import pathlib
import random
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
import zlib

from compare import Server
from engine import machine, requantize, run

RESULT = pathlib.Path("bench/results/media.md")
HEADING = "## Streams while images arrive\n"
SIDE, STREAMS, IMAGES, TARGET_MS = 896, 4, 3, 50


def png(seed):
    dice = random.Random(seed)
    rows = b"".join(b"\0" + dice.randbytes(3 * SIDE) for _ in range(SIDE))

    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
    head = struct.pack(">IIBBBBB", SIDE, SIDE, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows, 1)) + chunk(b"IEND", b"")


class Stream(threading.Thread):
    """A chat whose pieces' times are kept."""

    def __init__(self, url, content, n_tokens):
        super().__init__(daemon=True)
        self.address = urllib.parse.urlsplit(url).netloc
        self.body = json.dumps({"messages": [{"role": "user", "content": content}], "max_tokens": n_tokens, "stream": True,
                                "temperature": 0, "ignore_eos": True})
        self.times, self.error = [], None
        self.start()

    def run(self):
        self.began = time.monotonic()
        connection = http.client.HTTPConnection(self.address, timeout=900)
        connection.request("POST", "/v1/chat/completions", self.body, {"Content-Type": "application/json"})
        reply = connection.getresponse()
        if reply.status != 200:
            self.error = reply.read().decode()
            return
        for line in reply:
            if line.startswith(b"data: {") and json.loads(line[6:])["choices"][0]["delta"].get("content"):
                self.times.append(time.monotonic())

    def ttft(self):
        self.join()
        if self.error or not self.times:
            sys.exit(f"media: {self.error or 'an answer without text'}")
        return self.times[0] - self.began


def ask(url, seed, question):
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + base64.b64encode(png(seed)).decode()}}
    return Stream(url, [image, {"type": "text", "text": question}], 8)


def measure(url, seed):
    texts = [Stream(url, f"Tell story {seed + i} about a river.", 4000) for i in range(STREAMS)]
    while not all(text.times for text in texts):
        time.sleep(0.05)
    time.sleep(1)
    sent = time.monotonic()
    asked = [ask(url, 10 * seed + i, "What is this?") for i in range(IMAGES)]
    first = [stream.ttft() for stream in asked]
    end = max(stream.times[0] for stream in asked)
    gaps = [b - a for text in texts for a, b in zip(text.times, text.times[1:]) if b > sent and a < end]
    again = ask(url, 10 * seed, "Which colours does it have?").ttft()
    return {"gap": 1000 * max(gaps), "first": max(first), "again": again, "ratio": again / first[0]}


def main():
    rounds, layers = int(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "4"
    weir, model, program = (os.environ[name] for name in ("WEIR_BIN", "WEIR_MODEL", "LLAMA_SERVER"))
    threads = str(os.cpu_count())
    found = {"llama-server": [], "weir": []}
    with tempfile.TemporaryDirectory() as folder:
        path, projector = f"{folder}/q8_0.gguf", f"{folder}/projector.gguf"
        requantize(weir, model, path, "q8_0")
        subprocess.run([sys.executable, "bench/random_projector.py", projector, layers, "18", "576"], check=True)
        common = ["-m", path, "--mmproj", projector, "-t", threads, "-tb", threads, "-np", "8", "--host", "127.0.0.1", "--offline"]
        sides = {"llama-server": [program, *common, "-c", str(8 * 4608), "--no-ui"],
                 "weir": [weir, "serve", *common, "-c", "4608", "--kv", str(8 * 4608), "--itl-target", str(TARGET_MS)]}
        for i in range(rounds):
            for side in sorted(sides, reverse=i % 2 == 1):
                print(f"round {i + 1} of {rounds}: {side}", file=sys.stderr, flush=True)
                with Server(side, sides[side]) as server:
                    found[side].append(measure(server.url, 100 * (i + 1)))
    write(rounds, layers, weir, threads, found)


def write(rounds, layers, weir, threads, found):
    def row(key, name, unit, digits):
        cells = [f"{statistics.median(r[key] for r in found[side]):.{digits}f} {unit}".strip() for side in ("llama-server", "weir")]
        return f"| {name} | {cells[0]} | {cells[1]} |"
    lines = [HEADING, f"`python3 bench/media.py {rounds} {layers}`, {datetime.date.today().isoformat()}, {run([weir, 'version']).splitlines()[0]}.", "",
             machine() + f"; {threads} threads, the default model in Q8_0, 8 slots. Four streams run, three requests with an image of "
             f"{SIDE} × {SIDE} pixels arrive; a projector of SigLIP's shape with {layers} layers. Medians of {rounds} rounds.", "",
             "| | llama-server | weir |", "|---|---|---|",
             row("gap", f"longest gap of the four streams (weir's target: {TARGET_MS} ms)", "ms", 0),
             row("first", "time to the first token of the slowest of the three", "s", 2),
             row("again", "the same of a second question about the first image", "s", 2),
             row("ratio", "that, divided by the first question's", "", 3)]
    text = RESULT.read_text(encoding="utf-8").partition(HEADING)[0]
    RESULT.write_text(text + "\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
