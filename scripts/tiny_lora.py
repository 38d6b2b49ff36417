#!/usr/bin/env python3
# tiny_lora.py: writes LoRA adapters with random matrices for a GGUF model, for tests; also such as nobody should use.
# SPDX-License-Identifier: Apache-2.0
"""Usage: tiny_lora.py BASE OUT [--seed N] [--rank N] [--alpha X] [--type f32|f16|q8_0] [--strength X] [--only REGEX]
                     [--but KIND] [--merged FILE]

For the matrices of BASE's layers whose names match --only (default: all). --strength: how large the changes are beside
random weights (0.5). The same arguments give the same bytes. --merged also writes BASE, whose weights must be F32, with
the changes in its own matrices, at a scale of 1. --but makes it wrong:

arch     of another architecture              general  the file says that it is a model
kind     adapter.type is another              alpha    adapter.lora.alpha is no float
alora    an activated LoRA                    empty    no matrices
rows     a matrix of another shape            half     one without its other half
name     for a weight that there is not       stack    as if it were for experts
ranks    the two have different ranks         type     matrices of a type that is not for adapters
embd     for the embeddings, too              order    the halves are the wrong way round
nan      one number of a half is none         inf      one number of the other is infinite
"""
import argparse
import re
import struct
import sys

from tiny_gguf import ARRAY, BOOL, F32, STRING, TYPE_ID, U32, Model

KINDS = ["arch", "general", "kind", "alpha", "alora", "empty", "rows", "half", "name", "stack", "ranks", "type", "embd", "order",
         "nan", "inf"]
SIZE = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}


class Reader:
    def __init__(self, path):
        self.file = open(path, "rb")

    def take(self, form):
        return struct.unpack("<" + form, self.file.read(struct.calcsize("<" + form)))

    def text(self):
        return self.file.read(self.take("Q")[0]).decode("utf-8", "replace")

    def value(self, kind):
        """Strings as they are; no other types are needed."""
        if kind == STRING:
            return self.text()
        if kind == ARRAY:
            kind, n = self.take("IQ")
            if kind == STRING:
                for _ in range(n):
                    self.text()
            else:
                self.file.seek(n * SIZE[kind], 1)
            return None
        self.file.seek(SIZE[kind], 1)
        return None


def read_base(path):
    """Its architecture, and each tensor's name and dimensions."""
    r = Reader(path)
    magic, _, n_tensors, n_kv = r.take("4sIQQ")
    assert magic == b"GGUF", path
    arch, tensors = "", []
    for _ in range(n_kv):
        key = r.text()
        value = r.value(r.take("I")[0])
        if key == "general.architecture":
            arch = value
    for _ in range(n_tensors):
        name = r.text()
        dims = list(r.take("%dQ" % r.take("I")[0]))
        r.take("IQ")
        tensors.append((name, dims))
    return arch, tensors


def product(a, b, columns, rank, rows, factor):
    """What is added to a matrix: rows of `columns` numbers."""
    out = []
    for i in range(rows):
        row = [0.0] * columns
        for j in range(rank):
            x = b[i * rank + j] * factor
            for k in range(columns):
                row[k] += x * a[j * columns + k]
        out += row
    return out


def write_merged(base, out, pairs, alpha):
    """BASE with its data rewritten in place. pairs: name to rank and both matrices' numbers."""
    data = bytearray(open(base, "rb").read())
    r = Reader(base)
    _, _, n_tensors, n_kv = r.take("4sIQQ")
    for _ in range(n_kv):
        r.text()
        r.value(r.take("I")[0])
    table = []
    for _ in range(n_tensors):
        name = r.text()
        dims = list(r.take("%dQ" % r.take("I")[0]))
        table.append((name, dims) + r.take("IQ"))
    begin = (r.file.tell() + 31) // 32 * 32
    for name, dims, kind, at in table:
        if name not in pairs:
            continue
        assert kind == TYPE_ID["f32"], name
        rank, a, b = pairs[name]
        columns, rows = dims[0], dims[1]
        for e in range(dims[2] if len(dims) > 2 else 1):
            change = product(a[e * rank * columns:], b[e * rank * rows:], columns, rank, rows, alpha / rank)
            place = begin + at + 4 * e * rows * columns
            old = struct.unpack_from("<%df" % (rows * columns), data, place)
            struct.pack_into("<%df" % (rows * columns), data, place, *(x + y for x, y in zip(old, change)))
    with open(out, "wb") as file:
        file.write(data)


