"""The official anthropic package for Python."""
# SPDX-License-Identifier: Apache-2.0
import asyncio
import json
import os

import anthropic

from checks import MODEL, URL, busy_slots, main, test, until

client = anthropic.Anthropic(base_url=URL, api_key="any", max_retries=0)
HELLO = {"model": MODEL, "system": "You are brief.", "messages": [{"role": "user", "content": "Name three rivers."}], "max_tokens": 32,
         "extra_body": {"temperature": 0}}  # which the package no longer knows
WEATHER = {"name": "weather", "description": "the weather of a town", "input_schema": {
    "type": "object", "properties": {"town": {"type": "string", "enum": ["Ulm", "Bonn"]}, "days": {"type": "integer", "minimum": 1, "maximum": 7}},
    "required": ["town", "days"], "additionalProperties": False}}
CLOCK = {"name": "clock", "description": "the time", "input_schema": {"type": "object", "properties": {}}}
ASKED = {**HELLO, "messages": [{"role": "user", "content": "How is the weather in Ulm?"}], "tools": [WEATHER, CLOCK], "max_tokens": 200}


@test
def an_answer():
    answer = client.messages.create(**HELLO)
    assert answer.role == "assistant" and answer.content[0].type == "text" and answer.content[0].text
    assert answer.stop_reason in ("end_turn", "max_tokens") and 0 < answer.usage.output_tokens <= 32
    again = client.messages.create(**HELLO)
    assert again.usage.cache_read_input_tokens > 0 and again.content[0].text == answer.content[0].text
    assert answer._request_id


@test
def a_stream_says_the_same():
    whole = client.messages.create(**HELLO)
    with client.messages.stream(**HELLO) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == whole.content[0].text == final.content[0].text and final.stop_reason == whole.stop_reason
    assert final.usage.output_tokens == whole.usage.output_tokens
    events = [event.type for event in client.messages.create(**HELLO, stream=True)]
    assert events[0] == "message_start" and events[-2:] == ["message_delta", "message_stop"], events


@test
def a_prompt_that_is_seen_to_be_read():
    """What the server tells of it is a ping's, which nothing sees."""
    whole = client.messages.create(**HELLO)
    told = {**HELLO, "extra_body": {**HELLO["extra_body"], "return_progress": True}}
    with client.messages.stream(**told) as stream:
        assert stream.get_final_message().content[0].text == whole.content[0].text
    events = [event.type for event in client.messages.create(**told, stream=True)]
    assert events == [event.type for event in client.messages.create(**HELLO, stream=True)], events


@test
def the_tokens_of_a_prompt():
    counted = client.messages.count_tokens(**{k: v for k, v in ASKED.items() if k != "max_tokens"})
    usage = client.messages.create(**ASKED, tool_choice={"type": "any"}).usage
    assert counted.input_tokens > 100 and usage.input_tokens + usage.cache_read_input_tokens > 100
    hello = client.messages.count_tokens(model=MODEL, system=HELLO["system"], messages=HELLO["messages"]).input_tokens
    usage = client.messages.create(**HELLO).usage
    assert hello == usage.input_tokens + usage.cache_read_input_tokens


@test
def a_loop_with_a_tool():
    messages = list(ASKED["messages"])
    answer = client.messages.create(**{**ASKED, "messages": messages}, tool_choice={"type": "tool", "name": "weather"})
    call = answer.content[-1]
    assert answer.stop_reason == "tool_use" and call.type == "tool_use" and call.name == "weather" and call.id
    assert call.input["town"] in ("Ulm", "Bonn") and 1 <= call.input["days"] <= 7
    messages += [{"role": "assistant", "content": answer.content},
                 {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": "sunny"}]}]
    final = client.messages.create(**{**ASKED, "messages": messages, "max_tokens": 24}, tool_choice={"type": "none"})
    assert final.content[0].type == "text" and final.content[0].text


@test
def a_tool_is_streamed():
    with client.messages.stream(**ASKED, tool_choice={"type": "any", "disable_parallel_tool_use": True}) as stream:
        parts = [event.partial_json for event in stream if event.type == "input_json"]
        final = stream.get_final_message()
    [call] = final.content
    assert len(parts) > 1 and call.name in ("weather", "clock") and isinstance(call.input, dict) and final.stop_reason == "tool_use"


@test
def a_form():
    schema = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 20}, "age": {"type": "integer", "minimum": 0, "maximum": 120}},
              "required": ["name", "age"], "additionalProperties": False}
    answer = client.messages.create(**{**HELLO, "max_tokens": 100}, output_config={"format": {"type": "json_schema", "schema": schema}})
    assert set(json.loads(answer.content[0].text)) == {"name", "age"}


