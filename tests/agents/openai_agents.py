"""OpenAI's Agents SDK, by its default, Responses."""
# SPDX-License-Identifier: Apache-2.0
from own_program import FILES, edit, environment, read, words  # noqa: F401

LACKS = {"cut call": "the package raises an error for a response that is incomplete"}
TITLE = "openai-agents"
SCRIPT = "openai_agents_loop.py"
