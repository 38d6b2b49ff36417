"""A small agent with OpenAI's Agents SDK; files.py says how it is called."""
# SPDX-License-Identifier: Apache-2.0
import asyncio
import json
import os

import openai
from agents import Agent, Runner, function_tool, set_default_openai_api, set_tracing_disabled

from files import IMAGE, INSTRUCTIONS, LATER, PROMPT, TOOLS, before, keep, picture

set_tracing_disabled(True)
asked = json.loads(before() or "[]")
if asked:
    asked.append({"role": "system", "content": LATER})
image = [{"type": "input_image", "image_url": picture(), "detail": "auto"}] if IMAGE else []
asked.append({"role": "user", "content": [{"type": "input_text", "text": PROMPT}, *image]})
agent = Agent(name="editor", instructions=INSTRUCTIONS, model="local", tools=[function_tool(f) for f in TOOLS.values()])


async def streamed():
    """By chat completions a call that was cut is in streams only."""
    while True:
        result = Runner.run_streamed(agent, asked)
        try:
            async for _ in result.stream_events():
                pass
            return result
        except openai.APIConnectionError:  # the package does not ask again for a stream
            asked[:] = result.to_input_list()


api = os.environ["OPENAI_AGENTS_API"]
set_default_openai_api(api)
result = Runner.run_sync(agent, asked) if api == "responses" else asyncio.run(streamed())
keep(json.dumps(result.to_input_list()))
print(result.final_output)
