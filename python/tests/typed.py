"""A user's program, which pyright checks in strict mode. Nothing runs it."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
from dataclasses import dataclass

import weir


@dataclass
class Person:
    name: str
    age: int


def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


def texts(engine: weir.Engine) -> list[str]:
    one: weir.Result = engine.generate("a", temp=0.5, max_tokens=8, stop=["x"], logit_bias={3: -1.0})
    many: list[weir.Result] = engine.generate(["a", [1, 2, 3]], progress=True, errors="return", seed=3)
    chunks = [chunk.text for chunk in engine.stream(messages=[{"role": "user", "content": "a"}], tools=[add], tool_choice="required")]
    person: Person = engine.extract(Person, "a person", max_tokens=100)
    usage = one.usage["n_prompt"] + engine.stats["n_slots"] + engine.model.info["n_vocab"]
    return [one.text, person.name, str(usage), *chunks, *(result.text for result in many)]


async def wait(engine: weir.Engine) -> int:
    async with engine.astream("a", sampler=weir.Sampler(temp=0)) as stream:
        return sum([len(chunk.tokens) async for chunk in stream])


def main() -> None:
    with weir.Engine("model.gguf", n_slots=4, layout="unified") as engine:
        print(texts(engine), asyncio.run(wait(engine)))
        engine.generate("a", tmp=0)  # pyright: ignore[reportCallIssue]
        engine.generate("a", temp="hot")  # pyright: ignore[reportCallIssue, reportArgumentType]
        weir.Engine("model.gguf", layout="lanes")  # pyright: ignore[reportArgumentType]


if __name__ == "__main__":
    main()
