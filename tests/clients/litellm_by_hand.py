"""LiteLLM as a client of all three APIs: litellm_by_hand.py FOLDER, made by `pip install --target FOLDER litellm`.

Not a part of make check: the package and its dependencies have 350 MB.
"""
# SPDX-License-Identifier: Apache-2.0
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from checks import check, finish  # noqa: E402
from serve import Server  # noqa: E402

TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {"town": {"enum": ["Oslo", "Rome"]}}, "required": ["town"], "additionalProperties": False}}}
ASKED = [{"role": "user", "content": "Name three rivers."}]


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else it is downloaded
    sys.path.insert(0, os.path.abspath(sys.argv[1]))
    import litellm
    litellm.telemetry = False
    with Server(os.environ["WEIR_BIN"], "--alias", "local", "-c", "4096", "--embeddings", model=os.environ["WEIR_TEST_MODEL"], patience=120) as server:
        apis = {"openai/local": f"{server.url}/v1", "anthropic/local": server.url, "ollama_chat/local": server.url}
        for model, base in apis.items():
            fixed = {"model": model, "api_base": base, "api_key": "any", "messages": ASKED, "temperature": 0, "max_tokens": 24}
            whole = litellm.completion(**fixed)
            text = whole.choices[0].message.content
            pieces = [c.choices[0].delta.content or "" for c in litellm.completion(**fixed, stream=True)]
            check(f"{model}: an answer with its tokens", text and whole.usage.completion_tokens > 0, whole)
            check(f"{model}: the stream is the same", "".join(pieces) == text and len(pieces) > 3, text, pieces)
        for model in ("openai/local", "anthropic/local"):
            called = litellm.completion(model=model, api_base=apis[model], api_key="any", messages=[{"role": "user", "content": "The weather in Oslo?"}], tools=[TOOL],
                                        tool_choice={"type": "function", "function": {"name": "weather"}}, max_tokens=60)
            call = called.choices[0].message.tool_calls[0].function
            check(f"{model}: a tool", call.name == "weather" and json.loads(call.arguments)["town"] in ("Oslo", "Rome"), called)
        answer = litellm.responses(model="openai/local", api_base=apis["openai/local"], api_key="any", input="Name three rivers.", max_output_tokens=24)
        check("a response", answer.output[-1].content[0].text, answer)
        vector = litellm.embedding(model="openai/local", api_base=apis["openai/local"], api_key="any", input=["a river", "a town"])
        check("embeddings", len(vector.data) == 2 and len(vector.data[0]["embedding"]) > 100)
        try:
            litellm.completion(model="openai/local", api_base=apis["openai/local"], api_key="any", messages=ASKED, max_tokens=-5)
            check("an error", False)
        except litellm.BadRequestError as error:
            check("an error", "max_tokens" in str(error), error)
    finish()


main()
