"""The official openai package for Python."""
# SPDX-License-Identifier: Apache-2.0
import asyncio
import json
import math
import os

import openai
from pydantic import BaseModel, Field

from checks import BASE, MODEL, busy_slots, main, test, until

client = openai.OpenAI(base_url=BASE, api_key="any", max_retries=0)
HELLO = [{"role": "system", "content": "You are brief."}, {"role": "user", "content": "Name three rivers."}]
GREEDY = {"model": MODEL, "temperature": 0, "max_tokens": 32}
WEATHER = {"type": "function", "function": {"name": "weather", "description": "the weather of a town", "strict": True, "parameters": {
    "type": "object", "properties": {"town": {"type": "string", "enum": ["Ulm", "Bonn"]}, "days": {"type": "integer", "minimum": 1, "maximum": 7}},
    "required": ["town", "days"], "additionalProperties": False}}}


@test
def models():
    assert MODEL in [m.id for m in client.models.list()]
    assert client.models.retrieve(MODEL).id == MODEL


@test
def an_answer():
    answer = client.chat.completions.create(messages=HELLO, **GREEDY)
    choice, usage = answer.choices[0], answer.usage
    assert choice.message.role == "assistant" and choice.message.content and choice.finish_reason in ("stop", "length")
    assert 0 < usage.completion_tokens <= 32 and usage.total_tokens == usage.prompt_tokens + usage.completion_tokens


@test
def a_stream_says_the_same():
    whole = client.chat.completions.create(messages=HELLO, **GREEDY)
    chunks = list(client.chat.completions.create(messages=HELLO, stream=True, stream_options={"include_usage": True}, **GREEDY))
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == whole.choices[0].message.content
    assert [c.choices[0].finish_reason for c in chunks if c.choices and c.choices[0].finish_reason] == [whole.choices[0].finish_reason]
    assert not chunks[-1].choices and chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    assert chunks[-1].usage.prompt_tokens_details.cached_tokens > 0  # asked before
    assert len({c.id for c in chunks}) == 1


@test
def a_prompt_that_is_seen_to_be_read():
    """What the server tells of it disturbs neither chunks nor helpers."""
    extra = {"extra_body": {"return_progress": True}}
    whole = client.chat.completions.create(messages=HELLO, **GREEDY).choices[0].message.content
    chunks = list(client.chat.completions.create(messages=HELLO, stream=True, **GREEDY, **extra))
    told = [c.model_extra["prompt_progress"] for c in chunks if c.model_extra.get("prompt_progress")]
    assert len(told) >= 2 and told[-1]["processed"] == told[-1]["total"] and "".join(c.choices[0].delta.content or "" for c in chunks) == whole
    with client.chat.completions.stream(messages=HELLO, **GREEDY, **extra) as stream:
        assert "".join(event.delta for event in stream if event.type == "content.delta") == whole
    chunks = list(client.completions.create(model=MODEL, prompt="Three rivers are", max_tokens=8, temperature=0, stream=True, **extra))
    assert any(c.model_extra.get("prompt_progress") for c in chunks) and "".join(c.choices[0].text for c in chunks)
    plain = client.responses.create(**ASKED)
    with client.responses.stream(**ASKED, **extra) as stream:
        events = list(stream)
    assert "".join(e.delta for e in events if e.type == "response.output_text.delta") == plain.output_text
    assert [e.type for e in events].count("response.in_progress") == 1, events


@test
def the_stream_helper():
    with client.chat.completions.stream(messages=HELLO, **GREEDY) as stream:
        text = "".join(event.delta for event in stream if event.type == "content.delta")
        final = stream.get_final_completion()
    assert text and text == final.choices[0].message.content


@test
def several_choices():
    answer = client.chat.completions.create(model=MODEL, messages=HELLO, n=3, max_tokens=12, temperature=1.2, seed=7)
    assert [c.index for c in answer.choices] == [0, 1, 2] and len({c.message.content for c in answer.choices}) > 1
    again = client.chat.completions.create(model=MODEL, messages=HELLO, n=3, max_tokens=12, temperature=1.2, seed=7)
    assert [c.message.content for c in again.choices] == [c.message.content for c in answer.choices]


@test
def logprobs():
    answer = client.chat.completions.create(messages=HELLO, logprobs=True, top_logprobs=5, **GREEDY)
    content = answer.choices[0].logprobs.content
    assert len(content) >= answer.usage.completion_tokens - 1
    for token in content:
        top = [t.logprob for t in token.top_logprobs]
        assert len(top) == 5 and top == sorted(top, reverse=True) and sum(map(math.exp, top)) <= 1.0001
        assert token.token == token.top_logprobs[0].token and abs(token.logprob - top[0]) < 1e-6  # greedy takes the first
    assert b"".join(bytes(t.bytes) for t in content).decode().startswith(answer.choices[0].message.content)


