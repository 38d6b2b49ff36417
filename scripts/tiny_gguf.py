#!/usr/bin/env python3
# tiny_gguf.py: writes tiny GGUF models with random weights, for tests that need a real model file.
# SPDX-License-Identifier: Apache-2.0
"""Usage: tiny_gguf.py KIND OUT [--seed N] [--type f32|f16|q8_0] [--pooling mean|cls|last] [--small|--wide]
       [--chain NOISE] [--guess token|state] [--taps A,B,C] [--d2t whole|bad] [--own N] [--layers N] [--context N]
       [--stripped] [--template TEXT] [--tool-template TEXT]

KIND  llama  dense transformer; byte-level BPE, 512 tokens, ChatML template
      moe    the same with 4 experts, 2 of them used
      swa    gemma3: one layer with a sliding window of 32 tokens, one with full attention
      qwen   qwen2vl: positions of images have rows and columns (M-RoPE)
      mamba  recurrent: its memory cannot be cut at any position
      jamba  hybrid: one such layer, one with attention
      mamba2 recurrent, of the second kind
      delta  qwen35, hybrid: one layer with a gated delta net, one with attention
      lfm    lfm2, hybrid: one layer with a short convolution, one with attention
      bert   embeddings; WordPiece vocabulary
      rank   bert with a classifier: one score per text
      glm    glm4moe, with a layer that guesses one token more (MTP)
      hy     hy_v3, with such a layer, without experts
      mla    deepseek2, with such a layer
      eagle  an EAGLE-3 head for `llama` of the same seed; it has neither embeddings nor, mostly, an output of its own

All have 2 layers (decoders: --layers), 64 dimensions and a context of 2,048 tokens (--context), so a file is 0.1 to
1.6 MB. The same arguments give the same bytes. --type is that of the matrices (vectors are always F32). --small shrinks everything below 4 KB: the model still
loads, but has no tokens for most texts. --wide makes decoders of 256 dimensions and 8 experts, into which every
quantized format fits.

--chain makes decoders whose next token is a function of the last one, as far as NOISE allows (0: always; 1: what comes
before the last token changes some). No token but the special ones comes twice before all others. --guess makes a head
for those of NOISE 0 that is always right, by the token that it gets alone, or, for one token, by the state alone.
--stripped: the layer that guesses is announced and not there. --taps: the layers that the EAGLE-3 head reads. --d2t: it
numbers tokens in its own way; bad: one does not exist. --own: it has its own embeddings, of this many tokens.
--template: the chat template in place of ChatML, "" for none; --tool-template: a second one, for tools.
"""
import argparse
import random
import struct
import sys
from collections import Counter

U32, I32, F32, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9
TYPE_ID = {"f32": 0, "f16": 1, "q8_0": 8, "i64": 27}
ALIGNMENT = 32

# What the merges and the word list are learned from: plain English, so that English prompts make short sequences.
TEXT = """
The ship left the harbour in the morning and the wind was with her. There was nothing to be seen but the water and
the sky, and the men were singing as they worked. Some of them had been at sea for ten years or more; others had
never been on a ship before. When the sun went down they lit the lamps and told stories about the places they had
seen. What is the answer to the question? I think that you are right, but we should look at it again. One, two,
three, four, five, six, seven, eight, nine, ten. Please write a short text about the weather in the mountains. It is
cold there in winter, and the snow stays until spring. The people who live there know how to build houses that keep
them warm. They make bread, cheese and wine, and they sell what they do not need. Which of these would you like to
have? Thank you for your help; that was very kind of you. How many words are there in this sentence? Once upon a time
there was a king who had three daughters, and each of them was more beautiful than the other. Can you tell me where
the station is? Go straight on and then turn left at the second street. He said that he would come back later.
"""

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


# ---- Container ------------------------------------------------------------------------------------------

def string(text):
    data = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(data)) + data


def value(kind, item):
    if kind == STRING:
        return string(item)
    return struct.pack({U32: "<I", I32: "<i", F32: "<f", BOOL: "<B"}[kind], item)


