"""Random JSON Schemas, as many as WEIR_SCHEMAS says: each answer is JSON that the package jsonschema accepts. WEIR_TEST_SEED repeats a
run."""
# SPDX-License-Identifier: Apache-2.0
import concurrent.futures
import copy
import json
import os
import random
import re

import jsonschema
import openai

from checks import BASE, MODEL, main, test

N = int(os.environ.get("WEIR_SCHEMAS", 200))
client = openai.OpenAI(base_url=BASE, api_key="any", max_retries=0, timeout=600)
NAMES = ["id", "name", "a b", "größe", "日本", "x-y", "with\"quote", "back\\slash", "tab\there", "$money", "", "0", "true", "naïve/slash~tilde", "emoji🐟"]
PATTERNS = ["^[a-z]{2,5}$", "^\\d{3}-\\d{2}$", "^(on|off)$", "^A[0-9A-F]{4}$", "^x?y+z{1,3}$", "^[^a-y\\s\"\\\\]{1,4}$"]
FORMATS = {"date": 10, "time": 20, "date-time": 30, "uuid": 36}


class Generator:
    """Everything is bounded, so that a model without sense reaches the end."""

    def __init__(self, dice):
        self.dice = dice
        self.defs = {}

    def value(self, depth):
        d = self.dice
        kind = d.randrange(6)
        if kind == 0 and depth < 2:
            return {d.choice(NAMES): self.value(depth + 1) for _ in range(d.randrange(3))}
        if kind == 1 and depth < 2:
            return [self.value(depth + 1) for _ in range(d.randrange(3))]
        return d.choice([None, True, False, 0, -7, 1.5, 123456, "", "text", "\"q\"\\", "ünï🐟", "a\nb"])

    def string(self):
        d = self.dice
        kind = d.randrange(5)
        if kind == 0:
            return {"type": "string", "pattern": d.choice(PATTERNS)}
        if kind == 1:
            return {"type": "string", "format": d.choice(list(FORMATS))}
        if kind == 2:
            return {"enum": d.sample(["red", "green", "blue", "\"", "a b", "日本"], d.randrange(1, 5))}
        least = d.randrange(4)
        return {"type": "string", "minLength": least, "maxLength": least + d.randrange(12)}

    def integer(self):
        d = self.dice
        low = d.choice([-1000000, -100, -10, -1, 0, 1, 7, 99, 12345])
        high = low + d.choice([0, 1, 8, 93, 1000, 10 ** 7])
        schema = {"type": "integer"}
        if d.random() < 0.8:
            schema["minimum"] = low
        if d.random() < 0.8:
            schema["maximum"] = high
        return schema

    def object(self, depth):
        d = self.dice
        names = d.sample(NAMES, d.randrange(5))
        return {"type": "object", "properties": {name: self.schema(depth + 1) for name in names},
                "required": [name for name in names if d.random() < 0.7], "additionalProperties": False}

    def array(self, depth):
        d = self.dice
        least = d.randrange(3)
        return {"type": "array", "items": self.schema(depth + 1), "minItems": least, "maxItems": least + d.randrange(3)}

    def schema(self, depth=0):
        d = self.dice
        kind = d.randrange(12 if depth < 3 else 7)
        if kind == 0:
            return {"type": d.choice(["null", "boolean", "number"])}
        if kind == 1:
            return {"const": self.value(0)}
        if kind == 2:
            values = [self.value(1) for _ in range(d.randrange(1, 4))]
            return {"enum": [v for i, v in enumerate(values) if v not in values[:i]]}
        if kind in (3, 4):
            return self.string()
        if kind in (5, 6):
            return self.integer()
        if kind == 7:
            return self.array(depth)
        if kind == 8:
            return {d.choice(["anyOf", "oneOf"]): d.sample([{"type": "null"}, {"type": "boolean"}, self.integer(), self.string(), self.array(depth)], 2)}
        if kind == 9:
            name = f"d{len(self.defs)}"
            self.defs[name] = None
            self.defs[name] = self.schema(depth + 1)
            return {"$ref": "#/$defs/" + name}
        return self.object(depth)


def random_schema(seed):
    generator = Generator(random.Random(seed))
    schema = generator.object(0)
    if generator.defs:
        schema["$defs"] = generator.defs
    return schema


def ask(schema, seed):
    return client.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": "Answer with JSON."}], max_tokens=3000, temperature=1.0, seed=seed & 0xffffffff,
        response_format={"type": "json_schema", "json_schema": {"name": "answer", "strict": True, "schema": schema}}).choices[0]


# Grammars know no calendar: a year 0000 and 30 February are dates to them, which jsonschema asks Python about.
formats = copy.copy(jsonschema.Draft202012Validator.FORMAT_CHECKER)
formats.checkers = dict(formats.checkers)
formats.checks("date")(lambda v: not isinstance(v, str) or bool(re.fullmatch(r"[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])", v)))


@test
def random_schemas_are_kept():
    first = int(os.environ["WEIR_TEST_SEED"])
    print(f"      {N} schemas from seed {first}", flush=True)
    refused, wrong = [], []

    def one(seed):
        schema = random_schema(seed)
        jsonschema.Draft202012Validator.check_schema(schema)
        try:
            answer = ask(schema, seed)
        except openai.BadRequestError as e:
            refused.append((seed, e.message, schema))
            return
        try:
            value = json.loads(answer.message.content)
            jsonschema.Draft202012Validator(schema, format_checker=formats).validate(value)
            assert answer.finish_reason == "stop"
        except Exception as e:
            wrong.append((seed, answer.finish_reason, str(e).splitlines()[0], answer.message.content[-300:], schema))
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(one, range(first, first + N)))
    for seed, message, schema in refused[:3]:
        print(f"      refused {seed}: {message}\n        {json.dumps(schema)[:600]}")
    print(f"      {N - len(refused) - len(wrong)} kept, {len(refused)} refused, {len(wrong)} broken", flush=True)
    assert not wrong, json.dumps(wrong[:3], ensure_ascii=False, indent=1)
    assert not refused  # nothing in the generator is beyond what weir says that it can do


@test
def schemas_that_cannot_be_enforced_are_refused():
    for keyword, schema in (("uniqueItems", {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}),
                            ("not", {"type": "integer", "not": {"multipleOf": 1009}}),
                            ("if", {"type": "integer", "if": {"multipleOf": 1009}, "then": {"minimum": 5}}),
                            ("multipleOf", {"type": "integer", "multipleOf": 1009}),
                            ("$ref", {"$ref": "#/$defs/absent"})):
        try:
            ask({"type": "object", "properties": {"p": schema}, "required": ["p"]}, 1)
        except openai.BadRequestError as e:
            assert keyword in e.message and "/properties/p" in e.param, (keyword, e.body)
        else:
            raise AssertionError(f"{keyword} was accepted")


main()