@test
def stop_texts_and_bias():
    whole = client.chat.completions.create(messages=HELLO, **GREEDY).choices[0].message.content
    word = whole.split()[2]
    cut = client.chat.completions.create(messages=HELLO, stop=[word], **GREEDY).choices[0]
    assert cut.finish_reason == "stop" and cut.message.content == whole[:whole.index(word)]
    # The likeliest first token, forbidden.
    first = client.chat.completions.create(messages=HELLO, logprobs=True, top_logprobs=2, **{**GREEDY, "max_tokens": 1}).choices[0].logprobs.content[0]
    other = client.chat.completions.create(messages=HELLO, logprobs=True, logit_bias=bias_against(first.token), **{**GREEDY, "max_tokens": 1}).choices[0].logprobs.content[0]
    assert other.token == first.top_logprobs[1].token


def bias_against(text):
    import urllib.request
    request = urllib.request.Request(BASE[:-3] + "/tokenize", json.dumps({"content": text}).encode(), {"Content-Type": "application/json"})
    ids = json.load(urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request))["tokens"]
    assert len(ids) == 1, (text, ids)
    return {str(ids[0]): -100}


@test
def tool_calls():
    messages = [{"role": "user", "content": "How is the weather in Ulm in the next 3 days?"}]
    for choice in ("required", {"type": "function", "function": {"name": "weather"}}):
        answer = client.chat.completions.create(model=MODEL, messages=messages, tools=[WEATHER], tool_choice=choice, max_tokens=200, seed=1).choices[0]
        call = answer.message.tool_calls[0]
        given = json.loads(call.function.arguments)
        assert answer.finish_reason == "tool_calls" and call.type == "function" and call.id and call.function.name == "weather"
        assert given["town"] in ("Ulm", "Bonn") and 1 <= given["days"] <= 7 and set(given) == {"town", "days"}
    # The tool's answer goes back, and text comes.
    messages += [answer.message.model_dump(exclude_none=True), {"role": "tool", "tool_call_id": call.id, "content": "sunny, 21 degrees"}]
    last = client.chat.completions.create(messages=messages, tools=[WEATHER], tool_choice="none", **GREEDY).choices[0]
    assert last.message.content and not last.message.tool_calls


@test
def tool_calls_in_a_stream():
    messages = [{"role": "user", "content": "How is the weather in Bonn tomorrow?"}]
    parts = []
    stream = client.chat.completions.create(model=MODEL, messages=messages, tools=[WEATHER], tool_choice="required", stream=True, max_tokens=200, seed=2)
    finish = None
    for chunk in stream:
        finish = chunk.choices[0].finish_reason or finish
        parts += chunk.choices[0].delta.tool_calls or []
    assert finish == "tool_calls" and parts[0].id and parts[0].function.name == "weather"  # the head first
    assert all(p.id is None and p.function.name is None for p in parts[1:] if p.index == 0)
    assert json.loads("".join(p.function.arguments or "" for p in parts if p.index == 0))["town"] in ("Ulm", "Bonn")
    with client.chat.completions.stream(model=MODEL, messages=messages, tools=[WEATHER], tool_choice="required", max_tokens=200, seed=2) as stream:
        for _ in stream:
            pass
        call = stream.get_final_completion().choices[0].message.tool_calls[0]
    assert call.function.parsed_arguments["town"] in ("Ulm", "Bonn")


class Part(BaseModel):
    name: str = Field(max_length=20)
    millimetres: int = Field(ge=1, le=500)


class Machine(BaseModel):
    title: str = Field(max_length=30)
    parts: list[Part] = Field(min_length=1, max_length=3)
    electric: bool
    year: int | None


@test
def structured_output_with_pydantic():
    messages = [{"role": "user", "content": "Describe a bicycle as JSON."}]
    answer = client.chat.completions.parse(model=MODEL, messages=messages, response_format=Machine, max_tokens=600, seed=3).choices[0]
    assert isinstance(answer.message.parsed, Machine), answer
    with client.chat.completions.stream(model=MODEL, messages=messages, response_format=Machine, max_tokens=600, seed=4) as stream:
        for _ in stream:
            pass
        assert isinstance(stream.get_final_completion().choices[0].message.parsed, Machine)
    # Any JSON: arrays and texts may be long, so it may be cut off, but nothing else.
    free = client.chat.completions.create(model=MODEL, messages=messages, response_format={"type": "json_object"}, max_tokens=400, temperature=0).choices[0]
    assert free.message.content.lstrip().startswith("{")
    if free.finish_reason == "stop":
        json.loads(free.message.content)


