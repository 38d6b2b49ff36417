"""vLLM's fields about tokens of weir serve, on the fake model: what may come, what ends an answer, ids. The oracles are answers without the
fields, biases of minus infinity, and the server's own tokenizer."""
# SPDX-License-Identifier: Apache-2.0
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from checks import check, run_tests  # noqa: E402
from serve import Server, need_server  # noqa: E402

WEIR = os.path.abspath(os.environ["WEIR_BIN"])
BYTES = "fake:n_vocab=260"  # each token is a byte
CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
ASK = {"prompt": "hello there", "max_tokens": 24, "temperature": 0}
SAY = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 24, "temperature": 0}


def complete(server, **fields):
    reply = server.post(TEXT, {**ASK, **fields})
    check(f"{fields} is answered", reply.status == 200, reply.body)
    return reply.json["choices"][0]


def ids_of(server, **fields):
    return complete(server, return_token_ids=True, **fields)["token_ids"]


def test_stops():
    need_server(WEIR)
    with Server(WEIR, "-c", "512", model=BYTES) as server:
        plain = complete(server)["text"]
        stop = plain[5]
        before = plain[:plain.index(stop)]
        got = complete(server, stop_token_ids=[ord("~"), ord(stop)])
        check("a stop token ends it", got["text"] == before and got["finish_reason"] == "stop", got, plain)
        check("or stays", complete(server, stop_token_ids=[ord(stop)], include_stop_str_in_output=True)["text"] == before + stop)
        word = plain[4:7]
        before = plain[:plain.index(word)]
        check("a stop text ends it", complete(server, stop=word)["text"] == before)
        for field in ("include_stop_str_in_output", "no_stop_trim"):
            check(f"or stays: {field}", complete(server, stop=word, **{field: True})["text"] == before + word)
            check(f"or not: {field}", complete(server, stop=word, **{field: False})["text"] == before)
        events = server.stream(TEXT, {**ASK, "stop": word, "include_stop_str_in_output": True})
        check("in a stream too", "".join(e["choices"][0]["text"] for e in events) == before + word, events)
        check("in a chat too", server.post(CHAT, {**SAY, "stop_token_ids": list(range(256))}).json["choices"][0]["message"]["content"] == "")


def test_min_tokens():
    with Server(WEIR, "-c", "512", model="fake:eos_every=3") as server:
        least = len(ids_of(server))
        check("it ends early", least < 20, least)
        for n in (least + 1, 20, 24):
            got = ids_of(server, min_tokens=n)
            check(f"not before {n}", len(got) >= n and got[:least] == ids_of(server), got)
        check("a grammar that is complete ends it", complete(server, grammar='root ::= "abc"', min_tokens=9)["text"] == "abc")
        for reply in (server.post(TEXT, {**ASK, "n": 3, "min_tokens": 20, "temperature": 1, "seed": 4, "return_token_ids": True}),
                      server.post(CHAT, {**SAY, "n": 3, "min_tokens": 20, "temperature": 1, "seed": 4, "return_token_ids": True})):
            check("of each choice", all(len(c["token_ids"]) >= 20 for c in reply.json["choices"]), reply.body)
        for path, body in (("/v1/messages", {**SAY, "min_tokens": 20}), ("/v1/responses", {"input": "Hello", "max_output_tokens": 24, "temperature": 0, "min_tokens": 20})):
            reply = server.post(path, body)
            check(f"of {path}", reply.json["usage"]["output_tokens"] >= 20, reply.body)


