"""weir serve, on the fake model: the logprobs of an answer that a stop text ends are those of its text, and seeds that differ give answers
that differ."""
# SPDX-License-Identifier: Apache-2.0
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from checks import check, effort, finish  # noqa: E402
from serve import Server, need_server  # noqa: E402

WEIR = os.path.abspath(os.environ["WEIR_BIN"])
CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
N = 24


def pieces(scores):
    """The texts of the tokens, in either form; their bytes are ASCII here."""
    if not scores:
        return []
    return [e["token"] for e in scores["content"]] if "content" in scores else scores["tokens"]


def is_of(tokens, text):
    """Whether the tokens make up the text; the last one may go on behind it."""
    joined = "".join(tokens)
    return joined.startswith(text) and (not tokens or len(joined) - len(tokens[-1]) < len(text))


need_server(WEIR)
server = Server(WEIR, "-np", "2", "--alias", "tiny", model="fake:eos_every=0")
try:
    # ---- Logprobs
    for path, asked in ((TEXT, {"prompt": "a b", "logprobs": 2}), (CHAT, {"messages": [{"role": "user", "content": "a b"}], "logprobs": True, "top_logprobs": 2})):
        def ask(**more):
            return dict(asked, max_tokens=N, temperature=0, ignore_eos=True, **more)

        def shown(choice):
            return choice["text"] if path == TEXT else (choice.get("message") or choice["delta"]).get("content", "")
        whole = server.post(path, ask()).json["choices"][0]
        text, tokens = shown(whole), pieces(whole["logprobs"])
        check(f"{path}: all of them", len(tokens) == N and "".join(tokens) == text, whole)
        n_parts = 0
        for i in range(1, len(text) - 1, effort(1, 3)):
            for length in (1, 2, 5):
                stop = [text[i:i + length], "never"]
                end = text.index(stop[0])
                choice = server.post(path, ask(stop=stop)).json["choices"][0]
                got = pieces(choice["logprobs"])
                n_parts += "".join(got) != text[:end]
                check(f"{path}: stop {stop[0]!r}", shown(choice) == text[:end] and choice["finish_detail"] == "stop_words" and is_of(got, text[:end]) and
                      got == tokens[:len(got)], choice)
                events = server.stream(path, ask(stop=stop))
                so_far, told = "", []
                early = False
                for event in events:
                    part = event["choices"][0]
                    so_far += shown(part)
                    told += pieces(part["logprobs"])
                    early = early or not is_of(told, so_far)
                check(f"{path}: stop {stop[0]!r}, streamed", so_far == text[:end] and told == got and not early, events)
        check(f"{path}: some stop texts begin within a token", n_parts > 0)
        # Text that is held back at the end, but is no stop text, is shown, and so are its tokens.
        choice = server.post(path, ask(stop=[text[-2:] + "\0"])).json["choices"][0]
        check(f"{path}: held back, and shown", shown(choice) == text and pieces(choice["logprobs"]) == tokens, choice)
        events = server.stream(path, ask(stop=[text[-9:] + "\0"]))
        check(f"{path}: held back, and shown, streamed", [t for e in events for t in pieces(e["choices"][0]["logprobs"])] == tokens, events)

    # ---- Seeds
    def draw(seed, path=TEXT):
        ask = {"prompt": "seeds", "max_tokens": 40, "temperature": 1.5, "ignore_eos": True, "seed": seed}
        if path == "/api/generate":
            ask = {"model": "tiny", "prompt": "seeds", "stream": False, "options": {"num_predict": 40, "temperature": 1.5, "seed": seed}}
        reply = server.post(path, ask).json
        return reply["choices"][0]["text"] if path == TEXT else reply["content"] if path == "/completion" else reply["response"]
    seeds = [0, 1, 2, -2, -3, 2**31, 2**32 - 2, 2**32 - 1, 2**32, 2**32 + 1, 2**33, 2**62, -2**63, 2**63 - 1, -2**32, -2**32 - 1]
    for path in (TEXT, "/api/generate"):
        texts = {seed: draw(seed, path) for seed in seeds}
        check(f"{path}: every seed has its own answer", len(set(texts.values())) == len(seeds), texts)
        check(f"{path}: and it is the same again", all(draw(seed, path) == texts[seed] for seed in seeds), texts)
        for seed in (-1, None):
            check(f"{path}: seed {seed}: another answer each time", len({draw(seed, path) for _ in range(3)}) == 3)
    check("/completion: what /props shows for none is none", len({draw(2**32 - 1, "/completion") for _ in range(3)}) == 3)
    for seed in (2**63, -2**63 - 1, 0.5, "1", True):
        reply = server.post(TEXT, {"prompt": "x", "max_tokens": 1, "seed": seed})
        check(f"seed {seed!r} is refused", reply.status == 400 and reply.error["param"] == "seed" and "-2^63" in reply.error["message"], reply.body)

    # ---- Stop texts that are none
    for stop in ("", [""], ["", ""], [], None):
        for path, asked in ((TEXT, {"prompt": "x", "stop": stop}), (CHAT, {"messages": [{"role": "user", "content": "x"}], "stop": stop}),
                            ("/v1/messages", {"messages": [{"role": "user", "content": "x"}], "stop_sequences": stop if isinstance(stop, list) else None})):
            reply = server.post(path, dict(asked, max_tokens=3, temperature=0))
            check(f"{path}: stop {stop!r}", reply.status == 200, reply.status, reply.body)
    check("it ends with 0", server.stop() == 0)
finally:
    server.stop()
finish()
