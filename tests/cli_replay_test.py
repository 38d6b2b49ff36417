"""What weir stream records and weir bench replay runs again, from outside."""
# SPDX-License-Identifier: Apache-2.0
import json
import os
import random
import re
import stat
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from checks import check, run_tests  # noqa: E402
from program import expect, lines_of, on_fake, path_of, run, scratch, weir  # noqa: E402


@on_fake
def test_ring():
    """On the fake model only: the record of a schedule does not depend on the backend."""
    dice = random.Random(20261121)
    path, ring = path_of("ring.json", ""), os.path.join(scratch.name, "ring.jsonl")
    for i, slots in enumerate(["1", "3", "16"]):
        requests = [{"prompt": "x" * dice.randint(1, 400), "max_tokens": dice.randint(0, 40), "temp": 0} for _ in range(16)]
        requests[5]["deadline_ms"] = 30
        requests[6]["prompt"] = "The password is swordfish."
        path_of("ring.json", json.dumps({"requests": requests}))
        options = ["-m", "fake:tick_us=300,token_us=10,eos_every=30", "--slots", slots, "--chunk", "64", "-b", "100"]
        done = weir("stream", *options, path, "--ring", ring, "-q", "--cache-sequences", "0")  # a replay shares no prefixes
        played = weir("bench", "replay", ring, "--json")
        check(f"{slots} slots: a ring is written and replayed", done.returncode == 0 and played.returncode == 0, done.stderr, played.stderr)
        figures = json.loads(played.stdout)
        check(f"{slots} slots: the replay has the same plans and times", figures["reproduced"] and figures["difference"] == "" and
              figures["requests"] == 16 and figures["same_ticks"] == figures["recorded"]["ticks"] and
              figures["recorded"] == figures["replayed"], played.stdout)
        with open(ring) as file:
            lines = file.read().splitlines()
        texts = ["swordfish", *(x["text"] for x in lines_of(done) if len(x.get("text", "")) > 3)]
        lists = [re.sub(r"\s", "", json.dumps(x["tokens"][:3]))[:-1] for x in lines_of(done) if len(x.get("tokens", [])) > 2]
        check(f"{slots} slots: the ring has no words or tokens of prompts and answers", not any(word in re.sub(r"\s", "", "".join(lines)) for word in texts + lists))
        ticks = [json.loads(line) for line in lines if line.startswith('{"tick"')]
        answers = sum(len(x["tokens"]) for x in lines_of(done) if "tokens" in x)
        ended = [p for t in ticks for p in t["slots"] if "reason" in p]
        check(f"{slots} slots: the ring has the run's tokens", sum(sum(p.get("n_tokens", 0) for p in t["slots"]) == t.get("n_prefill", 0) + t.get("n_decode", 0) +
              t.get("n_drafted", 0) for t in ticks) == len(ticks) and answers <= sum(p.get("n_generated", 0) for p in ended) <= answers + 16, answers)
        middle = path_of("middle.jsonl", "\n".join([lines[0]] + [x for x in lines[1:] if x not in lines[17:17 + len(ticks) // 2]]))
        figures = json.loads(weir("bench", "replay", middle, "--json").stdout)
        check(f"{slots} slots: one that begins in the middle, too", figures["reproduced"] and (slots == "1" or figures["begun_before"] > 0), figures)
        other = path_of("other.jsonl", "\n".join(lines).replace('"strategy":"decode-maximal"', '"strategy":"x"'))
        figures = json.loads(weir("bench", "replay", other, "--json", "--strategy", "decode-maximal").stdout)
        check(f"{slots} slots: another strategy computes the same tokens", "reproduced" not in figures and figures["replayed"]["ticks"] > 0, figures)
    changed = [json.loads(line) for line in lines]
    tick = next(x for x in changed if "tick" in x and x.get("n_prefill", 0) > 8)
    part = next(p for p in tick["slots"] if p.get("state") == "prefilling" and "n_tokens" in p)
    part["n_tokens"] -= 1
    done = weir("bench", "replay", path_of("changed.jsonl", "\n".join(json.dumps(x) for x in changed)))
    check("a plan that differs is named", done.returncode == 0 and f"tick {tick['tick']}: request {part['request']} had" in done.stdout, done.stdout, done.stderr)
    expect("replay: no file", weir("bench", "replay"), 2, "which record")
    expect("replay: a file that is missing", weir("bench", "replay", "/nonexistent"), 1, "/nonexistent")
    expect("replay: no record", weir("bench", "replay", path), 2, "line 1")
    expect("replay: no tick", weir("bench", "replay", path_of("head.jsonl", lines[0])), 2, "no tick")
    expect("replay: a damaged line", weir("bench", "replay", path_of("damaged.jsonl", "\n".join(lines).replace('"tick_ns":', '"tick_ns":-', 1))), 2, "tick_ns")
    expect("replay: a strategy that is none", weir("bench", "replay", ring, "--strategy", "x"), 2, "decode-maximal")
    expect("replay: whose strategy is not known", weir("bench", "replay", other), 2, "--strategy")
    done = weir("stream", *options, path, "--ring", os.path.join(scratch.name, "no", "ring.jsonl"), "-q")
    check("a ring that cannot be written is told", done.returncode == 1 and "ring.jsonl" in done.stderr, done.stderr)
    pipe = os.path.join(scratch.name, "pipe")
    os.mkfifo(pipe)
    with subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE) as reader:
        weir("stream", *options, path, "--ring", pipe, "-q")
        check("a pipe or a device is written, not replaced", stat.S_ISFIFO(os.stat(pipe).st_mode))
        if stat.S_ISFIFO(os.stat(pipe).st_mode):
            check("and has the ring", json.loads(reader.stdout.readline()), reader.stdout.read())
        else:
            reader.kill()
    left = [name for name in os.listdir(scratch.name) if name.endswith(".part")]
    check("and leaves nothing behind", not left, left)


@on_fake
def test_shared_prefixes():
    """A record has no texts: common prefixes are computed again, and the replay says so."""
    ring = os.path.join(scratch.name, "shared.jsonl")
    path = path_of("shared.json", json.dumps({"requests": [{"prompt": "the same beginning of all these prompts " + n, "max_tokens": 8, "temp": 0}
                                                           for n in ("one", "two", "three")]}))
    for words, reproduced in (((), False), (("--no-cache-prompt",), True)):
        weir("stream", "-m", "fake:tick_us=300", "--slots", "2", path, "--ring", ring, "-q", *words)
        figures = json.loads(weir("bench", "replay", ring, "--json").stdout)
        check(f"prompts that share a beginning {' '.join(words)}", figures["reproduced"] == reproduced and
              ("--no-cache-prompt" in figures.get("why", "")) != reproduced, figures)


@on_fake
def test_ring_suspensions():
    """In a pool that is too small, with priorities, under each strategy: suspended requests are suspended again."""
    dice = random.Random(20261122)
    ring, n_suspended = os.path.join(scratch.name, "tight.jsonl"), 0
    for strategy in ["prefill-priority", "balanced", "decode-maximal", "latency-target"]:
        requests = [{"prompt": "x" * dice.randint(1, 80), "max_tokens": dice.randint(60, 90), "temp": 0, "ignore_eos": True,
                     "priority": dice.choice([0, 0, 3, -2])} for _ in range(24)]
        requests[7]["deadline_ms"] = 40
        done = weir("stream", "-m", "fake:tick_us=700,token_us=40", "--slots", "4", "--chunk", "32", "-b", "64", "-ub", "24", "-c", "192",
                    "--kv", "220", "--layout", "unified", "--ageing", "20", "--strategy", strategy, "--raw", "--itl-target", "2",
                    path_of("tight.json", json.dumps({"requests": requests})), "--ring", ring, "-q", "--cache-sequences", "0")
        played = weir("bench", "replay", ring, "--json")
        figures = json.loads(played.stdout)
        n_suspended += figures["recorded"]["suspensions"]
        check(f"{strategy}: a tight pool's replay is the same, tick for tick", done.returncode == 0 and figures["reproduced"] and
              figures["recorded"] == figures["replayed"] and figures["same_ticks"] == figures["recorded"]["ticks"], done.stderr, played.stdout)
    with open(ring) as file:
        lines = [json.loads(line) for line in file]
    check("a record tells the engine and the priorities", lines[0]["strategy"] == "latency-target" and lines[0]["itl_target_ms"] == 2 and
          lines[0]["ageing_ms"] == 20 and lines[0]["n_ubatch"] == 24 and
          [x.get("priority", 0) for x in lines if "arrival" in x] == [x["priority"] for x in requests], lines[0])
    moves = [(x["tick"], p) for x in lines if "tick" in x for p in x["slots"] if "suspended" in p or "resumed" in p]
    check("requests were suspended, and resumed", n_suspended > 0 and len(moves) > 1, n_suspended)
    check("passes are those of the batches", all(x.get("n_passes", 0) == -(-(x.get("n_prefill", 0) + x.get("n_decode", 0) + x.get("n_drafted", 0)) // 24) for x in lines if "tick" in x))
    tick, part = next((t, p) for t, p in moves if "resumed" in p and p.get("n_past", 0) > 0)
    part["n_past"] = 0
    done = weir("bench", "replay", path_of("lost.jsonl", "\n".join(json.dumps(x) for x in lines)))
    differs = re.search(r"\ndifference +tick (\d+): ", done.stdout)  # later than the loss if that tick had room for one token of the prompt only
    check("what was lost is lost again", differs and int(differs[1]) >= tick and re.search(r"\nsuspensions +[1-9]", done.stdout), tick, part, done.stdout)
    tick, part = next((t, p) for t, p in moves if "suspended" in p)
    next(x for x in lines if x.get("tick") == tick)["slots"].remove(part)
    done = weir("bench", "replay", path_of("kept.jsonl", "\n".join(json.dumps(x) for x in lines)))
    check("a suspension that differs is named", f"tick {tick}: request {part['request']} was suspended, but only in the replay" in done.stdout, done.stdout)


@on_fake
def test_drafts():
    """On the fake model only: as a draft model for itself, but faster, it is always right, with another seed never."""
    right, wrong = "fake:tick_us=300,token_us=10", "fake:seed=5"
    ring = os.path.join(scratch.name, "drafts.jsonl")
    requests = path_of("drafts.json", json.dumps({"requests": [{"prompt": "x" * n, "max_tokens": 30 + n, "temp": n % 2, "seed": n}
                                                               for n in range(1, 13)]}))
    for slots in ["1", "4"]:
        options = ["stream", requests, "-m", right, "--slots", slots, "--json", "-q", "--cache-sequences", "0", "--ring", ring]
        texts = {}
        for name, more in [("none", ["--draft-max", "0"]), ("right", ["-md", "fake:"]), ("wrong", ["--draft-model", wrong, "--no-prompt-lookup"])]:
            done = weir(*options, *more)
            tokens = {}
            for line in lines_of(done):
                tokens.setdefault(line.get("request"), []).extend(line.get("tokens", []))
            texts[name] = tokens
            with open(ring) as file:
                ticks = [line for line in map(json.loads, file) if "tick" in line]
            n_accepted = sum(t.get("n_accepted", 0) for t in ticks)
            check(f"{slots} slots, {name}: drafts are recorded", done.returncode == 0 and
                  (n_accepted > 0 or name != "right") and
                  all(t.get("n_accepted", 0) <= t.get("n_drafted", 0) for t in ticks), n_accepted, done.stderr)
            figures = json.loads(weir("bench", "replay", ring, "--json").stdout)
            check(f"{slots} slots, {name}: and replayed", figures["reproduced"] and figures["recorded"] == figures["replayed"], figures)
        check(f"{slots} slots: all answers are the same", texts["right"] == texts["none"] == texts["wrong"] and len(texts["none"]) >= 12, texts)
    expect("drafts that are too long", run("-p", "x", "--draft-max", "33"), 2, "--draft-max", "0 to 32")
    expect("another vocabulary", run("-p", "x", "-md", "fake:n_vocab=1000"), 2, "--draft-model", "vocabulary")
    expect("no draft model", run("-p", "x", "-md", "/nonexistent.gguf"), 3, "/nonexistent.gguf")


if __name__ == "__main__":
    run_tests(globals())
