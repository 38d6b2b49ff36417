"""A small agent with LangChain, by the package for OpenAI's or Anthropic's API that is there; files.py says how it is called."""
# SPDX-License-Identifier: Apache-2.0
import json

from langchain_core.messages import HumanMessage, SystemMessage, messages_from_dict, messages_to_dict
from langchain_core.tools import tool

from files import IMAGE, INSTRUCTIONS, LATER, PROMPT, TOOLS, before, keep, picture

try:
    from langchain_openai import ChatOpenAI as Chat
    later = [SystemMessage(LATER)]
except ImportError:
    from langchain_anthropic import ChatAnthropic as Chat
    later = []  # it refuses a system message that is not the first one

history = before()
messages = [*messages_from_dict(json.loads(history)), *later] if history else [SystemMessage(INSTRUCTIONS)]
image = [{"type": "image", "base64": picture().split(",")[1], "mime_type": "image/png"}] if IMAGE else []
messages.append(HumanMessage([{"type": "text", "text": PROMPT}, *image]))
tools = {name: tool(f) for name, f in TOOLS.items()}
chat = Chat(model="local").bind_tools(list(tools.values()))
while (answer := chat.invoke(messages)).tool_calls:
    messages += [answer, *(tools[call["name"]].invoke(call) for call in answer.tool_calls)]
keep(json.dumps(messages_to_dict([*messages, answer])))
print(answer.text)
