"""A small agent with Ollama's package; files.py says how it is called."""
# SPDX-License-Identifier: Apache-2.0
import json

import httpx
import ollama

from files import IMAGE, INSTRUCTIONS, LATER, PROMPT, TOOLS, before, keep, picture

history = before()
messages = [*json.loads(history), {"role": "system", "content": LATER}] if history else [{"role": "system", "content": INSTRUCTIONS}]
messages.append({"role": "user", "content": PROMPT, **({"images": [picture().split(",")[1]]} if IMAGE else {})})
while True:
    try:
        reply = ollama.chat(model="local", messages=messages, tools=list(TOOLS.values()))
    except httpx.RemoteProtocolError:  # the package does not ask again
        continue
    answer = reply.message
    messages.append(answer.model_dump(exclude_none=True))
    if not answer.tool_calls and reply.done_reason != "length":
        break
    for call in answer.tool_calls or []:
        messages.append({"role": "tool", "tool_name": call.function.name, "content": TOOLS[call.function.name](**call.function.arguments)})
keep(json.dumps(messages))
print(answer.content)
