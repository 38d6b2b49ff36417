"""Engines: many prompts, keywords, values, tools."""

# SPDX-License-Identifier: Apache-2.0
import dataclasses
import enum
import itertools
import json
import pickle
import typing
import unittest

import weir
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support import MODEL, idle, needs_model, until
from weir import _params, schema


class Many(unittest.TestCase):
    def setUp(self):
        self.engine = weir.Engine("fake:seed=5,eos_every=20", n_slots=4)
        self.addCleanup(self.engine.close)

    def test_a_list_of_prompts(self):
        prompts = [f"prompt {i}" for i in range(300)]
        results = self.engine.generate(prompts, temp=0, max_tokens=30)
        self.assertEqual([r.text for r in results], [self.engine.stream(p, temp=0, max_tokens=30).result().text for p in prompts])
        self.assertEqual({r.error for r in results}, {None})
        ended = dict(self.engine.as_completed(prompts, temp=0, max_tokens=30))
        self.assertEqual([ended[i].text for i in range(300)], [r.text for r in results])

    def test_few_prompts_are_in_memory(self):
        taken = itertools.count()
        last = 0

        def prompts():
            nonlocal last
            for last in taken:
                yield f"p{last}"

        most = 0
        for done, _ in enumerate(itertools.islice(self.engine.map(prompts(), temp=0, max_tokens=4), 500)):
            most = max(most, last - done)
        self.assertLessEqual(most, 8 * (2 * 4 + 16))
        until(lambda: idle(self.engine))

    def test_few_answers_wait_for_the_first(self):
        taken, options = 0, {"temp": 0, "max_tokens": 8000}
        some = [f"p{i}" for i in range(100)]
        lengths = [len(r.tokens) for r in weir.Engine("fake:eos_every=300", n_slots=4, n_ctx=8192).generate(some, **options)]
        longest, shortest = (some[lengths.index(of(lengths))] for of in (max, min))
        self.assertGreater(max(lengths), 100 * min(lengths))

        def prompts():
            nonlocal taken
            for taken in range(1, 1 << 30):
                yield longest if taken == 1 else shortest

        answers = weir.Engine("fake:eos_every=300,tick_us=500", n_slots=4, n_ctx=8192).map(prompts(), **options)
        self.assertEqual(len(next(answers).tokens), max(lengths))
        self.assertLessEqual(taken, 8 * (2 * 4 + 16) + 1)
        answers.close()

    def test_answers_come_between_slow_prompts(self):
        for many in (self.engine.as_completed, self.engine.map):
            answered = []

            def prompts(answered=answered):
                for i in range(6):
                    until(lambda: idle(self.engine))
                    self.assertGreaterEqual(len(answered), i - 2)  # the engine is idle a moment before its last stream is readable
                    yield f"prompt {i}"

            for answer in many(prompts(), max_tokens=4):
                answered.append(answer)
            self.assertEqual(len(answered), 6)

    def test_errors(self):
        prompts = ["a", "b" * 10000, [1, 2, 1 << 20], 7, [], [{"role": "user", "content": "c"}], "d"]
        results = self.engine.generate(prompts, errors="return", max_tokens=2)
        self.assertEqual([r.error and r.error.code for r in results], [None, "too_large", "out_of_range", "invalid", "missing", None, None])
        self.assertEqual([r.error.field for r in results if r.error], ["prompt"] * 4)
        self.assertEqual(results[3].usage["n_prompt"], 0)
        for wrong in (5, b"a", None):
            with self.assertRaises(weir.InvalidError):
                list(self.engine.map(wrong))
        for more in ({"errors": "return"}, {"progress": True}):
            with self.assertRaises(weir.InvalidError) as caught:
                self.engine.generate("a", **more)
            self.assertEqual(caught.exception.field, next(iter(more)))
        with self.assertRaises(weir.InvalidError):
            self.engine.generate(prompts, max_tokens=2)
        until(lambda: idle(self.engine))
        failing = weir.Engine("fake:fail_pass=3", n_slots=2)
        results = failing.generate(["a", "b", "c"], errors="return", max_tokens=8, ignore_eos=True)
        self.assertIn("backend", [r.error and r.error.code for r in results])

    def test_a_full_queue_is_waited_for(self):
        engine = weir.Engine("fake:tick_us=200", n_slots=2, queue_limit=1, n_ctx=1 << 20)
        self.assertEqual(len(engine.generate(["a"] * 40, max_tokens=2)), 40)
        streams = [engine.stream("a", ignore_eos=True) for _ in range(3)]
        with self.assertRaises(weir.BusyError) as caught:
            for _ in range(4):
                streams.append(engine.stream("a", ignore_eos=True))
        self.assertEqual((caught.exception.status, caught.exception.code), (429, "queue_full"))

    def test_forecast_stats_and_drain(self):
        plan = self.engine.plan("hello", max_tokens=4)
        self.assertEqual((plan["n_prompt"], plan["fits"], plan["busy"]), (len(self.engine.model.tokenize("hello")), True, False))
        endless = weir.Engine("fake:tick_us=1000", n_ctx=1 << 20)
        running = endless.stream("a", ignore_eos=True)
        for timeout in (-1, 0, 0.001):
            self.assertFalse(endless.drain(timeout))
        with self.assertRaises(weir.InvalidError):
            endless.drain(float("nan"))
        running.close()
        self.assertTrue(endless.drain())
        stream = self.engine.stream("hello", max_tokens=4, ignore_eos=True)
        self.assertTrue(self.engine.drain(100))
        self.assertEqual(stream.result().usage["n_generated"], 4)
        with self.assertRaises(weir.StoppedError):
            self.engine.stream("a")


