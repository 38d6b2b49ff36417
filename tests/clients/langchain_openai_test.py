"""LangChain's client for OpenAI-compatible servers."""
# SPDX-License-Identifier: Apache-2.0
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from pydantic import BaseModel, Field

from checks import BASE, MODEL, main, test

CHAT = ChatOpenAI(model=MODEL, base_url=BASE, api_key="any", temperature=0, max_tokens=200, max_retries=0)


@tool
def weather(town: str) -> str:
    """The weather of a town."""
    return f"sunny in {town}"


class River(BaseModel):
    """A river."""
    name: str = Field(max_length=20)
    kilometres: int = Field(ge=1, le=7000)


@test
def invoke_and_stream():
    asked = [SystemMessage("You are brief."), HumanMessage("Name three rivers.")]
    whole = CHAT.invoke(asked)
    assert whole.content and whole.usage_metadata["output_tokens"] > 0
    chunks = list(CHAT.stream(asked))
    assert "".join(c.content for c in chunks) == whole.content and len(chunks) > 3


@test
def batch():
    answers = CHAT.batch([f"Count from {i}." for i in range(6)])
    assert len(answers) == 6 and all(a.content for a in answers)


@test
def tools():
    asked = [HumanMessage("How is the weather in Ulm?")]
    call = CHAT.bind_tools([weather], tool_choice="any").invoke(asked)
    assert call.tool_calls[0]["name"] == "weather" and isinstance(call.tool_calls[0]["args"]["town"], str), call
    told = weather.invoke(call.tool_calls[0])
    assert isinstance(told, ToolMessage)
    assert CHAT.bind_tools([weather], tool_choice="none").invoke([*asked, call, told]).content


@test
def a_call_that_was_cut():
    """The package keeps it as it came, and sends it back."""
    cut = AIMessage("", invalid_tool_calls=[{"type": "invalid_tool_call", "name": "weather", "args": '{"to', "id": "abcdefgh1", "error": None}])
    told = ToolMessage("The arguments broke off.", tool_call_id="abcdefgh1")
    assert CHAT.bind_tools([weather], tool_choice="none").invoke([HumanMessage("How is the weather in Ulm?"), cut, told]).content


@test
def structured_output():
    for method in ("json_schema", "function_calling"):
        river = CHAT.with_structured_output(River, method=method).invoke("Describe a river as JSON.")
        assert isinstance(river, River), (method, river)


@test
def embeddings():
    vectors = OpenAIEmbeddings(model=MODEL, base_url=BASE, api_key="any", check_embedding_ctx_length=False).embed_documents(["one", "two"])
    assert len(vectors) == 2 and len(vectors[0]) == len(vectors[1]) > 100


main()
