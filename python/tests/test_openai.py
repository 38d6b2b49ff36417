"""The package `openai`, whose requests an engine of this process answers."""

# SPDX-License-Identifier: Apache-2.0
import asyncio
import json
import os
import threading
import unittest

import openai
import pydantic
import weir
import weir.openai
from support import MODEL, idle, needs_model, until

MESSAGES = [{"role": "user", "content": "hello"}]
LIGHT = {"type": "function", "function": {"name": "light", "parameters": {"type": "object", "properties": {"on": {"type": "boolean"}},
         "required": ["on"], "additionalProperties": False}}}  # fmt: skip


class Client(unittest.TestCase):
    def setUp(self):
        self.engine = weir.Engine("fake:seed=3,eos_every=20", n_slots=4)
        self.client = weir.openai.client(self.engine, weir.Embedder(self.engine.model))
        self.addCleanup(self.engine.close)

    def test_an_answer_and_a_stream(self):
        plain = self.engine.stream(messages=MESSAGES, temp=0, max_tokens=30).result()
        answer = self.client.chat.completions.create(model="any", messages=MESSAGES, temperature=0, max_completion_tokens=30)
        self.assertEqual(answer.choices[0].message.content, plain.text)
        self.assertEqual(answer.choices[0].finish_reason, {"end": "stop", "length": "length"}[plain.reason])
        self.assertEqual(
            (answer.usage.prompt_tokens, answer.usage.completion_tokens), (plain.usage["n_prompt"], plain.usage["n_generated"])
        )
        chunks = list(self.client.chat.completions.create(model="any", messages=MESSAGES, temperature=0, max_tokens=30, stream=True,
                                                          stream_options={"include_usage": True}))  # fmt: skip
        self.assertEqual("".join(c.choices[0].delta.content or "" for c in chunks if c.choices), plain.text)
        self.assertEqual(chunks[0].choices[0].delta.role, "assistant")
        self.assertEqual(chunks[-1].usage.completion_tokens, answer.usage.completion_tokens)
        with self.client.chat.completions.stream(model="any", messages=MESSAGES, temperature=0, max_tokens=30) as stream:
            self.assertEqual(stream.get_final_completion().choices[0].message.content, plain.text)

    def test_choices_stops_and_logprobs(self):
        answer = self.client.chat.completions.create(
            model="any", messages=MESSAGES, n=3, seed=7, max_tokens=8, logprobs=True, top_logprobs=2
        )
        alone = [self.engine.stream(messages=MESSAGES, seed=7 + i, max_tokens=8).result() for i in range(3)]
        self.assertEqual([c.message.content for c in answer.choices], [r.text for r in alone])
        for choice, result in zip(answer.choices, alone, strict=True):
            self.assertEqual(len(choice.logprobs.content), len(result.tokens))
            for entry, token in zip(choice.logprobs.content, result.tokens, strict=True):
                self.assertEqual(bytes(entry.bytes), self.engine.model.piece(token))
                self.assertEqual(len(entry.top_logprobs), 2)
        text = alone[0].text
        stopped = self.client.chat.completions.create(model="any", messages=MESSAGES, seed=7, max_tokens=8, stop=text[2:4])
        self.assertEqual((stopped.choices[0].message.content, stopped.choices[0].finish_reason), (text[: text.index(text[2:4])], "stop"))

    def test_completions(self):
        answer = self.client.completions.create(model="any", prompt=["a", "b"], temperature=0, max_tokens=6, n=2)
        texts = [r.text for r in self.engine.generate(["a", "b"], temp=0, max_tokens=6)]
        self.assertEqual([c.text for c in answer.choices], [texts[0], texts[0], texts[1], texts[1]])
        self.assertEqual(answer.usage.prompt_tokens, 4)
        text = "".join(
            c.choices[0].text for c in self.client.completions.create(model="any", prompt="a", temperature=0, max_tokens=6, stream=True)
        )
        self.assertEqual(text, texts[0])
        scored = self.client.completions.create(model="any", prompt="a", temperature=0, max_tokens=6, logprobs=0).choices[0].logprobs
        self.assertEqual(scored.token_logprobs, self.engine.generate("a", temp=0, max_tokens=6, logprobs=True).logprobs)
        with self.assertRaises(openai.BadRequestError) as caught:
            self.client.completions.create(model="any", prompt="a", logprobs=50)
        self.assertEqual(caught.exception.param, "logprobs")

    def test_schemas(self):
        class Light(pydantic.BaseModel):
            on: bool
            level: int | None

        bias = {str(n): -9 for n in range(ord("0"), ord("9"))}
        answer = self.client.chat.completions.parse(
            model="any", messages=MESSAGES, response_format=Light, temperature=1, seed=1, logit_bias=bias
        )
        self.assertIsInstance(answer.choices[0].message.parsed, Light)
        answer = self.client.chat.completions.create(model="any", messages=MESSAGES, response_format={"type": "json_object"}, max_tokens=40)
        self.assertTrue(answer.choices[0].message.content.startswith("{"))

    def test_tools(self):
        for choice in ("required", {"type": "function", "function": {"name": "light"}}):
            answer = self.client.chat.completions.create(
                model="any", messages=MESSAGES, tools=[LIGHT], tool_choice=choice, parallel_tool_calls=False, max_tokens=300
            )
            call = answer.choices[0].message.tool_calls[0]
            self.assertEqual((answer.choices[0].finish_reason, call.function.name), ("tool_calls", "light"))
            self.assertIsInstance(json.loads(call.function.arguments)["on"], bool)
        chunks = list(
            self.client.chat.completions.create(
                model="any", messages=MESSAGES, tools=[LIGHT], tool_choice="required", stream=True, max_tokens=300
            )
        )
        parts = [t for c in chunks for t in c.choices[0].delta.tool_calls or []]
        self.assertEqual((parts[0].function.name, bool(parts[0].id), {p.index for p in parts}), ("light", True, {0}))
        self.assertIsInstance(json.loads("".join(p.function.arguments or "" for p in parts))["on"], bool)
        self.assertEqual(chunks[-1].choices[0].finish_reason, "tool_calls")

    def test_embeddings_and_models(self):
        texts = ["a", "b"]
        rows = weir.Embedder(self.engine.model).embed(texts)
        for more in ({}, {"encoding_format": "float"}):
            answer = self.client.embeddings.create(model="any", input=texts, **more)
            self.assertEqual([e.embedding for e in answer.data], rows.tolist())
        self.assertEqual([m.id for m in self.client.models.list()], [self.engine.model.path])

    def test_refusals(self):
        create = self.client.chat.completions.create
        for field, more in (
            ("temperature", {"temperature": 1000}),
            ("n", {"n": 0}),
            ("tool_choice", {"tools": [LIGHT], "tool_choice": {"type": "function", "function": {"name": "x"}}}),
            ("nonsense", {"extra_body": {"nonsense": 1}}),
            ("response_format", {"response_format": {"type": "xml"}}),
            ("logit_bias", {"logit_bias": {"x": 1}}),
            ("logit_bias", {"logit_bias": [1]}),
            ("tools[0]", {"tools": [1], "tool_choice": {"type": "function", "function": {"name": "x"}}}),
            ("tools[0]", {"tools": [1]}),
            ("tools[0].function", {"tools": [{"type": "function", "function": 1}]}),
            ("tools", {"tools": {"a": 1}}),
        ):
            for stream in (False, True):
                with self.subTest(field, stream=stream), self.assertRaises(openai.BadRequestError) as caught:
                    create(model="any", messages=MESSAGES, stream=stream, **more)
                self.assertEqual(caught.exception.param, field)
        with self.assertRaises(openai.NotFoundError):
            self.client.files.list()
        full = weir.Engine("fake:tick_us=1000", n_slots=1, queue_limit=1, n_ctx=1 << 20)
        running = full.stream("a", ignore_eos=True)
        next(running)
        queued = [full.stream("a", ignore_eos=True)]
        with self.assertRaises(openai.RateLimitError):
            weir.openai.client(full).chat.completions.create(model="any", messages=MESSAGES)
        self.assertFalse(queued[0].finished)
        raw = self.client.chat.completions.with_raw_response.create(
            model="any", messages=MESSAGES, user="me", max_tokens=2, tool_choice="auto", extra_body={"top_k": 5}
        )
        self.assertEqual(raw.headers["x-weir-relaxed"], "user, tool_choice")
        for make, other in ((weir.openai.client, openai.DefaultHttpxClient), (weir.openai.async_client, openai.DefaultAsyncHttpxClient)):
            with self.assertRaises(weir.InvalidError) as caught:  # its requests would leave the process
                make(self.engine, http_client=other())
            self.assertEqual(caught.exception.field, "http_client")

    def test_leaving_a_stream_cancels(self):
        endless = weir.Engine("fake:tick_us=1000", n_slots=2, n_ctx=1 << 20)
        with weir.openai.client(endless).chat.completions.create(
            model="any", messages=MESSAGES, stream=True, extra_body={"ignore_eos": True}
        ) as stream:
            for _ in stream:
                break
        until(lambda: endless.stats["n_cancelled_generating"] == 1 and idle(endless))

    def test_a_failure_ends_the_other_answers(self):
        full = weir.Engine("fake:tick_us=1000", n_slots=1, queue_limit=1, n_ctx=1 << 20)
        body = {"model": "any", "messages": MESSAGES, "n": 4, "extra_body": {"ignore_eos": True}}
        for stream in (False, True):
            with self.assertRaises(openai.RateLimitError):
                weir.openai.client(full).chat.completions.create(**body, stream=stream)
            until(lambda: idle(full))

            async def main(stream=stream):
                with self.assertRaises(openai.RateLimitError):
                    await weir.openai.async_client(full).chat.completions.create(**body, stream=stream)
                await asyncio.to_thread(until, lambda: idle(full))  # the loop runs on, and so would the others' tasks

            asyncio.run(main())