@test
def completions():
    answer = client.completions.create(model=MODEL, prompt="The capital of France is", max_tokens=8, temperature=0)
    assert answer.choices[0].text and answer.usage.completion_tokens <= 8
    chunks = list(client.completions.create(model=MODEL, prompt="The capital of France is", max_tokens=8, temperature=0, stream=True))
    assert "".join(c.choices[0].text for c in chunks if c.choices) == answer.choices[0].text


@test
def embeddings():
    def cosine(a, b):
        return sum(x * y for x, y in zip(a, b)) / math.sqrt(sum(x * x for x in a) * sum(y * y for y in b))
    texts = ["A river runs through the valley.", "A stream flows along the valley.", "The parliament passed a tax law.", "A river runs through the valley."]
    by_base64 = [d.embedding for d in client.embeddings.create(model=MODEL, input=texts).data]  # what the package asks for by itself
    by_list = [d.embedding for d in client.embeddings.create(model=MODEL, input=texts, encoding_format="float").data]
    assert len(by_base64) == 4 and all(len(e) == len(by_base64[0]) > 100 for e in by_base64)
    for a, b in zip(by_base64, by_list):
        assert cosine(a, b) > 0.9999
    assert cosine(by_list[0], by_list[3]) > 0.9999 and cosine(by_list[0], by_list[1]) > cosine(by_list[0], by_list[2])


ASKED = {"model": MODEL, "instructions": "You are brief.", "input": "Name three rivers.", "temperature": 0, "max_output_tokens": 32, "store": False}
FLAT = {"type": "function", **WEATHER["function"]}


@test
def responses():
    whole = client.responses.create(**ASKED)
    assert whole.output_text and whole.status in ("completed", "incomplete") and whole.usage.output_tokens <= 32
    assert whole.output_text == client.chat.completions.create(messages=HELLO, **GREEDY).choices[0].message.content
    events = list(client.responses.create(**ASKED, stream=True))
    assert events[0].type == "response.created" and events[-1].type == "response." + whole.status
    assert [e.sequence_number for e in events] == list(range(len(events)))
    assert "".join(e.delta for e in events if e.type == "response.output_text.delta") == whole.output_text == events[-1].response.output_text
    assert events[-1].response.usage.input_tokens_details.cached_tokens > 0
    with client.responses.stream(**{k: v for k, v in ASKED.items()}) as stream:
        final = None
        for event in stream:
            final = event
    assert final.response.output_text == whole.output_text
    counted = client.responses.input_tokens.count(model=MODEL, instructions=ASKED["instructions"], input=ASKED["input"])
    assert counted.input_tokens == whole.usage.input_tokens


@test
def responses_loop_with_a_tool():
    asked = {**ASKED, "tools": [FLAT], "max_output_tokens": 200}
    talk = [{"role": "user", "content": "How is the weather in Ulm?"}]
    events = list(client.responses.create(**{**asked, "input": talk}, tool_choice={"type": "function", "name": "weather"}, stream=True))
    final = events[-1].response
    [call] = final.output
    assert call.type == "function_call" and call.name == "weather" and final.status == "completed"
    assert "".join(e.delta for e in events if e.type == "response.function_call_arguments.delta") == call.arguments
    assert json.loads(call.arguments)["town"] in ("Ulm", "Bonn")
    talk += final.output
    talk.append({"type": "function_call_output", "call_id": call.call_id, "output": "sunny"})
    answer = client.responses.create(**{**asked, "input": talk, "max_output_tokens": 24}, tool_choice="none")
    assert answer.output_text and all(item.type == "message" for item in answer.output)


@test
def responses_with_tools_of_another_server():
    searched = [{"role": "user", "content": "Does it rain?"}, {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "rain"}},
                {"role": "assistant", "content": "Yes."}, {"role": "user", "content": "And now?"}]
    reply = client.responses.with_raw_response.create(**{**ASKED, "input": searched, "tools": [{"type": "web_search"}, FLAT]}, tool_choice="none")
    assert reply.headers["x-weir-relaxed"] == "tools[]: web_search" and reply.parse().output_text


@test
def a_custom_tool():
    asked = {"model": MODEL, "max_tokens": 100, "tools": [{"type": "custom", "custom": {"name": "letters", "format": {"type": "grammar", "grammar": {"syntax": "regex", "definition": "[ab]{3}"}}}}]}
    messages = [{"role": "user", "content": "Three letters."}]
    call = client.chat.completions.create(messages=messages, tool_choice={"type": "custom", "custom": {"name": "letters"}}, **asked).choices[0].message.tool_calls[0]
    assert call.type == "custom" and call.custom.name == "letters" and len(call.custom.input) == 3 and set(call.custom.input) <= set("ab"), call
    messages += [{"role": "assistant", "tool_calls": [call.model_dump()]}, {"role": "tool", "tool_call_id": call.id, "content": "thanks"}]
    assert client.chat.completions.create(messages=messages, tool_choice="none", **{**asked, "max_tokens": 8}).choices[0].message.content


