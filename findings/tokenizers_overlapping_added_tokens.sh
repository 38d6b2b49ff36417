#!/usr/bin/env bash
# tokenizers_overlapping_added_tokens.sh: tokenizers 0.23.3 and xllamacpp 2026.10.11549 (llama.cpp 0.6.0-dev), added tokens that overlap.
#
# A model's added tokens are found in the text before its BPE sees it, and one would guess that Hugging Face's tokenizers and llama.cpp
# find the same ones: the vocabulary, the tokens and the text are the same. Seen: where two of them overlap in the text, tokenizers takes
# the one that begins first, and the longest of those; llama.cpp looks for one token after another in the whole text, the longest first,
# wherever it begins. So "<==>" becomes "<==" and ">" in the one, "<" and "==>" in the other, and both decode to the text. Runs of spaces,
# which many vocabularies have as such tokens, come out the same in both.
#
# Installs the packages into a temporary folder and writes a random model there. Fails if the behaviour changes.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder/venv"
"$folder/venv/bin/pip" --disable-pip-version-check install --quiet xllamacpp==2026.10.11549 gguf==0.19.0 tokenizers==0.23.3
cd "$folder"
cat >both.py <<'PROGRAM'
import json
import os
import traceback
import urllib.request

import gguf
import numpy as np
import tokenizers
import xllamacpp
from tokenizers import decoders, models, pre_tokenizers

ADDED = ["<end>", "==", "==>", "<==", "->x", ">x<y", "</a>", "a></b>", "  ", "   "]
letters = sorted(pre_tokenizers.ByteLevel.alphabet())  # one for each of the 256 bytes
vocabulary, last = letters + ["aa"] + ADDED, len(letters) + 1

tokenizer = tokenizers.Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(vocabulary[:last])}, merges=[("a", "a")]))
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.decoder = decoders.ByteLevel()
tokenizer.add_tokens([tokenizers.AddedToken(token, normalized=False) for token in ADDED])

width, n = 64, len(vocabulary)
w = gguf.GGUFWriter("model.gguf", "llama")
w.add_context_length(256)
w.add_embedding_length(width)
w.add_block_count(1)
w.add_feed_forward_length(width)
w.add_head_count(2)
w.add_head_count_kv(2)
w.add_layer_norm_rms_eps(1e-5)
w.add_rope_dimension_count(width // 2)
w.add_vocab_size(n)
w.add_tokenizer_model("gpt2")
w.add_tokenizer_pre("gpt-2")
w.add_token_list(vocabulary)
w.add_token_types([gguf.TokenType.NORMAL] * last + [gguf.TokenType.USER_DEFINED] * len(ADDED))
w.add_token_merges(["a a"])
w.add_bos_token_id(last)
w.add_eos_token_id(last)
w.add_add_bos_token(False)
random = np.random.default_rng(1)
shapes = {"token_embd": (n, width), "output_norm": (width,), "blk.0.attn_norm": (width,), "blk.0.ffn_norm": (width,)}
for name in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"):
    shapes[f"blk.0.{name}"] = (width, width)
for name, shape in shapes.items():
    w.add_tensor(name + ".weight", (random.standard_normal(shape) * 0.05).astype(np.float32))
w.write_header_to_file()
w.write_kv_data_to_file()
w.write_tensors_to_file()
w.close()
params = xllamacpp.CommonParams()
params.model.path = "model.gguf"
params.n_ctx = 256
params.n_parallel = params.cpuparams.n_threads = 1
params.warmup = False


def ask(server, path, **body):
    request = urllib.request.Request(server.listening_address + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    return json.load(urllib.request.urlopen(request))


SEEN = {
    "aa==>": (["aa", "==>"], ["aa", "==>"]),
    "aa     aa": (["aa", "   ", "  ", "aa"], ["aa", "   ", "  ", "aa"]),
    "<==>": (["<==", ">"], ["<", "==>"]),
    "===>": (["==", "=", ">"], ["=", "==>"]),
    "aa->x<y": (["aa", "->x", "<", "y"], ["aa", "-", ">x<y"]),
    "</a></b>": (["</a>", "<", "/", "b", ">"], ["<", "/", "a></b>"]),
}
status = 1
try:
    server, changed = xllamacpp.Server(params), []
    for text, expected in SEEN.items():
        ids = tokenizer.encode(text).ids, ask(server, "/tokenize", content=text, add_special=False, parse_special=True)["tokens"]
        seen = tuple([vocabulary[i] for i in found] for found in ids)
        print(f"{text!r}: tokenizers {seen[0]}, llama.cpp {seen[1]}", flush=True)
        assert all(tokenizer.decode(list(found)) == text for found in ids), ids
        changed += [text] if seen != expected else []
    print("the behaviour has changed: " + ", ".join(changed) if changed else "as seen before", flush=True)
    status = 1 if changed else 0
except Exception:
    traceback.print_exc()
finally:
    os._exit(status)  # the server's threads would keep the process
PROGRAM
venv/bin/python both.py 2>log || { tail -3 log >&2; exit 1; }
