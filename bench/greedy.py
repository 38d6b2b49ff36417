#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Greedy answers with weir's kernels beside ggml's own, where ggml's are equal to themselves.

usage: greedy.py ROUNDS, which does not matter

ggml (WEIR_KERNELS=off) answers every prompt alone, in company with small chunks, and in one pool. Where the three agree, weir's answer is
compared with them; where it is another one, the gap tells how much likelier ggml found its own token at the first difference. Writes
bench/results/greedy.md. Needs WEIR_BIN, WEIR_MODEL and WEIR_LLAMA_SOURCE in the environment; scripts/bench.sh sets them."""
import datetime
import json
import math
import os
import pathlib
import random
import subprocess
import sys
import tempfile

from engine import machine, requantize, run

SEED, PROMPTS, ANSWER = 1, 48, 32
FORMATS = ["q8_0", "q4_1", "q4_0"]
SHAPES = [("--slots", "1"), ("--slots", "8", "--chunk", "32"), ("--slots", "16", "--layout", "unified")]
RESULTS = pathlib.Path("bench/results")


def answers(weir, path, requests, kernels, shape):
    """Of each prompt: its tokens, with the logprobs of the likeliest ones at each place."""
    done = subprocess.run([weir, "stream", "-", "-m", path, "--temp", "0", "-n", str(ANSWER), "--ignore-eos", "--logprobs", "20", "--json", "-q", *shape],
                          input=requests, text=True, stdout=subprocess.PIPE, env=os.environ | {"WEIR_KERNELS": kernels}, check=True)
    found = [[] for _ in range(PROMPTS)]
    for line in map(json.loads, done.stdout.splitlines()):
        for one in line.get("logprobs", []):
            found[line["request"]].append((one["token"], {t["token"]: t["logprob"] for t in one["top"]}))
    return found


def tokens(answer):
    return [token for token, _ in answer]


def gap(own, ours):
    """How much likelier the first token of `own` that differs is than that of `ours`, by own's logprobs; infinite where that is not among them."""
    token, top, other = next((a, likeliest, b) for (a, likeliest), (b, _) in zip(own, ours) if a != b)
    return top[token] - top.get(other, -math.inf)


def main():
    weir, model, llama = (os.environ[name] for name in ("WEIR_BIN", "WEIR_MODEL", "WEIR_LLAMA_SOURCE"))
    dice = random.Random(SEED)
    words = (pathlib.Path(llama) / "docs/speculative.md").read_text(encoding="utf-8").split()
    starts = [dice.randrange(len(words) - 60) for _ in range(PROMPTS)]
    prompts = [" ".join(words[at:at + dice.randrange(5, 50)]) for at in starts]
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name in FORMATS:
            path = f"{folder}/{name}.gguf"
            requantize(weir, model, path, name)
            requests = json.dumps({"requests": [{"prompt": p} for p in prompts]})
            own = [answers(weir, path, requests, "off", shape) for shape in SHAPES]
            ours = answers(weir, path, requests, "auto", SHAPES[1])
            same = [i for i in range(PROMPTS) if all(tokens(o[i]) == tokens(own[0][i]) for o in own)]
            other = [i for i in same if tokens(ours[i]) != tokens(own[0][i])]
            rows.append((name, len(same), len(other), [gap(own[0][i], ours[i]) for i in other]))

    lines = ["# Greedy answers beside ggml's", "",
             f"`scripts/bench.sh 1 greedy`, {datetime.date.today().isoformat()}, {run([weir, 'version']).splitlines()[0]}.", "",
             machine() + f"; {PROMPTS} prompts of 5 to 49 words of the pinned llama.cpp's documentation (seed {SEED}), "
             f"answers of {ANSWER} tokens. ggml's kernels (WEIR_KERNELS=off) answer each alone, among 8 with chunks of 32, and among 16 in "
             "one pool; prompts whose three answers are the same are compared with weir's. Gap: by how much ggml's logit of its own token lay above that of weir's at the first difference; logits lie "
             "0.2 (root mean square) from those of F32 with either's kernels (accuracy.md).", "",
             "| format | ggml equal to itself | weir equal to it | gaps of the others |", "|---|---|---|---|"]
    for name, same, other, found in rows:
        lines.append(f"| {name} | {same} of {PROMPTS} | {same - other} of {same} | {', '.join(f'{gap:.3f}' for gap in sorted(found))} |")
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / "greedy.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
