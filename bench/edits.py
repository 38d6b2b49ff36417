#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An agent's edit session on a model that attends everywhere, on one with sliding windows, or on a hybrid one, with drafts from prompt
lookup and without: writes the part "Edit sessions" of bench/results/speculate.md and bench/results/edits.csv.

usage: edits.py ROUNDS, in the environment that scripts/bench.sh makes; EDIT_MODELS: names and files, NAME=FILE,… (see random_model.py);
without it the default model.

A session sends a file and asks for three edits of it, each with all that was said before. The answers are those that an agent got:
grammars of token ids force them, so that weights may be random. Two servers differ in --draft-max only; they take turns."""
import csv
import datetime
import json
import os
import pathlib
import statistics
import sys
import urllib.request

from compare import Server
from engine import machine, run

RESULT, TABLE = pathlib.Path("bench/results/speculate.md"), pathlib.Path("bench/results/edits.csv")
HEAD = "\n## Edit sessions\n"
FILES = ("src/engine/chunks.c", "src/base/text.c")
EDITS = (("weir_status", "int", "Let functions return int instead of weir_status."),
         ("size_t", "uint64_t", "Lengths are to be uint64_t."),
         ("NULL", "nullptr", "Use nullptr."))
CHARS = 3000  # of a file


def post(url, path, body):
    request = urllib.request.Request(url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=3600) as answer:
        return json.loads(answer.read())


def tokens_of(url, text):
    return post(url, "/tokenize", {"content": text})["tokens"]


def session(url, file, draft_max):
    """Tokens of the answers, seconds of generating them, drafted and accepted tokens."""
    text = pathlib.Path(file).read_text(encoding="utf-8")[:CHARS]
    prompt = tokens_of(url, f"The file {file}:\n{text}\n")
    n, seconds, drafted, accepted = 0, 0.0, 0, 0
    for old, new, wish in EDITS:
        prompt += tokens_of(url, f"\nUser: {wish} Answer with the whole file.\n")
        text = text.replace(old, new)
        answer = tokens_of(url, text)
        got = post(url, "/completion", {"prompt": prompt, "n_predict": len(answer), "temperature": 0, "ignore_eos": True, "return_tokens": True,
                                        "cache_prompt": True, "speculative.n_max": draft_max,
                                        "grammar": "root ::= " + " ".join(f"<[{token}]>" for token in answer)})
        if got["tokens"] != answer:
            sys.exit(f"edits: the answer is not the recorded one: {got['tokens'][:8]}… instead of {answer[:8]}…")
        timings = got["timings"]
        n += len(answer)
        seconds += timings["predicted_ms"] / 1000
        drafted += timings.get("draft_n", 0)
        accepted += timings.get("draft_n_accepted", 0)
        prompt += answer
    return n, seconds, drafted, accepted


def main():
    rounds = int(sys.argv[1])
    weir, threads = os.environ["WEIR_BIN"], str(os.cpu_count())
    names = os.environ.get("EDIT_MODELS") or f"default={os.environ['WEIR_MODEL']}"
    models = dict(pair.split("=", 1) for pair in names.split(","))
    rows = []
    for i in range(rounds):
        for name, model in models.items():
            command = [weir, "serve", "-m", model, "-t", threads, "-tb", threads, "-np", "1", "-c", "8192", "--host", "127.0.0.1", "--offline",
                       "--lookup-memory", "0"]
            for on in (0, 1) if i % 2 == 0 else (1, 0):
                with Server("weir", [*command, "--draft-max", "16" if on else "0"]) as server:
                    for file in FILES:
                        found = session(server.url, file, 16 if on else 0)
                        rows.append((name, i, on, file, *found))
                        print(f"round {i + 1}, {name}, drafts {on}, {file}: {found}", file=sys.stderr, flush=True)
    with TABLE.open("w", encoding="utf-8", newline="") as out:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(("model", "round", "on", "file", "tokens", "seconds", "drafted", "accepted"))
        writer.writerows((*row[:5], round(row[5], 3), *row[6:]) for row in rows)
    write(rounds, weir, threads, models, rows)


def write(rounds, weir, threads, models, rows):
    lines = [HEAD, f"`EDIT_MODELS={','.join(f'{name}=…' for name in models)} scripts/bench.sh {rounds} edits`, "
             f"{datetime.date.today().isoformat()}, {run([weir, 'version']).splitlines()[0]}.", "",
             f"{machine()}; {threads} threads, one slot. A session sends the first {CHARS:,} characters of {' or '.join(FILES)} and asks for three",
             "edits, each with all that was said before; answers are forced to the recorded texts. Two servers differ in `--draft-max` only and take",
             f"turns. Tokens per second of generation: medians of {rounds} rounds; the ratio is the median of the rounds' ratios (least to most).", "",
             "| model | off | on | ratio | aim | drafted / right, each session |", "|---|---|---|---|---|---|"]
    for name in models:
        def speeds(on):
            return [sum(r[4] for r in rows if r[:3] == (name, i, on)) / sum(r[5] for r in rows if r[:3] == (name, i, on)) for i in range(rounds)]
        off, on = speeds(0), speeds(1)
        ratios = [b / a for a, b in zip(off, on)]
        mine = [r for r in rows if r[0] == name and r[2] == 1]
        lines.append(f"| {name} | {statistics.median(off):.1f} | {statistics.median(on):.1f} | {statistics.median(ratios):.2f} "
                     f"({min(ratios):.2f}–{max(ratios):.2f}) | ≥ 1.5 | {sum(r[6] for r in mine) / len(mine):.0f} / {sum(r[7] for r in mine) / len(mine):.0f} |")
    before = RESULT.read_text(encoding="utf-8").split(HEAD)[0]
    RESULT.write_text(before.rstrip("\n") + "\n" + "\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
