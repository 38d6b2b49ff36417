"""weir stream, from outside: request files, lines of JSON, signals."""
# SPDX-License-Identifier: Apache-2.0
import json
import os
import re
import signal
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from checks import check, environment, run_tests  # noqa: E402
from program import FAKE, MODEL, PATIENCE, SLOW, expect, lines_of, on_fake, path_of, run, start, wait_gone, weir  # noqa: E402


@on_fake
def test_bad_files():
    table = [
        ("not JSON", "{", 2, ["bad.json:1:"]),
        ("a comma too many", '{"requests": [\n  {"prompt": "x"},\n]}', 2, ["bad.json:3:"]),
        ("an array at the top", "[]", 2, ["this is an array"]),
        ("a number at the top", "7", 2, ["a whole number"]),
        ("no requests", "{}", 2, ['no "requests"']),
        ("requests of a wrong kind", '{"requests": {}}', 2, ["bad.json: requests: this is an object"]),
        ("no request", '{"requests": []}', 2, ["no request"]),
        ("a request of a wrong kind", '{"requests": [\n 5]}', 2, ["bad.json: requests[0]: this is a whole number"]),
        ("neither prompt nor messages", '{"requests": [{"temp": 1}]}', 2, ["requests[0]", '"prompt"', '"messages"']),
        ("both", '{"requests": [{"prompt": "x", "messages": []}]}', 2, ["not both"]),
        ("an empty prompt", '{"requests": [{"prompt": ""}]}', 2, ["requests[0].prompt: the prompt is empty"]),
        ("a prompt of a wrong kind", '{"requests": [{"prompt": 5}]}', 2, ["bad.json: requests[0].prompt"]),
        ("an unknown field", '{"requests": [{"prompt": "x"},\n {"prompt": "y",\n  "temprature": 1}]}', 2,
         ["bad.json: requests[1].temprature", 'did you mean temperature?']),
        ("an unknown field at the top", '{"request": [{"prompt": "x"}]}', 2, ['did you mean requests?']),
        ("a field of a wrong kind", '{"requests": [{"prompt": "x", "temp": "hot"}]}', 2,
         ["bad.json: requests[0].temp: this is a string; expected: a number"]),
        ("half a token", '{"requests": [{"prompt": "x", "max_tokens": 1.5}]}', 2, ["requests[0].max_tokens", "whole number"]),
        ("a number beyond 31 bits", '{"requests": [{"prompt": "x", "top_k": 3000000000}]}', 2, ["requests[0].top_k", "a whole number from"]),
        ("a value out of range", '{"requests": [{"prompt": "x"}, {"prompt": "y",\n"top_p": 1.1}]}', 2, ["bad.json: requests[1].top_p is 1.1; allowed: 0 to 1"]),
        ("a default out of range", '{"top_p": -2, "requests": [{"prompt": "x"}]}', 2, ["bad.json: top_p"]),
        ("the same twice", '{"requests": [{"prompt": "x", "temp": 1, "temperature": 0}]}', 2, ["twice"]),
        ("the same key twice", '{"requests": [{"prompt": "x", "temp": 1, "temp": 0}]}', 2, ["bad.json:1:", "temp"]),
        ("an empty stop text", '{"requests": [{"prompt": "x", "stop": ["a", ""]}]}', 2, ["requests[0].stop"]),
        ("a stop text of a wrong kind", '{"requests": [{"prompt": "x", "stop": ["a", 5]}]}', 2, ["requests[0].stop[1]"]),
        ("a bias of a wrong kind", '{"requests": [{"prompt": "x", "logit_bias": {"12": "much"}}]}', 2, ["requests[0].logit_bias.12"]),
        ("messages of a wrong kind", '{"requests": [{"messages": "Hi"}]}', 2, ["requests[0].messages", "array"]),
        ("a message without a role", '{"requests": [{"messages": [{"content": "Hi"}]}]}', 2, ["requests[0].messages[0]", '"role"']),
        ("a broken grammar", '{"requests": [{"prompt": "x",\n "grammar": "root ::= ("}]}', 2, ["bad.json: requests[0].grammar", "line 1"]),
        ("a key with an escape", '{"requests": [{"prompt": "x", "a\\u0062c": 1}]}', 2, ["bad.json: requests[0].abc"]),
        ("text after the end", '{"requests": [{"prompt": "x"}]} x', 2, ["bad.json:1:"]),
        ("an empty file", "", 2, ["bad.json:1:"]),
        ("bytes that are no UTF-8", b'{"requests": [{"prompt": "\xff"}]}', 2, ["bad.json:1:"]),
        ("a deep nest", "[" * 100000, 2, ["bad.json:"]),
        ("a prompt that cannot fit", '{"requests": [{"prompt": "%s"}]}' % ("word " * 5000), 4, ["requests[0]", "--ctx or --kv"]),
    ]
    for name, content, code, parts in table:
        done = weir("stream", "-m", MODEL, path_of("bad.json", content))
        missing = [p for p in parts if not any(one in done.stderr for one in p.split("|"))]
        check(f"request file: {name}", done.returncode == code and not missing and done.stdout == "",
              f"exit {done.returncode}, missing {missing}", done.stderr, done.stdout[:300])
    expect("a file that is missing", weir("stream", "/nonexistent.json"), 1, "/nonexistent.json")
    expect("no file", weir("stream"), 2, "FILE.json")
    expect("two files", weir("stream", "a", "b"), 2, "one file")


