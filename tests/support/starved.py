"""A server whose allocations fail, its clients and what they see: for server_starved_test.py and server_starved_llama_test.py."""
# SPDX-License-Identifier: Apache-2.0
import json
import os
import random
import re
import resource
import struct
import tempfile
import threading

from checks import check, effort, environment, leave_out, seed
from media import image_part, png, sound_part, text_part, wav
from serve import Server

WEIR, BUILD = os.path.abspath(os.environ["WEIR_BIN"]), os.environ["WEIR_BUILD_DIR"]
ROUNDS = os.environ.get("WEIR_ROUNDS", effort(40, 4))
N_ROUNDS = 1000 if ROUNDS == "all" else int(ROUNDS)
SEED = seed()
N_CLIENTS = 8
scratch = tempfile.TemporaryDirectory()

TOOL = {"type": "function", "function": {"name": "weather", "description": "The weather of a place.", "parameters": {
    "type": "object", "properties": {"place": {"type": "string"}, "days": {"type": "array", "items": {"type": "integer"}}},
    "required": ["place"]}}}
REGEX = {"syntax": "regex", "definition": "[a-z]{3,9}[ \n\"]{1,2}[a-z]{3}"}
CUSTOM = {"type": "custom", "custom": {"name": "edit", "description": "Edits a file.", "format": {"type": "grammar", "grammar": REGEX}}}
CUSTOM_ITEM = {"type": "custom", "name": "edit", "description": "Edits a file.", "format": {"type": "grammar", **REGEX}}
NESTED = {"a": [{"b": {"c": [[1, 2.5, "x"], {"d": None}] * 3}}] * 4}
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}, "kind": {"enum": ["a", "b"]}}, "required": ["n", "kind"]}
TALK = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Say \"hello\"\\n, \u00e4\u20ac\U0001f600. " + "word " * 40},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "type": "function", "function": {
            "name": "weather", "arguments": json.dumps(NESTED)}}]},
        {"role": "tool", "tool_call_id": "c1", "content": json.dumps(NESTED)}, {"role": "user", "content": "And now? " + "x" * 500}]


BRIEF = {"max_tokens": 8, "temperature": 0}


def chat(messages, **more):
    return "/v1/chat/completions", {**BRIEF, "messages": messages, **more}


