#!/usr/bin/env bash
# llguidance_bounds_and_exponents.sh: llguidance 1.9.1 with JSON Schemas that have bounds of numbers, beside jsonschema 4.26.0.
#
# llguidance takes bounds and multipleOf exactly, so one would guess that they remove the numbers outside them and nothing else. Seen: a
# keyword also removes ways to write the numbers that it allows. {"type": "number"} takes 1e3 and 6.02e23; with "minimum": 0 no
# exponent can begin, so a model has to write all 24 digits, and 1e-3 as 0.001. A maximum does the same. Under "multipleOf": 0.5 neither
# 1e3 nor 1.50 passes, but 1000 and 1.5 do. jsonschema finds each of these numbers valid, since a schema is about values.
#
# Installs the packages into a temporary folder. Fails if the behaviour changes.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder"
"$folder/bin/pip" --disable-pip-version-check install --quiet llguidance==1.9.1 jsonschema==4.26.0
"$folder/bin/python" - <<'PROGRAM'
import json

import jsonschema
import llguidance


class Bytes:
    """A vocabulary of one token for each byte, and an end."""
    eos_token_id, bos_token_id, tokens, special_token_ids = 256, None, [bytes([i]) for i in range(256)] + [b"<end>"], [256]

    def __call__(self, text):
        return list(text if isinstance(text, bytes) else text.encode())


tokens = llguidance.LLTokenizer(llguidance.TokenizerWrapper(Bytes()), n_vocab=257, eos_token=256)


def takes(schema, text):
    matcher = llguidance.LLMatcher(tokens, llguidance.LLMatcher.grammar_from_json_schema(json.dumps(schema)))
    assert not matcher.is_error(), matcher.get_error()
    return matcher.try_consume_tokens(list(text.encode())) == len(text) and matcher.is_accepting()


NUMBERS = ["1.5", "1.50", "1000", "1e3", "0.001", "1e-3", "6.02e23"]
SEEN = {  # what jsonschema finds valid, and what llguidance takes
    '{"type": "number"}': (NUMBERS, NUMBERS),
    '{"type": "number", "minimum": 0}': (NUMBERS, ["1.5", "1.50", "1000", "0.001"]),
    '{"type": "number", "maximum": 1000000}': (NUMBERS[:-1], ["1.5", "1.50", "1000", "0.001"]),
    '{"type": "number", "multipleOf": 0.5}': (["1.5", "1.50", "1000", "1e3", "6.02e23"], ["1.5", "1000"]),
}
for schema, expected in SEEN.items():
    valid = [text for text in NUMBERS if jsonschema.Draft202012Validator(json.loads(schema)).is_valid(json.loads(text))]
    taken = [text for text in NUMBERS if takes(json.loads(schema), text)]
    print(f"{schema}: valid {valid}, llguidance takes {taken}")
    assert (valid, taken) == expected, "the behaviour has changed"
PROGRAM
