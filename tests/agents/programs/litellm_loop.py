"""A small agent with LiteLLM, by the API that the model's name asks for; files.py says how it is called."""
# SPDX-License-Identifier: Apache-2.0
import json
import os

import litellm

from files import CUT, IMAGE, INSTRUCTIONS, LATER, PROMPT, TOOLS, before, function, keep, picture

MODEL = os.environ["LITELLM_MODEL"]
litellm.telemetry = False
history = before()
messages = [*json.loads(history), {"role": "system", "content": LATER}] if history else [{"role": "system", "content": INSTRUCTIONS}]
image = [{"type": "image_url", "image_url": {"url": picture()}}] if IMAGE else []
messages.append({"role": "user", "content": [{"type": "text", "text": PROMPT}, *image]})
while True:
    try:
        chunks = list(litellm.completion(model=MODEL, messages=messages, tools=[function(f) for f in TOOLS.values()], stream=True))
    except litellm.exceptions.MidStreamFallbackError:  # the package asks again for an answer that broke off only if another model is there
        continue
    answer = litellm.stream_chunk_builder(chunks).choices[0].message
    messages.append(answer.model_dump(exclude_none=True))
    if not answer.tool_calls:
        break
    for call in answer.tool_calls:
        try:
            result = TOOLS[call.function.name](**json.loads(call.function.arguments))
        except json.JSONDecodeError:
            result = CUT
        messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
keep(json.dumps(messages))
print(answer.content)
