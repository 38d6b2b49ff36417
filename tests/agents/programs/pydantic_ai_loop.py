"""A small agent with pydantic-ai: pydantic_ai_loop.py PROMPT [IMAGE]. The conversation goes on from run to run, in ~/history.json."""
# SPDX-License-Identifier: Apache-2.0
import os
import sys

from pydantic_ai import Agent, BinaryContent
from pydantic_ai.messages import ModelMessagesTypeAdapter

agent = Agent("openai:local", instructions="You edit files.")
history = os.path.expanduser("~/history.json")


@agent.tool_plain
def read_file(path: str) -> str:
    """The text of a file."""
    with open(path) as f:
        return f.read()


@agent.tool_plain
def edit_file(path: str, old: str, new: str) -> str:
    """Puts a text in the place of another."""
    text = read_file(path)
    with open(path, "w") as f:
        f.write(text.replace(old, new))
    return "done"


messages = None
if os.path.exists(history):
    with open(history, "rb") as f:
        messages = ModelMessagesTypeAdapter.validate_json(f.read())
prompt = [sys.argv[1]]
for path in sys.argv[2:]:
    with open(path, "rb") as f:
        prompt.append(BinaryContent(f.read(), media_type="image/png"))
result = agent.run_sync(prompt, message_history=messages)
with open(history, "wb") as f:
    f.write(result.all_messages_json())
print(result.output)
