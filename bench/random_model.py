#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A model with random weights, for measurements of speed at shapes that the default model does not have.

usage: random_model.py OUT.gguf [whole|hybrid|window|8b|experts] [q8_0|q4_k_m] [VOCABULARY.gguf]

A llama 2,048 wide, 32 heads of which 8 have keys and values, 4 layers, 5,632 wide between, and the vocabulary of
scripts/tiny_gguf.py; with `whole` 16 layers, 8,192 wide between, and as many tokens as the default model has, most of them unused:
1.2 GB. `hybrid` has the shape of Qwen3.5 0.8B: 24 layers, 1,024 wide, of which every fourth attends and the others have gated delta
nets; 0.6 GB. `window` has that of Gemma 3 270M: 18 layers, 640 wide, of which every sixth attends to all tokens and the others to
512. `8b` has the shape of Llama 3.1 8B: 32 layers, 4,096 wide; 4.9 GB in Q4_K_M. `experts` has 24 layers, 2,048 wide, each with 64
experts, of which a token takes 8; 5.6 GB. With VOCABULARY.gguf it has the tokens and the chat template of that file: then almost every
token of an answer has a text. Matrices are random blocks of Q8_0, from which `weir quantize --requantize` makes other formats; with
`q4_k_m` of Q4_K and Q6_K, in the places that llama.cpp gives them. All matrices repeat the same blocks, so that a file is written as fast
as the disk takes it. The file has the same bytes each time."""
import math
import pathlib
import struct
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "scripts"))
import tiny_gguf  # noqa: E402

BLOCK = 32  # numbers of Q8_0 that share a scale
TEMPLATE = 1 << 24  # bytes of the blocks that are repeated


class Format:
    """Blocks of random bytes but for their scales. `scales`: (offset of an F16, factor) of each; the factors make numbers of
    deviation 1 and mean 0."""

    def __init__(self, kind, numbers, size, scales):
        self.kind, self.numbers, self.size, self.scales = kind, numbers, size, scales

    def blocks(self, random, spread):
        count = TEMPLATE // self.size
        out = bytearray(random.randbytes(count * self.size))
        for at, factor in self.scales:
            scale = struct.pack("<e", spread * factor)
            for i in (0, 1):
                out[at + i::self.size] = scale[i:i + 1] * count
        return bytes(out)


# Q4_K: a scale of 6 bits times a number of 0 to 15, less a minimum of 6 bits, whose factor is 7.5 times as large: 7.5 is the mean number.
# Q6_K: a scale of 8 bits times a number of -32 to 31.
FORMATS = {
    "q8_0": Format(8, 32, 34, [(0, 12 ** 0.5 / 256)]),
    "q4_k": Format(12, 256, 144, [(0, 1 / 258), (2, 7.5 / 258)]),
    "q6_k": Format(14, 256, 210, [(208, 1 / 1367)]),
}
tiny_gguf.TYPE_ID |= {name: format_.kind for name, format_ in FORMATS.items()}


class Wide(tiny_gguf.Shape):
    layers, embd, ff, heads, kv_heads, vocab, context = 4, 2048, 5632, 32, 8, 512, 4096
    small, head, experts, used = False, embd // heads, 0, 0

    def __init__(self):
        pass


class Whole(Wide):
    layers, ff, vocab, context = 16, 8192, 49152, 16384


class Eight(Wide):
    """Llama 3.1 8B's, but for the vocabulary."""
    layers, embd, ff, heads, kv_heads, vocab, context = 32, 4096, 14336, 32, 8, 128256, 16384
    head = 128


class Experts(Wide):
    layers, ff, heads, kv_heads, vocab, context, experts, used = 24, 1024, 32, 4, 49152, 16384, 64, 8


class Hybrid(Wide):
    """Qwen3.5 0.8B's, but for the vocabulary."""
    layers, embd, ff, heads, kv_heads, vocab, context = 24, 1024, 3584, 8, 2, 49152, 16384
    head, state, groups, rank, every = 256, 128, 16, 16, 4


class Window(Wide):
    """Gemma 3 270M's, but for the vocabulary."""
    layers, embd, ff, heads, kv_heads, vocab, context = 18, 640, 2048, 4, 1, 512, 32768
    head, window = 256, 512


def make_window(model, s):
    for name, number in (("context_length", s.context), ("embedding_length", s.embd), ("block_count", s.layers), ("feed_forward_length", s.ff),
                         ("attention.head_count", s.heads), ("attention.head_count_kv", s.kv_heads), ("attention.key_length", s.head),
                         ("attention.value_length", s.head), ("attention.sliding_window", s.window)):
        model.put("." + name, tiny_gguf.U32, number)
    model.put(".attention.layer_norm_rms_epsilon", tiny_gguf.F32, 1e-6)
    model.put(".rope.freq_base", tiny_gguf.F32, 1e6)
    tiny_gguf.put_bpe(model, 512, False)
    model.tensor("token_embd.weight", [s.embd, s.vocab], spread=0.02)
    model.tensor("output_norm.weight", [s.embd], fill=1.0)
    for i in range(s.layers):
        for name in ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm"):
            model.tensor(f"blk.{i}.{name}.weight", [s.embd], fill=1.0)
        for name, dims in (("ffn_gate", [s.embd, s.ff]), ("ffn_up", [s.embd, s.ff]), ("ffn_down", [s.ff, s.embd]), ("attn_q", [s.embd, s.head * s.heads]),
                           ("attn_k", [s.embd, s.head * s.kv_heads]), ("attn_v", [s.embd, s.head * s.kv_heads]), ("attn_output", [s.head * s.heads, s.embd])):
            model.tensor(f"blk.{i}.{name}.weight", dims)
        for name in ("attn_q_norm", "attn_k_norm"):
            model.tensor(f"blk.{i}.{name}.weight", [s.head], fill=1.0)


