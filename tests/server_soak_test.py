"""weir serve on the fake model, among clients with keys of their own that do everything that clients do, at random, for as long as it is told
to: nobody gets another text than the same question got when nobody else asked, nobody reaches what another key's requests left, and in
the end slots, descriptors and memory are what they were. WEIR_SOAK=N: that many requests (1500); WEIR_TEST_SEED=N; WEIR_SOAK_CLIENTS=N (16)."""
# SPDX-License-Identifier: Apache-2.0
import collections
import json
import os
import random
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from checks import check, effort, finish, seed  # noqa: E402
from resumed import Reader  # noqa: E402
from serve import Connection, Server, need_server  # noqa: E402

WEIR = os.path.abspath(os.environ["WEIR_BIN"])
CHAT, TEXT, RESPONSES, MESSAGES, OLLAMA = "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages", "/api/chat"
N = int(os.environ.get("WEIR_SOAK", effort("1500", "400")))
SEED = seed()
N_CLIENTS = int(os.environ.get("WEIR_SOAK_CLIENTS", "16"))
KEYS = [f"key-{name}-of-the-soak" for name in ("ann", "bob", "cid", "dot")]
QUESTIONS = 12  # of each key
LENGTH = 12     # tokens of an answer
GROWTH = 1.05

need_server(WEIR)
scratch = tempfile.TemporaryDirectory()
key_file = os.path.join(scratch.name, "keys")
with open(key_file, "w") as f:
    f.write("\n".join(KEYS) + "\n")
# The prefix cache is full before the memory is first looked at.
server = Server(WEIR, "-np", "8", "--queue", "256", "--cache-memory", "128K", "--api-key-file", key_file, "--no-log", "--metrics-need-no-key", model="fake:tick_us=300")
print(f"{N} requests of {N_CLIENTS} clients", flush=True)


def question(key, i):
    return f"{key} asks question {i}: what holds water back?"


def chat(text, **more):
    return dict({"messages": [{"role": "user", "content": text}], "max_tokens": LENGTH, "temperature": 0, "ignore_eos": True}, **more)


# Asked before anybody else asks, by the one door that keeps nothing.
expected = {(k, i): server.post(CHAT, chat(question(k, i)), key=k).json["choices"][0]["message"]["content"] for k in KEYS for i in range(QUESTIONS)}
assert len(set(expected.values())) == len(expected)

counts, faults, lock = collections.Counter(), [], threading.Lock()


def fault(name, *details):
    with lock:
        faults.append((name, *[str(d)[:500] for d in details]))


