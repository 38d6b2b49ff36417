#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares how weir writes numbers in JSON with CPython's json.dumps: the shortest digits that read back.

    json_cpython.py HELPER [SEED [NUMBERS]]
"""
import json
import math
import os
import random
import struct
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from checks import check, effort, finish  # noqa: E402


def numbers(rng, n):
    """Of all sizes; near powers of two and ten; short decimals, which prompts have; and the edges."""
    edges = [0.0, 5e-324, 2.2250738585072014e-308, 2.225073858507201e-308, 1.7976931348623157e308, 1e16, 1e15, 9999999999999998.0, 1e-4, 1e-5, 9.5e-5]
    found = edges + [2.0**k for k in range(-1074, 1024)] + [float(f"1e{k}") for k in range(-323, 309)]
    while len(found) < n:
        kind = rng.randrange(5)
        if kind == 0:
            value = struct.unpack("<d", rng.randbytes(8))[0]
        elif kind == 1:
            value = round(rng.uniform(-1000, 1000), rng.randrange(17))
        elif kind == 2:
            value = math.nextafter(rng.choice(edges), rng.choice([0.0, 1e300]))
        elif kind == 3:
            value = float(rng.randrange(2**64))
        else:
            value = rng.randrange(10**rng.randrange(1, 18)) * 10.0**rng.randrange(-30, 30)
        found += [value] if math.isfinite(value) else []
    return found + [-value for value in found[:100]]


def written(helper, locale, values):
    out = subprocess.run([helper, locale], input=struct.pack(f"{len(values)}d", *values), stdout=subprocess.PIPE, check=True).stdout
    return out.decode().split("\n")[:-1]


def main():
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    values = numbers(random.Random(seed), int(sys.argv[3]) if len(sys.argv) > 3 else effort(60000, 15000))
    expected = [json.dumps(value) for value in values]
    for locale in ("C", "de_DE.UTF-8", "fr_FR.UTF-8"):  # one that is not installed leaves the process in C
        texts = written(sys.argv[1], locale, values)
        wrong = [f"{value!r} became {text}" for value, text in zip(expected, texts) if value != text]
        check(f"{len(values)} numbers in {locale}, seed {seed}", not wrong and len(texts) == len(values), *wrong[:10])
    finish()


if __name__ == "__main__":
    main()
