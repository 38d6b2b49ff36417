#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Masks of weir's automaton beside llguidance's: CPU time of a thread to know which tokens may follow, at each token of the same answers with
the same schemas, on one vocabulary.

usage: masks.py MODEL

Answers are sampled from the model by bench/masks.c, which measures weir. llguidance comes from its Python package, which nothing else needs
and no script installs; its time has the call from Python in it. Needs WEIR_BENCH_DIR in the environment. Prints a
table, which ADR 0033 has."""
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import llguidance
import llguidance.numpy

from compare import SCHEMA as PERSON

SCHEMAS = {
    "person": PERSON,
    "people": {"type": "array", "items": PERSON, "minItems": 20, "maxItems": 40},
    "plain strings": {"type": "object", "additionalProperties": False, "required": ["title", "text"],
                      "properties": {"title": {"type": "string"}, "text": {"type": "string"}}},
    "choices": {"type": "array", "minItems": 30, "maxItems": 40, "items": {"enum": ["north", "south", "east", "west", "nowhere at all"]}},
    "tree": {"$ref": "#/$defs/node", "$defs": {"node": {"type": "object", "additionalProperties": False, "required": ["value", "children"], "properties": {
        "value": {"type": "integer"}, "children": {"type": "array", "items": {"$ref": "#/$defs/node"}}}}}},
    "any JSON": {"type": "object"},
    "patterns": {"type": "array", "minItems": 10, "maxItems": 20, "items": {"type": "string", "pattern": "^[A-Z]{2,3}-[0-9]{4}$"}},
}


class Vocabulary:
    """What llguidance asks of a tokenizer; texts are never tokenized here."""

    def __init__(self, pieces, eos):
        self.tokens = [bytes.fromhex(p) for p in pieces]
        self.eos_token_id, self.bos_token_id, self.special_token_ids = eos, None, [i for i, t in enumerate(self.tokens) if not t]
        self.single = {t: i for i, t in reversed(list(enumerate(self.tokens))) if t}

    def __call__(self, text):
        data = text if isinstance(text, bytes) else text.encode()
        return [self.single[data[i:i + 1]] for i in range(len(data))]


def thread_ns():
    return time.clock_gettime_ns(time.CLOCK_THREAD_CPUTIME_ID)


def walk(tokenizer, grammar, answers, mask, times, allowed):
    refused = 0
    for tokens in answers:
        matcher = llguidance.LLMatcher(tokenizer, grammar)
        if matcher.is_error():
            sys.exit("masks: " + matcher.get_error())
        for token in tokens:
            began = thread_ns()
            llguidance.numpy.fill_next_token_bitmask(matcher, mask)
            times.append(thread_ns() - began)
            allowed.append(int(sum(bin(int(word) & 0xFFFFFFFF).count("1") for word in mask[0])))
            if not matcher.consume_token(token):
                refused += 1
                break
    return refused


def cells(times):
    return f"{statistics.mean(times) / 1e3:.1f} | {statistics.quantiles(times, n=100)[98] / 1e3:.0f} | {max(times) / 1e3:.0f}"


def main():
    model, programs = sys.argv[1], os.environ["WEIR_BENCH_DIR"]
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for name, schema in SCHEMAS.items():
            paths.append(f"{folder}/{name}.json")
            pathlib.Path(paths[-1]).write_text(json.dumps(schema), encoding="utf-8")
        out = subprocess.run([f"{programs}/masks", model, *paths], stdout=subprocess.PIPE, check=True, text=True).stdout.splitlines()
    vocabulary = json.loads(out[0])
    began = thread_ns()
    tokenizer = llguidance.LLTokenizer(llguidance.TokenizerWrapper(Vocabulary(vocabulary["pieces"], vocabulary["eos"])))
    prepared = thread_ns() - began
    mask = llguidance.numpy.allocate_token_bitmask(1, len(vocabulary["pieces"]))
    print(f"llguidance {llguidance.__version__ if hasattr(llguidance, '__version__') else ''}; the vocabulary prepared: weir {vocabulary['trie'] / 1e6:.0f} ms, "
          f"llguidance {prepared / 1e6:.0f} ms\n")
    print("| schema | masks | compiled, µs: weir | llguidance | weir, first: mean | p99 | most, µs | weir, again: mean | p99 | most | llguidance: mean | p99 | most | allowed alike |")
    print("|---" * 14 + "|")
    for line in out[1:]:
        got = json.loads(line)
        grammar = llguidance.LLMatcher.grammar_from_json_schema(json.dumps(got["schema"]))
        began = thread_ns()
        llguidance.LLMatcher(tokenizer, grammar)
        compiled = thread_ns() - began
        times, allowed = [], []
        refused = walk(tokenizer, grammar, got["answers"], mask, times, allowed)
        alike = sum(abs(a - b) <= 1 for a, b in zip(allowed, got["allowed"])) if len(allowed) == len(got["allowed"]) else None
        print(f"| {pathlib.Path(got['path']).stem} | {len(got['first'])} | {got['compile'] / 1e3:.0f} | {compiled / 1e3:.0f} | {cells(got['first'])} | {cells(got['again'])} | {cells(times)} | "
              f"{'–' if alike is None else f'{alike} of {len(allowed)}'}{f', {refused} answers refused' if refused else ''} |")


if __name__ == "__main__":
    main()
