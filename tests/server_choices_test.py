"""weir serve, on the fake model: echo, prompts' logprobs, best_of and forks."""
# SPDX-License-Identifier: Apache-2.0
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from checks import check, finish  # noqa: E402
from serve import STRICT, Server, need_server  # noqa: E402

WEIR = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else os.environ["WEIR_BIN"])
CHAT, TEXT = "/v1/chat/completions", "/v1/completions"


def refused(name, reply, status, field, word=""):
    error = reply.error if reply.status >= 400 else {}
    check(f"{name}: {status}, {field}", reply.status == status and error.get("param") == field and word in error.get("message", ""),
          reply.status, reply.body)


need_server(WEIR)

server = Server(WEIR, "-np", "4")
PROMPT = "the quick brown fox jumps over the lazy dog"
ASK = {"prompt": PROMPT, "max_tokens": 6, "temperature": 0}
ids = server.post("/tokenize", {"content": PROMPT, "add_special": True}).json["tokens"]

# ---- echo

plain = server.post(TEXT, ASK).json["choices"][0]
reply = server.post(TEXT, dict(ASK, echo=True, logprobs=3)).json
choice = reply["choices"][0]
scores = choice["logprobs"]
check("echo: the prompt goes before the answer", choice["text"] == PROMPT + plain["text"], choice)
check("echo: with logprobs of all tokens, none for the first", len(scores["tokens"]) == len(ids) + 6 and scores["token_logprobs"][0] is None and
      scores["top_logprobs"][0] is None and all(p <= 0 for p in scores["token_logprobs"][1:]) and
      all(len(top) == 3 for top in scores["top_logprobs"][1:]), scores)
check("echo: nothing of it was cached", reply["usage"]["prompt_tokens_details"]["cached_tokens"] == 0, reply["usage"])
alone = server.post(TEXT, dict(ASK, logprobs=3)).json["choices"][0]["logprobs"]
check("echo: the answer's are as without", alone["token_logprobs"] == scores["token_logprobs"][-6:] and alone["tokens"] == scores["tokens"][-6:], alone)
check("echo: offsets are places in the text", scores["tokens"][0] == "<s>" and scores["text_offset"][:2] == [0, 0] and
      all(choice["text"].startswith(token, at) for token, at in list(zip(scores["tokens"], scores["text_offset"]))[1:len(ids)]), scores)
events = server.stream(TEXT, dict(ASK, echo=True, logprobs=3))
joined = [p for e in events for p in (e["choices"][0]["logprobs"] or {"token_logprobs": []})["token_logprobs"]]
check("echo: the same in a stream", "".join(e["choices"][0]["text"] for e in events) == choice["text"] and joined == scores["token_logprobs"], events)
reply = server.post(TEXT, dict(ASK, echo=True, logprobs=0, max_tokens=0)).json["choices"][0]
check("echo: the prompt alone", reply["text"] == PROMPT and reply["logprobs"]["token_logprobs"] == scores["token_logprobs"][:-6] and
      reply["logprobs"]["top_logprobs"] is None, reply)
reply = server.post(TEXT, dict(ASK, prompt=ids, echo=True)).json["choices"][0]
check("echo: of tokens", reply["text"] == PROMPT + plain["text"], reply)
reply = server.post(TEXT, dict(ASK, prompt=["one", "two"], n=2, echo=True, logprobs=0)).json["choices"]
check("echo: with several prompts and choices", [c["text"][:3] for c in reply] == ["one", "one", "two", "two"] and
      all(len(c["logprobs"]["tokens"]) == len(reply[0]["logprobs"]["tokens"]) for c in reply) and
      reply[0]["logprobs"]["token_logprobs"][:4] == reply[1]["logprobs"]["token_logprobs"][:4], reply)
events = server.stream(TEXT, dict(ASK, n=3, temperature=1, seed=7, echo=True, logprobs=1))
first = [[e for e in events if e["choices"][0]["index"] == i][0]["choices"][0] for i in range(3)]
check("echo: each choice of a stream begins with it", all(c["text"] == PROMPT and len(c["logprobs"]["tokens"]) == len(ids) for c in first), first)

# ---- Misses

reply = server.post(TEXT, dict(ASK, prompt=[PROMPT, PROMPT + " and runs"], n=2)).json["usage"]["prompt_tokens_details"]
misses = reply.get("misses", [])
check("what was missed is told of each prompt", len(misses) == 2 and misses[0] is None and misses[1]["reason"] == "diverged" and
      misses[1]["matched_tokens"] >= len(ids) and "miss" not in reply, reply)
reply = server.post(TEXT, dict(ASK, prompt=[PROMPT, PROMPT])).json["usage"]["prompt_tokens_details"]
check("or of none", "misses" not in reply and "miss" not in reply, reply)