def requests(llama):
    """(path, body); tools and schemas need llama.cpp."""
    plain = [
        chat(TALK[:2]), chat(TALK), chat(TALK, stream=True), chat(TALK[:2], stop=["zzz", "yyy"], logit_bias={"5": -1}, n=2),
        chat(TALK[:2], metadata={"a": "x" * 300000 + "\\n" * 300000}),
        ("/v1/completions", {**BRIEF, "prompt": "Once upon a time " * 20}),
        ("/v1/responses", {"temperature": 0, "input": "hello", "max_output_tokens": 8, "store": False}),
        ("/v1/messages", {**BRIEF, "messages": TALK[1:2]}),
        ("/api/chat", {"messages": TALK[:2], "stream": False, "options": {"num_predict": 8, "temperature": 0}}),
        ("/api/generate", {"prompt": "hello " * 20, "system": "Be brief.", "stream": False, "options": {"num_predict": 8, "temperature": 0}}),
        ("/completion", {"prompt": "hello", "n_predict": 8, "temperature": 0, "lora": [{"id": 0, "scale": 1}]}), chat(TALK[:2], lora=[{"id": 0, "scale": 0.5}]),
        ("/v1/embeddings", {"input": ["a few words, " * 20, "others"]}), ("/api/embed", {"input": ["a few words", "others"]}), ("/api/embeddings", {"prompt": "a few words"}),
        ("/tokenize", {"content": "a few words, " * 30}), ("/apply-template", {"messages": TALK})]
    if not llama:  # the fake model ranks nothing; the tiny one of llama.cpp has no tokens to fill in the middle
        code = {"input_prefix": "int f(", "input_suffix": ") {}\n", "input_extra": [{"filename": "a.h", "text": "int a;\n" * 30}]}
        seen = [{"role": "user", "content": [text_part("What?"), image_part(png()), image_part(png(seed=1))]}]
        return plain + [("/infill", {**code, "n_predict": 8, "temperature": 0}), chat(seen), chat(seen, stream=True), chat(seen, lora=[{"id": 0, "scale": 1}])]
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}
    heard = [{"role": "user", "content": [sound_part(wav(0.5)), text_part("What?")]}]
    return plain + [
        chat(heard), chat(heard, stream=True), ("/v1/rerank", {"query": "water", "documents": ["a weir holds water", "a mill", "words " * 40]}), chat(TALK, tools=[TOOL]), chat(TALK, tools=[TOOL], tool_choice="required"), chat(TALK[:2], response_format=form),
        chat(TALK[:2], tools=[CUSTOM], tool_choice="required", max_tokens=100), chat(TALK[:2], tools=[CUSTOM], tool_choice="required", stream=True, max_tokens=100),
        ("/v1/responses", {"temperature": 0, "input": "hello", "tools": [CUSTOM_ITEM], "tool_choice": "required", "max_output_tokens": 100}),
        ("/v1/responses", {"temperature": 0, "input": "hello", "tools": [CUSTOM_ITEM], "tool_choice": "required", "max_output_tokens": 100, "stream": True, "store": False}),
        ("/v1/messages", {**BRIEF, "messages": TALK[1:2], "tools": [{"name": "weather", "input_schema": TOOL["function"]["parameters"]}]}),
        ("/api/chat", {"messages": TALK[:2], "tools": [TOOL], "stream": False, "options": {"num_predict": 8, "temperature": 0}}),
        chat(TALK, tools=[TOOL], stream=True, temperature=0.5, seed=3), ("/v1/completions", {**BRIEF, "prompt": "No. ", "grammar": 'root ::= [0-9]+ "!"'})]


VARYING = {"id", "item_id", "call_id", "created", "created_at", "completed_at", "usage", "timings", "miss", "tokens_cached", "system_fingerprint"}


def essence(value):
    """What of an answer does not differ from call to call: not ids, times and what was found in the cache."""
    if isinstance(value, dict):
        return {k: essence(v) for k, v in value.items() if k not in VARYING and not re.search("_duration$|_ms$|_count$", k)}
    return [essence(v) for v in value] if isinstance(value, list) else value


def told(headers):
    """What an answer says of the request: fields without effect, messages in another form."""
    return [headers.get(name) for name in ("x-weir-relaxed", "x-weir-messages")]


def said(server, path, body, timeout=300):
    """Status and essence of an answer; a stream's is its text. Status None: the connection was closed without one."""
    try:
        connection = server.connect(timeout=timeout)
    except OSError:
        return None, "refused"
    try:
        connection.request("POST", path, body)
        if not body.get("stream"):
            reply = connection.reply()
            return reply.status, [essence(reply.json), *told(reply.headers)]
        status, headers = connection.head()
        if status != 200:
            return status, json.loads(connection.exactly(int(headers["content-length"])))
        text, ends = "", []
        for event in connection.events():
            if event.startswith(":"):
                continue
            data = {} if event == "[DONE]" else json.loads(event)
            if "error" in data:
                return 503, data
            for choice in data.get("choices", []):
                text += choice["delta"].get("content") or ""
                for call in choice["delta"].get("tool_calls", []):  # how a custom tool's input is divided depends on drafts
                    custom = call.get("custom")
                    text += custom.get("name", "") + custom["input"] if custom else json.dumps({k: v for k, v in call.items() if k != "id"})
                ends += [choice["finish_reason"]] if choice.get("finish_reason") else []
        return 200, [text, ends, *told(headers)]
    except (OSError, ConnectionError, ValueError) as problem:
        return None, str(problem)
    finally:
        connection.close()


