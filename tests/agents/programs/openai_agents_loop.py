"""A small agent with OpenAI's Agents SDK; files.py says how it is called."""
# SPDX-License-Identifier: Apache-2.0
import json

from agents import Agent, Runner, function_tool, set_tracing_disabled

from files import IMAGE, INSTRUCTIONS, LATER, PROMPT, TOOLS, before, keep, picture

set_tracing_disabled(True)
asked = json.loads(before() or "[]")
if asked:
    asked.append({"role": "system", "content": LATER})
image = [{"type": "input_image", "image_url": picture(), "detail": "auto"}] if IMAGE else []
asked.append({"role": "user", "content": [{"type": "input_text", "text": PROMPT}, *image]})
agent = Agent(name="editor", instructions=INSTRUCTIONS, model="local", tools=[function_tool(f) for f in TOOLS.values()])
result = Runner.run_sync(agent, asked)
keep(json.dumps(result.to_input_list()))
print(result.final_output)
