#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Processor time of a chat before the engine has it, beside another build's and llama-server's.

usage: front.py ROUNDS [SECONDS]

POST /apply-template with 50 messages and 60 tools: each program reads the body, renders the prompt, and makes the parser and
the grammar of calls; no pass runs. POST /v1/plan, of both builds of weir: it also makes tokens and looks up the cache. One connection on WEIR_MODEL, with one of the pin's templates. The programs take turns, for SECONDS (2) each time. Prints
microseconds of all the program's threads in Markdown. Needs WEIR_BIN, WEIR_MODEL and WEIR_LLAMA_SOURCE in the environment, and
LLAMA_SERVER and WEIR_BEFORE, the other build's program, unless they are left out; scripts/bench.sh sets all but the last."""
import http.client
import json
import os
import statistics
import sys
import time

from compare import Server
from templates import conversation, server_cpu, tool

TEMPLATE = "Qwen-Qwen3-0.6B.jinja"


def commands(for_llama=(), for_weir=()):
    """The commands of the programs that the environment names, with further options of llama-server and of weir."""
    template = os.path.join(os.environ["WEIR_LLAMA_SOURCE"], "models/templates", TEMPLATE)
    words = ["-m", os.environ["WEIR_MODEL"], "-np", "1", "-c", "32768", "--host", "127.0.0.1", "--offline", "--chat-template-file", template]
    programs = {"now": "WEIR_BIN", "before": "WEIR_BEFORE", "llama-server": "LLAMA_SERVER"}
    return {name: [os.environ[of], *(["--jinja", *words, "--no-ui", *for_llama] if name == "llama-server" else ["serve", *words, "--no-log", *for_weir])]
            for name, of in programs.items() if of in os.environ}


def microseconds(server, path, body, seconds):
    """Processor time of a request, and the characters of the prompt."""
    connection = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=300)
    n, before, until = 0, server_cpu(server), time.monotonic() + seconds
    while time.monotonic() < until or n < 2:
        connection.request("POST", path, body, {"Content-Type": "application/json"})
        reply = connection.getresponse()
        text = reply.read()
        if reply.status != 200:
            sys.exit(f"{server.name}: {path}: {text[:500]}")
        n += 1
    return (server_cpu(server) - before) / n * 1e6, len(json.loads(text).get("prompt", ""))


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 2
    body = json.dumps({"messages": conversation(), "tools": [tool(i) for i in range(60)], "max_tokens": 1})
    programs = commands()
    times = {(path, name): [] for path in ("/apply-template", "/v1/plan") for name in programs if path != "/v1/plan" or name != "llama-server"}
    for i in range(rounds):
        for name in sorted(programs, reverse=i % 2 == 1):
            with Server(name, programs[name]) as server:
                for path in sorted({path for path, of in times if of == name}):
                    microseconds(server, path, body, 0)  # the first one may analyse the template
                    got, length = microseconds(server, path, body, seconds)
                    times[path, name].append(got)
                    print(f"{name}: {path}: {got:.0f} us, {length} characters", file=sys.stderr, flush=True)
    print("| path | program | us of processor time, median | least | most | now / it |\n|---|---|---|---|---|---|")
    for (path, name), values in times.items():
        share = statistics.median(a / b for a, b in zip(times[path, "now"], values))
        print(f"| {path} | {name} | {statistics.median(values):.0f} | {min(values):.0f} | {max(values):.0f} | {share:.2f} |")


if __name__ == "__main__":
    main()