# The shape, llama.cpp's name of the architecture, and what writes the model.
KINDS = {
    "": (Wide, "llama", lambda model, shape: tiny_gguf.make_decoder("llama", model, shape)),
    "whole": (Whole, "llama", lambda model, shape: tiny_gguf.make_decoder("llama", model, shape)),
    "hybrid": (Hybrid, "qwen35", lambda model, shape: tiny_gguf.make_hybrid("delta", model, shape)),
    "window": (Window, "gemma3", make_window),
    "8b": (Eight, "llama", lambda model, shape: tiny_gguf.make_decoder("llama", model, shape)),
    "experts": (Experts, "llama", lambda model, shape: tiny_gguf.make_decoder("moe", model, shape)),
}


class Repeated:
    """Pieces of `size` bytes in all: the blocks again and again, at first from `start` on."""

    def __init__(self, blocks, start, size):
        self.blocks, self.start, self.size = blocks, start, size

    def __len__(self):
        return self.size

    def __iter__(self):
        left, at = self.size, self.start
        while left > 0:
            piece = memoryview(self.blocks)[at:at + left]
            yield piece
            left, at = left - len(piece), 0


class Quick(tiny_gguf.Model):
    """Matrices get whole blocks of random bytes."""

    def __init__(self, arch, mix, layers):
        super().__init__(arch, 1, "q8_0")
        self.mix, self.layers, self.made, self.turns = mix, layers, {}, 0

    def format_of(self, name, dims):
        if self.mix == "q8_0" or dims[0] % 256 != 0:
            return "q8_0"
        if name == "output.weight":
            return "q6_k"
        if "attn_v." in name or "ffn_down" in name:
            i, eighth = int(name.split(".")[1]), self.layers // 8
            return "q6_k" if i < eighth or i >= 7 * self.layers // 8 or (i - eighth) % 3 == 2 else "q4_k"
        return "q4_k"

    def tensor(self, name, dims, fill=None, spread=None, numbers=None):
        if fill is not None or numbers is not None or len(dims) == 1 or dims[0] % BLOCK != 0 or name.endswith("ffn_gate_inp.weight"):
            return super().tensor(name, dims, fill, spread, numbers)
        kind = self.format_of(name, dims)
        form, key = FORMATS[kind], (kind, dims[0] ** -0.5 if spread is None else spread)
        if key not in self.made:
            self.made[key] = form.blocks(self.random, key[1])
        count = len(self.made[key]) // form.size
        self.turns += 1
        size = math.prod(dims) // form.numbers * form.size
        self.tensors.append((name, dims, kind, Repeated(self.made[key], self.turns * 7919 % count * form.size, size)))


class Metadata:
    """The keys of a GGUF file: their names, values as bytes, and of arrays the number of elements."""

    def __init__(self, path):
        with open(path, "rb") as file:
            self.bytes = file.read(64 << 20)  # no vocabulary is longer
        self.at, self.keys = 16, {}
        for _ in range(self.number("<Q")):
            start = self.at
            name = self.bytes[self.at + 8:self.at + 8 + self.skip_string()].decode()
            count = self.skip(self.number("<I"))
            self.keys[name] = self.bytes[start:self.at], count

    def number(self, form):
        self.at += struct.calcsize(form)
        return struct.unpack_from(form, self.bytes, self.at - struct.calcsize(form))[0]

    def skip_string(self):
        n = self.number("<Q")
        self.at += n
        return n

    def skip(self, kind):
        if kind == tiny_gguf.STRING:
            return self.skip_string()
        if kind == tiny_gguf.ARRAY:
            kind, count = self.number("<I"), self.number("<Q")
            for _ in range(count):
                self.skip(kind)
            return count
        self.at += (1, 1, 2, 2, 4, 4, 4, 1, None, None, 8, 8, 8)[kind]
        return 1


def main():
    path, words = sys.argv[1], sys.argv[2:]
    shape_of, architecture, make = KINDS[words.pop(0) if words and words[0] in KINDS else ""]
    mix = words.pop(0) if words and words[0] in ("q8_0", "q4_k_m") else "q8_0"
    shape = shape_of()
    model = Quick(architecture, mix, shape.layers)
    model.put("general.name", tiny_gguf.STRING, f"random, width {shape.embd}")
    model.put("general.file_type", tiny_gguf.U32, {"q8_0": 7, "q4_k_m": 15}[mix])
    keys = {name: key for name, key in Metadata(words[0]).keys.items() if name.startswith("tokenizer.")} if words else {}
    if words:
        shape.vocab = keys["tokenizer.ggml.tokens"][1]
    make(model, shape)
    if words:
        model.kv = [kv for kv in model.kv if not kv[8:].startswith(b"tokenizer.")] + [kv for kv, _ in keys.values()]
    model.write(path)


if __name__ == "__main__":
    main()
