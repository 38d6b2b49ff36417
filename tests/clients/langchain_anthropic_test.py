"""LangChain's client for Anthropic's API."""
# SPDX-License-Identifier: Apache-2.0
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool

from checks import MODEL, URL, main, test

CHAT = ChatAnthropic(model=MODEL, base_url=URL, api_key="any", max_tokens=60, max_retries=0)


@tool
def weather(town: str) -> str:
    """The weather of a town."""
    return f"sunny in {town}"


@test
def invoke_and_stream():
    asked = [SystemMessage("You are brief."), HumanMessage("Name three rivers.")]
    chat = CHAT.bind(extra_body={"temperature": 0})
    whole = chat.invoke(asked)
    assert whole.content and whole.usage_metadata["output_tokens"] > 0
    chunks = list(chat.stream(asked))
    assert "".join(c.text if isinstance(c.text, str) else c.text() for c in chunks) == whole.content and len(chunks) > 3


@test
def batch():
    answers = CHAT.batch([f"Count from {i}." for i in range(6)])
    assert len(answers) == 6 and all(a.content for a in answers)


@test
def a_loop_with_a_tool():
    asked = [HumanMessage("How is the weather in Ulm?")]
    # greedy: by chance an argument may be longer than max_tokens, and the call is cut
    answer = CHAT.bind_tools([weather], tool_choice="weather").bind(extra_body={"temperature": 0}).invoke(asked)
    [call] = answer.tool_calls[:1]
    assert call["name"] == "weather" and isinstance(call["args"]["town"], str)
    results = [ToolMessage(weather.invoke(c["args"]), tool_call_id=c["id"]) for c in answer.tool_calls]
    final = CHAT.bind_tools([weather]).invoke([*asked, answer, *results])
    assert final.content or final.tool_calls


@test
def errors():
    try:
        CHAT.bind(extra_body={"temperature": -1}).invoke("x")
        raise AssertionError("was accepted")
    except Exception as e:
        assert "Error code: 400" in str(e) and "temperature must be" in str(e), e


main()