class Client:
    """One after the other, requests of all kinds, each with a key and a question by chance."""

    def __init__(self, number, n):
        self.dice = random.Random(SEED * 1000 + number)
        self.n = n

    def begin(self):
        self.key = self.dice.choice(KEYS)
        self.other = self.dice.choice([k for k in KEYS if k != self.key])
        self.i = self.dice.randrange(QUESTIONS)
        self.text = question(self.key, self.i)
        self.wanted = expected[self.key, self.i]

    def post(self, path, body, key=None):
        return server.post(path, body, key=key or self.key)

    def got(self, name, reply, text_of):
        """An answer's text is the one that was given before."""
        if reply.status != 200:
            fault(f"{name}: {reply.status}", reply.body)
        elif text_of(reply.json) != self.wanted:
            fault(f"{name}: another text", text_of(reply.json), self.wanted)

    def closed(self, name, reply):
        """Another key finds nothing."""
        self.tried()
        if reply.status != 404 or self.wanted.encode() in reply.body:
            fault(f"{name}: {reply.status} for another key", reply.body)

    def tried(self):
        with lock:
            counts["for another key's"] += 1

    def removed(self, path):
        """What is kept would fill memory up to its bound, and hide what grows without one."""
        if server.ask("DELETE", path, key=self.key).status != 200 or server.get(path, key=self.key).status != 404:
            fault("a response's end")

    # ---- What a client may do

    def whole(self):
        self.got("a chat", self.post(CHAT, chat(self.text)), lambda r: r["choices"][0]["message"]["content"])

    def messages(self):
        body = {"messages": [{"role": "user", "content": self.text}], "max_tokens": LENGTH, "temperature": 0}
        self.got("a message", self.post(MESSAGES, body), lambda r: "".join(c["text"] for c in r["content"]))

    def ollama(self):
        body = {"model": "default", "messages": [{"role": "user", "content": self.text}], "stream": False, "options": {"num_predict": LENGTH, "temperature": 0}}
        self.got("Ollama's chat", self.post(OLLAMA, body), lambda r: r["message"]["content"])

    def shared(self):
        self.got("a shared chat", self.post(CHAT, chat(self.text, share=True)), lambda r: r["choices"][0]["message"]["content"])

    def several(self):
        reply = self.post(CHAT, chat(self.text, n=3))
        if reply.status != 200 or {c["message"]["content"] for c in reply.json["choices"]} != {self.wanted}:
            fault("several answers", reply.status, reply.body)

    def streamed(self):
        events = server.stream(CHAT, chat(self.text), key=self.key)
        text = "".join(e["choices"][0]["delta"].get("content") or "" for e in events if e["choices"])
        if text != self.wanted:
            fault("a stream: another text", text, self.wanted)

    def vanishing(self):
        connection = Connection(server)
        connection.request("POST", CHAT, chat(self.text, stream=True, max_tokens=4000), key=self.key)
        if self.dice.random() < 0.7:
            status, headers = connection.head()
            events = connection.events() if status == 200 else iter(())
            for _ in range(self.dice.randrange(6)):
                next(events, None)
        connection.close()

    def kept(self):
        body = {"input": self.text, "max_output_tokens": LENGTH, "temperature": 0}
        reply = self.post(RESPONSES, body)
        self.got("a response", reply, lambda r: r["output"][0]["content"][0]["text"])
        if reply.status != 200:
            return
        path = f"{RESPONSES}/{reply.json['id']}"
        self.closed("a response", server.get(path, key=self.other))
        self.closed("a response's end", server.ask("DELETE", path, key=self.other))
        self.tried()
        if server.post(RESPONSES, dict(body, previous_response_id=reply.json["id"]), key=self.other).status not in (400, 404):
            fault("a response continued by another key")
        self.got("a response, read", server.get(path, key=self.key), lambda r: r["output"][0]["content"][0]["text"])
        self.removed(path)

    def background(self):
        reply = self.post(RESPONSES, {"input": self.text, "max_output_tokens": LENGTH, "temperature": 0, "background": True})
        if reply.status != 200:
            return fault(f"in the background: {reply.status}", reply.body)
        path = f"{RESPONSES}/{reply.json['id']}"
        self.closed("in the background", server.get(path, key=self.other))
        self.closed("in the background, cancelled", server.post(path + "/cancel", {}, key=self.other))
        for _ in range(6000):
            reply = server.get(path, key=self.key)
            if reply.status != 200 or reply.json["status"] not in ("queued", "in_progress"):
                break
            time.sleep(0.01)
        self.got("in the background", reply, lambda r: r["output"][0]["content"][0]["text"])
        self.removed(path)

    def forked(self):
        reply = self.post(CHAT, chat(self.text))
        if reply.status != 200:
            return fault(f"a source: {reply.status}", reply.body)
        body = {"fork": {"id": reply.json["id"], "at": self.dice.randrange(LENGTH)}, "max_tokens": LENGTH, "temperature": 0, "ignore_eos": True}
        self.closed("a fork", self.post(CHAT, body, key=self.other))
        reply = self.post(CHAT, body)
        if reply.status == 404 and reply.error["code"] == "not_found":  # this key's own answers have pushed it out
            with lock:
                counts["too late to fork"] += 1
        else:
            self.got("a fork", reply, lambda r: r["choices"][0]["message"]["content"][:len(self.wanted)])

    def resumed(self):
        with Reader(server, CHAT, chat(self.text), key=self.key) as first:
            if first.status != 200:
                return fault(f"a stream to resume: {first.status}")
            events = first.take(1 + self.dice.randrange(6))[:]
        self.tried()
        with Reader(server, first.id, at=events[-1][0], key=self.other) as thief:
            if thief.status != 404:
                fault(f"a stream resumed by another key: {thief.status}")
        with Reader(server, first.id, at=events[-1][0], key=self.key) as second:
            events += second.rest()
        text = "".join(c["delta"].get("content") or "" for _, data in events if data != "[DONE]" for c in json.loads(data)["choices"])
        if text != self.wanted or [number for number, _ in events] != list(range(1, len(events) + 1)):
            fault("a resumed stream: another text", text, self.wanted)

    def damaged(self):
        body = bytearray(json.dumps(chat(self.text)).encode())
        for _ in range(1 + self.dice.randrange(4)):
            at = self.dice.randrange(len(body))
            if self.dice.random() < 0.5:
                body[at] = self.dice.randrange(256)
            else:
                del body[at]
        reply = self.post(self.dice.choice([CHAT, RESPONSES, MESSAGES, OLLAMA, TEXT]), bytes(body))
        if reply.status >= 500:
            fault(f"a damaged body: {reply.status}", bytes(body), reply.body)

    def keyless(self):
        reply = server.post(CHAT, chat(self.text), key=self.key + "?")
        if reply.status != 401:
            fault(f"a wrong key: {reply.status}", reply.body)

    DO = [whole, messages, ollama, shared, several, streamed, vanishing, vanishing, kept, background, forked, resumed, damaged, keyless]

    def run(self):
        for _ in range(self.n):
            self.begin()
            do = self.dice.choice(self.DO)
            with lock:
                counts[do.__name__] += 1
            try:
                do(self)
            except (OSError, ValueError, KeyError, IndexError, AssertionError, StopIteration) as error:
                fault(f"{do.__name__}: {type(error).__name__}", error)


