"""A small agent with LiteLLM, by Anthropic's API, since mini-swe-agent uses it by OpenAI's; files.py says how it is called."""
# SPDX-License-Identifier: Apache-2.0
import json

import litellm

from files import IMAGE, INSTRUCTIONS, LATER, PROMPT, TOOLS, before, function, keep, picture

litellm.telemetry = False
history = before()
messages = [*json.loads(history), {"role": "system", "content": LATER}] if history else [{"role": "system", "content": INSTRUCTIONS}]
image = [{"type": "image_url", "image_url": {"url": picture()}}] if IMAGE else []
messages.append({"role": "user", "content": [{"type": "text", "text": PROMPT}, *image]})
while True:
    try:
        answer = litellm.completion(model="anthropic/local", messages=messages, tools=[function(f) for f in TOOLS.values()]).choices[0].message
    except litellm.InternalServerError:  # the package asks again for an answer that broke off only if another one is there
        continue
    messages.append(answer.model_dump(exclude_none=True))
    if not answer.tool_calls:
        break
    for call in answer.tool_calls:
        messages.append({"role": "tool", "tool_call_id": call.id, "content": TOOLS[call.function.name](**json.loads(call.function.arguments))})
keep(json.dumps(messages))
print(answer.content)
