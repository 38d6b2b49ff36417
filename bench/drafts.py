#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An agent's edit session on a model that attends everywhere, on one with sliding windows, or on a hybrid one, with drafts from prompt
lookup and without: writes the part "Edit sessions" of bench/results/speculate.md and bench/results/drafts_kinds.csv.

usage: drafts.py ROUNDS, in the environment that scripts/bench.sh makes; DRAFT_MODELS: names and files, NAME=FILE,… (see random_model.py);
without it the default model. The page's hybrid and window are random_model.py's with the vocabulary of the default model.

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
from engine import machine, replace_section, run

RESULT, TABLE = pathlib.Path("bench/results/speculate.md"), pathlib.Path("bench/results/drafts_kinds.csv")
TITLE = "## Edit sessions"
FILES = ("src/cache/memory.c", "src/engine/cells.c")
EDITS = (("weir__", "inner_", "Names begin with inner_ instead of weir__."),
         ("size_t", "uint64_t", "Lengths are to be uint64_t."),
         ("NULL", "nullptr", "Use nullptr."))
CHARS = 1200  # of a file


def post(url, path, body):
    request = urllib.request.Request(url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=3600) as answer:
        return json.loads(answer.read())


def tokens_of(url, text):
    return post(url, "/tokenize", {"content": text})["tokens"]


def answer(url, prompt, text, tokens, draft_max):
    """Seconds of generating these tokens behind the prompt, drafted and accepted tokens."""
    got = post(url, "/completion", {"prompt": prompt, "n_predict": len(tokens), "temperature": 0, "ignore_eos": True,
                                    "cache_prompt": True, "speculative.n_max": draft_max,
                                    "grammar": "root ::= " + " ".join(f"<[{token}]>" for token in tokens)})
    if got["content"] != text or got["tokens_predicted"] != len(tokens):
        sys.exit(f"drafts: the answer is not the recorded one, but {got['content'][:300]!r}")
    timings = got["timings"]
    return timings["predicted_ms"] / 1000, timings.get("draft_n", 0), timings.get("draft_n_accepted", 0)


def session(urls, file, flip):
    """Rows of (edit, drafts, tokens, seconds, drafted, accepted). The two servers take turns at each answer."""
    text, rows = pathlib.Path(file).read_text(encoding="utf-8")[:CHARS], []
    prompt = tokens_of(urls[0], f"The file {file}:\n{text}\n")
    for edit, (old, new, wish) in enumerate(EDITS):
        prompt += tokens_of(urls[0], f"\nUser: {wish} Answer with the whole file.\n")
        text = text.replace(old, new)
        tokens = tokens_of(urls[0], text)
        for on in (0, 1) if (edit + flip) % 2 == 0 else (1, 0):
            rows.append((edit, on, len(tokens), *answer(urls[on], prompt, text, tokens, 16 if on else 0)))
        prompt += tokens
    return rows


def main():
    rounds = int(sys.argv[1])
    weir, threads = os.environ["WEIR_BIN"], str(os.cpu_count())
    names = os.environ.get("DRAFT_MODELS") or f"default={os.environ['WEIR_MODEL']}"
    models = dict(pair.split("=", 1) for pair in names.split(","))
    rows = []
    for i in range(rounds):
        for name, model in models.items():
            command = [weir, "serve", "-m", model, "-t", threads, "-tb", threads, "-np", "1", "-c", "8192", "--host", "127.0.0.1", "--offline",
                       "--lookup-memory", "0", "--draft-max"]
            with Server("weir", [*command, "0"]) as off, Server("weir", [*command, "16"]) as on:
                for file in FILES:
                    found = [(name, i, file, *row) for row in session((off.url, on.url), file, i)]
                    rows += found
                    print(*found, sep="\n", file=sys.stderr, flush=True)
    with TABLE.open("w", encoding="utf-8", newline="") as out:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(("model", "round", "file", "edit", "on", "tokens", "seconds", "drafted", "accepted"))
        writer.writerows((*row[:6], round(row[6], 3), *row[7:]) for row in rows)
    write(rounds, weir, threads, models, rows)


def write(rounds, weir, threads, models, rows):
    lines = [TITLE, "", f"`DRAFT_MODELS={','.join(f'{name}=…' for name in models)} scripts/bench.sh {rounds} drafts`, "
             f"{datetime.date.today().isoformat()}, {run([weir, 'version']).splitlines()[0]}.", "",
             f"{machine()}; {threads} threads, one slot, load average {os.getloadavg()[0]:.1f} at the end: more than 2 means that other programs ran",
             f"beside it. A session sends the first {CHARS:,} characters of {' or '.join(FILES)} and asks for three",
             "edits, each with all that was said before; answers are forced to the recorded texts. Two servers differ in `--draft-max` only and take",
             f"turns at each answer. Tokens per second of generation, of {rounds} round{'s' * (rounds > 1)}; the ratio is the median of the answers' (least to most).", "",
             "| model | off | on | ratio | aim | drafted / right, each session |", "|---|---|---|---|---|---|"]
    for name in models:
        mine = [[r for r in rows if r[0] == name and r[4] == on] for on in (0, 1)]
        speeds = [sum(r[5] for r in part) / sum(r[6] for r in part) for part in mine]
        seconds = [{r[1:4]: r[6] for r in part} for part in mine]
        ratios = [seconds[0][key] / seconds[1][key] for key in seconds[0]]
        n = rounds * len(FILES)
        lines.append(f"| {name} | {speeds[0]:.1f} | {speeds[1]:.1f} | {statistics.median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f}) | ≥ 1.5 | "
                     f"{sum(r[7] for r in mine[1]) / n:.0f} / {sum(r[8] for r in mine[1]) / n:.0f} |")
    replace_section(RESULT, lines + [""], TITLE)
    print("\n".join(lines))


if __name__ == "__main__":
    main()