def floats(model, i):
    _, _, kind, data = model.tensors[i]
    assert kind == "f32"
    return struct.unpack("<%df" % (len(data) // 4), data)


def add_pair(model, name, dims, rank, args, wrong):
    columns, rows, experts = dims[0], dims[1], dims[2:]
    a, b = [columns, rank] + experts, [rank, rows] + experts
    spread = columns ** -0.5, args.strength * rank ** -0.5
    if name == "token_embd.weight":  # looked up: transposed
        a, b = [rank, rows], [rank, columns]
    if wrong == "rows":
        b[1] += 1
    if wrong == "stack":
        a, b = a + [2], b + [2]
    if wrong == "ranks":
        b[0] += 1
    if wrong == "name":
        name = "blk.9999.attn_q.weight"
    if wrong == "order":
        a, b = b, a
    model.tensor(name + ".lora_a", a, spread=spread[0])
    if wrong != "half":
        model.tensor(name + ".lora_b", b, spread=spread[1])
    if wrong in ("nan", "inf"):
        spoil(model, -2 if wrong == "nan" else -1, float(wrong))


def spoil(model, i, number):
    """The tensor's last number but one becomes another."""
    name, dims, kind, data = model.tensors[i]
    assert kind in ("f32", "f16")
    form = "<f" if kind == "f32" else "<e"
    size = struct.calcsize(form)
    model.tensors[i] = (name, dims, kind, data[:-2 * size] + struct.pack(form, number) + data[-size:])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("base")
    parser.add_argument("out")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rank", type=int, default=4)
    parser.add_argument("--alpha", type=float, default=8.0)
    parser.add_argument("--type", choices=sorted(TYPE_ID), default="f32")
    parser.add_argument("--strength", type=float, default=0.5)
    parser.add_argument("--only", default=r"\.(attn_(q|k|v|output)|ffn_(gate|up|down)(_exps)?)\.weight$")
    parser.add_argument("--but", choices=KINDS)
    parser.add_argument("--merged")
    args = parser.parse_args()

    arch, tensors = read_base(args.base)
    model = Model("gemma" if args.but == "arch" else arch, args.seed, args.type)
    model.put("general.name", STRING, "tiny adapter %d" % args.seed)
    model.put("general.type", STRING, "model" if args.but == "general" else "adapter")
    model.put("adapter.type", STRING, "dora" if args.but == "kind" else "lora")
    if args.but == "alpha":
        model.put("adapter.lora.alpha", BOOL, 1)
    else:
        model.put("adapter.lora.alpha", F32, args.alpha)
    if args.but == "alora":
        model.put("adapter.alora.invocation_tokens", U32, [1, 2, 3])
    chosen = [(n, d) for n, d in tensors if len(d) > 1 and re.search(args.only, n)]
    if args.but == "embd":
        chosen += [(n, d) for n, d in tensors if n == "token_embd.weight"]
    assert chosen, "no weight matches"
    if args.but == "empty":
        chosen = []
    for i, (name, dims) in enumerate(chosen):
        add_pair(model, name, dims, args.rank, args, args.but if i == len(chosen) - 1 else None)
    if args.but == "type":  # Q4_0: blocks of 32 numbers, 18 bytes each
        name, dims, _, _ = model.tensors[0]
        TYPE_ID["q4_0"] = 2
        count = 1
        for dim in dims:
            count *= dim
        model.tensors[0] = (name, dims, "q4_0", bytes(count // 32 * 18))
    model.write(args.out)
    if args.merged:
        pairs = {n: (args.rank, floats(model, 2 * i), floats(model, 2 * i + 1)) for i, (n, _) in enumerate(chosen)}
        write_merged(args.base, args.merged, pairs, args.alpha)


if __name__ == "__main__":
    sys.exit(main())
