#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A model with random weights, for measurements of speed at shapes that the default model does not have.

usage: random_model.py OUT.gguf [whole|hybrid|window] [VOCABULARY.gguf]

A llama 2,048 wide, 32 heads of which 8 have keys and values, 4 layers, 5,632 wide between, and the vocabulary of
scripts/tiny_gguf.py; with `whole` 16 layers, 8,192 wide between, and as many tokens as the default model has, most of them unused:
1.2 GB. `hybrid` has the shape of Qwen3.5 0.8B: 24 layers, 1,024 wide, of which every fourth attends and the others have gated delta
nets; 0.6 GB. `window` has that of Gemma 3 270M: 18 layers, 640 wide, of which every sixth attends to all tokens and the others to
512. With VOCABULARY.gguf it has the tokens and the chat template of that file: then almost every token of an answer has a text.
Matrices are random blocks of Q8_0, from which `weir quantize --requantize` makes other formats. The file has the same bytes each
time."""
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
}


class Quick(tiny_gguf.Model):
    """Matrices get whole blocks of random bytes and one scale, which is quick."""

    def tensor(self, name, dims, fill=None, spread=None, numbers=None):
        if fill is not None or numbers is not None or len(dims) == 1 or dims[0] % BLOCK != 0:
            return super().tensor(name, dims, fill, spread, numbers)
        rows = dims[0] * dims[1] // BLOCK
        blocks = bytearray(self.random.randbytes(rows * (2 + BLOCK)))
        scale = struct.pack("<e", (dims[0] ** -0.5 if spread is None else spread) / DEVIATION)
        for i in (0, 1):
            blocks[i::2 + BLOCK] = scale[i:i + 1] * rows
        self.tensors.append((name, dims, "q8_0", bytes(blocks)))


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
    shape = shape_of()
    model = Quick(architecture, 1, "q8_0")
    model.put("general.name", tiny_gguf.STRING, f"random, width {shape.embd}")
    keys = {name: key for name, key in Metadata(words[0]).keys.items() if name.startswith("tokenizer.")} if words else {}
    if words:
        shape.vocab = keys["tokenizer.ggml.tokens"][1]
    make(model, shape)
    if words:
        model.kv = [kv for kv in model.kv if not kv[8:].startswith(b"tokenizer.")] + [kv for kv, _ in keys.values()]
    model.write(path)


if __name__ == "__main__":
    main()