def test_stream_lines():
    requests = [{"name": "first", "prompt": "One", "temp": 0, "max_tokens": 9},
                {"messages": [{"role": "user", "content": "Two"}], "temperature": 0, "max_tokens": 14},
                {"prompt": "Three", "temp": 0, "max_tokens": 8, "interval": 4},
                {"prompt": "Four", "temp": 0.9, "seed": 3, "top_k": 50, "repeat_penalty": 1.1, "max_tokens": 6, "logit_bias": {"5": -3, "6": False}},
                {"prompt": "Five", "max_tokens": 0}]
    path = path_of("batch.json", json.dumps({"model": MODEL, "ignore_eos": True, "requests": requests}))
    done = weir("stream", path, "--raw")
    lines = lines_of(done)
    check("each line is JSON, exit 0", done.returncode == 0 and lines, done.stderr)
    check("a sum on stderr", re.search(r"^5 requests, \d+ prompt and \d+ answer tokens in ", done.stderr), done.stderr)
    texts = {}
    for i, request in enumerate(requests):
        mine = [line for line in lines if line["request"] == i]
        chunks, usage = [x for x in mine if "text" in x], [x for x in mine if "usage" in x]
        n = request["max_tokens"]
        good = (len(usage) == 1 and mine[-1] is usage[0] and sum(c["finished"] for c in chunks) == 1 and chunks[-1]["finished"] and
                sum(len(c["tokens"]) for c in chunks) == n and usage[0]["usage"]["generated_tokens"] == n and
                all(c["text"] for c in chunks[:-1]) and chunks[-1]["reason"] == "length" and
                all(c["reason"] == "not_finished" for c in chunks[:-1]) and
                all(x["name"] == request.get("name", str(i + 1)) for x in mine))
        check(f"request {i}: chunks, one end, then usage", good, mine)
        texts[i] = "".join(c["text"] for c in chunks)
    counts = [len(c["tokens"]) for c in lines if c["request"] == 2 and "text" in c]
    check("the interval is kept", counts[0] >= 1 and len(counts) <= 4, counts)
    alone = json.loads(run("-p", "One", "--raw", "--temp", "0", "-n", "9", "--ignore-eos", "--json").stdout)
    check("with --raw a prompt's text is that of weir run --raw", texts[0] == alone["text"], texts[0], alone)
    chat = json.loads(run("-p", "Two", "--temp", "0", "-n", "14", "--ignore-eos", "--json").stdout)
    check("a message's text is that of weir run", texts[1].strip() == chat["text"].strip(), texts[1], chat)
    told = json.loads(run("-p", "One", "--raw", "--temp", "0", "-n", "9", "--ignore-eos", "--json", "--logprobs", "3").stdout)
    items = told["logprobs"]
    check("logprobs of each token, the likeliest first", told["tokens"] == alone["tokens"] and [x["token"] for x in items] == told["tokens"] and
          all(len(x["top"]) == 3 and x["top"][0] == {"token": x["token"], "logprob": x["logprob"]} and
              0 >= x["top"][0]["logprob"] >= x["top"][1]["logprob"] >= x["top"][2]["logprob"] for x in items), items)
    check("no logprobs unless asked for", "logprobs" not in alone, alone)
    both = lines_of(weir("stream", "-", "-q", "--raw", stdin=json.dumps({"model": MODEL, "temp": 0, "ignore_eos": True, "requests": [
        {"prompt": "One", "max_tokens": 9, "logprobs": 3}, {"prompt": "One", "max_tokens": 9}]})))
    streamed = [x for line in both if line["request"] == 0 for x in line.get("logprobs", [])]
    check("a stream has the same logprobs", streamed == items, streamed)
    check("and only where they were asked for", not any("logprobs" in line for line in both if line["request"] == 1), both)
    stop = "".join([line["text"] for line in both if line["request"] == 0 and "text" in line][3:5])
    before = told["text"][:told["text"].index(stop)]
    for words, kept, why in ((["--stop", stop], None, "stop_words"), (["--stop", told["text"][-2:] + "\u2603"], told["text"], "length")):
        one = json.loads(run("-p", "One", "--raw", "--temp", "0", "-n", "9", "--ignore-eos", "--json", "--logprobs", "3", *words).stdout)
        kept = before if kept is None else kept
        shown, held = one["logprobs"], len(one["tokens"]) - len(one["logprobs"])
        check(f"{why}: logprobs are those of the text", one["reason"] == why and one["text"] == kept and shown == items[:len(shown)] and
              (held > 0 and len(one["tokens"]) < 9 if why == "stop_words" else len(shown) == 9), one)
        lines = lines_of(weir("stream", "-", "-q", "--raw", stdin=json.dumps({"model": MODEL, "temp": 0, "ignore_eos": True, "requests": [
            {"prompt": "One", "max_tokens": 9, "logprobs": 3, "stop": words[1:]}]})))
        check(f"{why}: and in a stream", [x for line in lines for x in line.get("logprobs", [])] == shown and
              [x for line in lines for x in line.get("tokens", [])] == one["tokens"], lines, one)
    for n in ("21", "-1"):
        expect(f"{n} logprobs", run("-p", "One", "--logprobs", n), 2, "--logprobs", "0 to 20")
    scored = json.loads(run("-p", "One", "--raw", "--temp", "0", "-n", "9", "--ignore-eos", "--json", "--prompt-logprobs", "2").stdout)
    items = scored["prompt_logprobs"]
    check("logprobs of the prompt's tokens, but of the first", len(items) == scored["usage"]["prompt_tokens"] and items[0]["logprob"] is None and "top" not in items[0] and
          all(x["logprob"] <= x["top"][0]["logprob"] <= 0 and len(x["top"]) == 2 for x in items[1:]) and scored["tokens"] == alone["tokens"], scored)
    check("and none unless asked for", "prompt_logprobs" not in alone, alone)
    for n in ("21", "-1"):
        expect(f"{n} of the prompt's", run("-p", "One", "--prompt-logprobs", n), 2, "--prompt-logprobs", "0 to 20")
    hot = ["-p", "One", "--raw", "--temp", "1.5", "-n", "9", "--ignore-eos", "--json", "--logprobs", "0"]
    mean = lambda told: sum(x["logprob"] for x in told["logprobs"]) / len(told["logprobs"])  # noqa: E731
    each = [json.loads(run(*hot, "--seed", str(seed)).stdout) for seed in (5, 6, 7, 8)]
    best = json.loads(run(*hot, "--seed", "5", "--best-of", "4", "--prompt-logprobs", "0").stdout)
    check("the best of several answers", best["tokens"] == max(each, key=mean)["tokens"] and len(best["prompt_logprobs"]) == best["usage"]["prompt_tokens"], best, each)
    expect("best of none", run("-p", "One", "--best-of", "0"), 2, "--best-of", "1 to 128")
    with open(path) as file:
        piped = weir("stream", "-", "-q", "--raw", stdin=file.read())
    check("the file from stdin", piped.returncode == 0 and piped.stderr == "" and
          "".join(x["text"] for x in lines_of(piped) if x["request"] == 0 and "text" in x) == texts[0], piped.stderr)
    expect("-m is stronger than the file's model", weir("stream", "-m", "/nonexistent.gguf", path), 3, "/nonexistent.gguf")
    done = weir("stream", path, "--slots", "2")
    check("fewer slots than requests", done.returncode == 0 and sum("usage" in x for x in lines_of(done)) == 5, done.stderr)
    same = {"model": MODEL, "temp": 0, "max_tokens": 3, "requests": [{"prompt": "All alike, and long enough to be shared"},
            {"prompt": "All alike, and long enough to be shared"}, {"prompt": "All alike, and long enough to be shared", "cache_prompt": False},
            {"prompt": "All alike, and long enough to be shared", "cache_salt": "mine"}]}
    path = path_of("same.json", json.dumps(same))

    def cached(*options):
        lines = lines_of(weir("stream", path, "--slots", "1", *options))
        return [next(x["usage"]["cached_tokens"] for x in lines if x["request"] == i and "usage" in x) for i in range(4)]

    n = cached()
    check("a prompt is computed once, but for who does without", n[0] == n[2] == n[3] == 0 and n[1] > 5, n)
    check("the cache can be turned off", cached("--cache-sequences", "0") == [0, 0, 0, 0] and cached("--no-cache-prompt")[0:2] == [0, 0])
    check("a salt for all", cached("--cache-salt", "x", "--cache-memory", "10M")[1] > 5)
    expect("no size", weir("stream", path, "--cache-memory", "10X"), 2, "--cache-memory")
    expect("too many sequences", weir("stream", path, "--cache-sequences", "256"), 2, "--cache-sequences")
    expect("a key that says the opposite", weir("stream", path_of("no.json", json.dumps({"model": MODEL, "no_cache_prompt": True, "requests": [{"prompt": "a"}]}))), 2, "no_cache_prompt")
    ranked = {"model": MODEL, "ignore_eos": True, "max_tokens": 4,
              "requests": [{"prompt": f"Rank {i}", "priority": i} for i in range(4)]}
    done = weir("stream", "-m", SLOW, path_of("ranked.json", json.dumps(ranked)), "--slots", "1", "--ageing", "0")
    ends = [line["request"] for line in lines_of(done) if line.get("finished")]
    check("the highest priority goes first", done.returncode == 0 and ends == [3, 2, 1, 0], ends, done.stderr)
    ranked["requests"][2]["priority"] = 101
    expect("a priority out of range in a file", weir("stream", path_of("ranked.json", json.dumps(ranked))), 2,
           "requests[2].priority", "-100 to 100")
    many = {"model": MODEL, "requests": [{"prompt": f"Request {i}", "max_tokens": 3} for i in range(400 if FAKE else 40)]}
    done = weir("stream", path_of("many.json", json.dumps(many)), "-c", "128")
    check("many requests", done.returncode == 0 and sum("usage" in x for x in lines_of(done)) == len(many["requests"]), done.stderr)