def test_what_may_come():
    with Server(WEIR, "-c", "512", model=BYTES) as server:
        plain = ids_of(server)
        allowed = sorted(set(plain[2:8]))
        bias = {str(token): -100 for token in range(260) if token not in allowed}
        check("only allowed tokens, as with biases against the others", ids_of(server, allowed_token_ids=allowed) == ids_of(server, logit_bias=bias))
        banned = bytes(plain[3:4]).decode()
        check("a bad word of one token, as with a bias against it", ids_of(server, bad_words=[banned]) == ids_of(server, logit_bias={str(plain[3]): -100}))
        word = bytes(plain[2:6]).decode()
        got = ids_of(server, bad_words=[word])
        check("a bad word of several loses its last token", got[:5] == plain[:5] and got[5] != plain[5] and word not in complete(server, bad_words=[word])["text"], got, plain)
        check("also with spaces before it", ids_of(server, bad_words=["  " + word]) == got)
        reply = server.post(TEXT, {**ASK, "allowed_token_ids": [97], "grammar": 'root ::= "bcd"'})
        check("where nothing may come, the request is told", reply.status == 400 and "allowed_token_ids" in reply.error["message"] + reply.error["param"], reply.body)
        got = server.post(TEXT, {**ASK, "temperature": 1, "seed": 3, "n": 4, "allowed_token_ids": [97, 98]}).json["choices"]
        check("of each choice", len(got) == 4 and all(c["text"] and set(c["text"]) <= {"a", "b"} for c in got), got)


def test_penalty():
    with Server(WEIR, "-c", "512") as server:
        for path, body in ((TEXT, ASK), (CHAT, SAY)):
            check("vLLM's name", server.post(path, {**body, "repetition_penalty": 1.2}).status == 200)
        reply = server.post(TEXT, {**ASK, "repetition_penalty": 1.2, "repeat_penalty": 1.3})
        check("one value", reply.status == 400, reply.body)


def test_ids():
    with Server(WEIR, "-c", "512") as server:
        def tokens(text):
            return server.post("/tokenize", {"content": text, "add_special": True}).json["tokens"]

        def text_of(ids):
            return server.post("/detokenize", {"tokens": ids}).json["content"]

        got = complete(server, return_token_ids=True)
        check("of an answer", text_of(got["token_ids"]) == got["text"], got)
        check("of its prompt", got["prompt_token_ids"] == tokens("hello there"), got)
        check("also where others may join", complete(server, return_token_ids=True, share=True) == got)
        plain = complete(server)
        check("only if asked for", "token_ids" not in plain and "prompt_token_ids" not in plain, plain)
        events = server.stream(TEXT, {**ASK, "return_token_ids": True})
        check("in a stream", sum((e["choices"][0]["token_ids"] for e in events), []) == got["token_ids"], events)
        check("the prompt's once", [e["choices"][0].get("prompt_token_ids") for e in events] == [tokens("hello there")] + [None] * (len(events) - 1), events)
        reply = server.post(TEXT, {**ASK, "prompt": ["one", "two"], "return_token_ids": True}).json["choices"]
        check("of each prompt", [c["prompt_token_ids"] for c in reply] == [tokens("one"), tokens("two")], reply)
        rendered = server.post("/apply-template", {"messages": SAY["messages"]}).json["prompt"]
        chat = server.post(CHAT, {**SAY, "return_token_ids": True}).json
        check("of a chat", chat["prompt_token_ids"] == tokens(rendered) and text_of(chat["choices"][0]["token_ids"]) == chat["choices"][0]["message"]["content"], chat)
        events = server.stream(CHAT, {**SAY, "return_token_ids": True})
        check("of a streamed chat", events[0]["prompt_token_ids"] == tokens(rendered) and sum((c.get("token_ids") or [] for e in events for c in e["choices"]), []) ==
              chat["choices"][0]["token_ids"] and not any("prompt_token_ids" in e for e in events[1:]), events)
        held = server.stream(TEXT, {**ASK, "stop": got["text"][:6] + "\x01", "return_token_ids": True})
        check("also of text that was held back", sum((e["choices"][0]["token_ids"] for e in held), []) == got["token_ids"], held)


