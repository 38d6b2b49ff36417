"""Packages on top of `openai`, whose requests an engine of this process answers. The packages are pinned in integrations.txt; where one
is not installed, its tests are skipped. WEIR_INTEGRATIONS=1 scripts/test.sh release -R '^python_test$' installs and tests all of them.
"""

# SPDX-License-Identifier: Apache-2.0
import asyncio
import importlib.util
import os
import typing
import unittest

import pydantic
import weir
import weir.openai

os.environ.update(LITELLM_LOCAL_MODEL_COST_MAP="True", LANGSMITH_TRACING="false", DSPY_CACHEDIR="/nonexistent")
QUESTION = "hello"
ADDRESS = {"base_url": "http://weir/v1", "api_key": "none"}


class Order(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    drink: typing.Literal["tea", "coffee"]
    milk: bool


def weather(city: typing.Literal["Oslo", "Rome"]) -> str:
    """The weather of a city."""
    return f"sunny in {city}"


def is_here(name: str) -> bool:
    folders = name.split(".")
    return all(importlib.util.find_spec(".".join(folders[:n])) is not None for n in range(1, len(folders) + 1))


def needs(*packages):
    missing = [name for name in packages if not is_here(name)]
    return unittest.skipIf(missing, f"{', '.join(missing)} not installed")


class Integration(unittest.TestCase):
    def setUp(self):
        self.engine = weir.Engine("fake:seed=3,eos_every=20", n_slots=4)
        self.addCleanup(self.engine.close)
        self.embedder = weir.Embedder(self.engine.model)
        # What the engine itself answers: the packages must say the same.
        self.answer = self.engine.stream(messages=[{"role": "user", "content": QUESTION}], temp=0, max_tokens=16).result().text
        self.rows = self.embedder.embed(["a", "b"]).tolist()
        self.clients = {
            "http_client": weir.openai.http_client(self.engine, self.embedder),
            "http_async_client": weir.openai.async_http_client(self.engine, self.embedder),
        }


@needs("langchain_openai")
class LangChain(Integration):
    def chat(self, max_tokens):
        from langchain_openai import ChatOpenAI

        return ChatOpenAI(model="any", temperature=0, max_tokens=max_tokens, **ADDRESS, **self.clients)

    def test_answers(self):
        chat = self.chat(16)
        self.assertEqual(chat.invoke(QUESTION).content, self.answer)
        self.assertEqual("".join(chunk.content for chunk in chat.stream(QUESTION)), self.answer)
        self.assertEqual([m.content for m in chat.batch([QUESTION] * 3)], [self.answer] * 3)
        self.assertEqual(asyncio.run(chat.ainvoke(QUESTION)).content, self.answer)

    def test_values_and_tools(self):
        self.assertIsInstance(self.chat(300).with_structured_output(Order).invoke(QUESTION), Order)
        (call,) = self.chat(300).bind_tools([weather], tool_choice="required", parallel_tool_calls=False).invoke(QUESTION).tool_calls
        self.assertIn(weather(**call["args"]), ("sunny in Oslo", "sunny in Rome"))

    def test_embeddings(self):
        from langchain_openai import OpenAIEmbeddings

        embeddings = OpenAIEmbeddings(model="any", check_embedding_ctx_length=False, **ADDRESS, **self.clients)
        self.assertEqual(embeddings.embed_documents(["a", "b"]), self.rows)


@needs("llama_index.llms.openai_like")
class LlamaIndex(Integration):
    def chat(self, max_tokens):
        from llama_index.llms.openai_like import OpenAILike

        return OpenAILike(model="any", api_base=ADDRESS["base_url"], api_key="none", is_chat_model=True, is_function_calling_model=True,
                          temperature=0, max_tokens=max_tokens, context_window=2048, http_client=self.clients["http_client"],
                          async_http_client=self.clients["http_async_client"])  # fmt: skip

    def test_answers(self):
        chat = self.chat(16)
        self.assertEqual(chat.complete(QUESTION).text, self.answer)
        self.assertEqual("".join(part.delta for part in chat.stream_complete(QUESTION)), self.answer)
        self.assertEqual(asyncio.run(chat.acomplete(QUESTION)).text, self.answer)

    def test_values(self):
        self.assertIsInstance(self.chat(300).as_structured_llm(Order).complete(QUESTION).raw, Order)

    @needs("llama_index.embeddings.openai")
    def test_embeddings(self):
        from llama_index.embeddings.openai import OpenAIEmbedding

        embedding = OpenAIEmbedding(api_base=ADDRESS["base_url"], api_key="none", http_client=self.clients["http_client"])
        self.assertEqual(embedding.get_text_embedding_batch(["a", "b"]), self.rows)


@needs("dspy", "litellm")
class DSPy(Integration):
    """LiteLLM keeps the first client that it makes for an address: one engine for all tests."""

    @classmethod
    def setUpClass(cls):
        import litellm

        cls.kept = weir.Engine("fake:seed=3,eos_every=20", n_slots=4)
        litellm.client_session = weir.openai.http_client(cls.kept)
        litellm.aclient_session = weir.openai.async_http_client(cls.kept)
        cls.addClassCleanup(cls.kept.close)

    def model(self, max_tokens):
        import dspy

        return dspy.LM("openai/any", engine="litellm", api_base=ADDRESS["base_url"], api_key="none", temperature=0, max_tokens=max_tokens,
                       cache=False)  # fmt: skip

    def test_answers(self):
        self.assertEqual(self.model(16)(QUESTION), [self.answer])
        self.assertEqual(asyncio.run(self.model(16).acall(QUESTION)), [self.answer])


@needs("instructor")
class Instructor(Integration):
    def test_values(self):
        import instructor

        for mode in (instructor.Mode.JSON_SCHEMA, instructor.Mode.TOOLS):
            client = instructor.from_openai(weir.openai.client(self.engine), mode=mode)
            value = client.chat.completions.create(
                model="any", response_model=Order, max_retries=0, max_tokens=300, messages=[{"role": "user", "content": QUESTION}]
            )
            self.assertIsInstance(value, Order)

    def test_values_in_a_loop(self):
        import instructor

        client = instructor.from_openai(weir.openai.async_client(self.engine), mode=instructor.Mode.JSON_SCHEMA)

        async def main():
            asks = [client.chat.completions.create(model="any", response_model=Order, max_retries=0, max_tokens=300,
                                                   messages=[{"role": "user", "content": QUESTION}]) for _ in range(8)]  # fmt: skip
            return await asyncio.gather(*asks)

        for value in asyncio.run(main()):
            self.assertIsInstance(value, Order)


@needs("pydantic_ai")
class PydanticAI(Integration):
    def agent(self, max_tokens, **options):
        from pydantic_ai import Agent
        from pydantic_ai.models.openai import OpenAIChatModel
        from pydantic_ai.providers.openai import OpenAIProvider

        model = OpenAIChatModel("any", provider=OpenAIProvider(openai_client=weir.openai.async_client(self.engine)))
        return Agent(model, model_settings={"temperature": 0, "max_tokens": max_tokens}, **options)

    def test_answers(self):
        self.assertEqual(self.agent(16).run_sync(QUESTION).output, self.answer)

        async def stream():
            async with self.agent(16).run_stream(QUESTION) as run:
                return "".join([text async for text in run.stream_text(delta=True, debounce_by=None)])

        self.assertEqual(asyncio.run(stream()), self.answer)

    def test_values(self):
        from pydantic_ai import NativeOutput

        for kind in (Order, NativeOutput(Order)):
            self.assertIsInstance(self.agent(300, output_type=kind).run_sync(QUESTION).output, Order)


if __name__ == "__main__":
    unittest.main()