# ---- prompt_logprobs

for body in ({}, {"max_tokens": 0}, {"n": 2}):
    reply = server.post(TEXT, dict(ASK, prompt_logprobs=2, **body)).json
    for choice in reply["choices"]:
        prompt = choice["prompt_logprobs"]
        check(f"prompt_logprobs {body}", len(prompt) == len(ids) and prompt[0] is None and
              all(str(i) in p and len(p) in (2, 3) and abs(p[str(i)]["logprob"] - s) < 1e-4 for i, p, s in zip(ids[1:], prompt[1:], scores["token_logprobs"][1:])) and
              all(sorted(t["rank"] or 9 for t in p.values())[:2] == [1, 2] for p in prompt[1:]) and choice["logprobs"] is None, choice)
reply = server.post(TEXT, dict(ASK, prompt_logprobs=True)).json["choices"][0]
check("prompt_logprobs: true", all(list(p) == [str(i)] for i, p in zip(ids[1:], reply["prompt_logprobs"][1:])), reply)
HELLO = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 8, "temperature": 0}
reply = server.post(CHAT, dict(HELLO, prompt_logprobs=0)).json
check("prompt_logprobs: chat", len(reply["prompt_logprobs"]) == reply["usage"]["prompt_tokens"] and reply["prompt_logprobs"][0] is None, reply)
check("prompt_logprobs: none unless asked for", "prompt_logprobs" not in json.dumps(server.post(TEXT, dict(ASK, prompt_logprobs=False)).json))
refused("prompt_logprobs in a stream", server.post(TEXT, dict(ASK, prompt_logprobs=1, stream=True)), 400, "prompt_logprobs")
refused("21 prompt_logprobs", server.post(TEXT, dict(ASK, prompt_logprobs=21)), 400, "prompt_logprobs")

# ---- Seeds

DRAWN = dict(ASK, temperature=1.5, max_tokens=12)
for seed in (0, 1, -2, -5, 7 + (1 << 32), (1 << 32) - 1, (1 << 63) - 1):
    texts = [server.post(TEXT, dict(DRAWN, seed=seed, n=2)).json["choices"] for _ in range(2)]
    check(f"seed {seed}: the same answers again", [c["text"] for c in texts[0]] == [c["text"] for c in texts[1]] and
          texts[0][0]["text"] != texts[0][1]["text"], texts)
texts = {seed: server.post(TEXT, dict(DRAWN, seed=seed)).json["choices"][0]["text"] for seed in (7, 8, -7, 7 + (5 << 32), (1 << 32) - 1)}
check("each seed draws another answer", len(set(texts.values())) == len(texts), texts)
texts = [server.post(TEXT, dict(DRAWN, **seed)).json["choices"][0]["text"] for seed in ({"seed": -1}, {"seed": -1}, {"seed": None}, {})]
check("no seed, or -1: another answer each time", len(set(texts)) == len(texts), texts)

# ---- best_of

HOT = dict(ASK, temperature=1.5, seed=11, max_tokens=12)
many = server.post(TEXT, dict(HOT, n=6, logprobs=0)).json["choices"]
order = sorted(many, key=lambda c: -sum(c["logprobs"]["token_logprobs"]) / len(c["logprobs"]["token_logprobs"]))
reply = server.post(TEXT, dict(HOT, n=2, best_of=6)).json
check("best_of: the likeliest, the best first", [c["text"] for c in reply["choices"]] == [c["text"] for c in order[:2]] and
      [c["index"] for c in reply["choices"]] == [0, 1] and all(c["logprobs"] is None for c in reply["choices"]), reply, order)
check("best_of: all that was generated is counted", reply["usage"]["completion_tokens"] == 72 and reply["usage"]["prompt_tokens"] == len(ids), reply["usage"])
reply = server.post(TEXT, dict(HOT, prompt=[PROMPT, "one"], best_of=6, logprobs=1)).json
check("best_of: of each prompt", [c["index"] for c in reply["choices"]] == [0, 1] and reply["choices"][0]["text"] == order[0]["text"] and
      reply["choices"][0]["logprobs"]["token_logprobs"] == order[0]["logprobs"]["token_logprobs"], reply)
check("best_of: n of n is n", [c["text"] for c in server.post(TEXT, dict(HOT, n=6, best_of=6)).json["choices"]] == [c["text"] for c in many])
refused("best_of in a stream", server.post(TEXT, dict(HOT, best_of=3, stream=True)), 400, "best_of")
refused("best_of below n", server.post(TEXT, dict(HOT, n=3, best_of=2)), 400, "best_of")
refused("best_of in a chat", server.post(CHAT, dict(HELLO, best_of=2), headers=STRICT), 400, "best_of")

# ---- More answers than slots: 2 slots and 6 of 8 places in the queue, since a caller alone has three quarters