@test
def a_document_and_a_tool_of_another_server():
    said = [{"role": "user", "content": [{"type": "document", "title": "Note", "source": {"type": "text", "media_type": "text/plain", "data": "It rains."}}, {"type": "text", "text": "What?"}]}]
    reply = client.messages.with_raw_response.create(**{**HELLO, "messages": said}, tools=[{"type": "web_search_20250305", "name": "web_search"}])
    assert reply.headers["x-weir-relaxed"] == "tools[]: web_search_20250305" and reply.parse().content[0].text


@test
def a_stop_sequence():
    text = client.messages.create(**HELLO).content[0].text
    word = text.split()[2]
    cut = client.messages.create(**HELLO, stop_sequences=["zzz", word])
    assert cut.stop_reason == "stop_sequence" and cut.stop_sequence == word and cut.content[0].text == text[:text.index(word)]


@test
def errors():
    for error, fields in ((anthropic.BadRequestError, {"stop_sequences": [5]}), (anthropic.BadRequestError, {"messages": []}), (anthropic.NotFoundError, {"model": "claude-x"}),
                          (anthropic.BadRequestError, {"tool_choice": {"type": "any"}, "tools": [{"type": "web_search_20250305", "name": "web_search"}]}),
                          (anthropic.BadRequestError, {"messages": [{"role": "user", "content": "word " * 20000}]})):
        try:
            client.messages.create(**{**HELLO, **fields})
            raise AssertionError(f"{fields} was accepted")
        except error as e:
            assert e.body["type"] == "error" and e.body["error"]["param"].startswith(next(iter(fields))) and e.request_id, e.body


@test
def a_key_that_is_wrong():
    keyed = os.environ["WEIR_KEYED_URL"]
    try:
        anthropic.Anthropic(base_url=keyed, api_key="wrong", max_retries=0).messages.create(**HELLO)
        raise AssertionError("let in")
    except anthropic.AuthenticationError as e:
        assert e.body["error"]["type"] == "authentication_error"
    assert anthropic.Anthropic(base_url=keyed, api_key="s3cret", max_retries=0).messages.create(**{**HELLO, "max_tokens": 2}).content
    assert anthropic.Anthropic(base_url=keyed, auth_token="s3cret", max_retries=0).messages.create(**{**HELLO, "max_tokens": 2}).content


@test
def a_closed_stream_ends_the_work():
    until(lambda: busy_slots() == 0, "idle slots")
    with client.messages.stream(**{**HELLO, "max_tokens": 3000, "extra_body": {"ignore_eos": True}}) as stream:
        for i, _ in enumerate(stream):
            if i == 5:
                break
        assert busy_slots() == 1
    until(lambda: busy_slots() == 0, "idle slots")


@test
def many_at_once():
    async def all_of_them():
        async with anthropic.AsyncAnthropic(base_url=URL, api_key="any", max_retries=0) as many:
            return await asyncio.gather(*(many.messages.create(**{**HELLO, "messages": [{"role": "user", "content": f"Count from {i}."}], "max_tokens": 16}) for i in range(8)))
    answers = asyncio.run(all_of_them())
    assert all(a.content[0].text for a in answers) and len({a.id for a in answers}) == 8


main()