@test
def responses_of_a_form():
    class Person(BaseModel):
        name: str = Field(max_length=20)
        age: int = Field(ge=0, le=120)
    parsed = client.responses.parse(**{**ASKED, "input": "Invent a person.", "max_output_tokens": 100}, text_format=Person)
    assert isinstance(parsed.output_parsed, Person) and 0 <= parsed.output_parsed.age <= 120


@test
def responses_that_are_refused():
    for field, value in (("temperature", -1), ("input", []), ("tool_choice", {"type": "web_search"})):
        try:
            client.responses.create(**{**ASKED, field: value})
            raise AssertionError(f"{field} was accepted")
        except openai.BadRequestError as e:
            assert e.param.startswith(field), e.body


def refusal(kind, **fields):
    try:
        client.chat.completions.create(**{"model": MODEL, "messages": HELLO, "max_tokens": 4, **fields})
    except kind as e:
        return e
    raise AssertionError(f"{fields} was not refused with {kind.__name__}")


@test
def errors_name_the_field():
    for field, value in (("temperature", -1), ("top_p", 2), ("n", 0), ("max_tokens", -5), ("stop", 7), ("messages", []), ("messages", [{"role": 7, "content": "x"}]),
                         ("top_logprobs", 1000), ("tool_choice", "required"), ("logit_bias", {"x": 1})):
        error = refusal(openai.BadRequestError, **{field: value, **({"logprobs": True} if field == "top_logprobs" else {})})
        assert field in (error.param or "") and error.body["message"], (field, error.body)
    assert refusal(openai.NotFoundError, model="no-such-model").param == "model"
    mistyped = refusal(openai.BadRequestError, extra_body={"temprature": 1})
    assert mistyped.param == "temprature" and "\"temperature\"" in mistyped.message, mistyped.body
    # A schema that cannot be kept is refused, with the place.
    schema = {"type": "object", "properties": {"a": {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}}, "required": ["a"]}
    error = refusal(openai.BadRequestError, response_format={"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": schema}})
    assert "uniqueItems" in error.message and "/properties/a" in error.param, error.body
    # Longer than the context.
    assert "messages" in refusal(openai.BadRequestError, messages=[{"role": "user", "content": "word " * 20000}]).param


@test
def a_key_that_is_wrong():
    keyed = os.environ["WEIR_KEYED_URL"] + "/v1"
    try:
        openai.OpenAI(base_url=keyed, api_key="wrong", max_retries=0).models.list()
        raise AssertionError("let in")
    except openai.AuthenticationError as e:
        assert e.status_code == 401 and e.body["message"]
    assert openai.OpenAI(base_url=keyed, api_key="s3cret", max_retries=0).models.list().data


LONG = {"model": MODEL, "messages": [{"role": "user", "content": "Tell a very long story."}], "max_tokens": 3000, "stream": True, "extra_body": {"ignore_eos": True}}


@test
def a_closed_stream_ends_the_work():
    until(lambda: busy_slots() == 0, "idle slots")
    stream = client.chat.completions.create(**LONG)
    for i, _ in enumerate(stream):
        if i == 5:
            break
    assert busy_slots() == 1
    stream.close()
    until(lambda: busy_slots() == 0, "idle slots")


@test
def cancelled_tasks_end_the_work():
    """Twelve at once on four slots: some run, some are queued; all are cancelled."""
    async def all_of_them():
        async with openai.AsyncOpenAI(base_url=BASE, api_key="any", max_retries=0) as many:
            started = asyncio.Event()

            async def one():
                stream = await many.chat.completions.create(**LONG)
                async for chunk in stream:
                    if chunk.choices and chunk.choices[0].delta.content:
                        started.set()
            tasks = [asyncio.create_task(one()) for _ in range(12)]
            await started.wait()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    asyncio.run(all_of_them())
    until(lambda: busy_slots() == 0, "idle slots")


@test
def many_at_once():
    async def all_of_them():
        async with openai.AsyncOpenAI(base_url=BASE, api_key="any", max_retries=0) as many:
            return await asyncio.gather(*(many.chat.completions.create(
                model=MODEL, messages=[{"role": "user", "content": f"Count from {i}."}], max_tokens=16, temperature=0) for i in range(16)))
    answers = asyncio.run(all_of_them())
    assert all(a.choices[0].message.content for a in answers) and len({a.id for a in answers}) == 16


main()