class Model:
    """Metadata in order, tensors in order; dimensions as GGUF counts them: row length first."""

    def __init__(self, arch, seed, matrix_type):
        self.arch = arch
        self.random = random.Random(seed)
        self.template, self.tool_template = CHATML, ""
        self.matrix_type = matrix_type
        self.kv = []
        self.tensors = []
        self.put("general.architecture", STRING, arch)

    def put(self, key, kind, item):
        """Adds one key; a list becomes an array; a key that begins with a dot belongs to the architecture."""
        key = self.arch + key if key.startswith(".") else key
        if isinstance(item, list):
            body = struct.pack("<IIQ", ARRAY, kind, len(item)) + b"".join(value(kind, x) for x in item)
        else:
            body = struct.pack("<I", kind) + value(kind, item)
        self.kv.append(string(key) + body)

    def tensor(self, name, dims, fill=None, spread=None, numbers=None, kind=None):
        """Adds a tensor: of these numbers, filled with one, or random with the given standard deviation (by default such
        that a row's product with a unit vector stays near 1)."""
        count = 1
        for dim in dims:
            count *= dim
        if numbers is not None:
            assert len(numbers) == count
        elif fill is not None:
            numbers = [fill] * count
        else:
            spread = spread if spread is not None else dims[0] ** -0.5
            numbers = [self.random.gauss(0.0, spread) for _ in range(count)]
        # llama.cpp computes with vectors and convolutions in F32 only; routers of experts are F32 in all files.
        plain = len(dims) == 1 or "ssm_conv" in name or "shortconv.conv" in name or name.endswith(
            ("ssm_a", "norm.weight", "token_types.weight", "ffn_gate_inp.weight"))
        kind = kind if kind is not None else "f32" if plain else self.matrix_type
        if kind == "q8_0" and dims[0] % 32 != 0:
            kind = "f32"
        self.tensors.append((name, dims, kind, encode(numbers, kind)))

    def write(self, path):
        out = struct.pack("<4sIQQ", b"GGUF", 3, len(self.tensors), len(self.kv)) + b"".join(self.kv)
        offset = 0
        for name, dims, kind, data in self.tensors:
            out += string(name) + struct.pack("<I%dQIQ" % len(dims), len(dims), *dims, TYPE_ID[kind], offset)
            offset += len(data) + -len(data) % ALIGNMENT
        with open(path, "wb") as file:
            file.write(pad(out))
            for _, _, _, data in self.tensors:
                file.writelines([data] if isinstance(data, (bytes, bytearray)) else data)  # or pieces of a large one
                file.write(bytes(-len(data) % ALIGNMENT))


def pad(data):
    return data + bytes(-len(data) % ALIGNMENT)


def encode(numbers, kind):
    if kind == "f32":
        return struct.pack("<%df" % len(numbers), *numbers)
    if kind == "i64":
        return struct.pack("<%dq" % len(numbers), *numbers)
    if kind == "f16":
        return struct.pack("<%de" % len(numbers), *numbers)
    out = []
    for i in range(0, len(numbers), 32):  # Q8_0: a half-precision scale and 32 int8
        block = numbers[i:i + 32]
        scale = struct.unpack("<e", struct.pack("<e", max(abs(x) for x in block) / 127))[0]
        quants = [max(-127, min(127, round(x / scale))) if scale else 0 for x in block]
        out.append(struct.pack("<e32b", scale, *quants))
    return b"".join(out)


# ---- Vocabularies ---------------------------------------------------------------------------------------

def byte_alphabet():
    """GPT-2's printable stand-ins for the 256 bytes."""
    printable = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    stand_in = {b: chr(b) for b in printable}
    spare = 256
    for b in range(256):
        if b not in stand_in:
            stand_in[b] = chr(spare)
            spare += 1
    return [stand_in[b] for b in range(256)]


def learn_merges(n):
    """The n most useful merges of TEXT, by plain byte-pair encoding; ties go to the pair that sorts first."""
    alphabet = byte_alphabet()
    words = Counter(("\u0120" + w) for w in TEXT.split())
    parts = {w: [alphabet[b] if c != "\u0120" else c for c in w for b in c.encode()[:1]] for w in words}
    merges = []
    while len(merges) < n:
        pairs = Counter()
        for word, times in words.items():
            for pair in zip(parts[word], parts[word][1:]):
                pairs[pair] += times
        if not pairs:
            break
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        merges.append(best)
        for word, seq in parts.items():
            i = 0
            while i + 1 < len(seq):
                if (seq[i], seq[i + 1]) == best:
                    seq[i:i + 2] = [seq[i] + seq[i + 1]]
                i += 1
    return merges


