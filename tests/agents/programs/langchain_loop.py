"""A small agent with LangChain, by the package for OpenAI's or Anthropic's API that is there; files.py says how it is called."""
# SPDX-License-Identifier: Apache-2.0
import json

from langchain_core.messages import HumanMessage, SystemMessage, ToolMessage, messages_from_dict, messages_to_dict
from langchain_core.tools import tool

from files import CUT, IMAGE, INSTRUCTIONS, LATER, PROMPT, TOOLS, before, keep, picture

try:
    from langchain_openai import ChatOpenAI as Chat
    from openai import APIConnectionError as Broken
except ImportError:
    from langchain_anthropic import ChatAnthropic as Chat
    from httpx2 import RemoteProtocolError as Broken

history = before()
messages = [*messages_from_dict(json.loads(history)), SystemMessage(LATER)] if history else [SystemMessage(INSTRUCTIONS)]
image = [{"type": "image", "base64": picture().split(",")[1], "mime_type": "image/png"}] if IMAGE else []
messages.append(HumanMessage([{"type": "text", "text": PROMPT}, *image]))
tools = {name: tool(f) for name, f in TOOLS.items()}
chat = Chat(model="local", streaming=True).bind_tools(list(tools.values()))  # a call that was cut is in streams only
while True:
    try:
        answer = chat.invoke(messages)
    except Broken:  # the package does not ask again for a stream
        continue
    except ValueError:  # the package for Anthropic's API takes no system message in between
        messages = [m for m in messages if m.content != LATER]
        continue
    messages += [answer, *(tools[call["name"]].invoke(call) for call in answer.tool_calls)]
    messages += [ToolMessage(CUT, tool_call_id=call["id"]) for call in answer.invalid_tool_calls]
    if messages[-1] is answer:
        break
keep(json.dumps(messages_to_dict(messages)))
print(answer.text)
