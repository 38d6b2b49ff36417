#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Several models in one weir serve; agents and editors in front of it and of llama-server, with the same model, requests, context and threads.

usage: models.py ROUNDS [PART...]

swap: three models of which two fit into --memory: 600 requests at random, the time to the first token where a model must be loaded, and
the part of a prompt that is cached after its model has slept.
loads: the times between the tokens of a stream while another model is loaded and unloaded again and again.
agent: two turns of a conversation of 16,000 tokens through /v1/messages, whose first line differs in each request, as Claude Code's does.
editor: completions for an editor, of a higher priority, while a prompt of 16,000 tokens is computed.

Each part writes its section of bench/results/models.md. Needs WEIR_BIN and WEIR_MODEL in the environment, and LLAMA_SERVER for the
comparison; scripts/bench.sh sets them. WEIR_LONG changes the 16,000. The model was trained for 8,192 tokens: YaRN stretches them, for
both servers. With WEIR_PART_S the part "editor" cancels the long prompt after so many seconds, and sends it again when it has read a
line from its input; the prompt goes on behind its cached tokens."""
import datetime
import http.client
import json
import os
import pathlib
import random
import shutil
import statistics
import sys
import tempfile
import threading
import time
import urllib.parse
import urllib.request

from compare import Server
from engine import machine, replace_section, requantize, run

RESULT = pathlib.Path("bench/results/models.md")
TITLE = "# Several models, agents, editors\n"
CONTEXT, SLOTS = 18432, 2
LONG = int(os.environ.get("WEIR_LONG", "16000"))  # tokens of the long prompt
ROPE = ["--rope-scaling", "yarn", "--rope-freq-scale", "0.25", "--yarn-orig-ctx", "8192"]
SHARE_AIM, EDITOR_AIM_MS = 0.02, 100
TYPED, PAUSE_S = 300, 0.2  # tokens before an editor's cursor; between its requests
PART_S = int(os.environ.get("WEIR_PART_S", "3600"))
TYPES = ("q8_0", "q4_0", "q6_k")
REQUESTS, CLIENTS, PROMPTS, ANSWER, SWAPS, TURN = 600, 4, 12, 16, 30, 1000
SWAP_AIM_S, HIT_AIM = 0.5, 0.95
LOADS, LOADS_AIM_MS, STREAM = 8, 50, 2500  # of each kind; p95 of the times between tokens; tokens of a stream
SIDES = ("llama-server", "weir") if os.environ.get("LLAMA_SERVER") else ("weir",)


def post(url, path, body, headers=()):
    """(seconds to the first piece of text, the answer's JSON or the events of a stream)"""
    connection = http.client.HTTPConnection(urllib.parse.urlsplit(url).netloc, timeout=900)
    began, first, events = time.monotonic(), None, []
    connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json", **dict(headers)})
    reply = connection.getresponse()
    if reply.status != 200:
        sys.exit(f"models: {path}: {reply.status}: {reply.read().decode()}")
    if not body.get("stream"):
        return None, json.loads(reply.read())
    for line in reply:
        if not line.startswith(b"data: {"):
            continue
        events.append(json.loads(line[6:]))
        text = events[-1].get("delta", {}).get("text") or (events[-1].get("choices") or [{}])[0].get("text")
        if text and first is None:
            first = time.monotonic() - began
    return first, events


def text_of(url, seed, n_tokens):
    """Words of about n_tokens tokens, the same for both servers."""
    dice = random.Random(seed)
    syllables = [a + b for a in "bdfgklmnprstv" for b in "aeiou"]
    words = ["".join(dice.choices(syllables, k=dice.randint(1, 3))) for _ in range(n_tokens)]
    tokens = len(post(url, "/tokenize", {"content": " ".join(words)})[1]["tokens"])
    return " ".join(words[:n_tokens * n_tokens // tokens])


# ---- Turns of an agent


def turn(url, seed, system, messages):
    line = f"x-anthropic-billing-header: cc_version=2.1.40.{seed:03x}; cc_entrypoint=cli; cch={random.Random(seed).getrandbits(20):05x};"
    body = {"model": "", "max_tokens": 32, "temperature": 0, "stream": True, "messages": messages,
            "system": [{"type": "text", "text": line}, {"type": "text", "text": system}]}
    before = computed(url)
    first, events = post(url, "/v1/messages", body, {"anthropic-version": "2023-06-01"})
    text = "".join(e["delta"].get("text", "") for e in events if e["type"] == "content_block_delta")
    return {"first": first, "text": text or "yes", "computed": computed(url) - before}


def computed(url):
    """Tokens of prompts that the server has computed since its start."""
    with urllib.request.urlopen(url + "/metrics", timeout=60) as reply:
        values = dict(line.rsplit(" ", 1) for line in reply.read().decode().splitlines() if line and line[0] != "#")
    if "llamacpp:prompt_tokens_total" in values:
        return float(values["llamacpp:prompt_tokens_total"])
    return float(values["weir_prompt_tokens_total"])


def agent(url, seed):
    system = text_of(url, seed, LONG)
    messages = [{"role": "user", "content": "Which files are there?"}]
    one = turn(url, 2 * seed, system, messages)
    messages += [{"role": "assistant", "content": one["text"]}, {"role": "user", "content": "Read the first of them."}]
    two = turn(url, 2 * seed + 1, system, messages)
    return {"first 1": one["first"], "first 2": two["first"], "tokens": one["computed"], "share": two["computed"] / one["computed"]}


# ---- An editor


def send_in_parts(url, body, pauses):
    """Sends a request, and again after each pause, until it is answered. Returns how long it took without the pauses."""
    took = 0
    while True:
        connection, began = http.client.HTTPConnection(urllib.parse.urlsplit(url).netloc, timeout=PART_S), time.monotonic()
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        try:
            reply = connection.getresponse()
            if reply.status != 200:
                sys.exit(f"models: {reply.status}: {reply.read().decode()}")
            reply.read()
            return took + time.monotonic() - began
        except TimeoutError:
            pauses.set()
            connection.close()
            took += time.monotonic() - began
            print(f"editor: paused after {took:.0f} s, until a line is read", file=sys.stderr, flush=True)
            sys.stdin.readline()
            pauses.clear()


def editor(url, seed):
    """Times to the first token while a long prompt is computed, in milliseconds, and how long that took, in seconds."""
    long, typed = text_of(url, 1000 + seed, LONG), text_of(url, 2000 + seed, TYPED)
    found, pauses, over = {"times": []}, threading.Event(), threading.Event()

    def compute():
        found["took"] = send_in_parts(url, {"prompt": long, "max_tokens": 1, "temperature": 0}, pauses)
        over.set()
    body = {"max_tokens": 16, "temperature": 0, "stream": True, "priority": 50}
    post(url, "/v1/completions", dict(body, prompt=typed))
    thread = threading.Thread(target=compute)
    thread.start()
    time.sleep(0.5)
    while not over.is_set():
        time.sleep(PAUSE_S)
        if pauses.is_set():
            continue
        typed += " " + "".join(random.Random(len(typed)).choices("abcdefgh", k=3))
        first, _ = post(url, "/v1/completions", dict(body, prompt=typed))
        if not over.is_set() and not pauses.is_set():
            found["times"].append(1000 * first)
    thread.join()
    return found


# ---- Several models


def completion(url, model, prompt, n_tokens, stream=False):
    return post(url, "/v1/completions", {"model": model, "prompt": prompt, "max_tokens": n_tokens, "temperature": 0, "ignore_eos": True, "stream": stream})


def answer(url, model, prompt):
    return completion(url, model, prompt, ANSWER)[1]["choices"][0]["text"]


def bytes_of(url):
    with urllib.request.urlopen(url + "/v1/models", timeout=60) as reply:
        return {m["id"]: m["bytes"] for m in json.loads(reply.read())["data"] if "bytes" in m}


def run_requests(url, alone):
    """REQUESTS of CLIENTS at a time, at random: (failed or wrong, seconds)."""
    wrong, began = [], time.monotonic()

    def client(seed):
        dice = random.Random(seed)
        for _ in range(REQUESTS // CLIENTS):
            model, prompt = dice.choice(list(alone))
            try:
                if answer(url, model, prompt) != alone[model, prompt]:
                    wrong.append((model, prompt))
            except (SystemExit, OSError) as problem:
                print(f"models: {problem}", file=sys.stderr)
                wrong.append((model, prompt))
    threads = [threading.Thread(target=client, args=(seed,)) for seed in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return len(wrong), time.monotonic() - began


def woken(url, names, seed):
    """The part of a prompt that its model still has after it has slept."""
    text = text_of(url, 3000 + seed, TURN)
    one = completion(url, names[0], text, ANSWER)[1]
    for name in names[1:]:
        answer(url, name, "x")
    two = completion(url, names[0], text + one["choices"][0]["text"] + " and then", ANSWER)[1]
    return min(1, two["usage"]["prompt_tokens_details"]["cached_tokens"] / one["usage"]["prompt_tokens"])


def swap(weir, model, rounds, threads):
    common = ["-t", threads, "-tb", threads, "-np", str(SLOTS), "-c", "4096", "--kv", "8192", "--cache-memory", "16M", "--host", "127.0.0.1", "--offline"]
    with tempfile.TemporaryDirectory() as folder:
        for name in TYPES:
            requantize(weir, model, f"{folder}/{name}.gguf", name)
            run([weir, "optimize", f"{folder}/{name}.gguf"])
        alone, prompts = {}, [f"Story {i}: " + "one two three " * (i + 1) for i in range(PROMPTS)]
        for name in TYPES:
            with Server("weir", [weir, "serve", "-m", f"{folder}/{name}.gguf", *common]) as server:
                alone.update({(name, prompt): answer(server.url, "", prompt) for prompt in prompts})
        several = [weir, "serve", "--models-dir", folder, *common]
        with Server("weir", [*several, "--pinned"]) as server:
            for name in TYPES:
                answer(server.url, name, "x")
            sizes = bytes_of(server.url)
        budget = sum(sorted(sizes.values())[1:]) + (16 << 20)
        found = {"budget": budget, "sizes": sizes, "failed": [], "seconds": [], "cold": [], "warm": [], "cached": []}
        for i in range(rounds):
            print(f"swap, round {i + 1} of {rounds}", file=sys.stderr, flush=True)
            with Server("weir", [*several, "--memory", str(budget)]) as server:
                failed, seconds = run_requests(server.url, alone)
                found["failed"].append(failed)
                found["seconds"].append(seconds)
                for k in range(SWAPS):
                    name = TYPES[k % len(TYPES)]
                    found["cold"].append(completion(server.url, name, f"Say {k}", 2, True)[0])
                    found["warm"].append(completion(server.url, name, f"Say it {k}", 2, True)[0])
                found["cached"].append(woken(server.url, TYPES, i))
        return found


# ---- Loads beside a stream


def state_of(url, name):
    with urllib.request.urlopen(f"{url}/v1/models/{name}", timeout=60) as reply:
        return json.loads(reply.read())["state"]


def bring(url, name, to, state):
    """Asks for the state and waits for it: (began, ended)."""
    began = time.monotonic()
    post(url, f"/v1/models/{to}", {"model": name})
    while state_of(url, name) != state:
        time.sleep(0.01)
    return began, time.monotonic()


def read_streams(url, over, times):
    """Appends when each token of one stream after the other arrived; None between two streams."""
    body = {"model": "one", "prompt": "Once upon a time", "max_tokens": STREAM, "temperature": 0, "ignore_eos": True, "stream": True}
    while not over.is_set():
        connection = http.client.HTTPConnection(urllib.parse.urlsplit(url).netloc, timeout=900)
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        for line in connection.getresponse():
            if over.is_set():
                break
            if line.startswith(b"data: {"):
                times.append(time.monotonic())
        connection.close()
        times.append(None)


def beside(url):
    """Times between tokens, in milliseconds, by what happens meanwhile; the durations of the loads."""
    spans, times, over = {"two": [], "packed": [], "unload": []}, [], threading.Event()
    reader = threading.Thread(target=read_streams, args=(url, over, times))
    reader.start()
    time.sleep(3)
    for name in ("two", "packed"):
        for _ in range(LOADS):
            spans[name].append(bring(url, name, "load", "loaded"))
            time.sleep(0.5)
            spans["unload"].append(bring(url, name, "unload", "unloaded"))
            time.sleep(0.5)
    over.set()
    reader.join()
    gaps = {name: [] for name in (*spans, "otherwise")}
    for a, b in zip(times, times[1:]):
        if a is None or b is None:
            continue
        kind = [name for name, all_of in spans.items() if any(a < end and b > begin for begin, end in all_of)]
        gaps[kind[0] if kind else "otherwise"].append(1000 * (b - a))
    return gaps, {name: [end - begin for begin, end in all_of] for name, all_of in spans.items()}


def loads(weir, model, rounds, threads):
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for name in ("two", "packed"):
            shutil.copyfile(model, f"{folder}/{name}.gguf")
        run([weir, "optimize", f"{folder}/packed.gguf"])
        file = f"{folder}/models.conf"
        with open(file, "w", encoding="utf-8") as out:
            out.write(f"[one]\nmodel = {model}\npinned = on\n[two]\nmodel = ./two.gguf\n[packed]\nmodel = ./packed.gguf\n")
        for i in range(rounds):
            print(f"loads, round {i + 1} of {rounds}", file=sys.stderr, flush=True)
            with Server("weir", [weir, "serve", "--models", file, "-t", threads, "-tb", threads, "-np", str(SLOTS), "-c", "4096", "--kv", "8192", "--cache-memory", "16M",
                                 "--no-prompt-lookup", "--host", "127.0.0.1", "--offline"]) as server:
                found.append(beside(server.url))
    return found


# ---- The page


def between(number, rounds, sides, measure):
    found = {side: [] for side in SIDES}
    for i in range(rounds):
        for side in sorted(SIDES, reverse=i % 2 == 1):
            print(f"{number}, round {i + 1} of {rounds}: {side}", file=sys.stderr, flush=True)
            with Server(side, sides[side]) as server:
                found[side].append(measure(server.url, i + 1))
    return found


def write(part, heading, rounds, lines):
    """Replaces a section of the page."""
    section = [f"## {heading}", "",
               f"`python3 bench/models.py {rounds} {part}`, {datetime.date.today().isoformat()}, {run([os.environ['WEIR_BIN'], 'version']).splitlines()[0]}.", "",
               machine() + ".", "", *lines, ""]
    if not RESULT.exists():
        RESULT.write_text(TITLE, encoding="utf-8")
    replace_section(RESULT, section, section[0])
    print("\n".join(section))


def table():
    return ["| | " + " | ".join(SIDES) + " |", "|---" * (1 + len(SIDES)) + "|"]


def row(found, name, value, form):
    return f"| {name} | " + " | ".join(form.format(value(found[side])) for side in SIDES) + " |"


def counted(rounds):
    return f"{rounds} round{'s' if rounds > 1 else ''}"


def median(key):
    return lambda rows: statistics.median(r[key] for r in rows)


def write_agent(rounds, found):
    share = median("share")(found["weir"])
    write("agent", "An agent's second turn", rounds, [
        f"Two turns through `/v1/messages`; a system message of {LONG} tokens, before it a line that differs in each request. The default model with YaRN, a context of {CONTEXT}. "
        f"Medians of {counted(rounds)}. Tokens computed: the counters of `/metrics`.", "",
        *table(),
        row(found, "tokens computed for turn 1", median("tokens"), "{:.0f}"),
        row(found, "first token of turn 1", median("first 1"), "{:.2f} s"),
        row(found, "first token of turn 2", median("first 2"), "{:.2f} s"),
        row(found, "computed again for turn 2, of turn 1", median("share"), "{:.2%}"), "",
        f"Aim: at most {SHARE_AIM:.0%}: {'reached' if share <= SHARE_AIM else 'missed'}."])


def write_editor(rounds, found):
    times = {side: sorted(t for one in found[side] for t in one["times"]) for side in SIDES}

    def part(share):
        return lambda side: times[side][min(len(times[side]) - 1, int(share * len(times[side])))]

    def line(name, value, form):
        return f"| {name} | " + " | ".join(form.format(value(side)) for side in SIDES) + " |"
    late = part(0.95)("weir")
    write("editor", "An editor beside a long prompt", rounds, [
        f"Completions of 16 tokens from an editor, one after another, with a pause of {1000 * PAUSE_S:.0f} ms; each has typed a word more than the one before. They have `\"priority\": 50` (llama-server "
        f"has no priorities). Meanwhile a prompt of {LONG} tokens is computed. The default model has no tokens to fill in the middle, so the requests go to `/v1/completions` without a suffix. "
        f"YaRN, a context of {CONTEXT}. All requests of {counted(rounds)}.", "",
        *table(),
        line("requests", lambda side: len(times[side]), "{}"),
        line("first token, median", part(0.5), "{:.0f} ms"),
        line("first token, p95", part(0.95), "{:.0f} ms"),
        line("first token, slowest", lambda side: times[side][-1], "{:.0f} ms"),
        line("the long prompt took, median", lambda side: statistics.median(one["took"] for one in found[side]), "{:.0f} s"), "",
        f"Aim: p95 at most {EDITOR_AIM_MS} ms: {'reached' if late <= EDITOR_AIM_MS else 'missed'}."])


def write_swap(rounds, found):
    cold, warm = sorted(found["cold"]), sorted(found["warm"])
    late, cached = cold[int(0.95 * len(cold))], min(found["cached"])
    sizes = ", ".join(f"{name} {size / 1e6:.0f} MB" for name, size in found["sizes"].items())
    write("swap", "Three models of which two fit", rounds, [
        f"The default model as {', '.join(TYPES)}, each with its optimized file, in one `weir serve` ({sizes} loaded, `--memory` {found['budget'] / 1e6:.0f} MB). {REQUESTS} requests at random from {CLIENTS} "
        f"clients, {ANSWER} tokens each; then {SWAPS} requests one after another, the model always another one, which has to be loaded, each followed by one for the same model. {counted(rounds)}, all files in the page cache.", "",
        "| | | aim |", "|---|---|---|",
        f"| requests that failed, or whose answer differs from that of the model alone | {sum(found['failed'])} of {rounds * REQUESTS} | 0{'' if sum(found['failed']) == 0 else ', missed'} |",
        f"| time for {REQUESTS} requests, median | {statistics.median(found['seconds']):.0f} s | |",
        f"| first token, the model is loaded: median, p95 | {1000 * statistics.median(warm):.0f} ms, {1000 * warm[int(0.95 * len(warm))]:.0f} ms | |",
        f"| first token, another model sleeps for it: median, p95 | {1000 * statistics.median(cold):.0f} ms, {1000 * late:.0f} ms | {1000 * SWAP_AIM_S:.0f} ms{'' if late <= SWAP_AIM_S else ', missed'} |",
        f"| prompt of {TURN} tokens that is cached in turn 2, after the model has slept, least | {cached:.3f} | {HIT_AIM}{'' if cached >= HIT_AIM else ', missed'} |"])


def write_loads(rounds, found):
    def line(name, kind):
        times = sorted(t for gaps, _ in found for t in gaps[kind])
        took = [s for _, spans in found for s in spans.get(kind, [])]
        values = (len(times), *(f"{times[min(len(times) - 1, int(share * len(times)))]:.0f} ms" for share in (0.5, 0.95, 0.99, 1)))
        return "| " + " | ".join(map(str, (name, f"{1000 * statistics.median(took):.0f} ms" if took else "", *values))) + " |", times[int(0.95 * len(times))]
    lines = [line(*row) for row in (("the model's own file is loaded", "two"), ("its optimized file is mapped", "packed"), ("a model is unloaded", "unload"), ("otherwise", "otherwise"))]
    late = max(value for _, value in lines[:2])
    write("loads", "A stream while another model is loaded", rounds, [
        f"One stream of the default model. Meanwhile a copy of it is loaded and unloaded {LOADS} times from its file, whose weights are packed at each load, then {LOADS} times with an optimized file. "
        f"Both have {SLOTS} slots and a context of 4096; {counted(rounds)}, all files in the page cache. The times between tokens are the client's. Drafts from the text itself are off, "
        "since an event with drafts has several tokens.", "",
        "| | takes, median | tokens | time between tokens, median | p95 | p99 | longest |", "|---|---|---|---|---|---|---|",
        *(text for text, _ in lines), "",
        f"Aim: p95 at most {LOADS_AIM_MS} ms: {'reached' if late <= LOADS_AIM_MS else 'missed'}."])


PARTS = {"agent": (agent, write_agent), "editor": (editor, write_editor)}


def main():
    rounds, chosen = int(sys.argv[1]), sys.argv[2:] or ["swap", "loads", *PARTS]
    weir, model, program = os.environ["WEIR_BIN"], os.environ["WEIR_MODEL"], os.environ.get("LLAMA_SERVER")
    threads = str(os.cpu_count())
    common = ["-m", model, "-t", threads, "-tb", threads, "-np", str(SLOTS), "--host", "127.0.0.1", "--offline", *ROPE]
    sides = {"llama-server": [program, *common, "-c", str(SLOTS * CONTEXT), "--metrics", "--no-ui"],
             "weir": [weir, "serve", *common, "-c", str(CONTEXT), "--kv", str(SLOTS * CONTEXT)]}
    alone = {"swap": (swap, write_swap), "loads": (loads, write_loads)}
    for part in chosen:
        if part in alone:
            measure, say = alone[part]
            say(rounds, measure(weir, model, rounds, threads))
            continue
        measure, say = PARTS[part]
        say(rounds, between(part, rounds, sides, measure))


if __name__ == "__main__":
    main()
