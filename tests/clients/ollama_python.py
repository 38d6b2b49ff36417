"""The official ollama package for Python."""
# SPDX-License-Identifier: Apache-2.0
import asyncio
import json

import ollama

from checks import MODEL, URL, busy_slots, main, test, until

client = ollama.Client(host=URL)
HELLO = [{"role": "system", "content": "You are brief."}, {"role": "user", "content": "Name three rivers."}]
GREEDY = {"model": MODEL, "options": {"temperature": 0, "num_predict": 32}}


@test
def models():
    names = [m.model for m in client.list().models]
    assert MODEL + ":latest" in names or MODEL in names, names
    shown = client.show(MODEL)
    assert {"completion", "tools", "embedding"} <= set(shown.capabilities) and shown.details.format == "gguf" and shown.template
    assert shown.modelinfo[shown.modelinfo["general.architecture"] + ".context_length"] == 4096
    assert client.ps().models[0].context_length == 4096


@test
def an_answer():
    answer = client.chat(messages=HELLO, **GREEDY)
    assert answer.message.role == "assistant" and answer.message.content and answer.done and answer.done_reason in ("stop", "length")
    assert 0 < answer.eval_count <= 32 and answer.prompt_eval_count > 0 and answer.total_duration > answer.eval_duration > 0


@test
def a_stream_says_the_same():
    whole = client.chat(messages=HELLO, **GREEDY)
    parts = list(client.chat(messages=HELLO, stream=True, keep_alive="5m", **GREEDY))
    assert "".join(p.message.content for p in parts) == whole.message.content and [p.done for p in parts] == [False] * (len(parts) - 1) + [True]
    assert parts[-1].eval_count == whole.eval_count and parts[-1].done_reason == whole.done_reason


@test
def generate():
    whole = client.generate(prompt="Name three rivers.", system="You are brief.", **GREEDY)
    assert whole.response == client.chat(messages=HELLO, **GREEDY).message.content
    assert "".join(p.response for p in client.generate(prompt="Name three rivers.", system="You are brief.", stream=True, **GREEDY)) == whole.response
    raw = client.generate(prompt="The rivers are", raw=True, **GREEDY)
    assert raw.response and raw.response != whole.response
    assert client.generate(model=MODEL).done_reason == "load"


@test
def a_form():
    schema = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 20}, "age": {"type": "integer", "minimum": 0, "maximum": 120}}, "required": ["name", "age"]}
    answer = client.chat(model=MODEL, messages=[{"role": "user", "content": "Invent a person."}], format=schema, options={"num_predict": 100})
    assert {"name", "age"} <= set(json.loads(answer.message.content))
    assert client.generate(model=MODEL, prompt="Invent a person, as JSON.", format="json", options={"num_predict": 20}).response.startswith("{")  # its end is the model's affair


@test
def tools():
    def weather(town: str) -> str:
        """The weather of a town.

        Args:
            town: its name
        """
        return "sunny in " + town

    asked = [{"role": "user", "content": "How is the weather in Ulm? Call the tool."}]
    answer = client.chat(model=MODEL, messages=asked, tools=[weather], options={"temperature": 0, "num_predict": 100})
    assert answer.message.content or answer.message.tool_calls  # what it chooses is the model's affair
    called = {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "weather", "arguments": {"town": "Ulm"}}}]}
    final = client.chat(model=MODEL, messages=[*asked, called, {"role": "tool", "tool_name": "weather", "content": weather("Ulm")}], tools=[weather], options={"temperature": 0, "num_predict": 24})
    assert final.message.content or final.message.tool_calls


@test
def embeddings():
    answer = client.embed(model=MODEL, input=["one text", "another"])
    assert len(answer.embeddings) == 2 and abs(sum(v * v for v in answer.embeddings[0]) - 1) < 1e-3 and answer.prompt_eval_count > 0
    assert list(client.embeddings(model=MODEL, prompt="one text").embedding) == list(client.embed(model=MODEL, input="one text").embeddings[0])


@test
def errors():
    for status, word, ask in ((404, "no model", lambda: client.chat(model="llama3.2", messages=HELLO)), (400, "options.temperature", lambda: client.chat(model=MODEL, messages=HELLO, options={"temperature": -1})),
                              (400, "template", lambda: client.generate(model=MODEL, prompt="x", template="y")), (501, "weir pull", lambda: client.pull("llama3.2")),
                              (400, "prompt", lambda: list(client.generate(model=MODEL, prompt="word " * 20000, stream=True)))):
        try:
            ask()
            raise AssertionError(word + " was accepted")
        except ollama.ResponseError as e:
            assert e.status_code == status and word in e.error, (e.status_code, e.error)


@test
def a_closed_stream_ends_the_work():
    until(lambda: busy_slots() == 0, "idle slots")
    stream = client.chat(model=MODEL, messages=[{"role": "user", "content": "Count to a million."}], stream=True, format={"type": "string", "minLength": 9000}, options={"num_predict": 3000})
    for _, _ in zip(range(3), stream):
        until(lambda: busy_slots() == 1, "a busy slot")
    stream.close()
    until(lambda: busy_slots() == 0, "idle slots")


@test
def many_at_once():
    async def all_of_them():
        many = ollama.AsyncClient(host=URL)
        return await asyncio.gather(*(many.chat(model=MODEL, messages=[{"role": "user", "content": f"Count from {i}."}], options={"num_predict": 16}) for i in range(8)))
    assert all(a.message.content for a in asyncio.run(all_of_them()))


main()
