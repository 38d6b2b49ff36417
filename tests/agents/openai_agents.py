"""OpenAI's Agents SDK, by its default, Responses."""
# SPDX-License-Identifier: Apache-2.0
from own_program import CUT, FILES, edit, environment, read, words  # noqa: F401

SCRIPT = "openai_agents_loop.py"