def put_bpe(model, n_vocab, small):
    specials = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    alphabet = byte_alphabet()
    letters = [alphabet[ord(c)] for c in "\n adehinorst"] if small else alphabet
    merges = learn_merges(n_vocab - len(specials) - len(letters)) if not small else [("t", "h"), ("th", "e")]
    tokens = specials + letters + [a + b for a, b in merges]
    n_used = len(tokens)
    tokens += ["[unused%d]" % i for i in range(0 if small else n_vocab - n_used)]
    assert len(set(tokens)) == len(tokens)
    model.put("tokenizer.ggml.model", STRING, "gpt2")
    model.put("tokenizer.ggml.pre", STRING, "gpt-2")
    model.put("tokenizer.ggml.tokens", STRING, tokens)
    model.put("tokenizer.ggml.token_type", I32, [3] * len(specials) + [1] * (n_used - len(specials)) + [5] * (len(tokens) - n_used))
    model.put("tokenizer.ggml.merges", STRING, [a + " " + b for a, b in merges])
    model.put("tokenizer.ggml.bos_token_id", U32, 1)
    model.put("tokenizer.ggml.eos_token_id", U32, 2)
    model.put("tokenizer.ggml.padding_token_id", U32, 0)
    model.put("tokenizer.ggml.add_bos_token", BOOL, 0)
    if not small:
        if model.template:
            model.put("tokenizer.chat_template", STRING, model.template)
        if model.tool_template:
            model.put("tokenizer.chat_template.tool_use", STRING, model.tool_template)
    return len(tokens)


def put_wordpiece(model, n_vocab, small):
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    letters = list("aeost") if small else [chr(c) for c in range(33, 127) if not chr(c).isupper()]
    # llama.cpp's form: a word's first piece begins with U+2581, the others have no mark.
    tokens = specials + ["\u2581" + c for c in letters] + letters
    if not small:
        clean = "".join(c.lower() if c.isalpha() else " " for c in TEXT)
        for word, _ in sorted(Counter(clean.split()).items(), key=lambda item: (-item[1], item[0])):
            if len(word) > 1 and len(tokens) < n_vocab:
                tokens.append("\u2581" + word)
        for i in range(n_vocab - len(tokens)):
            tokens.append("[unused%d]" % i)
    model.put("tokenizer.ggml.model", STRING, "bert")
    model.put("tokenizer.ggml.pre", STRING, "default")
    model.put("tokenizer.ggml.tokens", STRING, tokens)
    model.put("tokenizer.ggml.token_type", I32, [3] * len(specials) + [1] * (len(tokens) - len(specials)))
    model.put("tokenizer.ggml.token_type_count", U32, 2)
    for key, token in (("padding", 0), ("unknown", 1), ("bos", 2), ("seperator", 3), ("mask", 4)):
        model.put("tokenizer.ggml.%s_token_id" % key, U32, token)
    return len(tokens)


# ---- Architectures --------------------------------------------------------------------------------------

class Shape:
    def __init__(self, small, wide):
        self.small = small
        self.layers = 1 if small else 2
        self.embd = 4 if small else 256 if wide else 64
        self.ff = 4 if small else 256 if wide else 128
        self.experts, self.used = 8 if wide else 4, 2
        self.heads = 2 if small else 4
        self.kv_heads = 1 if small else 2
        self.head = self.embd // self.heads
        self.vocab = 512
        self.context = 16 if small else 2048
        self.state, self.groups, self.rank, self.every = 16, 4, 16, 2  # of hybrids: each `every`-th layer attends