def test_blame():
    """An error names what the request has."""
    with Server(WEIR, "-c", "512") as server:
        none = {str(i): False for i in range(320)}
        for name, more, field in (("min_tokens", {"min_tokens": 1, "logit_bias": none}, "logit_bias"), ("stop_token_ids", {"stop_token_ids": [5], "logit_bias": none}, "logit_bias"),
                                  ("bad_words", {"bad_words": ["x"], "logit_bias": none}, "bad_words"), ("allowed_token_ids", {"allowed_token_ids": [97], "logit_bias": none}, "allowed_token_ids")):
            reply = server.post(TEXT, {**ASK, **more})
            check(f"{name} beside biases against all", reply.status == 400 and reply.error["param"] == field, reply.body)


def test_truncated_prompts():
    with Server(WEIR, "-c", "64") as server:
        long = [97 + i * i % 26 for i in range(200)]
        check("too long", server.post(TEXT, {**ASK, "prompt": long}).status == 400)
        for kept, most, n in ((10, 24, 10), (-1, 24, 40), (1, 4, 1)):
            got = complete(server, prompt=long, max_tokens=most, truncate_prompt_tokens=kept, return_token_ids=True)
            check(f"the last {n} tokens", got["prompt_token_ids"] == long[-n:] and got["text"] == complete(server, prompt=long[-n:], max_tokens=most)["text"], got)
        ids = server.post(CHAT, {**SAY, "max_tokens": 2, "return_token_ids": True}).json["prompt_token_ids"]
        reply = server.post(CHAT, {**SAY, "max_tokens": 2, "truncate_prompt_tokens": 7, "return_token_ids": True}).json
        check("of a chat", reply["prompt_token_ids"] == ids[-7:] and reply["usage"]["prompt_tokens"] == 7, reply)


def test_ranges():
    with Server(WEIR, "-c", "512") as server:
        for path, body in ((TEXT, ASK), (CHAT, SAY)):
            for field, value, words in (("min_tokens", -1, "0 to 2147483647"), ("min_tokens", "x", "0 to 2147483647"), ("min_tokens", 25, "max_tokens, which is 24"),
                                        ("stop_token_ids", 5, "at most 256"), ("stop_token_ids", [1] * 257, "at most 256"), ("stop_token_ids", [320], "0 to 319"), ("stop_token_ids", ["a"], "0 to 319"),
                                        ("allowed_token_ids", [], "1 to 1048576"), ("allowed_token_ids", {"1": 2}, "1 to 1048576"), ("allowed_token_ids", [-1], "0 to 319"),
                                        ("bad_words", "x", "at most 128"), ("bad_words", ["x"] * 129, "at most 128"), ("bad_words", [5], "at most 128"), ("bad_words", [" "], "1 to 256"), ("bad_words", ["x" * 257], "1 to 256"),
                                        ("include_stop_str_in_output", 1, "true or false"), ("return_token_ids", "x", "true or false"),
                                        ("truncate_prompt_tokens", 0, "1 to 2147483647"), ("truncate_prompt_tokens", -2, "-1"), ("truncate_prompt_tokens", 1.5, "1 to 2147483647")):
                reply = server.post(path, {**body, field: value})
                check(f"{path}: {field} {str(value)[:20]}", reply.status == 400 and reply.error["param"] == field and words in reply.error["message"], reply.body)
                check("null is none", server.post(path, {**body, field: None, "max_tokens": 1}).status == 200)
        reply = server.post(TEXT, {**ASK, "echo": True, "truncate_prompt_tokens": 3})
        check("not beside echo", reply.status == 400 and reply.error["param"] == "truncate_prompt_tokens", reply.body)
        first = server.post(TEXT, ASK).json["id"]
        reply = server.post(TEXT, {"fork": {"id": first}, "truncate_prompt_tokens": 3})
        check("not of a fork", reply.status == 400 and reply.error["param"] == "truncate_prompt_tokens", reply.body)
        reply = server.post("/completion", {"prompt": "x", "return_token_ids": True})
        check("not in llama-server's form", reply.status == 400 and reply.error["param"] == "return_token_ids", reply.body)


run_tests(globals())