def rested(metrics):
    return metrics["weir_slots_prefilling"] + metrics["weir_slots_generating"] + metrics["weir_queue_depth"] == 0 and metrics["weir_http_live"] == 1


def soak(n, first):
    """n requests of all clients; then the metrics, descriptors and resident bytes of the server at rest."""
    threads = [threading.Thread(target=Client(first + c, n // N_CLIENTS + 1).run) for c in range(N_CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    metrics = server.wait_for(rested)
    time.sleep(0.5)  # memory is given back by the sweep
    return metrics, server.files(), server.resident()


# What is kept for forks and drafts fills first, and is bounded.
before = soak(max(N // 3, 200), 0)
after = soak(N, N_CLIENTS)
print(f"{dict(counts)}; resident {before[2] / 1e6:.1f} MB before, {after[2] / 1e6:.1f} MB after; {after[1]} descriptors", flush=True)
check("every answer is the one of a server with nobody else, and nothing is reached by another key", not faults, len(faults), *faults[:8])
check("forks come in time", counts["too late to fork"] <= 1 + counts["forked"] // 20, counts)
check("it rests", rested(after[0]), after[0])
check("every request has its one end", after[0]["weir_submitted_total"] == sum(v for k, v in after[0].items() if k.startswith("weir_finished_total")), after[0])
check("no descriptor stays", after[1] <= before[1], before[1], after[1])
if N >= 10000:  # in fewer, it still fills
    check("memory is what it was", after[2] <= GROWTH * before[2], before[2], after[2])
check("it still answers", server.post(CHAT, chat(question(KEYS[0], 0)), key=KEYS[0]).json["choices"][0]["message"]["content"] == expected[KEYS[0], 0])
check("it ends with 0", server.stop() == 0, server.lines[-5:])
finish()
