"""A small agent with pydantic-ai; files.py says how it is called."""
# SPDX-License-Identifier: Apache-2.0
from pydantic_ai import Agent, BinaryContent
from pydantic_ai.messages import ModelMessagesTypeAdapter, ModelRequest, SystemPromptPart

from files import IMAGE, INSTRUCTIONS, LATER, PROMPT, TOOLS, before, keep

history, prompt = before(), [PROMPT]
messages = ModelMessagesTypeAdapter.validate_json(history) if history else None
if messages:
    messages.append(ModelRequest(parts=[SystemPromptPart(LATER)]))
if IMAGE:
    with open(IMAGE, "rb") as f:
        prompt.append(BinaryContent(f.read(), media_type="image/png"))
result = Agent("openai:local", instructions=INSTRUCTIONS, tools=list(TOOLS.values())).run_sync(prompt, message_history=messages)
keep(result.all_messages_json().decode())
print(result.output)
