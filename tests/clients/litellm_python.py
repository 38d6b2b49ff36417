"""LiteLLM as a client of all three APIs: answers, and its own mapping of errors, by which agents decide whether to repeat a request."""
# SPDX-License-Identifier: Apache-2.0
import json
import os
import time

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else it is downloaded
import litellm  # noqa: E402
from litellm.litellm_core_utils.exception_mapping_utils import ExceptionCheckers  # noqa: E402

from checks import BASE, MODEL, URL, main, test  # noqa: E402

litellm.telemetry = False
TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {"town": {"enum": ["Oslo", "Rome"]}}, "required": ["town"], "additionalProperties": False}}}
ASKED = [{"role": "user", "content": "Name three rivers."}]
LONG = [{"role": "user", "content": "word " * 20000}]
APIS = {"openai/" + MODEL: BASE, "anthropic/" + MODEL: URL, "ollama_chat/" + MODEL: URL}


def asked(model, **more):
    return {"model": model, "api_base": APIS[model], "api_key": "any", "messages": ASKED, "max_tokens": 24, **more}


def refused(kind, call, **arguments):
    """The error, which came at once: nothing was repeated."""
    began = time.monotonic()
    try:
        call(**arguments)
    except kind as error:
        assert time.monotonic() - began < 120, time.monotonic() - began
        return error
    raise AssertionError("not refused")


@test
def answers():
    for model in APIS:
        whole = litellm.completion(**asked(model, temperature=0))
        text = whole.choices[0].message.content
        pieces = [c.choices[0].delta.content or "" for c in litellm.completion(**asked(model, temperature=0), stream=True)]
        assert text and whole.usage.completion_tokens > 0, whole
        assert "".join(pieces) == text and len(pieces) > 3, (text, pieces)


@test
def a_tool():
    for model in list(APIS)[:2]:
        called = litellm.completion(**asked(model, messages=[{"role": "user", "content": "The weather in Oslo?"}], tools=[TOOL], max_tokens=60,
                                            tool_choice={"type": "function", "function": {"name": "weather"}}))
        call = called.choices[0].message.tool_calls[0].function
        assert call.name == "weather" and json.loads(call.arguments)["town"] in ("Oslo", "Rome"), called


@test
def a_response():
    answer = litellm.responses(model="openai/" + MODEL, api_base=BASE, api_key="any", input="Name three rivers.", max_output_tokens=24)
    assert answer.output[-1].content[0].text, answer


@test
def embeddings():
    vector = litellm.embedding(model="openai/" + MODEL, api_base=BASE, api_key="any", input=["a river", "a town"])
    assert len(vector.data) == 2 and len(vector.data[0]["embedding"]) > 100


@test
def an_error():
    error = refused(litellm.BadRequestError, litellm.completion, **asked("openai/" + MODEL, max_tokens=-5))
    assert "max_tokens" in str(error) and not isinstance(error, litellm.ContextWindowExceededError), error


@test
def a_prompt_that_is_too_long():
    for model in list(APIS)[:2]:
        refused(litellm.ContextWindowExceededError, litellm.completion, **asked(model, messages=LONG))
    refused(litellm.ContextWindowExceededError, litellm.responses, model="openai/" + MODEL, api_base=BASE, api_key="any", input="word " * 20000)
    refused(litellm.ContextWindowExceededError, litellm.embedding, model="openai/" + MODEL, api_base=BASE, api_key="any", input=["word " * 20000])
    # It maps no errors of Ollama's API; the sentence is one that it knows.
    error = refused(Exception, litellm.completion, **asked("ollama_chat/" + MODEL, messages=LONG))
    assert ExceptionCheckers.is_error_str_context_window_exceeded(str(error)), error


main()