class Async(unittest.IsolatedAsyncioTestCase):
    async def test_answers_and_streams(self):
        engine = weir.Engine("fake:seed=3,eos_every=20", n_slots=4, queue_limit=0)
        client = weir.openai.async_client(engine)
        plain = engine.stream(messages=MESSAGES, temp=0, max_tokens=20).result().text

        async def one(i):
            if i % 2:
                return (
                    (await client.chat.completions.create(model="any", messages=MESSAGES, temperature=0, max_tokens=20))
                    .choices[0]
                    .message.content
                )
            stream = await client.chat.completions.create(model="any", messages=MESSAGES, temperature=0, max_tokens=20, stream=True)
            return "".join([c.choices[0].delta.content or "" async for c in stream])

        self.assertEqual(set(await asyncio.gather(*(one(i) for i in range(50)))), {plain})
        endless = weir.Engine("fake:tick_us=1000", n_slots=2, n_ctx=1 << 20)
        async with await weir.openai.async_client(endless).chat.completions.create(
            model="any", messages=MESSAGES, stream=True, extra_body={"ignore_eos": True}
        ) as stream:
            async for _ in stream:
                break
        until(lambda: endless.stats["n_cancelled_generating"] == 1 and idle(endless))
        with self.assertRaises(openai.BadRequestError):
            await client.chat.completions.create(model="any", messages=MESSAGES, top_p=7, stream=True)

    async def test_embeddings_leave_the_loop(self):
        engine = weir.Engine("fake:")
        embedder, threads = weir.Embedder(engine.model), []

        def embed(inputs, plain=embedder.embed):
            threads.append(threading.current_thread())
            return plain(inputs)

        embedder.embed = embed
        answer = await weir.openai.async_client(engine, embedder).embeddings.create(model="any", input=["a"])
        self.assertEqual(len(answer.data), 1)
        self.assertIsNot(threads[0], threading.current_thread())


@needs_model
class DefaultModel(unittest.TestCase):
    def test_the_model(self):
        with weir.Engine(MODEL, n_ctx=512) as engine:
            client = weir.openai.client(engine)
            answer = client.chat.completions.create(model="any", messages=MESSAGES, temperature=0, max_tokens=8)
            self.assertEqual(answer.choices[0].message.content, engine.stream(messages=MESSAGES, temp=0, max_tokens=8).result().text)
            self.assertEqual([m.id for m in client.models.list()], [os.path.basename(MODEL)])


if __name__ == "__main__":
    unittest.main()
