#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The first layers of a model as a model of its own: the same vocabulary, widths, heads, formats and weights, for a part of the time.

usage: first_layers.py MODEL.gguf LAYERS OUT.gguf"""
import pathlib
import struct
import sys

from random_model import Metadata
from tiny_gguf import U32, pad, string, value

COUNT = ".block_count"


def names_of(meta, n_tensors):
    """Name, the rest of the description without the offset, and the offset of each tensor."""
    for _ in range(n_tensors):
        start = meta.at + 8
        meta.at = start - 8
        name = meta.bytes[start:start + meta.skip_string()].decode()
        rest = meta.at
        n_dims = meta.number("<I")
        meta.at += 8 * n_dims + 4
        yield name, meta.bytes[rest:meta.at], meta.number("<Q")


def stays(name, layers):
    return not name.startswith("blk.") or int(name.split(".")[1]) < layers


def shorten(source, layers, out):
    meta = Metadata(source)
    tensors = list(names_of(meta, struct.unpack_from("<Q", meta.bytes, 8)[0]))
    first = len(pad(bytes(meta.at)))
    ends = dict(zip(sorted(t[2] for t in tensors), [*sorted(t[2] for t in tensors)[1:], None]))
    kept = [t for t in tensors if stays(t[0], layers)]
    keys = [string(name) + struct.pack("<I", U32) + value(U32, layers) if name.endswith(COUNT) else key for name, (key, _) in meta.keys.items()]
    with open(source, "rb") as file, open(out, "wb") as short:
        def data(offset):
            file.seek(first + offset)
            return pad(file.read(ends[offset] - offset if ends[offset] is not None else -1))
        head, offset = struct.pack("<4sIQQ", b"GGUF", 3, len(kept), len(keys)) + b"".join(keys), 0
        for name, rest, old in kept:
            head += string(name) + rest + struct.pack("<Q", offset)
            offset += len(data(old))
        short.write(pad(head))
        for _, _, old in kept:
            short.write(data(old))


if __name__ == "__main__":
    shorten(pathlib.Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
