"""OpenAI's Agents SDK, by chat completions."""
# SPDX-License-Identifier: Apache-2.0
import own_program
from own_program import FILES, edit, read, words  # noqa: F401

TITLE = "openai-agents, chat completions"
SCRIPT = "openai_agents_loop.py"


def environment(url):
    return dict(own_program.environment(url), OPENAI_AGENTS_API="chat_completions")
