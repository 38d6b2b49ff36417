#!/usr/bin/env bash
# llama_embeddings_logits.sh: xllamacpp 2026.10.11549 (llama.cpp 0.6.0-dev as a Python package), embeddings of a long text.
#
# One would guess that a model that is loaded for embeddings computes no logits, so that memory does not depend on the size of its
# vocabulary, beside the vocabulary and its weights. Seen: a text of 2,000 tokens takes about 20 MiB more than one of 16 with a vocabulary of
# 1,000 tokens, and about 630 MiB more with one of 41,000: twice 2,000 x 41,000 floats, one row of logits for each token of the text, in
# the buffers of the pass and in the context's output.
#
# Installs the packages into a temporary folder and writes two random models there. Fails if the behaviour changes.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder/venv"
"$folder/venv/bin/pip" --disable-pip-version-check install --quiet xllamacpp==2026.10.11549 gguf==0.17.1
cat >"$folder/models.py" <<'PROGRAM'
import sys

import gguf
import numpy as np

path, n_vocab, width = sys.argv[1], int(sys.argv[2]), 64
w = gguf.GGUFWriter(path, "llama")
w.add_context_length(4096)
w.add_embedding_length(width)
w.add_block_count(1)
w.add_feed_forward_length(width)
w.add_head_count(2)
w.add_head_count_kv(2)
w.add_layer_norm_rms_eps(1e-5)
w.add_rope_dimension_count(width // 2)
w.add_vocab_size(n_vocab)
w.add_tokenizer_model("llama")
w.add_token_list(["<unk>", "<s>", "</s>"] + [f"\u2581w{i}" for i in range(n_vocab - 3)])
w.add_token_scores([-float(i) for i in range(n_vocab)])
w.add_token_types([2, 3, 3] + [1] * (n_vocab - 3))
w.add_bos_token_id(1)
w.add_eos_token_id(2)
w.add_unk_token_id(0)
random = np.random.default_rng(1)
shapes = {"token_embd": (n_vocab, width), "output_norm": (width,), "blk.0.attn_norm": (width,), "blk.0.ffn_norm": (width,)}
for name in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"):
    shapes[f"blk.0.{name}"] = (width, width)
for name, shape in shapes.items():
    w.add_tensor(name + ".weight", (random.standard_normal(shape) * 0.05).astype(np.float32))
w.write_header_to_file()
w.write_kv_data_to_file()
w.write_tensors_to_file()
w.close()
PROGRAM
cat >"$folder/peak.py" <<'PROGRAM'
"""The peak of resident memory, in MiB, of a process that computes one embedding of argv[2] tokens."""
import os
import resource
import sys
import traceback

import xllamacpp

params = xllamacpp.CommonParams()
params.model.path = sys.argv[1]
params.embedding = True
params.pooling_type = xllamacpp.llama_pooling_type.LLAMA_POOLING_TYPE_MEAN
params.n_ctx = params.n_batch = params.n_ubatch = 4096
params.n_parallel = params.cpuparams.n_threads = 1
params.warmup = False
status = 1
try:
    answer = xllamacpp.Server(params).handle_embeddings({"model": "any", "input": [7] * int(sys.argv[2])})
    assert len(answer["data"][0]["embedding"]) == 64, answer
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024, flush=True)
    status = 0
except Exception:
    traceback.print_exc()
finally:
    os._exit(status)  # the server's threads would keep the process
PROGRAM
declare -A more
for n_vocab in 1000 41000; do
    "$folder/venv/bin/python" "$folder/models.py" "$folder/model.gguf" $n_vocab
    short=$("$folder/venv/bin/python" "$folder/peak.py" "$folder/model.gguf" 16 2>/dev/null)
    long=$("$folder/venv/bin/python" "$folder/peak.py" "$folder/model.gguf" 2000 2>/dev/null)
    more[$n_vocab]=$((long - short))
    echo "xllamacpp 2026.10.11549, $n_vocab tokens in the vocabulary: 16 tokens of text $short MiB, 2,000 tokens $long MiB"
done
logits=$((2000 * 41000 * 4 / 1048576))
if [ "${more[1000]}" -lt 100 ] && [ "${more[41000]}" -gt $((2 * logits - 100)) ]; then
    echo "as seen before: a row of logits for each token, twice ($logits MiB each)"
else
    echo "the behaviour has changed" >&2
    exit 1
fi