def test_stream_template():
    """A prompt goes through the chat template, as that of weir run does."""
    options = ["-n", "6", "--temp", "0", "--ignore-eos", "-np", "1"]
    path = path_of("prompt.json", json.dumps({"requests": [{"prompt": "What is a weir?"}]}))

    def streamed(*words):
        lines = lines_of(weir("stream", path, "-m", MODEL, *options, *words))
        return "".join(line.get("text", "") for line in lines), [line["usage"]["prompt_tokens"] for line in lines if "usage" in line]

    def ran(*words):
        done = json.loads(run("-p", "What is a weir?", "--json", *options, *words).stdout)
        return done["text"], [done["usage"]["prompt_tokens"]]
    for words in ((), ("--raw",), ("--system", "Be brief.")):
        check(f"weir stream {' '.join(words)}: text and tokens are those of weir run", streamed(*words) == ran(*words), streamed(*words), ran(*words))
    check("the template adds tokens", streamed()[1] > streamed("--raw")[1], streamed())
    messages = path_of("messages.json", json.dumps({"requests": [{"messages": [{"role": "user", "content": "What is a weir?"}]}]}))
    lines = lines_of(weir("stream", messages, "-m", MODEL, *options))
    check("a message of the same text is the same prompt", [line["usage"]["prompt_tokens"] for line in lines if "usage" in line] == streamed()[1])
    expect("--raw and --system", weir("stream", path, "-m", MODEL, "--raw", "--system", "x"), 2, "--system", "--raw")
    nul = path_of("nul.json", json.dumps({"requests": [{"prompt": "a\0b"}]}))
    expect("a NUL byte is for --raw", weir("stream", nul, "-m", MODEL, *options), 2, "requests[0].prompt", "--raw accepts it")
    expect("which takes it", weir("stream", nul, "-m", MODEL, "--raw", *options), 0)


