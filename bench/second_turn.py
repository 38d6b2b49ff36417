#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An agent's second turn: the time to its first token, weir beside llama-server, with the same model, template, bodies and threads.

usage: second_turn.py ROUNDS
       second_turn.py edit [MODEL...]

A session has 60 tools and a prompt of some 6,000 tokens, which no earlier session begins with. Its first turn asks; its second has the
call, the tool's result and all that came before. Two kinds: with lines that change with each request, as agents send them (the first of
the system message, the last of each result), and without. Writes bench/results/second_turn.md. Needs WEIR_BIN, WEIR_MODEL,
WEIR_LLAMA_SOURCE and LLAMA_SERVER in the environment; scripts/bench.sh sets them.

edit: of how many tokens an edit in the middle of a conversation loses the cells, for models whose memory cannot be cut everywhere: random
ones, unless models are named. The first turn is one text without ends of messages; the second has the same first part. Needs WEIR_BIN alone.
Writes bench/results/edits.md."""
import datetime
import http.client
import json
import os
import pathlib
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request

from compare import Server
from engine import machine, run

RESULT = pathlib.Path("bench/results/second_turn.md")
TEMPLATE = "Qwen-Qwen3-0.6B.jinja"
TOOLS, WORDS, RESULT_WORDS = 60, 250, 150
KINDS = {"changing": "with lines that change", "same": "without"}


def text(dice, n):
    words = "the file has a line that reads more than it was asked for and ends before its test".split()
    return " ".join(dice.choice(words) for _ in range(n))


def tool(i):
    properties = {name: {"type": "string", "description": f"the {name} of what is done"} for name in ("path", "text")}
    return {"type": "function", "function": {"name": f"tool_{i}", "description": f"Does what tool {i} is for, and tells what came of it.",
                                             "parameters": {"type": "object", "properties": properties, "required": ["path"]}}}


class Session:
    """The bodies of two turns; each is made when it is sent, so that its lines have changed."""

    def __init__(self, kind, seed):
        dice = random.Random(seed)
        self.kind, self.dice = kind, dice
        self.system, self.question, self.result = f"Session {dice.random()}. " + text(dice, WORDS), text(dice, 60), text(dice, RESULT_WORDS)

    def body(self, turn):
        system, result = self.system, self.result
        if self.kind == "changing":
            system = f"x-anthropic-billing-header: cc_version=2.1.332; cch={self.dice.random()};\n" + system
            result += f"\n<total_tokens>{self.dice.randrange(10**6)} tokens left</total_tokens>"
        call = {"id": "abcdefgh1", "type": "function", "function": {"name": "tool_7", "arguments": '{"path": "notes.txt"}'}}
        messages = [{"role": "system", "content": system}, {"role": "user", "content": self.question}]
        if turn == 2:
            messages += [{"role": "assistant", "content": "", "tool_calls": [call]}, {"role": "tool", "tool_call_id": call["id"], "content": result}]
        return {"messages": messages, "tools": [tool(i) for i in range(TOOLS)], "max_tokens": 4, "temperature": 0, "stream": True,
                "stream_options": {"include_usage": True}}


def ask(url, body):
    """Seconds to the first piece of text, and the prompt's tokens."""
    connection = http.client.HTTPConnection(urllib.parse.urlsplit(url).netloc, timeout=900)
    began, first, usage = time.monotonic(), None, None
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    if answer.status != 200:
        sys.exit(f"second_turn: {answer.status} {answer.read()[:300]}")
    for line in answer:
        if not line.startswith(b"data: {"):
            continue
        event = json.loads(line[6:])
        usage = event.get("usage") or usage
        delta = event["choices"][0]["delta"] if event["choices"] else {}
        if first is None and (delta.get("content") or delta.get("reasoning_content") or delta.get("tool_calls")):
            first = time.monotonic() - began
    connection.close()
    if first is None:
        sys.exit("second_turn: an answer without text")
    return first, usage["prompt_tokens"]


# ---- Edits in the middle ----------------------------------------------------------------------------------------------------------------

EDITS = pathlib.Path("bench/results/edits.md")
LENGTH, SHARED, BUDGET = 4000, 2399, 256 << 20  # one token before the next checkpoint: the worst place
RANDOM = {"mamba": "recurrent", "jamba": "hybrid", "swa": "a window of 32 tokens in half of the layers"}
PLACES = {"lanes": ("per_slot", False), "a pool": ("unified", False), "host memory": ("per_slot", True)}


def complete(url, tokens):
    """How many of the prompt's tokens were computed, and the answer."""
    body = json.dumps({"prompt": tokens, "max_tokens": 8, "temperature": 0, "ignore_eos": True}).encode()
    request = urllib.request.Request(url + "/v1/completions", body, {"Content-Type": "application/json"})
    answer = json.load(urllib.request.urlopen(request, timeout=600))
    usage = answer["usage"]
    return usage["prompt_tokens"] - (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0), answer["choices"][0]["text"]