class Keywords(unittest.TestCase):
    engine = weir.Engine("fake:", n_ctx=256)

    def refused(self, field, code="out_of_range", **options):
        with self.assertRaises(weir.Error) as caught:
            self.engine.stream("a", **options)
        error = caught.exception
        self.assertEqual((error.field, error.code), (field, code), error)
        self.assertIsInstance(error, ValueError)
        return error

    def test_ranges(self):
        error = self.refused("top_p", top_p=1.5)
        self.assertEqual((error.value, error.low, error.high), (1.5, 0, 1))
        self.assertIn("top_p is 1.5; allowed: 0 to 1", str(error))
        again = pickle.loads(pickle.dumps(error))
        self.assertEqual((type(again), again.args, again.__dict__), (type(error), error.args, error.__dict__))
        for options in ({"max_tokens": -2}, {"max_tokens": 1 << 31}, {"top_k": 10**400}, {"temp": 10**400}, {"temp": float("nan")},
                        {"seed": -2}, {"n_logprobs": 21}, {"deadline_ms": 1 << 63}, {"priority": 101}):  # fmt: skip
            self.refused(next(iter(options)), **options)
        self.engine.stream("a", seed=-1, top_n_sigma=-1, deadline_ms=(1 << 63) - 1).close()

    def test_types_and_names(self):
        for options in (
            {"temp": "hot"},
            {"top_k": 1.0},
            {"ignore_eos": 1},
            {"stop": 5},
            {"stop": [5]},
            {"logit_bias": [1]},
            {"logit_bias": {"a": 1}},
            {"max_tokens": True},
            {"adapters": [3]},
            {"sampler": Foreign.Sampler()},
            {"sampler": {}},
            {"source": 3},
            {"stop_tokens": "a"},
            {"grammar": 5},
            {"json_schema": 5},
            {"cache_salt": 5},
            {"tenant": b"a"},
            {"media": [3]},
        ):
            with self.subTest(options), self.assertRaises(weir.WrongTypeError) as caught:
                self.engine.stream(*([] if "source" in options else ["a"]), **options)
            self.assertIsInstance(caught.exception, TypeError)
        self.assertIn("did you mean max_tokens?", str(self.refused("max_token", "invalid", max_token=3)))
        with self.assertRaises(weir.WrongTypeError):
            weir.Engine("fake:", n_slot=3)
        with self.assertRaises(weir.WrongTypeError):
            weir.Engine(3)
        for wrong in ({"prompt": 3}, {"prompt": b"a"}, {"messages": "a"}, {"messages": [3]}, {"prompt": "a", "messages": []}, {}):
            with self.subTest(wrong), self.assertRaises(weir.InvalidError) as caught:
                self.engine.stream(**wrong)
            self.assertIn(caught.exception.field.partition("[")[0], ("prompt", "messages"))
        foreign = weir.Chat(weir.Model("fake:n_vocab=400"), [{"role": "user", "content": "a"}])
        with self.assertRaises(weir.Error) as caught:
            self.engine.stream(foreign)
        self.assertEqual(caught.exception.field, "prompt")
        for name in ("tools_json", "messages_json", "template_source", "args", "tokens", "text", "chat"):
            with self.assertRaises(weir.WrongTypeError):
                self.engine.stream(messages=[{"role": "user", "content": "a"}], **{name: 1})
        with self.assertRaises(weir.Error) as caught:
            self.engine.stream(messages=[{"role": "user", "content": "a"}], template="{% if")
        self.assertEqual(caught.exception.field, "template")
        adapter = weir.Adapter(self.engine.model, "fake:1")
        for scale in (10**400, -(10**400), float("nan")):
            with self.assertRaises(weir.InvalidError):
                self.engine.stream("a", adapters=[(adapter, scale)])
        for share in (10**400, "1", float("nan")):
            with self.assertRaises(weir.InvalidError):
                weir.Model("fake:", tensor_split=[share])

    def test_texts(self):
        self.assertEqual(self.engine.generate("a\0b", max_tokens=2).reason, "length")
        with self.assertRaises(weir.InvalidError) as caught:
            self.engine.stream("a\ud800")
        self.assertIn("surrogate", str(caught.exception))
        self.refused("tenant", "invalid", tenant="a\0")
        self.refused("stop[1]", "invalid", stop=["a", "\0"])
        self.refused("grammar", "invalid", grammar="\udfff")
        with self.assertRaises(weir.InvalidError):
            weir.Model("fake:\0")
        with self.assertRaises(weir.NotFoundError) as caught:
            weir.Model("/no/such/file.gguf")
        self.assertEqual((caught.exception.code, caught.exception.status), ("not_found", 404))

    def test_every_keyword_of_the_library_is_one_here(self):
        for of in ("request", "sampler", "chat", "engine", "model", "context", "media"):
            for name, member in _params.members(of).items():
                if name in _params.HIDDEN.get(of, ()):
                    continue
                self.assertIn(name, _params.keywords(of))
                other = member.type == _params.lib.WEIR_MEMBER_OTHER
                self.assertTrue(not other or name in _params.SPECIAL, name)

    ANYTHING = st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.integers(-(10**60), 10**60),
        st.floats(),
        st.text(max_size=20),
        st.binary(max_size=20),
        st.lists(st.one_of(st.integers(-5, 400), st.text(max_size=3), st.floats()), max_size=5),
        st.dictionaries(st.one_of(st.integers(-5, 400), st.text(max_size=3)), st.floats(), max_size=3),
        st.just(engine),
        st.just(engine.model),
        st.just(object()),
        st.complex_numbers(),
    )

    @settings(max_examples=1500, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(
        st.sampled_from(sorted(_params.keywords("request") | _params.keywords("sampler") | _params.keywords("chat"))),
        ANYTHING,
        st.booleans(),
    )
    def test_any_value_of_any_keyword(self, name, value, chat):
        given_prompt = {"messages": [{"role": "user", "content": "a"}]} if chat else {"prompt": "a"}
        try:
            self.engine.stream(**{**given_prompt, "max_tokens": 1, name: value}).close()
        except weir.Error as e:
            self.assertNotIn(e.code, ("failed", "backend", "io", "state"), e)

    @settings(max_examples=500, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(ANYTHING, ANYTHING)
    def test_any_value_of_other_arguments(self, one, two):
        model = self.engine.model
        for call in (
            lambda: model.tokenize(one),
            lambda: model.detokenize(one),
            lambda: model.piece(one),
            lambda: model.ends(one),
            lambda: weir.Chat(model, one, tools=two),
            lambda: weir.Chat(model, [{"role": one, "content": two}]),
            lambda: weir.Grammar(one, two),
            lambda: weir.Adapter(model, one),
            lambda: weir.Media(one),
            lambda: weir.Sampler(temp=one),
            lambda: weir.Chat(model, [{"role": "user", "content": "a"}], template=one, template_args=two),
            lambda: self.engine.stream(one),
            lambda: self.engine.loglikelihood([(one, two)]) if isinstance(one, (str, list)) and isinstance(two, (str, list)) else None,
        ):
            try:
                call()
            except weir.Error as e:
                self.assertNotIn(e.code, ("failed", "backend", "state"), e)


class Foreign:
    class Sampler:
        pass


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclasses.dataclass
class Car:
    color: Color
    doors: typing.Literal[3, 5]
    electric: bool
    tags: list[Color]
    owner: "int | None" = None


@dataclasses.dataclass
class Tree:
    left: "Tree | None"


@dataclasses.dataclass
class Unread:
    what: "Nowhere"  # noqa: F821


class Values(unittest.TestCase):
    def test_types_and_their_values(self):
        engine = weir.Engine("fake:seed=1", n_ctx=2048)
        for seed in range(10):
            car = engine.extract(Car, "a car:", seed=seed, temp=1.0, logit_bias={ord("]"): 5.0, ord("9"): -9.0})
            self.assertIsInstance(car.color, Color)
            self.assertIn(car.doors, (3, 5))
            self.assertIsInstance(car.electric, bool)
            self.assertEqual({type(tag) for tag in car.tags} - {Color}, set())
        with self.assertRaises(weir.Error) as caught:
            engine.extract(Car, "a car:", max_tokens=3)
        self.assertEqual(caught.exception.code, "invalid_answer")
        self.assertIn("max_tokens", str(caught.exception))

    def test_values_that_do_not_fit(self):
        for kind, answer in (
            (int, "true"),
            (int, "1.5"),
            (float, "true"),
            (str, "1"),
            (Color, '"green"'),
            (Car, "[]"),
            (Car, '{"wheels": 1}'),
            (list[int], '["a"]'),
            (typing.Literal[1, 2], "3"),
            (dict[str, int], '{"a": "b"}'),
            (int | None, '"a"'),
            (int, ""),
        ):
            with self.subTest(answer), self.assertRaises(weir.Error):
                schema.value_of(kind, answer)
        for reason in ("length", "deadline", "cancelled", "error"):
            with self.assertRaises(weir.Error) as caught:
                schema.value_of(int, "12", reason)
            self.assertEqual(caught.exception.code, "invalid_answer")
        self.assertEqual(schema.value_of(int, "12", "stop_words"), 12)
        for kind in (Tree, Unread):
            with self.assertRaises(weir.InvalidError):
                schema.json_schema_of(kind)
        self.assertEqual(schema.value_of(tuple[int, str], '[1, "a"]'), (1, "a"))
        self.assertEqual(schema.value_of(float, "1"), 1.0)

    def test_pydantic(self):
        import pydantic

        class Inner(pydantic.BaseModel):
            n: int
            ok: bool

        class Outer(pydantic.BaseModel):
            inner: Inner
            color: Color
            maybe: Inner | None

        engine = weir.Engine("fake:seed=2", n_ctx=2048)
        for seed in range(5):
            value = engine.extract(Outer, "x", seed=seed, temp=1.0, logit_bias={n: -9.0 for n in range(ord("0"), ord("9"))})
            self.assertIsInstance(value.inner, Inner)
            self.assertIsInstance(value.color, Color)

    def test_grammars(self):
        engine = weir.Engine("fake:seed=2", n_ctx=256)
        grammar = weir.Grammar('root ::= "yes" | "no"')
        self.assertIn(engine.generate("x", grammar=grammar).text, ("yes", "no"))
        self.assertIn(engine.generate("x", grammar=weir.Grammar.from_json_schema({"enum": ["a", "b"]})).text, ('"a"', '"b"'))
        with self.assertRaises(weir.InvalidError) as caught:
            weir.Grammar("root ::= (")
        self.assertEqual(caught.exception.code, "grammar")
        with self.assertRaises(weir.InvalidError):
            engine.stream("x", json_schema={"type": "nothing"})


class Tools(unittest.TestCase):
    def test_functions_are_called(self):
        engine = weir.Engine("fake:seed=2", n_ctx=4096)
        calls = []

        def switch(on: bool, color: Color = Color.RED) -> str:
            """Switches a light."""
            calls.append((on, color))
            if len(calls) > 1:
                raise RuntimeError("broken")
            return "done"

        tool = schema.tool_of(switch)["function"]
        self.assertEqual((tool["name"], tool["description"], tool["parameters"]["required"]), ("switch", "Switches a light.", ["on"]))
        messages = [{"role": "user", "content": "light"}]
        result = engine.stream(messages=messages, tools=[switch], tool_choice="required", temp=1.0).result()
        self.assertEqual([c.name for c in result.calls], ["switch"])
        value = schema.call(switch, result.calls[0].arguments)
        self.assertEqual(value, "done")
        self.assertIsInstance(calls[0][0], bool)
        message = result.message
        self.assertEqual(json.loads(message["tool_calls"][0]["function"]["arguments"]).keys() >= {"on"}, True)


@needs_model
class DefaultModel(unittest.TestCase):
    def test_a_loop_with_a_tool(self):
        def weather(city: typing.Literal["Paris", "Rome"]) -> dict[str, str]:
            """The weather of a city."""
            if city == "Rome":
                raise RuntimeError("no such place")
            return {"city": city, "weather": "sunny"}

        with weir.Engine(MODEL, n_ctx=1024) as engine:
            added = engine.run_tools([{"role": "user", "content": "What is the weather in Paris?"}], [weather], tool_choice="required",
                                     temp=0, max_tokens=60)  # fmt: skip
        self.assertEqual([m["role"] for m in added][:2], ["assistant", "tool"])
        self.assertIn(added[1]["content"], ('{"city": "Paris", "weather": "sunny"}', "RuntimeError: no such place"))
        self.assertEqual(added[-1]["role"], "assistant")


if __name__ == "__main__":
    unittest.main()
