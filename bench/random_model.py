#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A llama of an ordinary width with random weights, for measurements of speed at shapes that the default model does not have.

usage: random_model.py OUT.gguf [whole]

2,048 wide, 32 heads of which 8 have keys and values. Without `whole` 4 layers, 5,632 wide between, and the vocabulary of
scripts/tiny_gguf.py; with it 16 layers, 8,192 wide between, and as many tokens as the default model has, most of them unused: 1.2 GB.
Matrices are random blocks of Q8_0, from which `weir quantize --requantize` makes other formats. The file has the same bytes each time."""
import pathlib
import struct
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "scripts"))
import tiny_gguf  # noqa: E402

BLOCK = 32  # numbers of Q8_0 that share a scale
DEVIATION = 256 / 12 ** 0.5  # of the bytes, which are uniform


class Wide(tiny_gguf.Shape):
    layers, embd, ff, heads, kv_heads, vocab, context = 4, 2048, 5632, 32, 8, 512, 4096
    small, head = False, embd // heads

    def __init__(self):
        pass


class Whole(Wide):
    layers, ff, vocab, context = 16, 8192, 49152, 16384


class Quick(tiny_gguf.Model):
    """Matrices get whole blocks of random bytes and one scale, which is what makes it quick."""

    def tensor(self, name, dims, fill=None, spread=None, numbers=None):
        if fill is not None or numbers is not None or len(dims) == 1:
            return super().tensor(name, dims, fill, spread, numbers)
        rows = dims[0] * dims[1] // BLOCK
        blocks = bytearray(self.random.randbytes(rows * (2 + BLOCK)))
        scale = struct.pack("<e", (dims[0] ** -0.5 if spread is None else spread) / DEVIATION)
        for i in (0, 1):
            blocks[i::2 + BLOCK] = scale[i:i + 1] * rows
        self.tensors.append((name, dims, "q8_0", bytes(blocks)))


def main():
    model = Quick("llama", 1, "q8_0")
    model.put("general.name", tiny_gguf.STRING, "random, width 2048")
    tiny_gguf.make_decoder("llama", model, Whole() if sys.argv[2:] == ["whole"] else Wide())
    model.write(sys.argv[1])


if __name__ == "__main__":
    main()
