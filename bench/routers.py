#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two weirs behind SGLang's gateway: its cache-aware policy beside round robin, with conversations of several turns.

usage: routers.py ROUNDS [CONVERSATIONS]

Conversations, four at a time, each with a document of its own and a system prompt that all share, ask TURNS questions, each with all that
was said before. A later turn reached the right server when at least nine tenths of the turn before it were cached. Writes the section of
bench/results/machines.md. Needs WEIR_BIN and WEIR_MODEL in the environment, and ROUTER: the command of the gateway, for example
"python3 -m sglang_router.launch_router"."""
import concurrent.futures
import datetime
import http.client
import json
import os
import pathlib
import random
import shlex
import statistics
import sys
import time
import urllib.parse

from compare import Server
from engine import machine, replace_section, run

RESULT = pathlib.Path("bench/results/machines.md")
TITLE = "## Two servers behind a router"
TURNS, AT_ONCE, DOCUMENT = 4, 4, 500  # words
WORDS = "river stone cloud seven green table music under quick harbour winter paper silver garden letter bridge".split()
SYSTEM = "You answer questions about the text. " + " ".join(WORDS) * 3


def ask(url, messages):
    """The seconds to the first token, the text, and the counts of tokens."""
    began, first, text, usage = time.monotonic(), None, "", None
    connection = http.client.HTTPConnection(urllib.parse.urlsplit(url).netloc, timeout=600)
    connection.request("POST", "/v1/chat/completions", json.dumps({"model": "m", "messages": messages, "max_tokens": 24, "temperature": 0, "stream": True,
                       "stream_options": {"include_usage": True}}), {"Content-Type": "application/json"})
    reply = connection.getresponse()
    if reply.status != 200:
        sys.exit(f"routers: {reply.status} {reply.read().decode()}")
    for line in reply:
        if not line.startswith(b"data: {"):
            continue
        event = json.loads(line[6:])
        usage = event.get("usage") or usage
        for choice in event["choices"]:
            if choice["delta"].get("content"):
                first = first or time.monotonic()
                text += choice["delta"]["content"]
    return (first or time.monotonic()) - began, text, usage


def converse(url, seed):
    """For each turn after the first: the seconds to its first token, and whether it reached the server that had the others."""
    dice = random.Random(seed)
    messages = [{"role": "system", "content": SYSTEM}]
    turns, before = [], 0
    for turn in range(TURNS):
        text = " ".join(dice.choice(WORDS) for _ in range(DOCUMENT)) + ". " if turn == 0 else ""
        messages.append({"role": "user", "content": f"{text}What comes after {dice.choice(WORDS)}?"})
        seconds, answer, usage = ask(url, messages)
        messages.append({"role": "assistant", "content": answer})
        if turn > 0:
            turns.append((seconds, usage["prompt_tokens_details"]["cached_tokens"] >= 0.9 * before))
        before = usage["prompt_tokens"]
    return turns


def measure(weir, model, policy, n, seed):
    command = [weir, "serve", "-m", model, "-t", "1", "-np", str(2 * AT_ONCE), "-c", "4096", "--alias", "m", "--no-log"]
    with Server("weir", command) as one, Server("weir", command) as two:
        router = [*shlex.split(os.environ["ROUTER"]), "--worker-urls", one.url, two.url, "--policy", policy]
        with Server("the gateway", router) as gateway, concurrent.futures.ThreadPoolExecutor(AT_ONCE) as threads:
            return [turn for turns in threads.map(lambda i: converse(gateway.url, 1000 * seed + i), range(n)) for turn in turns]


def main():
    rounds, n = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 24
    weir, model = os.environ["WEIR_BIN"], os.environ["WEIR_MODEL"]
    policies = ["round_robin", "cache_aware"]
    found = {policy: [] for policy in policies}
    for i in range(rounds):
        for policy in policies if i % 2 == 0 else policies[::-1]:
            print(f"round {i + 1} of {rounds}: {policy}", file=sys.stderr, flush=True)
            found[policy].append(measure(weir, model, policy, n, i))
    times = {policy: [statistics.median(seconds for seconds, _ in turns) for turns in found[policy]] for policy in policies}
    right = {policy: statistics.mean(hit for turns in found[policy] for _, hit in turns) for policy in policies}
    ratios = [a / b for a, b in zip(times["cache_aware"], times["round_robin"])]
    lines = [TITLE, "", f"`python3 bench/routers.py {rounds} {n}`, {datetime.date.today().isoformat()}, {run([weir, 'version']).splitlines()[0]}, "
             "SGLang's gateway 0.3.2.", "",
             machine() + f"; two servers with one thread each, the default model, {n} conversations of {TURNS} turns, {AT_ONCE} at a time. "
             f"Figures of the turns after the first; medians of {rounds} rounds.", "",
             "| | round robin | cache-aware | ratio |", "|---|---|---|---|",
             f"| turns that reached the server with their prefix | {100 * right['round_robin']:.0f} % | {100 * right['cache_aware']:.0f} % | |",
             f"| time to the first token, p50 | {1000 * statistics.median(times['round_robin']):.0f} ms | "
             f"{1000 * statistics.median(times['cache_aware']):.0f} ms | {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}) |", ""]
    if not RESULT.exists():
        RESULT.write_text("# Several machines\n", encoding="utf-8")
    replace_section(RESULT, lines, TITLE)
    print("\n".join(lines))


if __name__ == "__main__":
    main()