with Server(WEIR, "-np", "2", "--queue", "8", model="fake:tick_us=10000,n_ctx_train=100000") as few:
    texts = [c["text"] for c in many]
    for n in (2, 3, 8):
        choices = few.post(TEXT, dict(HOT, n=n)).json.get("choices", [])
        check(f"n {n} on two slots: all, in their order", [c["index"] for c in choices] == list(range(n)) and [c["text"] for c in choices][:6] == texts[:n], choices, texts)
    for path, body, field, n in ((TEXT, {"n": 9}, "n", 9), (TEXT, {"n": 128}, "n", 128), (CHAT, dict(HELLO, n=11, prompt=None), "n", 11), (TEXT, {"best_of": 9}, "best_of", 9), (TEXT, {"n": 2, "best_of": 11}, "best_of", 11),
                                 (TEXT, {"prompt": ["x"] * 9}, "prompt", 9), (TEXT, {"prompt": ["x"] * 5, "n": 2}, "n", 10), ("/completion", {"n_cmpl": 9}, "n_cmpl", 9)):
        refused(f"more than slots and queue hold, {path} {field}", few.post(path, dict(ASK, **body)), 400, field, f"asks for {n} answers; allowed: 1 to 8, the requests that slots and queue (--queue) hold")
    long = few.connect()
    long.request("POST", TEXT, {"prompt": ["a", "b"], "max_tokens": 50000, "ignore_eos": True, "stream": True})
    few.wait_for(lambda m: m["weir_slots_generating"] == 2)
    reply = few.post(TEXT, dict(HOT, n=7))
    check("no room now: 429", reply.status == 429 and reply.error["code"] == "queue_full", reply.headers, reply.body)
    waits = few.connect()
    waits.request("POST", TEXT, dict(HOT, n=6))
    few.wait_for(lambda m: m["weir_queue_depth"] == 6)
    check("six wait for a slot", few.metrics()["weir_queue_depth"] == 6 and few.metrics()["weir_slots_generating"] == 2, few.metrics())
    long.close()
    reply = waits.reply()
    check("and are served", reply.status == 200 and [c["text"] for c in reply.json["choices"]] == texts, reply.body)

# ---- Forks

whole = server.post(TEXT, dict(ASK, max_tokens=20, logprobs=0)).json
text, tokens = whole["choices"][0]["text"], whole["choices"][0]["logprobs"]["tokens"]
for at in (0, 1, 7, 19):
    reply = server.post(TEXT, {"fork": {"id": whole["id"], "at": at}, "max_tokens": 20 - at, "temperature": 0}).json
    check(f"a greedy fork at {at} is the rest", "".join(tokens[:at]) + reply["choices"][0]["text"] == text and
          reply["usage"]["prompt_tokens"] == len(ids) + at and reply["usage"]["prompt_tokens_details"]["cached_tokens"] == len(ids) + at - 1, reply, text)
longer = server.post(TEXT, dict(ASK, max_tokens=25)).json["choices"][0]["text"]
for end in ({}, {"at": -1}):
    reply = server.post(TEXT, {"fork": {"id": whole["id"], **end}, "max_tokens": 5, "temperature": 0}).json
    check(f"a fork at the end goes on {end}", text + reply["choices"][0]["text"] == longer, reply)
again = server.post(TEXT, {"fork": {"id": reply["id"], "at": 2}, "max_tokens": 3, "temperature": 0}).json
check("a fork is forked", again["choices"][0]["text"] == reply["choices"][0]["text"][2:], again)
forks = server.post(TEXT, {"fork": {"id": whole["id"], "at": 5}, "max_tokens": 9, "temperature": 2, "seed": 3, "n": 3, "logprobs": 0}).json["choices"]
check("several forks differ", len({c["text"] for c in forks}) == 3, forks)
events = server.stream(TEXT, {"fork": {"id": whole["id"], "at": 3}, "max_tokens": 17, "temperature": 0})
check("a fork is streamed", "".join(tokens[:3]) + "".join(e["choices"][0]["text"] for e in events) == text, events)
three = server.post(TEXT, dict(ASK, n=3, temperature=2, seed=3, max_tokens=10)).json
reply = server.post(TEXT, {"fork": {"id": three["id"], "index": 2, "at": 4}, "max_tokens": 0}).json
check("the choice that is meant", reply["usage"]["prompt_tokens"] == len(ids) + 4, reply)
plan = server.post("/v1/plan", {"fork": {"id": whole["id"], "at": 4}}).json
check("the dry run of a fork", plan["prompt_tokens"] == len(ids) + 4 and plan["cached_tokens"] == len(ids) + 3, plan)
reply = server.post("/v1/plan", {"fork": {"id": whole["id"], "at": 4}, "response_format": {"type": "json_object"}})
check("the dry run of a completion's fork with a form", reply.status == 200, reply.body)