def edit(weir, model, place):
    """Tokens computed of the second turn's first part, and bytes of saved states; and whether the answer is that of a new server."""
    layout, evicts = PLACES[place]
    dice = random.Random(1)
    first = [dice.randrange(300, 500) for _ in range(LENGTH)]
    second = first[:SHARED] + [dice.randrange(300, 500) for _ in range(LENGTH - SHARED)]
    command = [weir, "serve", "-m", model, "-np", "1", "-c", "4608", "--host", "127.0.0.1", "--layout", layout, "--cache-memory", str(BUDGET)]
    with Server("weir", command) as server:
        complete(server.url, first)
        if evicts:
            complete(server.url, first[::-1])
        computed, answer = complete(server.url, second)
        found = re.search(r"weir_cache_bytes\S* ([0-9.e+]+)", urllib.request.urlopen(server.url + "/metrics", timeout=60).read().decode())
    with Server("weir", command) as server:
        same = complete(server.url, second)[1] == answer
    if not same:
        print(f"second_turn: {model}, {place}: another answer than without the cache", file=sys.stderr)
    return computed - (LENGTH - SHARED), int(float(found.group(1))), same


def edits(models):
    weir, rows = os.environ["WEIR_BIN"], []
    with tempfile.TemporaryDirectory() as folder:
        named = {pathlib.Path(m).name: m for m in models}
        for kind in RANDOM if not models else ():
            name = f"{kind}, {RANDOM[kind]}"
            named[name] = f"{folder}/{kind}.gguf"
            subprocess.run([sys.executable, "scripts/tiny_gguf.py", kind, named[name], "--context", "8192", "--layers", "4"], check=True)
        for name, model in named.items():
            for place in PLACES:
                again, n_bytes, same = edit(weir, model, place)
                rows.append(f"| {name} | {place} | {again:,} | {100 * again / SHARED:.1f} % | {n_bytes / (1 << 20):.1f} MiB | {'yes' if same else 'no'} |")
                print(rows[-1], flush=True)
    EDITS.write_text("\n".join([
        "# An edit in the middle of a conversation", "",
        f"`WEIR_BIN=… bench/second_turn.py edit`, {datetime.date.today().isoformat()}, {run([weir, 'version']).splitlines()[0]}.", "",
        f"The first turn has {LENGTH:,} tokens and no ends of messages; the second begins with the same {SHARED:,} and goes on with others. One slot,",
        f"`cache_bytes` of {BUDGET >> 20} MiB; random models (scripts/tiny_gguf.py, 4 layers). *Again*: of the {SHARED:,} tokens, those that were computed",
        "again. *Host memory*: another text of that length came in between and took the slot. *States*: bytes of saved states after the second",
        "turn, of checkpoints and whole ones. *Same*: the second answer is the same as in a server that has computed nothing before.", "",
        "| model | the first turn's cells are in | again | | states | same |", "|---|---|---|---|---|---|", *rows]) + "\n", encoding="utf-8")


def main():
    if sys.argv[1] == "edit":
        edits(sys.argv[2:])
        return
    rounds = int(sys.argv[1])
    weir, model, program, source = (os.environ[name] for name in ("WEIR_BIN", "WEIR_MODEL", "LLAMA_SERVER", "WEIR_LLAMA_SOURCE"))
    threads, found, tokens = str(os.cpu_count()), {}, []
    common = ["-m", model, "-t", threads, "-tb", threads, "-np", "1", "-c", "8192", "--host", "127.0.0.1", "--chat-template-file",
              f"{source}/models/templates/{TEMPLATE}", "--offline"]
    sides = {"llama-server": [program, *common, "--jinja", "--no-ui"], "weir": [weir, "serve", *common]}
    for i in range(rounds):
        for side in sorted(sides, reverse=i % 2 == 1):
            with Server(side, sides[side]) as server:
                for kind in KINDS:
                    session = Session(kind, f"{i} {kind}")
                    for turn in (1, 2):
                        seconds, n = ask(server.url, session.body(turn))
                        found.setdefault((side, kind, turn), []).append(seconds)
                        tokens.append(n)
                        print(f"round {i + 1}, {side}, {kind}, turn {turn}: {seconds:.3f} s of {n} tokens", file=sys.stderr, flush=True)
    write(rounds, weir, threads, found, max(tokens))


def write(rounds, weir, threads, found, n_tokens):
    lines = ["# An agent's second turn", "",
             f"`scripts/bench.sh {rounds} second_turn`, {datetime.date.today().isoformat()}, {run([weir, 'version']).splitlines()[0]}; llama-server of the same",
             "pin as upstream builds it.", "",
             f"{machine()}; {threads} threads, the default model with the template {TEMPLATE},",
             f"one slot of 8,192 tokens. {TOOLS} tools; prompts of up to {n_tokens:,} tokens. Seconds to the first token: medians of {rounds} rounds,",
             "in which the programs take turns; the ratio is the median of the rounds' ratios.", "",
             "| | llama-server | weir | weir / llama-server |", "|---|---|---|---|"]
    for kind, name in KINDS.items():
        for turn in (1, 2):
            theirs, ours = found[("llama-server", kind, turn)], found[("weir", kind, turn)]
            ratio = statistics.median(a / b for a, b in zip(ours, theirs))
            lines.append(f"| turn {turn}, {name} | {statistics.median(theirs):.3f} | {statistics.median(ours):.3f} | {ratio:.3f} |")
    RESULT.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
