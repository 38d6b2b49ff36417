#!/usr/bin/env bash
# tokenizers_decode_stream_end.sh: tokenizers 0.23.3 (Python), DecodeStream with byte-level tokens.
#
# One would guess that what the steps of a DecodeStream return, joined, is what decode() makes of the same ids. Seen: a step holds its
# text back while the text ends in U+FFFD, the sign by which it knows a character of which bytes are missing, and a text may have that
# character itself. Where such a character ends the text, no step returns it, nor what was held back with it, and the class has no call
# that ends a stream; in between, it comes late, with the next character. encode() and decode() return each of these texts as they were.
#
# Installs the package into a temporary folder and makes a tokenizer of the 256 bytes. Fails if the behaviour changes.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder"
"$folder/bin/pip" --disable-pip-version-check install --quiet tokenizers==0.23.3
"$folder/bin/python" - <<'PROGRAM'
import tokenizers
from tokenizers import decoders, models, pre_tokenizers

letters = sorted(pre_tokenizers.ByteLevel.alphabet())  # one for each of the 256 bytes
tokenizer = tokenizers.Tokenizer(models.BPE(vocab={letter: i for i, letter in enumerate(letters)}, merges=[]))
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.decoder = decoders.ByteLevel()
LOST = "\N{REPLACEMENT CHARACTER}"
seen = {}
for text in ("price: 5 €", "a bad byte is " + LOST, LOST + LOST, LOST + " begins", "in " + LOST + " between"):
    ids = tokenizer.encode(text).ids
    assert tokenizer.decode(ids) == text, tokenizer.decode(ids)
    stream = decoders.DecodeStream(skip_special_tokens=False)
    steps = [stream.step(tokenizer, i) for i in ids]
    seen[text] = "".join(step or "" for step in steps)
    print(f"tokenizers {tokenizers.__version__}: decode() {text!r}, steps joined {seen[text]!r}; last steps {steps[-3:]}")
calls = [name for name in dir(decoders.DecodeStream) if not name.startswith("_")]
print(f"tokenizers {tokenizers.__version__}: calls of DecodeStream: {calls}")
assert list(seen.values()) == ["price: 5 €", "a bad byte is ", "", LOST + " begins", "in " + LOST + " between"] and calls == ["step"], \
    "the behaviour has changed"
PROGRAM
