"""A router that reads the events of the prefix cache: its picture agrees with the server's cache."""
# SPDX-License-Identifier: Apache-2.0
import json
import os
import random
import time
import urllib.request

import msgpack
import zmq
from checks import MODEL, URL, main, test, until

BLOCK = 16
context = zmq.Context()


def post(path, body):
    request = urllib.request.Request(URL + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=120) as answer:
        return json.load(answer)


class Router:
    """Its index: for each block that is cached, by id, the block before it and its tokens; and where it is."""

    def __init__(self):
        self.events = context.socket(zmq.SUB)
        self.events.setsockopt(zmq.SUBSCRIBE, b"kv@")
        self.events.connect(os.environ["WEIR_KV_EVENTS"])
        self.next = 0
        self.clear()
        self.replay()

    def clear(self):
        self.blocks, self.media = {}, {}

    def take(self, topic, number, payload):
        kind, server, model = topic.decode().split("@")
        assert kind == "kv" and server.startswith("127.0.0.1:") and model == MODEL, topic
        number = int.from_bytes(number, "big")
        if number == 0:
            self.next = 0  # the sequence starts again
        if number < self.next:
            return
        assert number == self.next, (number, self.next)
        self.next = number + 1
        when, events, rank = msgpack.unpackb(payload)
        assert abs(time.time() - when) < 600 and rank is None
        for name, *fields in events:
            getattr(self, name)(*fields)

    def AllBlocksCleared(self):
        self.clear()

    def BlockStored(self, ids, parent, tokens, size, adapter, medium):
        assert size == BLOCK and len(tokens) == BLOCK * len(ids) and adapter is None and medium in ("GPU", "CPU", "disk")
        for i, id in enumerate(ids):
            assert parent is None or parent in self.blocks, "a block came before its parent"
            block = (parent, tuple(tokens[i * BLOCK:(i + 1) * BLOCK]))
            assert self.blocks.setdefault(id, block) == block
            assert medium not in self.media.setdefault(id, set())
            self.media[id].add(medium)
            parent = id

    def BlockRemoved(self, ids, medium):
        for id in ids:
            self.media[id].remove(medium)
            if not self.media[id]:
                del self.media[id], self.blocks[id]

    def replay(self):
        """All that came before it subscribed."""
        dealer = context.socket(zmq.DEALER)
        dealer.setsockopt(zmq.RCVTIMEO, 60000)
        dealer.connect(os.environ["WEIR_KV_REPLAY"])
        dealer.send_multipart([b"", self.next.to_bytes(8, "big")])
        while True:
            empty, topic, number, payload = dealer.recv_multipart()
            assert empty == b""
            if number == b"\xff" * 8:
                break
            self.take(topic, number, payload)
        dealer.close()

    def read(self, quiet=300):
        """What has come, until nothing comes for a while."""
        while self.events.poll(quiet):
            self.take(*self.events.recv_multipart())

    def hit(self, tokens):
        """How many tokens of a prompt are cached."""
        following = {block: id for id, block in self.blocks.items()}
        at, parent = 0, None
        while at + BLOCK <= len(tokens):
            parent = following.get((parent, tuple(tokens[at:at + BLOCK])))
            if parent is None:
                break
            at += BLOCK
        return at


def tokens_of(prompt):
    return post("/tokenize", {"content": prompt, "add_special": True})["tokens"]


def cached_by_plan(prompt):
    return post("/v1/plan", {"prompt": prompt, "max_tokens": 4})["cached_tokens"]


@test
def knows_what_is_cached():
    router, dice = Router(), random.Random(20261125)
    words = "river stone cloud seven green table music under quick harbour".split()
    prompts = []
    for _ in range(24):
        beginning = dice.choice(prompts)[:dice.randrange(40, 400)] if prompts and dice.random() < 0.6 else ""
        prompts.append(beginning + " " + " ".join(dice.choice(words) for _ in range(dice.randrange(20, 160))))
        post("/v1/completions", {"model": MODEL, "prompt": prompts[-1], "max_tokens": 4, "temperature": 0})
    router.read()
    n_hits = 0
    for prompt in prompts:
        tokens = tokens_of(prompt)
        plan, known = cached_by_plan(prompt), router.hit(tokens)
        # The last token is always computed, and a router counts whole blocks.
        assert known - 1 <= plan < known + BLOCK, (plan, known, len(tokens))
        n_hits += known > 0
    assert n_hits >= 4, n_hits
    late = Router()
    late.read()
    assert late.blocks == router.blocks and late.media == router.media


@test
def salts_are_not_told():
    router = Router()
    prompt = "a tenant's own words " * 20
    post("/v1/completions", {"model": MODEL, "prompt": prompt, "max_tokens": 4, "cache_salt": "tenant"})
    router.read()
    assert router.hit(tokens_of(prompt)) == 0


@test
def reads_on():
    router = Router()
    router.read()
    prompt = "and now for something that nobody has said before " * 12
    post("/v1/completions", {"model": MODEL, "prompt": prompt, "max_tokens": 4})
    until(lambda: router.read(20) or router.hit(tokens_of(prompt)) > 0, "the events of a prompt")


if __name__ == "__main__":
    main()