talk = server.post(CHAT, dict(HELLO, max_tokens=16)).json
message = talk["choices"][0]["message"]["content"]
reply = server.post(CHAT, {"fork": {"id": talk["id"], "at": 6}, "max_tokens": 10, "temperature": 0}).json
check("a chat's fork is a whole message", reply["choices"][0]["message"] == talk["choices"][0]["message"], reply, message)
events = server.stream(CHAT, {"fork": {"id": talk["id"], "at": 6}, "max_tokens": 10, "temperature": 0})
check("so is a streamed one", "".join(e["choices"][0]["delta"].get("content", "") for e in events) == message, events)
reply = server.post(TEXT, {"fork": {"id": talk["id"], "at": 6}, "max_tokens": 10, "temperature": 0}).json
check("as a completion it is the rest", message.endswith(reply["choices"][0]["text"]) and len(reply["choices"][0]["text"]) < len(message), reply, message)

FORK = {"fork": {"id": whole["id"], "at": 2}, "max_tokens": 4}
refused("nothing of this id", server.post(TEXT, {"fork": {"id": "cmpl-00"}}), 404, "fork")
refused("no such choice", server.post(TEXT, {"fork": {"id": whole["id"], "index": 1}}), 404, "fork")
refused("a token that did not come", server.post(TEXT, {"fork": {"id": whole["id"], "at": 21}}), 400, "fork.at", "0 to 20")
refused("a completion as a chat", server.post(CHAT, FORK), 400, "fork", "completions")
for name, value in (("a text", "x"), ("no id", {"at": 1}), ("a negative token", {"id": whole["id"], "at": -2}), ("a negative choice", {"id": whole["id"], "index": -1}), ("more", {"id": whole["id"], "to": 1})):
    refused(name, server.post(TEXT, {"fork": value}), 400, "fork")
for field, value in (("prompt", "x"), ("echo", True)):
    refused("a fork with " + field, server.post(TEXT, dict(FORK, **{field: value})), 400, field)
for field, value in (("messages", []), ("tools", []), ("response_format", {"type": "json_object"})):
    refused("a fork with " + field, server.post(CHAT, dict(FORK, **{field: value})), 400, field)
for path, body in ((TEXT, ASK), (CHAT, HELLO)):
    refused(f"{path}: a fork of what is not to be stored", server.post(path, {"fork": {"id": server.post(path, dict(body, store=False)).json["id"]}}), 404, "fork", "store")
    kept = server.post(path, dict(body, store=None)).json["id"]
    check(f"{path}: null is nothing said", server.post(path, {"fork": {"id": kept, "at": 1}, "max_tokens": 1}).status == 200)
refused("a fork of a best answer", server.post(TEXT, {"fork": {"id": server.post(TEXT, dict(HOT, best_of=2)).json["id"]}}), 404, "fork")

server.stop()

# ---- Forks of running answers, and keys

slow = Server(WEIR, "-np", "2", "--api-key", "alice", "--api-key", "bob", "--operator-key", "boss", model="fake:tick_us=20000")
connection = slow.connect()
connection.request("POST", TEXT, dict(ASK, max_tokens=60, stream=True), key="alice")
connection.head()
events = connection.events()
seen = [json.loads(next(events)) for _ in range(5)]
fork = {"fork": {"id": seen[0]["id"], "at": 3}, "max_tokens": 57, "temperature": 0}
refused("another key's stream", slow.post(TEXT, fork, key="bob"), 404, "fork")
reply = slow.post(TEXT, fork, key="alice").json
rest = "".join(json.loads(e)["choices"][0]["text"] for e in events if e != "[DONE]")
text = "".join(e["choices"][0]["text"] for e in seen) + rest
check("a running stream is forked", "".join(e["choices"][0]["text"] for e in seen[:3]) + reply["choices"][0]["text"] == text and
      reply["usage"]["prompt_tokens_details"]["cached_tokens"] == reply["usage"]["prompt_tokens"] - 1, reply, text)
connection.close()
connection = slow.connect()
connection.request("POST", TEXT, dict(ASK, max_tokens=3000, stream=True), key="alice")
connection.head()
name = json.loads(next(connection.events()))["id"]
connection.close()
metrics = slow.wait_for(lambda m: m["weir_slots_generating"] + m["weir_queue_depth"] == 0, key="boss")
check("a client that leaves ends its stream, though it is kept", metrics["weir_slots_generating"] == 0, metrics)
reply = slow.post(TEXT, {"fork": {"id": name, "at": 1}, "max_tokens": 2, "temperature": 0}, key="alice").json
check("and what it had can be forked", text.startswith(seen[0]["choices"][0]["text"] + reply["choices"][0]["text"]), reply, text)
slow.stop()

finish()
