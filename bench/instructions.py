#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Instructions of a chat before the engine has it (front.py's body), which other load on the machine does not change.

usage: instructions.py [REQUESTS]

Counts with valgrind's callgrind, from the second request on, REQUESTS (2) of them: /apply-template of WEIR_BIN, of WEIR_BEFORE, another
build of weir, and of LLAMA_SERVER, and /v1/plan of both builds. WEIR_FRESH=1 gives each request another description of a tool, so that
nothing can be kept of the tools. Needs WEIR_MODEL and WEIR_LLAMA_SOURCE, too. Valgrind knows no AVX-512: on machines that have it,
LLAMA_SERVER must be of the flavour stock-avx2 of scripts/llama.sh. Profiles stay in build/bench/instructions/, for callgrind_annotate."""
import http.client
import json
import os
import pathlib
import re
import subprocess
import sys

from compare import Server
from front import commands
from templates import conversation, tool

WORK = pathlib.Path("build/bench/instructions")
FRESH = os.environ.get("WEIR_FRESH") == "1"


def control(server, *words):
    subprocess.run(["callgrind_control", *words, str(server.process.pid)], check=True, stdout=subprocess.DEVNULL)


def count(name, command, path, n):
    out = WORK / f"{name}{path.replace('/', '-')}"
    for old in WORK.glob(out.name + "*"):
        old.unlink()
    tools, i = [tool(i) for i in range(60)], 0
    with Server(name, ["valgrind", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={out}", *command]) as server:
        connection = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=600)

        def ask():
            nonlocal i
            i += 1
            if FRESH:
                tools[0]["function"]["parameters"]["properties"]["x"]["maximum"] = i
            connection.request("POST", path, json.dumps({"messages": conversation(), "tools": tools, "max_tokens": 1}), {"Content-Type": "application/json"})
            reply = connection.getresponse()
            text = reply.read()
            if reply.status != 200:
                sys.exit(f"{name}: {path}: {text[:500]}")

        ask()
        control(server, "-i", "on")
        for _ in range(n):
            ask()
        control(server, "-i", "off")
        control(server, "-d")
    return sum(int(total) for file in WORK.glob(out.name + "*") for total in re.findall(r"^totals: (\d+)", file.read_text(), re.MULTILINE)) / n


def main():
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    programs = commands(["--no-warmup"], ["--work-timeout", "600"])
    WORK.mkdir(parents=True, exist_ok=True)
    print("| path | program | million instructions |\n|---|---|---|")
    for path in ("/apply-template", "/v1/plan"):
        for name, command in programs.items():
            if path != "/v1/plan" or name != "llama-server":
                print(f"| {path} | {name} | {count(name, command, path, n) / 1e6:.1f} |", flush=True)


if __name__ == "__main__":
    main()