class Starved:
    """A server, its clients, and what they saw."""

    def __init__(self, models, env=None):
        words = ["-c", "4096", "-np", "4", "-t", "2", "--cache-memory", "4M", "--embeddings"]
        if models:
            self.server = Server(WEIR, *words, "--models", models, model=None, env=env)
        else:
            self.server = Server(WEIR, *words, "--lora", "fake:1", "--mmproj", "fake:sounds=0", model="fake:n_ctx_train=8192,fim=1", env=env)
        self.asks = requests(models is not None)
        self.right = [said(self.server, *ask) for ask in self.asks]
        bad = [(ask[0], answer) for ask, answer in zip(self.asks, self.right) if answer[0] != 200]
        check("every request has an answer with memory", not bad, *bad)
        self.dice = random.Random(SEED)
        self.lock = threading.Lock()
        self.seen, self.wrong = {}, []

    def alive(self):
        return self.server.process.poll() is None

    def note(self, i, status, text):
        fine = text == self.right[i][1] if status == 200 else status in (429, 500, 503) or status is None
        with self.lock:
            self.seen[status] = self.seen.get(status, 0) + 1
            if not fine:
                self.wrong.append((self.asks[i][0], status, str(text)[:1000], str(self.right[i][1])[:1000]))

    def one_round(self, starve, feed):
        asks = [self.dice.randrange(len(self.asks)) for _ in range(N_CLIENTS)]
        threads = [threading.Thread(target=lambda i=i: self.note(i, *said(self.server, *self.asks[i]))) for i in asks]
        starve()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self.alive():
            feed()

    def finish(self, rounds):
        print(f"note: {rounds} rounds of {N_CLIENTS}: {self.seen}", flush=True)
        alive = check("it stays up", self.alive(), self.server.process.returncode, *self.server.lines[-5:])
        check("no answer is wrong, no valid body is refused", not self.wrong, len(self.wrong), *self.wrong[:4])
        check("most answers are answers", 2 * self.seen.get(None, 0) <= sum(self.seen.values()), self.seen)
        if alive:
            again = [said(self.server, *ask) for ask in self.asks]
            bad = [(a[0], now, then) for a, now, then in zip(self.asks, again, self.right) if now != then]
            check("with memory again, every answer is right", not bad, *bad[:3])
            check("it ends in order", self.server.stop() == 0, *self.server.lines[-5:])


def no_address_space(models=None):
    """The limit of ulimit -v and of systemd's LimitAS=, set and lifted while it runs. models: a list, with llama.cpp; None: the fake model."""
    if os.environ.get("WEIR_SANITIZED"):
        return leave_out("sanitizers need an address space of terabytes")
    # glibc gives back what is free and asks for it again, so that the limit is met often.
    run = Starved(models, env=environment(MALLOC_ARENA_MAX="1", MALLOC_TRIM_THRESHOLD_="0", MALLOC_TOP_PAD_="0", MALLOC_MMAP_THRESHOLD_="16384"))
    pid = run.server.process.pid

    def starve():
        with open(f"/proc/{pid}/statm") as f:
            now = int(f.read().split()[0]) * resource.getpagesize()
        limit = now + run.dice.randrange(1 << run.dice.choice((1, 14, 16, 18, 20, 22, 24)))
        resource.prlimit(pid, resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))

    for i in range(N_ROUNDS):
        run.one_round(starve, lambda: resource.prlimit(pid, resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY)))
        if not run.alive():
            break
    run.finish(i + 1)


def failing_allocations(models=None):
    """Some of all that the process makes."""
    preload, orders = os.path.join(BUILD, "tests", "starve.so"), os.path.join(scratch.name, "orders")
    if not os.path.exists(preload):
        return leave_out("left out with sanitizers, which have a malloc of their own, and where there is no glibc")

    def order(one_in, smallest=0):
        with open(orders, "r+b" if os.path.exists(orders) else "w+b") as f:
            f.write(struct.pack("II", one_in, smallest))

    order(0)
    run = Starved(models, env=environment(LD_PRELOAD=preload, STARVE_FILE=orders))
    for i in range(N_ROUNDS):
        run.one_round(lambda: order(run.dice.choice((30, 300, 1000, 3000, 10000)), run.dice.choice((0, 0, 0, 64, 1024))), lambda: order(0))
        if not run.alive():
            break
    run.finish(i + 1)


