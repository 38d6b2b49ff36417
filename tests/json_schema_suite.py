#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds grammars of schemas against the JSON Schema Test Suite, drafts 7 and 2020-12: which of its values a schema's grammar has.

    json_schema_suite.py HELPER

tests/json_schema_suite.json has a row for each file of the suite: its schemas, those that have a grammar in strict mode, those of which all
values are judged rightly, invalid values accepted, valid ones refused. It is compared with what comes; WEIR_UPDATE=1 writes it anew.
refRemote.json (other documents) and format.json (where formats are annotations; weir enforces them) are left out."""
import collections
import json
import os
import pathlib
import subprocess
import sys

SOURCE = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(SOURCE / "tests/support"))
from checks import check, finish  # noqa: E402

TABLE = SOURCE / "tests/json_schema_suite.json"
EMPTY = "nothing can satisfy this schema"
COLUMNS = ("schemas", "compiled", "right", "invalid accepted", "valid refused")


def groups():
    folder = subprocess.run([SOURCE / "scripts/json_schema_suite.sh"], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    for draft in ("draft7", "draft2020-12"):
        for path in sorted(pathlib.Path(folder, "tests", draft).glob("*.json")):
            if path.name not in ("refRemote.json", "format.json"):
                yield from ((f"{draft}/{path.stem}", group) for group in json.loads(path.read_text(encoding="utf-8")))


def judged(helper, mode, given):
    lines = "".join(json.dumps([group["schema"], [json.dumps(t["data"], ensure_ascii=False) for t in group["tests"]]]) + "\n" for _, group in given)
    out = subprocess.run([helper, mode], input=lines, stdout=subprocess.PIPE, text=True, check=True).stdout
    return [json.loads(line) for line in out.splitlines()]


def main():
    given = list(groups())
    counts, invalid, empty, reasons = collections.defaultdict(collections.Counter), [], [], collections.Counter()
    for (name, group), verdicts in zip(given, judged(sys.argv[1], "strict", given), strict=True):
        row = counts[name]
        row["schemas"] += 1
        if isinstance(verdicts, str):
            reasons[verdicts] += 1
            if verdicts == EMPTY:
                empty.append((name, group))
            continue
        row["compiled"] += 1
        wrong = [t for t, verdict in zip(group["tests"], verdicts, strict=True) if t["valid"] != verdict]
        row["right"] += not wrong
        row["valid refused"] += sum(t["valid"] for t in wrong)
        row["invalid accepted"] += sum(not t["valid"] for t in wrong)
        invalid += [f"{name}: {json.dumps(group['schema'])} has {json.dumps(t['data'])}" for t in wrong if not t["valid"]]
    rows = {name: [row[column] for column in COLUMNS] for name, row in counts.items()}
    rows["all"] = [sum(column) for column in zip(*rows.values())]
    check(f"{len(given)} schemas, of which the suite has at least 500", len(given) >= 500)
    check("no grammar has an invalid value", not invalid, *invalid)
    possible = [f"{name}: {json.dumps(group['schema'])}" for name, group in empty if any(t["valid"] for t in group["tests"])]
    check(f"{len(empty)} schemas are refused because nothing satisfies them, and none of their values is valid", empty and not possible, *possible)
    if os.environ.get("WEIR_UPDATE"):
        TABLE.write_text("{\n" + ",\n".join(f" {json.dumps(name)}: {json.dumps(row)}" for name, row in sorted(rows.items())) + "\n}\n", encoding="utf-8")
        for reason, n in reasons.most_common():
            print(f"{n:4} {reason}")
    expected = json.loads(TABLE.read_text(encoding="utf-8"))
    for name in sorted(expected.keys() | rows.keys()):
        check(f"{name}: {', '.join(f'{n} {column}' for n, column in zip(rows.get(name, []), COLUMNS))}", rows.get(name) == expected.get(name), f"expected {expected.get(name)}")
    relaxed = judged(sys.argv[1], "relax", given)
    refused = [f"{name}: {json.dumps(group['schema'])}: {verdict}" for (name, group), verdict in zip(given, relaxed, strict=True) if isinstance(verdict, str)]
    check(f"relaxed, {len(given) - len(refused)} schemas have a grammar", len(refused) <= 40, *refused)
    finish()


if __name__ == "__main__":
    main()