@on_fake
def test_context():
    """-c beyond the training warns, where it was given; scaled positions do not."""
    small = "fake:n_ctx_train=64"
    for words, warned in ((("-c", "100"), True), (("-c", "64"), False), ((), False), (("-c", "100", "--rope-scaling", "linear"), False)):
        done = weir("run", "-m", small, "-p", "x", "-n", "2", "--raw", *words)
        check(f"weir run {' '.join(words)}: {'a' if warned else 'no'} warning", done.returncode == 0 and
              ("-c 100 is longer than the 64 tokens that the model was trained for" in done.stderr) == warned, done.stderr)
    done = weir("run", "-m", small, "-p", "x", "-n", "2", "--raw", env=environment(WEIR_CTX="100"))
    check("from the environment, too", "-c 100 is longer" in done.stderr, done.stderr)
    check("weir info says it, too", "-c 100 is longer" in weir("info", small, "-c", "100").stderr)


def test_stream_signals():
    path = path_of("long.json", json.dumps({"ignore_eos": True, "requests": [{"prompt": f"Story {i}"} for i in range(6)]}))
    for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
        process = start("stream", "-m", SLOW, path, "--slots", "3")
        process.stdout.readline()
        process.send_signal(number)
        out, err = process.communicate(timeout=PATIENCE)
        lines = [json.loads(line) for line in out.decode().splitlines()]
        ends = [x["request"] for x in lines if x.get("finished")]
        check(f"{number.name}: each request gets its end", process.returncode == code and sorted(ends) == list(range(6)) and
              all(x["reason"] == "cancelled" for x in lines if x.get("finished")), process.returncode, ends, err)
    process = start("stream", "-m", SLOW, path)
    process.stdout.readline()
    process.stdout.close()
    check("a reader that leaves ends the batch quietly", wait_gone(process, PATIENCE) == 0 and process.stderr.read() == b"", process.returncode)


if __name__ == "__main__":
    run_tests(globals())