class Chain:
    """Embeddings of tokens, and which follows which: the same for a model and its head."""

    def __init__(self, seed, n_vocab, n_embd):
        rng = random.Random("chain %d" % seed)
        self.embd = [[rng.gauss(0.0, 1.0) for _ in range(n_embd)] for _ in range(n_vocab)]
        order = list(range(3, n_vocab))
        rng.shuffle(order)
        self.before = {order[i]: order[i - 1] for i in range(len(order))}

    def embeddings(self):
        return [x for row in self.embd for x in row]

    def output(self, steps, tokens=None):
        """Rows that find the token a number of steps after the one whose embedding they get."""
        out = []
        for token in tokens if tokens is not None else range(len(self.embd)):
            for _ in range(steps):
                token = self.before.get(token)
            out += [0.4 * x for x in self.embd[token]] if token is not None else [0.0] * len(self.embd[0])
        return out


def picks(n_in, n_out, first, factor=1.0):
    """A matrix whose outputs are its inputs from `first` on."""
    return [factor if column == first + row else 0.0 for row in range(n_out) for column in range(n_in)]


def make_decoder(kind, model, s, chain=None, noise=0.0, guess=None, stripped=False):
    gemma, glm, hy, mla = kind == "swa", kind == "glm", kind == "hy", kind == "mla"
    mtp, shared = glm or hy or mla, glm or mla
    rank, rotated, head = (32, 16, 32) if mla else (0, s.head, s.head)  # head: before it is compressed
    model.put(".context_length", U32, s.context)
    model.put(".embedding_length", U32, s.embd)
    model.put(".block_count", U32, s.layers + mtp)
    model.put(".feed_forward_length", U32, s.ff)
    model.put(".attention.head_count", U32, s.heads)
    model.put(".attention.head_count_kv", U32, 1 if mla else s.kv_heads)
    model.put(".attention.key_length", U32, rank + rotated)
    model.put(".attention.value_length", U32, rank or s.head)
    model.put(".attention.layer_norm_rms_epsilon", F32, 1e-5)
    model.put(".rope.dimension_count", U32, rotated)
    model.put(".rope.freq_base", F32, 10000.0)
    if mla:
        model.put(".attention.key_length_mla", U32, head)
        model.put(".attention.value_length_mla", U32, s.head)
        model.put(".attention.q_lora_rank", U32, rank)
        model.put(".attention.kv_lora_rank", U32, rank)
    if gemma:
        model.put(".attention.sliding_window", U32, 32)
        model.put(".attention.sliding_window_pattern", U32, 2)
    if kind == "qwen":
        model.put(".rope.dimension_sections", I32, [s.head // 8, 3 * s.head // 16, 3 * s.head // 16, 0])
    if kind == "moe" or shared:
        model.put(".expert_count", U32, s.experts)
        model.put(".expert_used_count", U32, s.used)
    if shared:
        model.put(".expert_shared_count", U32, 1)
        model.put(".expert_gating_func", U32, 2)
        model.put(".expert_weights_scale", F32, 1.0)
        model.put(".leading_dense_block_count", U32, 1)
    if mtp:
        model.put(".expert_feed_forward_length", U32, s.ff)
        model.put(".nextn_predict_layers", U32, 1)
    vocab = put_bpe(model, s.vocab, s.small)

    model.tensor("token_embd.weight", [s.embd, vocab], spread=1.0, numbers=chain and chain.embeddings())
    if not gemma:
        model.tensor("output.weight", [s.embd, vocab], spread=0.4, numbers=chain and chain.output(1))
    model.tensor("output_norm.weight", [s.embd], fill=1.0)
    for i in range(s.layers + (mtp and not stripped)):
        ahead = i == s.layers
        def t(name, dims, **how):
            model.tensor("blk.%d.%s.weight" % (i, name), dims, **how)
        def back(name, dims):  # into the residual stream
            loud = 0.0 if ahead and guess else noise if chain else 1.0
            t(name, dims, fill=0.0 if loud == 0 else None, spread=loud * dims[0] ** -0.5)
        t("attn_norm", [s.embd], fill=1.0)
        if mla:
            t("attn_q_a", [s.embd, rank])
            t("attn_q_a_norm", [rank], fill=1.0)
            t("attn_q_b", [rank, head * s.heads])
            t("attn_kv_a_mqa", [s.embd, rank + rotated])
            t("attn_kv_a_norm", [rank], fill=1.0)
            t("attn_k_b", [head - rotated, rank, s.heads])
            t("attn_v_b", [rank, s.head, s.heads])
        else:
            t("attn_q", [s.embd, s.head * s.heads])
            t("attn_k", [s.embd, s.head * s.kv_heads])
            t("attn_v", [s.embd, s.head * s.kv_heads])
        back("attn_output", [s.head * s.heads, s.embd])
        t("post_attention_norm" if glm else "ffn_norm", [s.embd], fill=1.0)
        if gemma or hy:
            t("attn_q_norm", [s.head], fill=1.0)
            t("attn_k_norm", [s.head], fill=1.0)
        if gemma:
            t("post_attention_norm", [s.embd], fill=1.0)
            t("post_ffw_norm", [s.embd], fill=1.0)
        moe = kind == "moe" or (shared and i > 0)
        experts = [s.experts] if moe else []
        suffix = "_exps" if moe else ""
        if moe:
            t("ffn_gate_inp", [s.embd, s.experts])
        t("ffn_gate" + suffix, [s.embd, s.ff] + experts)
        back("ffn_down" + suffix, [s.ff, s.embd] + experts)
        t("ffn_up" + suffix, [s.embd, s.ff] + experts)
        if shared and moe:
            model.tensor("blk.%d.exp_probs_b.bias" % i, [s.experts], fill=0.0)
            t("ffn_gate_shexp", [s.embd, s.ff])
            back("ffn_down_shexp", [s.ff, s.embd])
            t("ffn_up_shexp", [s.embd, s.ff])
        if ahead:
            part = {"token": 0, "state": s.embd}.get(guess)
            t("nextn.eh_proj", [2 * s.embd, s.embd],
              numbers=picks(2 * s.embd, s.embd, part) if guess else None)
            t("nextn.enorm", [s.embd], fill=1.0)
            t("nextn.hnorm", [s.embd], fill=1.0)
            t("nextn.shared_head_norm", [s.embd], fill=1.0)
            if guess == "state":
                t("nextn.shared_head_head", [s.embd, vocab], numbers=chain.output(2))


def make_eagle(model, s, chain, guess, taps, d2t, own):
    model.put(".context_length", U32, s.context)
    model.put(".embedding_length", U32, s.embd)
    model.put(".block_count", U32, 1)
    model.put(".feed_forward_length", U32, s.ff)
    model.put(".attention.head_count", U32, s.heads)
    model.put(".attention.head_count_kv", U32, s.heads)
    model.put(".attention.key_length", U32, s.head)
    model.put(".attention.value_length", U32, s.head)
    model.put(".attention.layer_norm_rms_epsilon", F32, 1e-5)
    model.put(".rope.dimension_count", U32, s.head)
    model.put(".rope.freq_base", F32, 10000.0)
    model.put(".target_layers", I32, taps)
    model.put(".target_hidden_size", U32, s.embd)
    model.put(".norm_before_residual", BOOL, 1)
    vocab = put_bpe(model, s.vocab, s.small)

    def t(name, dims, **how):
        model.tensor(name + ".weight", dims, **how)
    tokens = list(reversed(range(vocab)))
    if d2t:
        if d2t == "bad":
            tokens[7] = vocab
        model.tensor("d2t", [vocab], numbers=tokens, kind="i64")
    t("fc", [3 * s.embd, s.embd], numbers=picks(3 * s.embd, s.embd, 0) if guess else None)
    t("output_norm", [s.embd], fill=1.0)
    if d2t and guess:
        t("output", [s.embd, vocab], numbers=chain.output(1 if guess == "token" else 2, tokens))
    elif d2t or guess == "state":
        t("output", [s.embd, vocab], spread=0.4, numbers=chain.output(2) if guess else None)
    t("blk.0.attn_norm", [s.embd], fill=1.0)
    t("blk.0.attn_norm_2", [s.embd], fill=1.0)
    if own:
        t("token_embd", [s.embd, own], spread=1.0)
    # A token attends to itself: nothing is more like it, where its position is the same.
    width = s.head * s.heads
    t("blk.0.attn_q", [2 * s.embd, width], numbers=picks(2 * s.embd, width, 0, 4.0) if guess else None)
    t("blk.0.attn_k", [2 * s.embd, width], numbers=picks(2 * s.embd, width, 0, 4.0) if guess else None)
    loud = 4.0 if guess == "token" else 0.0
    t("blk.0.attn_v", [2 * s.embd, width], numbers=picks(2 * s.embd, width, 0, loud) if guess else None)
    t("blk.0.attn_output", [width, s.embd], numbers=picks(width, s.embd, 0) if guess else None)
    t("blk.0.ffn_norm", [s.embd], fill=1.0)
    t("blk.0.ffn_gate", [s.embd, s.ff])
    t("blk.0.ffn_down", [s.ff, s.embd], fill=0.0 if guess else None)
    t("blk.0.ffn_up", [s.embd, s.ff])


def put_sizes(model, s, ff, heads):
    model.put(".context_length", U32, s.context)
    model.put(".embedding_length", U32, s.embd)
    model.put(".feed_forward_length", U32, ff)
    model.put(".attention.head_count", U32, heads)
    model.put(".block_count", U32, s.layers)


def put_ssm(model, conv, inner, state, rank, groups=None):
    model.put(".ssm.conv_kernel", U32, conv)
    model.put(".ssm.inner_size", U32, inner)
    model.put(".ssm.state_size", U32, state)
    model.put(".ssm.time_step_rank", U32, rank)
    if groups:
        model.put(".ssm.group_count", U32, groups)


def put_embeddings(model, s, norm="output_norm"):
    vocab = put_bpe(model, s.vocab, s.small)
    model.tensor("token_embd.weight", [s.embd, vocab], spread=1.0)
    model.tensor("output.weight", [s.embd, vocab], spread=0.4)
    model.tensor(norm + ".weight", [s.embd], fill=1.0)


def make_mamba(kind, model, s):
    inner, state, rank, conv = 2 * s.embd, 2 if s.small else 16, 2 if s.small else s.embd // 16, 4
    hybrid = kind == "jamba"
    put_sizes(model, s, s.ff if hybrid else 0, s.heads if hybrid else 0)
    if hybrid:  # layers that attend are every other one
        model.put(".attention.head_count_kv", I32, [s.kv_heads if i % 2 == 1 else 0 for i in range(s.layers)])
    put_ssm(model, conv, inner, state, rank)
    model.put(".attention.layer_norm_rms_epsilon", F32, 1e-5)
    put_embeddings(model, s)
    for i in range(s.layers):
        def t(name, dims, **how):
            model.tensor("blk.%d.%s" % (i, name), dims, **how)
        t("attn_norm.weight", [s.embd], fill=1.0)
        if hybrid:
            t("ffn_norm.weight", [s.embd], fill=1.0)
            t("ffn_gate.weight", [s.embd, s.ff])
            t("ffn_down.weight", [s.ff, s.embd])
            t("ffn_up.weight", [s.embd, s.ff])
        if hybrid and i % 2 == 1:
            t("attn_q.weight", [s.embd, s.head * s.heads])
            t("attn_k.weight", [s.embd, s.head * s.kv_heads])
            t("attn_v.weight", [s.embd, s.head * s.kv_heads])
            t("attn_output.weight", [s.head * s.heads, s.embd])
            continue
        if hybrid:
            t("ssm_dt_norm.weight", [rank], fill=1.0)
            t("ssm_b_norm.weight", [state], fill=1.0)
            t("ssm_c_norm.weight", [state], fill=1.0)
        t("ssm_in.weight", [s.embd, 2 * inner])
        t("ssm_conv1d.weight", [conv, inner])
        t("ssm_conv1d.bias", [inner], fill=0.0)
        t("ssm_x.weight", [inner, rank + 2 * state])
        t("ssm_dt.weight", [rank, inner])
        t("ssm_dt.bias", [inner], fill=-2.0)
        t("ssm_a", [state, inner], fill=-1.0)  # negative: the state decays
        t("ssm_d", [inner], fill=1.0)
        t("ssm_out.weight", [inner, s.embd])


def make_mamba2(model, s):
    inner, state, rank, groups, conv = 2 * s.embd, 16, 16, 2, 4
    mixed = inner + 2 * groups * state
    put_sizes(model, s, 0, 0)
    put_ssm(model, conv, inner, state, rank, groups)
    model.put(".attention.layer_norm_rms_epsilon", F32, 1e-5)
    put_embeddings(model, s)
    for i in range(s.layers):
        def t(name, dims, **how):
            model.tensor("blk.%d.%s" % (i, name), dims, **how)
        t("attn_norm.weight", [s.embd], fill=1.0)
        t("ssm_in.weight", [s.embd, inner + mixed + rank])
        t("ssm_conv1d.weight", [conv, mixed])
        t("ssm_conv1d.bias", [mixed], fill=0.0)
        t("ssm_dt.bias", [rank], fill=-2.0)
        t("ssm_a", [1, rank], fill=-1.0)
        t("ssm_d", [1, rank], fill=1.0)
        t("ssm_norm.weight", [inner // groups, groups], fill=1.0)
        t("ssm_out.weight", [inner, s.embd])


def make_hybrid(kind, model, s):
    delta = kind == "delta"
    state, groups, rank, conv = s.state, s.groups, s.rank, 4 if delta else 3  # rank: heads of values
    attends = [(i + 1) % s.every == 0 for i in range(s.layers)]
    keys, values = state * groups, state * rank
    put_sizes(model, s, s.ff, s.heads)
    model.put(".attention.layer_norm_rms_epsilon", F32, 1e-5)
    model.put(".rope.freq_base", F32, 10000.0)
    if delta:
        model.put(".attention.head_count_kv", U32, s.kv_heads)
        model.put(".attention.key_length", U32, s.head)
        model.put(".attention.value_length", U32, s.head)
        model.put(".rope.dimension_count", U32, s.head)
        model.put(".rope.dimension_sections", I32, [s.head // 8, 3 * s.head // 16, 3 * s.head // 16, 0])
        put_ssm(model, conv, values, state, rank, groups)
        model.put(".full_attention_interval", U32, s.every)
    else:
        model.put(".attention.head_count_kv", I32, [s.kv_heads if yes else 0 for yes in attends])
        model.put(".shortconv.l_cache", U32, conv)
    put_embeddings(model, s, "output_norm" if delta else "token_embd_norm")
    for i in range(s.layers):
        def t(name, dims, **how):
            model.tensor("blk.%d.%s" % (i, name), dims, **how)
        t("attn_norm.weight", [s.embd], fill=1.0)
        t("post_attention_norm.weight" if delta else "ffn_norm.weight", [s.embd], fill=1.0)
        t("ffn_gate.weight", [s.embd, s.ff])
        t("ffn_down.weight", [s.ff, s.embd])
        t("ffn_up.weight", [s.embd, s.ff])
        if attends[i]:
            t("attn_q.weight", [s.embd, s.head * s.heads * (2 if delta else 1)])  # and a gate
            t("attn_k.weight", [s.embd, s.head * s.kv_heads])
            t("attn_v.weight", [s.embd, s.head * s.kv_heads])
            t("attn_output.weight", [s.head * s.heads, s.embd])
            t("attn_q_norm.weight", [s.head], fill=1.0)
            t("attn_k_norm.weight", [s.head], fill=1.0)
        elif delta:
            t("attn_qkv.weight", [s.embd, 2 * keys + values])
            t("attn_gate.weight", [s.embd, values])
            t("ssm_conv1d.weight", [conv, 2 * keys + values])
            t("ssm_dt.bias", [rank], fill=0.0)
            t("ssm_a", [rank], fill=-0.3)  # negative: the state decays
            t("ssm_beta.weight", [s.embd, rank])
            t("ssm_alpha.weight", [s.embd, rank])
            t("ssm_norm.weight", [state], fill=1.0)
            t("ssm_out.weight", [values, s.embd])
        else:
            t("shortconv.conv.weight", [conv, s.embd])
            t("shortconv.in_proj.weight", [s.embd, 3 * s.embd])
            t("shortconv.out_proj.weight", [s.embd, s.embd])


def make_bert(kind, model, s, pooling):
    context = min(s.context, 512)
    model.put(".context_length", U32, context)
    model.put(".embedding_length", U32, s.embd)
    model.put(".block_count", U32, s.layers)
    model.put(".feed_forward_length", U32, s.ff)
    model.put(".attention.head_count", U32, s.heads)
    model.put(".attention.layer_norm_epsilon", F32, 1e-12)
    model.put(".attention.causal", BOOL, 0)
    model.put(".pooling_type", U32, 4 if kind == "rank" else {"mean": 1, "cls": 2, "last": 3}[pooling])
    vocab = put_wordpiece(model, s.vocab, s.small)

    def norm(name):
        model.tensor(name + ".weight", [s.embd], fill=1.0)
        model.tensor(name + ".bias", [s.embd], fill=0.0)

    def linear(name, rows, columns):
        model.tensor(name + ".weight", [columns, rows])
        model.tensor(name + ".bias", [rows], spread=0.1)

    model.tensor("token_embd.weight", [s.embd, vocab], spread=1.0)
    model.tensor("token_types.weight", [s.embd, 2], spread=0.1)
    model.tensor("position_embd.weight", [s.embd, context], spread=0.3)
    norm("token_embd_norm")
    for i in range(s.layers):
        blk = "blk.%d." % i
        for part in ("attn_q", "attn_k", "attn_v", "attn_output"):
            linear(blk + part, s.embd, s.embd)
        norm(blk + "attn_output_norm")
        linear(blk + "ffn_up", s.ff, s.embd)
        linear(blk + "ffn_down", s.embd, s.ff)
        norm(blk + "layer_output_norm")
    if kind == "rank":
        linear("cls", s.embd, s.embd)
        linear("cls.output", 1, s.embd)


ARCH = {"llama": "llama", "moe": "llama", "swa": "gemma3", "qwen": "qwen2vl", "mamba": "mamba", "jamba": "jamba", "mamba2": "mamba2",
        "delta": "qwen35", "lfm": "lfm2", "bert": "bert", "rank": "bert",
        "glm": "glm4moe", "hy": "hy_v3", "mla": "deepseek2", "eagle": "eagle3"}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=sorted(ARCH))
    parser.add_argument("out")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--type", choices=["f16", "f32", "q8_0"], default="f32")
    parser.add_argument("--pooling", choices=["mean", "cls", "last"], default="mean")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--wide", action="store_true")
    parser.add_argument("--chain", type=float)
    parser.add_argument("--layers", type=int)
    parser.add_argument("--context", type=int)
    parser.add_argument("--stripped", action="store_true")
    parser.add_argument("--guess", choices=["token", "state"])
    parser.add_argument("--taps", default="0,1,1")
    parser.add_argument("--own", type=int)
    parser.add_argument("--d2t", choices=["whole", "bad"])
    parser.add_argument("--template", default=CHATML)
    parser.add_argument("--tool-template", default="")
    args = parser.parse_args()

    model = Model(ARCH[args.kind], args.seed, args.type)
    model.template, model.tool_template = args.template, args.tool_template
    model.put("general.name", STRING, "tiny " + args.kind)
    shape = Shape(args.small, args.wide)
    shape.layers = args.layers or shape.layers
    shape.context = args.context or shape.context
    if args.kind in ("bert", "rank"):
        make_bert(args.kind, model, shape, args.pooling)
    elif args.kind in ("mamba", "jamba"):
        make_mamba(args.kind, model, shape)
    elif args.kind == "mamba2":
        make_mamba2(model, shape)
    elif args.kind in ("delta", "lfm"):
        make_hybrid(args.kind, model, shape)
    else:
        chain = Chain(args.seed, shape.vocab, shape.embd) if args.chain is not None or args.guess else None
        if args.kind == "eagle":
            taps = [int(layer) for layer in args.taps.split(",")]
            make_eagle(model, shape, chain, args.guess, taps, args.d2t, args.own)
        else:
            make_decoder(args.kind, model, shape, chain, args.chain or 0.0, args.guess, args.stripped)
    model.write(args.out)


if __name__ == "__main__":
    sys.exit(main())
