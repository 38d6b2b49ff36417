#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Constraints by JSON Schema: what compiles, what is judged wrongly, and the CPU time of masks at each token of valid texts, for SmolLM2's
vocabulary and for two of the pinned llama.cpp with more than 150,000 tokens.

usage: constraints.py ROUNDS (one is enough: the time is the thread's)

The schemas are EXAMPLES below, with texts made for them, and the JSON Schema Test Suite's. SCHEMA_BENCH=FOLDER adds JSONSchemaBench's, or any
others: each *.json below it has "schema" and "tests", each with "data" and "valid", as MaskBench writes them. All are compiled in strict mode.
Writes bench/results/masks.md up to its first heading of the second level. Needs WEIR_BENCH_DIR, WEIR_MODEL and WEIR_LLAMA_SOURCE in the
environment; scripts/bench.sh sets them."""
import datetime
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys

from compare import SCHEMA as PERSON
from engine import machine
from schema import SCHEMA as RECORDS

RESULT = pathlib.Path("bench/results/masks.md")
VOCABULARIES = ("ggml-vocab-qwen2.gguf", "ggml-vocab-gemma-4.gguf")
WORDS = ("the a of harbour green light morning and to river under stone with quiet yellow boat señor naïve 東京 7 42 (see “note”) — it's/its, "
         "well-known C++ e.g. 3.14 #1 50% never\\again").split()


def closed(properties, **more):
    return {"type": "object", "additionalProperties": False, "required": list(properties), "properties": properties, **more}


def text(length, **more):
    return {"type": "string", "maxLength": length, **more}


EXAMPLES = {
    "people": RECORDS,
    "person": PERSON,
    "article": closed({"title": text(120), "summary": text(600), "body": text(2000), "tags": {"type": "array", "items": text(20), "maxItems": 8}}),
    "plain strings": closed({"title": {"type": "string"}, "text": {"type": "string"}}),
    "choices": {"type": "array", "minItems": 20, "maxItems": 40, "items": {"enum": ["north", "south", "east", "west", "nowhere at all"]}},
    "tree": {"$ref": "#/$defs/node", "$defs": {"node": closed({"value": {"type": "integer"}, "children": {
        "type": "array", "maxItems": 3, "items": {"$ref": "#/$defs/node"}}})}},
    "open object": {"type": "object", "properties": {"name": {"type": "string"}, "count": {"type": "integer"}}, "required": ["name"]},
    "codes": {"type": "array", "minItems": 5, "maxItems": 10, "items": {"type": "string", "pattern": "^[A-Z]{2,3}-[0-9]{4}$"}},
    "dates": {"type": "array", "minItems": 3, "maxItems": 6, "items": {"type": "string", "format": "date-time"}},
    "slugs": {"type": "array", "minItems": 3, "maxItems": 6, "items": {"type": "string", "pattern": "^[a-zA-Z0-9_-]{1,64}$"}},
    "numbers": {"type": "array", "minItems": 10, "maxItems": 20, "items": {"type": "number", "minimum": -180, "maximum": 180}},
    "event": {"oneOf": [closed({"kind": {"const": kind}, "note": text(80), "at": {"type": "integer", "minimum": 0}})
                        for kind in ("opened", "closed", "moved", "renamed")]},
    "settings": {"type": "object", "additionalProperties": False, "properties": {f"option_{i}": text(40) for i in range(30)}},
    "lengths": closed({f"of{n}": text(n, minLength=n // 2) for n in (4, 8, 16, 32, 64, 128, 256, 512)}),
}
MADE = {"^[A-Z]{2,3}-[0-9]{4}$": lambda d: f"{''.join(d.choices('ABCDEFGH', k=d.randint(2, 3)))}-{d.randint(0, 9999):04}",
        "^[a-zA-Z0-9_-]{1,64}$": lambda d: "-".join(d.choices(("alpha", "Beta", "x1", "foo_bar"), k=d.randint(1, 6))),
        "date-time": lambda d: f"20{d.randint(10, 29)}-0{d.randint(1, 9)}-1{d.randint(0, 9)}T0{d.randint(0, 9)}:30:00Z"}


def words(d, least, most):
    out = ""
    goal = d.randint(least, max(least, min(most, 400)))
    while len(out) < goal:
        out += (" " if out else "") + d.choice(WORDS)
    return out[:goal].ljust(least, "x")


def sample(schema, root, d, depth=0):
    """A value that a schema of EXAMPLES has."""
    if "$ref" in schema:
        return sample(root["$defs"][schema["$ref"].rsplit("/", 1)[1]], root, d, depth + 1)
    if "oneOf" in schema:
        return sample(d.choice(schema["oneOf"]), root, d, depth)
    if "const" in schema or "enum" in schema:
        return d.choice(schema.get("enum", [schema.get("const")]))
    kind = schema["type"]
    if kind == "object":
        required = schema.get("required", [])
        return {name: sample(s, root, d, depth) for name, s in schema["properties"].items() if name in required or d.random() < 0.7}
    if kind == "array":
        n = d.randint(schema.get("minItems", 0), schema.get("maxItems", 5)) if depth < 4 else 0
        return [sample(schema["items"], root, d, depth) for _ in range(n)]
    if kind == "string":
        if "pattern" in schema or "format" in schema:
            return MADE[schema.get("pattern", schema.get("format"))](d)
        return words(d, schema.get("minLength", 0), schema.get("maxLength", 300))
    if kind == "boolean":
        return d.random() < 0.5
    low, high = schema.get("minimum", -10 ** 6), schema.get("maximum", 10 ** 6)
    return d.randint(low, high) if kind == "integer" else round(d.uniform(low, high), d.randint(1, 5))


def groups():
    """Lines for the program: a schema, values that it has, and others."""
    d = random.Random(1)
    yield "examples", [(schema, [sample(schema, schema, d) for _ in range(6)], []) for schema in EXAMPLES.values()]
    suite = subprocess.run(["scripts/json_schema_suite.sh"], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    found = [group for draft in ("draft7", "draft2020-12") for path in sorted(pathlib.Path(suite, "tests", draft).glob("*.json"))
             if path.name not in ("refRemote.json", "format.json") for group in json.loads(path.read_text(encoding="utf-8"))]
    yield "JSON Schema Test Suite", [given(group) for group in found]
    if "SCHEMA_BENCH" in os.environ:
        yield "SCHEMA_BENCH", [given(json.loads(path.read_text(encoding="utf-8"))) for path in sorted(pathlib.Path(os.environ["SCHEMA_BENCH"]).rglob("*.json"))]


def given(group):
    tests = group.get("tests", [])
    return group["schema"], [t["data"] for t in tests if t["valid"]], [t["data"] for t in tests if not t["valid"]]


def measure(vocabulary, lines):
    data = "".join(json.dumps([json.dumps(schema, ensure_ascii=False), *([json.dumps(value, ensure_ascii=False) for value in values] for values in (valid, invalid))], ensure_ascii=False) + "\n"
                   for schema, valid, invalid in lines)
    out = subprocess.run([os.environ["WEIR_BENCH_DIR"] + "/masks", vocabulary], input=data, stdout=subprocess.PIPE, text=True, check=True).stdout
    head, *results = [json.loads(line) for line in out.splitlines()]
    if len(results) != len(lines):
        sys.exit(f"constraints: {len(results)} results of {len(lines)} schemas")
    return head, results


def figures(times):
    times = sorted(t / 1e3 for t in times)
    return f"{len(times):,} | {statistics.mean(times):.1f} | {statistics.median(times):.1f} | {times[int(0.99 * (len(times) - 1))]:.0f} | {times[-1]:,.0f}"


def main():
    source = os.environ["WEIR_LLAMA_SOURCE"]
    paths = {"SmolLM2": os.environ["WEIR_MODEL"], **{name.removeprefix("ggml-vocab-").removesuffix(".gguf"): f"{source}/models/{name}" for name in VOCABULARIES}}
    all_groups = list(groups())
    judged, masks, vocabularies = [], [], []
    for name, path in paths.items():
        for what, lines in all_groups:
            print(f"{name}: {what}", file=sys.stderr, flush=True)
            head, results = measure(path, lines)
            compiled = [r for r in results if "error" not in r]
            if name == "SmolLM2":
                valid, invalid = (sum(len(line[k]) for line, r in zip(lines, results) if "error" not in r) for k in (1, 2))
                times = sorted(r["compile"] / 1e6 for r in results)
                judged.append(f"| {what} | {len(lines):,} | {len(compiled):,} | {sum(r['refused'] for r in compiled)} of {valid:,} | "
                              f"{sum(r['accepted'] for r in compiled)} of {invalid:,} | {statistics.median(times):.2f} | {times[int(0.99 * (len(times) - 1))]:.1f} | "
                              f"{times[-1]:.1f} |")
            for key, label in (("first", "new"), ("again", "known")):
                masks.append(f"| {name} | {what} | {label} | {figures([t for r in compiled for t in r[key]])} |")
        vocabularies.append(f"{name}: {head['tokens']:,} tokens, the longest of {head['longest']} characters; the tree takes {head['trie'] / 1e6:.0f} ms once")
    lines = ["# Constraints: what compiles, and what a mask costs", "",
             f"`scripts/bench.sh 1 constraints` (bench/constraints.py), {datetime.date.today().isoformat()}; {machine()}. All schemas in strict mode; texts as "
             "`json.dumps` writes them, with spaces. CPU time of the thread.", "",
             "| schemas of | schemas | compiled | valid refused | invalid accepted | compile, ms: median | p99 | worst |", "|---" * 8 + "|", *judged, "",
             f"Masks at each token of the valid texts, and at their end, µs; `new`: of an automaton that knew nothing before the schema's first text; `known`: the same "
             f"texts again. {'; '.join(vocabularies)}. Aim for new ones: mean ≤ 16, p99 ≤ 130, max ≤ 1,000.", "",
             "| vocabulary | schemas of | | masks | mean | p50 | p99 | max |", "|---" * 8 + "|", *masks, ""]
    old = RESULT.read_text(encoding="utf-8") if RESULT.exists() else ""
    RESULT.write_text("\n".join(lines) + "\n" + old[old.index("\n## ") + 1:] if "\n## " in old else "\n".join(lines), encoding="utf-8")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
