#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the UTF-8 sanitizer with CPython's errors="replace" decoders.

    utf8_cpython.py HELPER [SEED [STRINGS]]

Each random byte string is cut at random places; the sanitizer's output for each piece must be that of CPython's
incremental decoder returns for it, and the whole what bytes.decode returns.
"""
import codecs
import os
import random
import struct
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from checks import effort, seed as usual_seed  # noqa: E402

BATCH = 20000
# The first and the last byte of every class that tells well-formed from ill-formed.
EDGES = bytes.fromhex("00417f808f909fa0bfc0c1c2c3dfe0e1ecedeeeff0f1f3f4f5ff")
LEADS = bytes.fromhex("c2dfe0e1ecedeeeff0f1f3f4")
CONTINUATIONS = bytes.fromhex("808f909fa0bf")
LAST_CODES = [0x7F, 0x80, 0x7FF, 0x800, 0xD7FF, 0xE000, 0xFFFD, 0xFFFF, 0x10000, 0x10FFFF]


def character(rng):
    top = rng.choice((0x80, 0x800, 0xD800, 0x110000, 0))
    code = rng.randrange(top) if top else rng.choice(LAST_CODES)
    return chr(code if not 0xD800 <= code < 0xE000 else 0x20AC).encode()


def uniform(rng):
    return rng.randbytes(rng.randrange(24))


def edges(rng):
    return bytes(rng.choices(EDGES, k=rng.randrange(16)))


def sequences(rng):
    """A lead byte, then some continuations: too few, enough, too many."""
    return b"".join(
        bytes([rng.choice(LEADS)]) + bytes(rng.choices(CONTINUATIONS, k=rng.randrange(5)))
        for _ in range(rng.randrange(5))
    )


def text(rng):
    return b"".join(character(rng) for _ in range(rng.randrange(10)))


def truncated(rng):
    parts = (character(rng) for _ in range(rng.randrange(8)))
    return b"".join(part[: rng.randrange(1, len(part) + 1)] for part in parts)


def damaged(rng):
    """Longer text, for the runs that are copied at once, with one byte replaced."""
    out = bytearray(b"plain ASCII text " * rng.randrange(4) + text(rng) + b"0123456789" * rng.randrange(3))
    if out:
        out[rng.randrange(len(out))] = rng.randrange(256)
    return bytes(out)


def cut(rng, string):
    places = sorted(rng.randrange(len(string) + 1) for _ in range(rng.randrange(5)))
    return [string[a:b] for a, b in zip([0, *places], [*places, len(string)])]


def framed(piece):
    return struct.pack("=I", len(piece)) + piece


def expected(pieces):
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    out = []
    for piece in pieces:
        released = decoder.decode(piece)
        held = decoder.getstate()[0]
        # CPython keeps half a surrogate waiting for errors="surrogatepass"; weir holds nothing that cannot become valid.
        if len(held) == 2 and held[0] == 0xED and held[1] >= 0xA0:
            released += decoder.decode(b"", final=True)
        out.append(released)
    out.append(decoder.decode(b"", final=True))
    out.append(b"".join(pieces).decode("utf-8", "replace"))
    return b"".join(framed(part.encode()) for part in out)


def request(pieces):
    return struct.pack("=I", len(pieces)) + b"".join(map(framed, pieces))


def answer(helper, strings):
    return subprocess.run([helper], input=b"".join(map(request, strings)), stdout=subprocess.PIPE, check=True).stdout


def compare(helper, rng, make, count):
    """The first string that differs, as a message; None when all agree."""
    while count > 0:
        strings = [cut(rng, make(rng)) for _ in range(min(count, BATCH))]
        count -= len(strings)
        if answer(helper, strings) == b"".join(map(expected, strings)):
            continue
        for pieces in strings:
            got, want = answer(helper, [pieces]), expected(pieces)
            if got != want:
                return f"{[piece.hex() for piece in pieces]}: got {got.hex()}, want {want.hex()}"
        return "the answers differ only in company"
    return None


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    helper = sys.argv[1]
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else usual_seed()
    total = int(sys.argv[3]) if len(sys.argv) > 3 else effort(250_000, 50_000)
    kinds = [uniform, edges, sequences, text, truncated, damaged]
    print(f"seed {seed}, {total} strings")
    failed = 0
    for i, make in enumerate(kinds):
        count = total * (i + 1) // len(kinds) - total * i // len(kinds)
        message = compare(helper, random.Random(f"{seed} {make.__name__}"), make, count)
        print(f"{'FAIL' if message else 'ok'} {make.__name__}: {message or f'{count} strings'}")
        failed += message is not None
    print(f"{len(kinds) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
